package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) circuitCommand() *cobra.Command {
	c := group("circuit", "Circuits: what keeps work away from runners, providers and models", groupLook,
		a.circuitListCommand(), a.circuitResetCommand(), a.circuitOpenCommand())
	c.Long = `Circuits keep work away from what has failed for a reason that is not the work's: an account's
limit, a model that is not to be had, a machine in trouble. An open one ends by its time, with one
job at a time trying whether it works again; a blocked one waits until it is repaired and reset.`
	return c
}

func (a *app) circuitListCommand() *cobra.Command {
	var all bool
	c := a.jsonFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Circuits that are not closed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			if all {
				q.Set("all", "true")
			}
			var cs api.Circuits
			if done, err := a.answer(cmd.Context(), reading("/v1/circuits", q), &cs); done {
				return err
			}
			if len(cs.Circuits) == 0 {
				fmt.Fprintln(a.out, "No circuit is open: nothing keeps work away.")
				return nil
			}
			now := time.Now()
			t := table{head: []string{"KEY", "STATE", "CLASS", "OVER", "UNTIL", "WHY"}, full: !a.ttyOut}
			for _, k := range cs.Circuits {
				t.add(k.Key, strings.ReplaceAll(string(k.State), "_", " "), string(k.Class), k.Over, circuitUntil(&k, now), circuitWhy(&k, now))
			}
			return t.print(a.out)
		},
	})
	c.Flags().BoolVar(&all, "all", false, "closed ones that are still remembered too")
	return c
}

func circuitUntil(c *api.Circuit, now time.Time) string {
	switch {
	case c.State == fleet.CircuitBlocked:
		return "it is reset"
	case c.State == fleet.CircuitHalf && c.Probe != nil:
		return "its probe answers"
	case c.State == fleet.CircuitHalf:
		return "a probe goes"
	case c.State == fleet.CircuitOpen && c.Until != nil:
		return when(now, *c.Until)
	}
	return "-"
}

func circuitWhy(c *api.Circuit, now time.Time) string {
	var parts []string
	if c.Text != "" {
		parts = append(parts, c.Text)
	}
	if c.StatedEnd != "" {
		parts = append(parts, fmt.Sprintf("it stated %q as its end, which is not believed", c.StatedEnd))
	}
	switch {
	case c.State == fleet.CircuitHalf && c.Probe != nil:
		parts = append(parts, "job "+string(c.Probe.Job)+" tries it")
	case c.State == fleet.CircuitHalf && c.Successes > 0:
		parts = append(parts, fmt.Sprintf("%d of %d tries succeeded", c.Successes, fleet.ProbesToClose))
	}
	if c.Actor != "" {
		parts = append(parts, "by "+first(c.ActorName, c.Actor))
	}
	if c.Repaired != "" && c.State == fleet.CircuitClosed {
		parts = append(parts, "repaired: "+c.Repaired)
	}
	return first(strings.Join(parts, "; "), "since "+ago(now, &c.OpenedAt))
}

func (a *app) circuitResetCommand() *cobra.Command {
	var b api.ResetCircuit
	var generation uint64
	c := &cobra.Command{
		Use: "reset CIRCUIT", Short: "Close a circuit, by its key or id", Args: exactly("CIRCUIT"), ValidArgsFunction: a.completeCircuits,
		Long: `Close a circuit: work goes there again at once. For one that is blocked, say what was repaired;
it is recorded with your name.`,
		Example: `  tugline circuit reset 3fa9c01b77 --repaired "signed in again on studio"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := given(cmd, "reason", "repaired"); err != nil {
				return err
			}
			if cmd.Flags().Changed("generation") {
				b.Generation = &generation
			}
			var k api.Circuit
			if done, err := a.answer(cmd.Context(), acting("/v1/circuits/"+url.PathEscape(args[0])+"/reset", b), &k); done {
				return err
			}
			fmt.Fprintf(a.out, "circuit %s (%s, %s) is %s\n", k.Key, k.Class, line(k.Over), strings.ReplaceAll(string(k.State), "_", " "))
			return nil
		},
	}
	c.Flags().StringVar(&b.Repaired, "repaired", "", "`TEXT` that names what was repaired; a blocked circuit asks for it")
	c.Flags().StringVar(&b.Reason, "reason", "", "`TEXT` for the record")
	c.Flags().Uint64Var(&generation, "generation", 0, "only while its recovery generation is `N`, as --json shows it")
	return a.jsonFlag(c)
}

func (a *app) circuitOpenCommand() *cobra.Command {
	var b api.OpenCircuit
	var length time.Duration
	c := &cobra.Command{
		Use: "open --reason TEXT", Short: "Keep work away from a runner, a provider or a model", Args: cobra.NoArgs,
		Long: `Open a circuit: over a provider, over a model of a provider, each on one runner or on all, or over
one runner's machine. It ends with --for, or when somebody resets it. Work that runs goes on.`,
		Example: `  tugline circuit open --provider anthropic --for 2h --reason "invoice is late"
  tugline circuit open --provider openai --model gpt-5.2 --reason "answers nonsense"
  tugline circuit open --runner studio --for 30m --reason "video call"`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := given(cmd, "runner", "provider", "model", "reason"); err != nil {
				return err
			}
			switch {
			case b.Model != "" && b.Provider == "":
				return usage("--model needs --provider, such as openai or anthropic")
			case b.Model != "":
				b.Scope = fleet.ScopeModel
			case b.Provider != "":
				b.Scope = fleet.ScopeProvider
			case b.Runner != "":
				b.Scope = fleet.ScopeHost
			default:
				return usage("say what work is to be kept from: --provider, --provider with --model, or --runner")
			}
			if b.Reason == "" {
				return usage("--reason is missing: who finds work waiting wants to know why")
			}
			if b.For, err = lasting(cmd, "for", length, time.Minute); err != nil {
				return err
			}
			var k api.Circuit
			if done, err := a.answer(cmd.Context(), acting("/v1/circuits/open", b), &k); done {
				return err
			}
			fmt.Fprintf(a.out, "circuit %s keeps work from %s until %s\n", k.Key, line(k.Over), first(circuitUntil(&k, time.Now()), "it is reset"))
			return nil
		},
	}
	c.Flags().StringVar(&b.Provider, "provider", "", "`NAME` of who serves the model: openai, anthropic …")
	c.Flags().StringVar(&b.Model, "model", "", "`MODEL` of the provider")
	c.Flags().StringVar(&b.Runner, "runner", "", "only on this `RUNNER`; alone: its machine, for all work")
	c.Flags().DurationVar(&length, "for", 0, "`DURATION` after which it ends by itself (default when it is reset)")
	c.Flags().StringVar(&b.Reason, "reason", "", "`TEXT` that is shown where work waits (required)")
	c.RegisterFlagCompletionFunc("runner", a.completeRunnerFlag)
	c.RegisterFlagCompletionFunc("provider", cobra.FixedCompletions(fleet.Providers, cobra.ShellCompDirectiveNoFileComp))
	return a.jsonFlag(c)
}

func (a *app) completeCircuits(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var cs api.Circuits
	if len(args) > 0 || !a.ask("/v1/circuits", nil, &cs) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, k := range cs.Circuits {
		if strings.HasPrefix(k.Key, start) {
			out = append(out, cobra.CompletionWithDesc(k.Key, cut(line(string(k.Class)+" "+k.Over), 60)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeRunnerFlag gives runners as the value of a flag, whatever words went before.
func (a *app) completeRunnerFlag(c *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeRunners(c, nil, start)
}
