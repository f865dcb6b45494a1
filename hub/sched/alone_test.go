package sched

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestAlone: what keeps a job waiting whatever runners there are is told before anything
// of a runner, in all places, and the runners' lines stay.
func TestAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(*rig)
		code   fleet.Code
		detail string
		until  time.Duration // from now
		change string
	}{
		{"the pause before a retry", func(g *rig) {
			f := g.place(g.pick())[0]
			g.do(&state.AcceptAttempt{Job: "j", Fence: f, Rules: 1})
			g.do(&state.FinishAttempt{Job: "j", Fence: f, Exit: fleet.Exit{Code: 1, Reason: "exited"}, Class: fleet.ClassCrashed, Rules: 1})
		}, fleet.RetryWaits, "waits until 2026-03-01T12:01:00Z before it is tried again: attempt 1 on box-r1 ended with crashed", time.Minute, "that time"},
		{"a key", func(g *rig) {
			g.do(&state.CancelJob{Job: "j"})
			key := func(s *fleet.Spec) { s.ConcurrencyKey = "k" }
			g.job("holder", key)
			g.place(g.pick())
			g.job("j2", key)
		}, fleet.KeyHeld, `waits for job holder, which holds the concurrency key "k"`, 0, "the end of job holder"},
		{"a budget", func(g *rig) {
			g.do(&state.SetBudget{Budget: fleet.Budget{Origin: fleet.Manual, Runs: 1, Window: time.Hour}})
			g.place(g.pick())
			g.job("j2")
		}, fleet.BudgetSpent, "the budget of manual has no room: 1 of 1 runs", time.Hour, "the end of a run under it, a new window, or more: `tugline budget set`"},
		{"a budget without a window", func(g *rig) {
			g.do(&state.SetBudget{Budget: fleet.Budget{Origin: fleet.Manual, Wall: 2 * time.Hour}})
			f := g.place(g.pick())[0]
			g.do(&state.AcceptAttempt{Job: "j", Fence: f, Rules: 1})
			g.do(&state.FinishAttempt{Job: "j", Fence: f, Exit: fleet.Exit{Reason: "exited"}, StartedAt: g.now, FinishedAt: g.now.Add(30*time.Minute + time.Second/3), Rules: 1})
			g.job("j2")
		}, fleet.BudgetSpent, "the budget of manual has no room: 30m0s of 2h0m0s are used or held, and a run may take 2h0m0s", 0, "more: `tugline budget set`"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.runner("r1", 4)
			g.job("j")
			c.do(g)
			id := fleet.JobID("j")
			if g.get("j").State != fleet.Queued {
				id = "j2"
			}
			p := g.pick()
			expect(t, p, "")
			e := g.look(0, nil).Explain(g.get(id))
			if e.Code != c.code || e.Summary != c.detail || e.Change == "" || !strings.HasPrefix(e.Change, c.change) {
				t.Errorf("explained as %+v", e)
			}
			if w := g.look(0, nil).Why(g.get(id)); w.Detail != e.Summary {
				t.Errorf("in short it is %+v", w)
			}
			if len(e.Runners) != 1 || !strings.HasPrefix(e.Runners[0].Detail, "could take it (") {
				t.Errorf("the runners' lines are %+v", e.Runners)
			}
			if c.until == 0 {
				return
			}
			end := g.now.Add(c.until)
			if e.Until == nil || !e.Until.Equal(end) || !p.Next.Equal(end) {
				t.Errorf("until %v, and the next look is at %s; want %s", e.Until, p.Next, end)
			}
		})
	}
}

// TestBudgetsInOneLook: a look gives away no more than the budgets have room for, and what
// is flying has drawn on them.
func TestBudgetsInOneLook(t *testing.T) {
	g := newRig(t)
	four := 4
	g.runner("r1", 4)
	g.do(&state.SetSlots{ID: "r1", Automation: &four})
	g.do(&state.SetBudget{Budget: fleet.Budget{Origin: "automation:a", Runs: 2}})
	g.do(&state.SetBudget{Budget: fleet.Budget{Origin: fleet.Automation, Runs: 3}})
	for _, id := range []fleet.JobID{"a1", "a2", "a3"} {
		g.job(id, by("a", 0))
	}
	for _, id := range []fleet.JobID{"b1", "b2"} {
		g.job(id, by("b", -1))
	}
	g.job("m", by("", -2))
	p := g.pick()
	expect(t, p, "a1>r1 a2>r1 b1>r1 m>r1")
	expect(t, g.look(9, flying(Plan{Assign: p.Assign[:1]})).Pick(), "a2>r1 b1>r1 m>r1")
	g.place(p)
	expect(t, g.pick(), "")
}

// TestOlder compares versions as CLIs tell them.
func TestOlder(t *testing.T) {
	for _, c := range []struct {
		have, least string
		older       bool
	}{
		{"0.120.0", "0.120.0", false},
		{"0.120", "0.120.0", false},
		{"0.119.9", "0.120", true},
		{"0.120.1", "0.120", false},
		{"codex-cli 0.120.0", "0.99.0", false},
		{"2.1.3 (Claude Code)", "2.1.10", true},
		{"v18 of 1.2.3", "1.2.3", false},
		{"1.10", "1.9", false},
		{"1.010.0", "1.9", false},
		{"0.120.0-alpha.2", "0.120.0", true},
		{"0.120.0-alpha.2", "0.120.0-alpha.2", false},
		{"0.121.0-beta", "0.120.0", false},
		{"7", "6.5", false},
		{"", "0", true},
		{"unknown", "0.1", true},
	} {
		if got := older(c.have, c.least); got != c.older {
			t.Errorf("%q is older than %q: %v", c.have, c.least, got)
		}
	}
}
