package circuit

import (
	"cmp"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Seen is an attempt as it matters to circuits.
type Seen struct {
	Runner   fleet.RunnerID
	Fence    fleet.Fence // of the attempt
	Provider string      // empty where nothing outside the machine is asked
	Account  string      // where known
	Model    string      // that was asked for; empty: the harness's own
	Probes   []string    // circuits that it tries

	Automated  bool // asked for by an automation
	Resumed    bool // it took up a session, which may be what was refused
	Class      fleet.FailureClass
	Exit       string     // reason of the exit
	Detail     string     // what the provider said
	ResetAt    *time.Time // when the limit ends, where that was stated
	RetryAfter *time.Time // the same, stated as a wait
	StatedEnd  string     // the words of it
	FactsRev   uint64     // of the runner
	Responded  bool       // its provider has completed a response
}

// Ended gives the circuits that the end of an attempt changes.
func Ended(find Find, s Seen, m Moment) []*fleet.Circuit {
	switch s.Class {
	case fleet.ClassOK:
		return append(s.carried(find, m), s.answered(find, m, !s.Responded)...)
	case fleet.ClassTaskFailed:
		return append(s.carried(find, m), s.answered(find, m, false)...)
	case fleet.ClassDocker:
		return HostFault(find, s, fleet.CircuitDocker, m)
	}
	// A process that was stopped or could not be started says nothing of a provider. One
	// that ran into its time says so only if it waited because it had been refused: that it
	// waited for an answer is no answer.
	waited := s.Exit != "exited" && s.Exit != ""
	if s.Provider == "" || s.Exit == "stopped" || s.Exit == "start_failed" || waited && s.Class == fleet.ClassProviderUnavailable {
		return nil
	}
	switch s.Class {
	case fleet.ClassRateLimited:
		return s.refused(find, fleet.CircuitBurst, m)
	case fleet.ClassQuotaExhausted:
		return s.refused(find, fleet.CircuitQuota, m)
	case fleet.ClassAuth:
		return s.refused(find, fleet.CircuitAuth, m)
	case fleet.ClassHarnessStartup:
		if s.Resumed {
			return nil
		}
		return s.refused(find, fleet.CircuitStartup, m)
	case fleet.ClassProviderUnavailable:
		return s.refused(find, fleet.CircuitOutage, m)
	case fleet.ClassModelUnavailable:
		return s.modelRefused(find, m)
	}
	return nil
}

// refused opens a circuit over the provider on the runner, or counts towards it.
func (s Seen) refused(find Find, class fleet.CircuitClass, m Moment) []*fleet.Circuit {
	c := find.edit(fleet.ScopeProvider, class, s.Runner, s.Provider, s.Account, "")
	if s.stale(c) || c.State == fleet.CircuitBlocked {
		return nil
	}
	c.Fence, c.Text, c.StatedEnd, c.Actor = s.Fence, fleet.CutText(s.Detail, fleet.MaxDetail), "", ""
	switch class {
	case fleet.CircuitBurst:
		least := m.Now.Add(fleet.BurstLeast)
		end, ok := s.stated(c, m)
		if !ok && c.StatedEnd != "" {
			end = m.Now.Add(fleet.QuotaUnstated)
		}
		end = later(end, least)
		c.Step = 1
		open(c, m, &end)
	case fleet.CircuitQuota:
		end, ok := s.stated(c, m)
		climb(c, m)
		switch {
		case ok && end.After(m.Now):
			c.Until = &end
		case !ok:
			end = later(m.Now.Add(fleet.QuotaUnstated), *c.Until)
			c.Until = &end
		}
	case fleet.CircuitAuth:
		c.Step, c.FactsRev = 1, s.FactsRev
		open(c, m, nil)
	case fleet.CircuitOutage:
		if c.State == fleet.CircuitClosed && c.Failures+1 < fleet.OutageFailures {
			c.Failures, c.ChangedAt = c.Failures+1, m.Now
			break
		}
		climb(c, m)
	default:
		climb(c, m)
	}
	return []*fleet.Circuit{c}
}

// modelRefused opens a circuit over a model for the runner that was refused it. Where a
// second one was refused the same, nobody asks for it any more. What a harness takes
// where no model is asked for is a matter of its own runner.
func (s Seen) modelRefused(find Find, m Moment) []*fleet.Circuit {
	over := fleet.RunnerID("")
	if s.Model == "" {
		over = s.Runner
	}
	c := find.edit(fleet.ScopeModel, fleet.CircuitModel, over, s.Provider, "", s.Model)
	if s.stale(c) || c.State == fleet.CircuitBlocked {
		return nil
	}
	c.Fence, c.Text, c.Actor = s.Fence, fleet.CutText(s.Detail, fleet.MaxDetail), ""
	if !slices.Contains(c.Runners, s.Runner) {
		c.Runners = append(c.Runners, s.Runner)
		slices.Sort(c.Runners)
	}
	climb(c, m)
	if len(c.Runners) >= fleet.ModelRefusedByAll {
		open(c, m, nil)
	}
	return []*fleet.Circuit{c}
}

// stale says whether the attempt was assigned before the circuit opened last, or was
// repaired: it says nothing new about it.
func (s Seen) stale(c *fleet.Circuit) bool { return s.Fence.Less(c.Since) }

// stated gives the end that the provider stated. One too far ahead is not believed; its
// words are kept.
func (s Seen) stated(c *fleet.Circuit, m Moment) (time.Time, bool) {
	end := s.ResetAt
	if end == nil || s.Class == fleet.ClassRateLimited && s.RetryAfter != nil {
		end = s.RetryAfter
	}
	if end == nil {
		c.StatedEnd = fleet.CutText(s.StatedEnd, fleet.MaxDetail)
		return time.Time{}, false
	}
	if end.Sub(m.Now) > fleet.QuotaFarthest {
		c.StatedEnd = fleet.CutText(cmp.Or(s.StatedEnd, end.UTC().Format(time.RFC3339)), fleet.MaxDetail)
		return time.Time{}, false
	}
	return end.UTC(), true
}

// Responded gives the circuits that the first response which a provider completed in an
// attempt changes.
func Responded(find Find, s Seen, m Moment) []*fleet.Circuit {
	s.Responded = true
	return s.answered(find, m, true)
}

// answered takes in that the provider answers: failures that were counted are in a row no
// longer, and, once an attempt, the circuits that it tries have their verdict.
func (s Seen) answered(find Find, m Moment, first bool) []*fleet.Circuit {
	if s.Provider == "" || !first && !s.Responded {
		return nil
	}
	var out []*fleet.Circuit
	for _, id := range s.Probes {
		if c := find(id); first && c != nil && c.Scope != fleet.ScopeHost {
			out = append(out, s.succeeded(c, m)...)
		}
	}
	for _, account := range slices.Compact([]string{"", s.Account}) {
		c := find(fleet.CircuitID(fleet.ScopeProvider, fleet.CircuitOutage, s.Runner, s.Provider, account, ""))
		if c != nil && c.State == fleet.CircuitClosed && c.Failures > 0 && !s.stale(c) {
			c = clone(c)
			c.Failures, c.ChangedAt = 0, m.Now
			out = append(out, c)
		}
	}
	return out
}

// Accepted gives the circuits that a runner's accept changes: with it the runner says
// that it has looked at its disk and memory once more, and found enough.
func Accepted(find Find, s Seen, m Moment) []*fleet.Circuit {
	return s.held(find, m, fleet.CircuitDisk, fleet.CircuitMemory)
}

// carried gives the circuits of a machine that an attempt changes by its end, because the
// machine carried it until then.
func (s Seen) carried(find Find, m Moment) []*fleet.Circuit {
	return s.held(find, m, fleet.CircuitDisk, fleet.CircuitMemory, fleet.CircuitDocker)
}

func (s Seen) held(find Find, m Moment, classes ...fleet.CircuitClass) []*fleet.Circuit {
	var out []*fleet.Circuit
	for _, id := range s.Probes {
		if c := find(id); c != nil && c.Scope == fleet.ScopeHost && slices.Contains(classes, c.Class) {
			out = append(out, s.succeeded(c, m)...)
		}
	}
	return out
}

// succeeded ends a probe well. Successes count when they are far enough apart; enough
// of them close the circuit.
func (s Seen) succeeded(c *fleet.Circuit, m Moment) []*fleet.Circuit {
	if c.Probe == nil || c.Probe.Fence != s.Fence || s.stale(c) {
		return nil
	}
	c = clone(c)
	c.Probe, c.State, c.ChangedAt = nil, fleet.CircuitHalf, m.Now
	if c.SuccessAt == nil || m.Now.Sub(*c.SuccessAt) >= fleet.ProbeSpacing {
		c.Successes, c.SuccessAt = c.Successes+1, &m.Now
	}
	if c.Successes >= fleet.ProbesToClose {
		shut(c, m)
	}
	return []*fleet.Circuit{c}
}

// Lost gives the circuits that open because an attempt was lost on its runner: one for
// every provider that the runner's harnesses speak to. That the runner comes back does
// not close them.
func Lost(find Find, s Seen, f fleet.RunnerFacts, m Moment) []*fleet.Circuit {
	var out []*fleet.Circuit
	for _, p := range providers(f, s.Provider) {
		c := find.edit(fleet.ScopeProvider, fleet.CircuitLost, s.Runner, p, "", "")
		if s.stale(c) || c.State == fleet.CircuitBlocked {
			continue
		}
		c.Fence, c.Text, c.Actor = s.Fence, fleet.CutText(s.Detail, fleet.MaxDetail), ""
		climb(c, m)
		out = append(out, c)
	}
	return out
}

// providers gives whom the harnesses of a runner speak to, and one more.
func providers(f fleet.RunnerFacts, more string) []string {
	ps := []string{more}
	for _, h := range f.Harnesses {
		ps = append(ps, fleet.ProviderOf(h.Name, ""))
		for _, model := range h.Models {
			ps = append(ps, fleet.ProviderOf(h.Name, model))
		}
	}
	slices.Sort(ps)
	return slices.DeleteFunc(slices.Compact(ps), func(p string) bool { return p == "" })
}

// HostFault gives the circuit that opens because a machine could not carry an attempt.
// More must be free for automation than for manual work: what automation found too
// little keeps only automation away.
func HostFault(find Find, s Seen, class fleet.CircuitClass, m Moment) []*fleet.Circuit {
	c := find.edit(fleet.ScopeHost, class, s.Runner, "", "", "")
	if s.stale(c) || c.State == fleet.CircuitBlocked {
		return nil
	}
	c.Automation = s.Automated && class != fleet.CircuitDocker && (c.Automation || c.State == fleet.CircuitClosed)
	c.Fence, c.Text, c.Actor = s.Fence, fleet.CutText(s.Detail, fleet.MaxDetail), ""
	climb(c, m)
	return []*fleet.Circuit{c}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
