package sched

import (
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestLeastVersionIsOfItsHarness: the least version that a job asks for is one of the
// harness that it names. A fallback of the same one is held to it, another one is not.
func TestLeastVersionIsOfItsHarness(t *testing.T) {
	for _, c := range []struct {
		name string
		to   fleet.Choice
		want string
		code fleet.Code
	}{
		{"another harness", fleet.Choice{Harness: "claude"}, "j>r1", ""},
		{"another model", fleet.Choice{Harness: "codex", Model: "m"}, "", fleet.HarnessOld},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.runner("r1", 1, func(f *fleet.RunnerFacts) {
				f.Harnesses[1] = fleet.HarnessInfo{Name: "claude", Version: "0.9.1 (Claude Code)", SignedIn: "yes"}
			})
			g.job("j", func(s *fleet.Spec) {
				s.Needs = &fleet.Needs{HarnessVersion: "0.120.0"}
				s.Fallbacks = []fleet.Choice{c.to}
			})
			f := g.place(g.pick())[0]
			g.do(&state.AcceptAttempt{Job: "j", Fence: f, Rules: 1})
			g.do(&state.FinishAttempt{Job: "j", Fence: f, Rules: 1, Class: fleet.ClassModelUnavailable, Exit: fleet.Exit{Reason: "exited", Code: 1}, Verdict: &fleet.Verdict{Decision: fleet.Reject}})
			if j := g.get("j"); j.State != fleet.Queued || j.ChoiceOf(j.Turn()) != c.to {
				t.Fatalf("the job is %s with %v; want queued with %v", j.State, j.ChoiceOf(j.Turn()), c.to)
			}
			g.facts("r1", func(f *fleet.RunnerFacts) { // as if it had been set back since
				f.Harnesses[0].Version = "codex-cli 0.119.0"
				f.Harnesses[1] = fleet.HarnessInfo{Name: "claude", Version: "0.9.1 (Claude Code)", SignedIn: "yes"}
			})
			g.now = g.now.Add(time.Second)
			expect(t, g.pick(), c.want)
			if got := g.look(0, nil).Explain(g.get("j")).Runners[0].Code; got != c.code {
				t.Errorf("explained with %q, want %q", got, c.code)
			}
		})
	}
}
