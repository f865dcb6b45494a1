package state

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// fleetOf enrols two runners with two harnesses, of two accounts.
func fleetOf(t *testing.T) *rig {
	g := newRig(t)
	for _, r := range []fleet.RunnerID{"r1", "r2"} {
		g.enrol(r)
		g.do(&UpdateRunner{ID: r, Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex", Account: "one " + string(r)[1:]}, {Name: "claude", Account: "two"}}}})
		most := fleet.MaxAutomation
		g.do(&SetSlots{ID: r, Automation: &most})
	}
	return g
}

// TestForward leads a turn along its choices: each step is recorded, and what is given
// then is the choice that it has come to.
func TestForward(t *testing.T) {
	g := fleetOf(t)
	g.submit("a", func(s *fleet.Spec) {
		s.Model = "m"
		s.Fallbacks = []fleet.Choice{{Harness: "codex", Model: "b"}, {Harness: "claude", Model: "c"}, {Harness: "claude", Model: "d"}}
	})
	f := g.ruledRun("a", "r1")
	if a := g.attempt("a", f); a.Harness != "codex" || a.Provider != "openai" || a.Requested != "m" || a.Account != "one 1" {
		t.Errorf("the first attempt is %+v", a)
	}
	c := g.refusal("a", f)
	c.Class, c.Detail, c.RetryAfter, c.StatedEnd = fleet.ClassQuotaExhausted, "used up", time.Minute, "at noon"
	g.do(c)
	first := g.now
	j := g.is("a", fleet.Queued)
	if j.Reason.Code != "fallback" || !strings.Contains(j.Reason.Detail, "claude:c") || !strings.Contains(j.Reason.Detail, "used up") || j.Turn().On != "" || j.Turn().NotBefore != nil || j.Current() != nil {
		t.Errorf("the job waits: %+v, turn %+v", j.Reason, j.Turn())
	}
	if a := g.attempt("a", f); a.Failure != fleet.ClassQuotaExhausted || a.RetryAfter == nil || !a.RetryAfter.Equal(first.Add(time.Minute)) || a.StatedEnd != "at noon" {
		t.Errorf("the first attempt ended %+v", a)
	}
	if m, a := g.m.View().HeldKinds("r1"); m+a != 0 {
		t.Error("the slot is still held")
	}
	g.refused(fleet.Conflict, &AssignJob{Job: "a", Runner: "r1", Turn: 1, Attempts: 1, Rules: 1, Base: 9}) // of another choice
	f = g.ruledRun("a", "r2")
	if a := g.attempt("a", f); a.Harness != "claude" || a.Provider != "anthropic" || a.Requested != "c" || a.Account != "two" {
		t.Errorf("the second attempt is %+v", a)
	}
	c = g.refusal("a", f)
	c.Class, c.Acted, c.SessionID = fleet.ClassModelUnavailable, true, "s"
	g.do(c)
	j = g.is("a", fleet.Queued)
	if tu := j.Turn(); tu.Choice != 3 || tu.On != "r2" {
		t.Errorf("the turn is at choice %d on %q, want 3 on r2, where its session is", tu.Choice, tu.On)
	}
	want := []fleet.Transition{
		{At: first, Attempt: 1, From: fleet.Choice{Harness: "codex", Model: "m"}, To: fleet.Choice{Harness: "claude", Model: "c"}, Class: fleet.ClassQuotaExhausted, Skipped: []fleet.Choice{{Harness: "codex", Model: "b"}}, Detail: "used up"},
		{At: g.now, Attempt: 2, From: fleet.Choice{Harness: "claude", Model: "c"}, To: fleet.Choice{Harness: "claude", Model: "d"}, Class: fleet.ClassModelUnavailable, Detail: "slow down"},
	}
	if d := cmp.Diff(want, j.Turn().Moves); d != "" {
		t.Errorf("transitions (-want +got)\n%s", d)
	}
	// A later turn begins where this one came to, and may name a model.
	f = g.ruledRun("a", "r2")
	g.do(g.judged("a", f, fleet.Accept))
	g.do(&FollowUp{Job: "a", Prompt: digest("two"), Model: "e"})
	j = g.is("a", fleet.Queued)
	if c := j.ChoiceOf(j.Turn()); c != (fleet.Choice{Harness: "claude", Model: "e"}) || j.Turn().On != "r2" || len(j.Turn().Moves) > 0 {
		t.Errorf("the second turn runs with %s on %s", c, j.Turn().On)
	}
}

// TestRetries walks a turn through its budget: pauses, the end of it, a whole new one.
func TestRetries(t *testing.T) {
	g := fleetOf(t)
	g.do(&Set{Name: fleet.SettingRetryPause, Value: "10s"})
	g.submit("a")
	fail := func() *fleet.Job {
		t.Helper()
		c := g.refusal("a", g.ruledRun("a", "r1"))
		c.Class = fleet.ClassCrashed
		g.do(c)
		return g.job("a")
	}
	for round := range 2 {
		for _, pause := range []time.Duration{10, 20, 40} {
			j := fail()
			if nb := j.Turn().NotBefore; j.State != fleet.Queued || j.Reason.Code != "retry_waits" || nb == nil || !nb.Equal(g.now.Add(pause*time.Second)) {
				t.Fatalf("round %d: %s (%+v), not before %v at %s", round, j.State, j.Reason, nb, g.now)
			}
			g.refused(fleet.RetryWaits, &AssignJob{Job: "a", Runner: "r1", Turn: 1, Attempts: len(j.Turn().Attempts), Rules: 1, Base: 9})
			g.now = g.now.Add(pause * time.Second)
		}
		// A stop in between costs nothing.
		f := g.ruledRun("a", "r1")
		g.do(&CancelJob{Job: "a"})
		stopped := g.refusal("a", f)
		stopped.Exit.Reason, stopped.Class = "stopped", fleet.ClassCancelled
		g.do(stopped)
		g.is("a", fleet.Cancelled)
		if !g.attempt("a", f).Free {
			t.Error("the stopped attempt costs something")
		}
		g.do(&RetryJob{Job: "a", Rules: 1})
		j := fail()
		if j.State != fleet.Blocked || j.Reason.Code != "budget" || !strings.Contains(j.Reason.Detail, "--grant") || !strings.Contains(j.Reason.Detail, "slow down") {
			t.Fatalf("after the budget: %s, %+v", j.State, j.Reason)
		}
		g.refused(fleet.Conflict, &RetryJob{Job: "a", Rules: 1})
		g.do(&RetryJob{Job: "a", Grant: true, Rules: 1})
		if tu := g.is("a", fleet.Queued).Turn(); tu.NotBefore != nil || tu.Granted != 4*(round+1) {
			t.Errorf("after the grant: %+v", tu)
		}
	}
	g.do(g.judged("a", g.ruledRun("a", "r1"), fleet.Accept))
	g.is("a", fleet.Succeeded)
}

// TestEnds: what is no reason to go on ends as it always did, with words of its own.
func TestEnds(t *testing.T) {
	none := 0
	for _, c := range []struct {
		name   string
		spec   func(*fleet.Spec)
		change func(*FinishAttempt)
		state  fleet.State
		code   string
	}{
		{"the work failed", nil, func(c *FinishAttempt) { c.Class = fleet.ClassTaskFailed }, fleet.Failed, "reject"},
		{"it stalled", nil, func(c *FinishAttempt) { c.Class = fleet.ClassStalled }, fleet.Failed, "stalled"},
		{"it ran out of time", nil, func(c *FinishAttempt) { c.Class = fleet.ClassTimeout }, fleet.Failed, "reject"},
		{"no retries", func(s *fleet.Spec) { s.Retries = &none }, nil, fleet.Failed, "reject"},
		{"a command", func(s *fleet.Spec) { s.Kind = fleet.KindExec }, nil, fleet.Failed, "reject"},
		{"it acted and left no session", nil, func(c *FinishAttempt) { c.Acted = true }, fleet.Failed, "reject"},
		{"it left commits and no session", nil, func(c *FinishAttempt) { c.Evidence = &fleet.Evidence{CommitCount: 1} }, fleet.Failed, "reject"},
		{"it answered, says its usage, and its runner told of no response", nil, func(c *FinishAttempt) { c.Usage = &fleet.Usage{OutputTokens: 1} }, fleet.Failed, "reject"},
		{"it asked and had no answer", nil, func(c *FinishAttempt) { c.Usage = &fleet.Usage{InputTokens: 1} }, fleet.Queued, "retry_waits"},
		{"it is not judged yet", nil, func(c *FinishAttempt) { c.Class, c.Verdict = fleet.ClassTaskFailed, nil }, fleet.Verifying, "verifying"},
		{"not judged and refused", nil, func(c *FinishAttempt) { c.Verdict = nil }, fleet.Queued, "retry_waits"},
		{"accepted all the same", nil, func(c *FinishAttempt) { c.Verdict.Decision = fleet.Accept }, fleet.Succeeded, "accept"},
		{"without the rules", nil, func(c *FinishAttempt) { c.Rules = 0 }, fleet.Failed, "reject"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := fleetOf(t)
			g.submit("a", func(s *fleet.Spec) {
				if c.spec != nil {
					c.spec(s)
				}
			})
			end := g.refusal("a", g.ruledRun("a", "r1"))
			if c.change != nil {
				c.change(end)
			}
			g.do(end)
			if j := g.is("a", c.state); j.Reason.Code != c.code {
				t.Errorf("reason %+v, want %s", j.Reason, c.code)
			}
		})
	}
}

// TestStalledLater: that a run stalled is said as well where the verdict comes later.
func TestStalledLater(t *testing.T) {
	g := fleetOf(t)
	g.submit("a")
	f := g.ruledRun("a", "r1")
	end := g.refusal("a", f)
	end.Class, end.Verdict = fleet.ClassStalled, nil
	g.do(end)
	g.do(&DecideJob{Job: "a", Fence: f, Verdict: fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"stalled"}}})
	if j := g.is("a", fleet.Failed); j.Reason.Code != "stalled" {
		t.Errorf("reason %+v", j.Reason)
	}
}

// TestLearned: that there was no Docker is kept for all later attempts and turns.
func TestLearned(t *testing.T) {
	g := fleetOf(t)
	g.submit("a")
	end := g.refusal("a", g.ruledRun("a", "r1"))
	end.Class = fleet.ClassDocker
	g.do(end)
	if j := g.is("a", fleet.Queued); j.Learned == nil || !j.Learned.Docker || j.Reason.Code != "retry_waits" {
		t.Errorf("learned %+v, %+v", j.Learned, j.Reason)
	}
	g.now = g.now.Add(time.Hour)
	g.do(g.judged("a", g.ruledRun("a", "r2"), fleet.Accept))
	g.do(&FollowUp{Job: "a", Prompt: digest("two")})
	g.m = restored(t, snapshot(t, g.m))
	if j := g.is("a", fleet.Queued); j.Learned == nil || !j.Learned.Docker {
		t.Error("it was forgotten")
	}
}

// TestRuledLoss: a rerun waits like any retry, and within the same budget; whoever was
// lost by a new journal was given under the rules too.
func TestRuledLoss(t *testing.T) {
	g := fleetOf(t)
	g.submit("a", rerun, once)
	g.do(&LoseAttempt{Job: "a", Fence: g.ruledRun("a", "r1"), Detail: "silent", Rules: 1})
	j := g.is("a", fleet.Queued)
	if nb := j.Turn().NotBefore; j.Reason.Code != "rerun" || nb == nil || !nb.Equal(g.now.Add(time.Minute)) {
		t.Errorf("%+v, not before %v", j.Reason, nb)
	}
	g.now = g.now.Add(time.Minute)
	g.ruledRun("a", "r2")
	g.do(&UpdateRunner{ID: "r2", JournalID: "another"})
	if j := g.is("a", fleet.Lost); j.Reason.Code != "budget" {
		t.Errorf("%+v", j.Reason)
	}
	g.refused(fleet.Conflict, &RetryJob{Job: "a", Rules: 1})
	g.do(&RetryJob{Job: "a", Grant: true, Rules: 1})
}

// TestLateEnd: the end of a lost attempt leads the job on as if it had come in time,
// also where a rerun was under way.
func TestLateEnd(t *testing.T) {
	for _, under := range []string{"lost", "queued", "assigned", "blocked"} {
		t.Run(under, func(t *testing.T) {
			g := fleetOf(t)
			g.submit("a", fallback, func(s *fleet.Spec) {
				if under != "lost" {
					rerun(s)
				}
			})
			f := g.ruledRun("a", "r1")
			g.do(&LoseAttempt{Job: "a", Fence: f, Rules: 1})
			g.now = g.now.Add(time.Hour)
			switch under {
			case "assigned":
				// The runner itself is kept from work by the loss of r1, not r2.
				g.ruledAssign("a", "r2")
			case "blocked":
				g.do(&BlockJob{Job: "a", Turn: 1, Code: "queue_timeout"})
			}
			g.do(g.refusal("a", f))
			if j := g.is("a", fleet.Queued); j.Reason.Code != "fallback" || j.Turn().Choice != 1 {
				t.Errorf("%+v at choice %d", j.Reason, j.Turn().Choice)
			}
		})
	}
}

// TestPersonsRetry: a job that wants no retries of itself may still be tried again by a
// person as often as any.
func TestPersonsRetry(t *testing.T) {
	g := fleetOf(t)
	g.submit("a", func(s *fleet.Spec) { s.Retries = new(int) })
	for n := range fleet.AttemptBudget {
		g.do(g.refusal("a", g.ruledRun("a", []fleet.RunnerID{"r1", "r2"}[n%2])))
		g.is("a", fleet.Failed)
		g.now = g.now.Add(5 * time.Hour)
		if n < fleet.AttemptBudget-1 {
			g.do(&RetryJob{Job: "a", Rules: 1})
		}
	}
	g.refused(fleet.Conflict, &RetryJob{Job: "a", Rules: 1})
}
