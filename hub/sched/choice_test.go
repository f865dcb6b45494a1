package sched

import (
	"bytes"
	"strings"
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

// TestPinnedJobWaits: a job for one runner waits for it while it is away, whoever else is
// free, and goes to it when it is back.
func TestPinnedJobWaits(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.runner("r2", 4)
	away, back := g.seen["r1"], g.seen["r1"]
	away.Connected = false
	g.seen["r1"] = away
	g.job("j", func(s *fleet.Spec) { s.On = "box-r1" })
	g.job("k")
	expect(t, g.pick(), "k>r2")
	e := g.look(0, nil).Explain(g.get("j"))
	if e.Code != fleet.Offline || len(e.Runners) != 2 || e.Runners[0].Runner != "box-r1" || e.Runners[1].Code != fleet.OtherRunner {
		t.Errorf("it is explained by %+v", e)
	}
	if b := g.look(9, nil).Overdue().Block; len(b) != 0 {
		t.Errorf("it is taken out of the queue: %+v", b)
	}
	g.seen["r1"] = back
	expect(t, g.pick(), "j>r1 k>r2")
}

// TestLearnedDocker: work that failed once for want of Docker goes to no machine without
// it any more: not its next attempt, not what follows a success, not after the state was
// read from disk.
func TestLearnedDocker(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	p := g.seen["r1"]
	p.Health.Docker = fleet.Docker{State: fleet.DockerAbsent}
	g.seen["r1"] = p
	g.job("j")
	end := func(class fleet.FailureClass, d fleet.Decision) {
		t.Helper()
		plan := g.pick()
		if len(plan.Assign) != 1 {
			t.Fatalf("the plan is %q: %+v", plan.text(), g.look(0, nil).Explain(g.get("j")))
		}
		f := g.place(plan)[0]
		g.do(&state.AcceptAttempt{Job: "j", Fence: f, Rules: 1})
		g.do(&state.FinishAttempt{Job: "j", Fence: f, Class: class, Exit: fleet.Exit{Reason: "exited"}, Verdict: &fleet.Verdict{Decision: d}, Rules: 1})
	}
	waits := func(when string) {
		t.Helper()
		expect(t, g.pick(), "")
		if r := g.look(0, nil).Explain(g.get("j")).Runners[0]; r.Runner != "box-r1" || r.Code != fleet.DockerMissing || !strings.Contains(r.Detail, "has no Docker") {
			t.Errorf("%s: explained as %+v", when, r)
		}
	}
	end(fleet.ClassDocker, fleet.Reject)
	g.do(&state.ResetCircuit{ID: "host/r1/-/-/-/docker"})
	g.later(fleet.RetryPause)
	waits("the next attempt")
	p = g.seen["r1"]
	p.Health = well()
	g.seen["r1"] = p
	end(fleet.ClassOK, fleet.Accept)
	if s := g.get("j").State; s != fleet.Succeeded {
		t.Fatalf("with Docker it is %s", s)
	}
	p.Health.Docker = fleet.Docker{State: fleet.DockerAbsent}
	g.do(&state.FollowUp{Job: "j"})
	waits("after a success")
	var b bytes.Buffer
	if err := g.m.Snapshot()(&b); err != nil {
		t.Fatal(err)
	}
	g.m = state.New()
	if err := g.m.Restore(&b); err != nil {
		t.Fatal(err)
	}
	waits("after a restart")
}
