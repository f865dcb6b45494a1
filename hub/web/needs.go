package web

import (
	"strings"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	maxNeed   = 1 << 50 // bytes of disk or memory that a job may require
	maxTokens = 1e12    // of a run, and of a budget
)

var version = lazily(`^[0-9]{1,9}(\.[0-9]{1,9}){0,3}$`)

// place checks how a job is to be placed and what it may fall back on. priority is what
// the hub's setting says of the latter; known checks the name of a harness.
func place(s *fleet.Spec, in api.Submit, priority string, known func(string) error) error {
	agent := s.Kind == fleet.KindAgent
	switch {
	case in.Priority < -fleet.MaxPriority || in.Priority > fleet.MaxPriority:
		return wrong(fleet.BadRequest, "priority %d is not from %d to %d; 0 is the usual one, and more goes first", in.Priority, -fleet.MaxPriority, fleet.MaxPriority)
	case in.Retries != nil && (*in.Retries < 0 || *in.Retries > fleet.MaxRetries):
		return wrong(fleet.BadRequest, "retries %d is not from 0 to %d; 0 means that it is run once", *in.Retries, fleet.MaxRetries)
	case in.MaxTokens < 0 || in.MaxTokens > maxTokens:
		return wrong(fleet.BadRequest, "max_tokens %d is not from 1 to %d; leave it out for what such runs used so far", in.MaxTokens, int64(maxTokens))
	case in.MaxTokens > 0 && !agent:
		return wrong(fleet.BadRequest, "max_tokens belongs to kind agent; a command uses none")
	}
	s.Priority, s.Retries, s.MaxTokens = in.Priority, in.Retries, in.MaxTokens
	if err := checkNeeds(in.Needs, agent); err != nil {
		return err
	}
	if in.Needs != nil && *in.Needs != (fleet.Needs{}) {
		s.Needs = in.Needs
	}
	switch {
	case len(in.Fallbacks) > 0 && !agent:
		return wrong(fleet.BadRequest, "fallbacks belong to kind agent; a command has no other model")
	case len(in.Fallbacks) > 0 && in.NoFallback:
		return wrong(fleet.BadRequest, "no_fallback and fallbacks contradict each other; give one of them")
	case len(in.Fallbacks) > 0:
		s.Fallbacks = in.Fallbacks
		return checkChoices("fallbacks", append([]fleet.Choice{{Harness: s.Harness, Model: s.Model}}, in.Fallbacks...), known)
	case agent && !in.NoFallback && priority != "":
		if list, err := fleet.ParseChoices(priority); err == nil {
			s.Fallbacks = fleet.AfterOwn(fleet.Choice{Harness: s.Harness, Model: s.Model}, list)
		}
	}
	return nil
}

func checkNeeds(n *fleet.Needs, agent bool) error {
	if n == nil {
		return nil
	}
	switch {
	case n.OS != "" && n.OS != "linux" && n.OS != "darwin":
		return wrong(fleet.BadRequest, "needs.os %s is neither linux nor darwin", quote(n.OS))
	case n.Arch != "" && n.Arch != "amd64" && n.Arch != "arm64":
		return wrong(fleet.BadRequest, "needs.arch %s is neither amd64 nor arm64", quote(n.Arch))
	case n.HarnessVersion != "" && !version().MatchString(n.HarnessVersion):
		return wrong(fleet.BadRequest, "needs.harness_version %s is not a version such as 0.120.0: up to four numbers with dots between", quote(n.HarnessVersion))
	case n.HarnessVersion != "" && !agent:
		return wrong(fleet.BadRequest, "needs.harness_version belongs to kind agent; a command has no harness of its own")
	case n.Disk < 0 || n.Disk > maxNeed:
		return wrong(fleet.BadRequest, "needs.disk %d is not from 0 to %d bytes", n.Disk, int64(maxNeed))
	case n.Memory < 0 || n.Memory > maxNeed:
		return wrong(fleet.BadRequest, "needs.memory %d is not from 0 to %d bytes", n.Memory, int64(maxNeed))
	}
	return nil
}

// checkChoices looks at a list of choices, of which the first is where it begins.
func checkChoices(what string, list []fleet.Choice, known func(string) error) error {
	if n := len(list) - 1; n > fleet.MaxFallbacks {
		return wrong(fleet.TooLarge, "%d %s; at most %d", n, what, fleet.MaxFallbacks)
	}
	seen := map[fleet.Choice]bool{}
	for i, c := range list {
		if seen[c] {
			return wrong(fleet.BadRequest, "%s: %s is there twice; a job only goes forward along them, and never to one that it had", what, quote(c.String()))
		}
		seen[c] = true
		if i == 0 {
			continue // it was checked
		}
		if err := checkChoice(what, c, known); err != nil {
			return err
		}
	}
	return nil
}

func checkChoice(what string, c fleet.Choice, known func(string) error) error {
	switch {
	case c.Harness == "" || strings.Contains(c.Harness, ":"):
		return wrong(fleet.BadRequest, "%s: %s names no harness; write HARNESS or HARNESS:MODEL", what, quote(c.String()))
	case c.Harness == "exec":
		return wrong(fleet.BadRequest, "%s: the harness exec runs a command and is no agent's", what)
	case c.Model != "" && !word().MatchString(c.Model):
		return wrong(fleet.BadRequest, "%s: model %s may have letters, digits and . _ / : @ + - only, at most 200", what, quote(c.Model))
	}
	return known(c.Harness)
}
