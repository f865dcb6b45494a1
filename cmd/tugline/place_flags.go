package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// placeFlags say which machine a job needs and what it may fall back on.
type placeFlags struct {
	priority           int
	needs              fleet.Needs
	minDisk, minMemory string
	fallbacks          []string
	noFallback         bool
	retries            int
	maxTokens          int64
}

func (f *placeFlags) add(s *pflag.FlagSet, agent bool) {
	s.StringVar(&f.needs.OS, "os", "", "operating system that it needs, `OS`: linux or darwin")
	s.StringVar(&f.needs.Arch, "arch", "", "processor that it needs, `ARCH`: amd64 or arm64")
	s.BoolVar(&f.needs.Docker, "docker", false, "it needs Docker with Compose")
	s.StringVar(&f.minDisk, "min-disk", "", "`SIZE` that must be free on the disk, such as 20GiB")
	s.StringVar(&f.minMemory, "min-memory", "", "`SIZE` of memory that must be available, such as 8GiB")
	if agent {
		s.StringVar(&f.needs.HarnessVersion, "harness-version", "", "the least `VERSION` of the agent, such as 0.120.0")
		s.StringArrayVar(&f.fallbacks, "fallback", nil, "`HARNESS[:MODEL]` to go on with where the provider refuses (repeatable, in this order)")
		s.BoolVar(&f.noFallback, "no-fallback", false, "stay with the harness and model, whatever the hub's model_priority says")
		s.Int64Var(&f.maxTokens, "max-tokens", 0, "`N` tokens to reserve of its origin's budget (default what such runs used so far)")
	}
	s.IntVar(&f.priority, "priority", 0, "`N` from -10 to 10: more goes first, and half an hour of waiting counts as one")
	again := "at most `N` automatic runs more, 0 to 3, with --on-lost rerun"
	if agent {
		again = "at most `N` automatic runs more, 0 to 3, where its surroundings failed"
	}
	s.IntVar(&f.retries, "retries", fleet.MaxRetries, again)
}

// put checks the flags and puts them into a request.
func (f *placeFlags) put(cmd *cobra.Command, s *api.Submit) error {
	if err := given(cmd, "os", "arch", "min-disk", "min-memory", "harness-version"); err != nil {
		return err
	}
	if err := oneOf("os", f.needs.OS, "linux", "darwin"); err != nil {
		return err
	}
	if err := oneOf("arch", f.needs.Arch, "amd64", "arm64"); err != nil {
		return err
	}
	for _, z := range []struct {
		flag, text string
		to         *int64
	}{{"min-disk", f.minDisk, &f.needs.Disk}, {"min-memory", f.minMemory, &f.needs.Memory}} {
		if z.text == "" {
			continue
		}
		n, err := fleet.ParseSize(z.text)
		if err != nil {
			return usage("--%s %v", z.flag, err)
		}
		*z.to = n
	}
	if f.priority < -fleet.MaxPriority || f.priority > fleet.MaxPriority {
		return usage("--priority %d is not from %d to %d", f.priority, -fleet.MaxPriority, fleet.MaxPriority)
	}
	if f.retries < 0 || f.retries > fleet.MaxRetries {
		return usage("--retries %d is not from 0 to %d", f.retries, fleet.MaxRetries)
	}
	if cmd.Flags().Changed("retries") {
		s.Retries = &f.retries
	}
	if f.maxTokens < 0 || cmd.Flags().Changed("max-tokens") && f.maxTokens == 0 {
		return usage("--max-tokens %d is not above zero", f.maxTokens)
	}
	if f.noFallback && len(f.fallbacks) > 0 {
		return usage("--fallback and --no-fallback contradict each other; give one of them")
	}
	for _, w := range f.fallbacks {
		c, err := fleet.ParseChoice(w)
		if err != nil {
			return usage("--fallback %v", err)
		}
		if c.Harness == "exec" {
			return usage("--fallback exec: it runs commands and is no agent")
		}
		s.Fallbacks = append(s.Fallbacks, c)
	}
	if f.needs != (fleet.Needs{}) {
		s.Needs = &f.needs
	}
	s.Priority, s.NoFallback, s.MaxTokens = f.priority, f.noFallback, f.maxTokens
	return nil
}
