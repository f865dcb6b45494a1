package state

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// writeRulesLog makes a log of placement: slots, holds, health, circuits, budgets, and
// jobs under the rules in every situation that only these lead to.
func writeRulesLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	ofPlacement(g)
	for _, s := range ruledSituations {
		for _, r := range []fleet.RunnerID{"r1", "r2"} {
			if _, ok := g.m.View().Runner(r); !ok {
				g.enrol(r)
			}
		}
		for _, c := range ruledCommands {
			g.now = g.now.Add(24 * time.Hour) // no circuit keeps a job waiting for the next one
			for _, x := range g.m.View().Circuits() {
				g.try(&ResetCircuit{ID: x.ID, Reason: "anew", Repaired: "everything"})
			}
			s.make(g)
			f := fleet.Fence{Epoch: 1, Index: 1}
			var a *fleet.Attempt
			j := g.job(gridJob)
			if as := j.Turn().Attempts; len(as) > 0 {
				a, f = as[0], as[0].Fence
			}
			g.try(aim(c.make(g, j, f, a), f))
			g.clearGrid(t, s.name)
		}
	}
	return written(g)
}

// ofPlacement applies every command about circuits and budgets, and leads jobs through
// all that may follow an attempt.
func ofPlacement(g *rig) {
	two := 2
	for _, r := range []fleet.RunnerID{"r8", "r9"} {
		g.enrol(r)
		g.do(&UpdateRunner{ID: r, Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex", Account: "one"}, {Name: "claude", Account: "two"}}}})
		g.do(&SetSlots{ID: r, Automation: &two})
	}
	g.do(&Set{Name: fleet.SettingRetryPause, Value: "1s"})
	for _, b := range []fleet.Budget{{Origin: "manual", Runs: 4000, Wall: 40000 * time.Hour}, {Origin: "automation", Runs: 2, Tokens: 100, Window: time.Hour}, {Origin: "automation:night", Tokens: 50}} {
		g.do(&SetBudget{Budget: b})
	}
	g.endings()
	g.probing()
	g.spending()
}

// ends gives the end of an attempt with a class, which used something.
func (g *rig) ends(id fleet.JobID, f fleet.Fence, class fleet.FailureClass) *FinishAttempt {
	c := g.refusal(id, f)
	c.Class, c.Usage, c.Footprint = class, &fleet.Usage{InputTokens: 21}, 1<<20
	return c
}

// tries runs a job at a later time, as a probe of whatever is half open.
func (g *rig) tries(id fleet.JobID, r fleet.RunnerID) fleet.Fence {
	g.t.Helper()
	g.now = g.now.Add(5 * time.Hour)
	tu := g.job(id).Turn()
	c := &AssignJob{Job: id, Runner: r, Turn: tu.N, Attempts: len(tu.Attempts), Rules: 1, Base: 2, Automation: 2, Choice: tu.Choice, Reserve: 9 << 20}
	for _, x := range g.m.View().Circuits() {
		c.Probes = append(c.Probes, x.ID)
	}
	return g.do(c).Fence
}

func answered(id fleet.JobID, f fleet.Fence) *RecordFacts {
	return &RecordFacts{Job: id, Fence: f, Facts: []Fact{{Kind: "responded", Value: []byte("true"), Seq: 1}}, Rules: 1}
}

// endings leads a job to every class of end, after a response and without one.
func (g *rig) endings() {
	for i, class := range fleet.Classes() {
		id := fleet.JobID("ends-" + class)
		g.submit(id, fallback, func(s *fleet.Spec) { s.Repo = &fleet.Repo{URL: "https://example.org/repo"} })
		f := g.tries(id, "r8")
		g.do(&AcceptAttempt{Job: id, Fence: f, Rules: 1})
		if i%2 == 0 {
			g.do(answered(id, f))
		}
		g.do(g.ends(id, f, class))
		for _, c := range g.m.View().Circuits() {
			g.try(&ResetCircuit{ID: c.ID, Reason: "seen to", Repaired: "signed in"})
		}
	}
}

// probing leaves a circuit open, which job after job tries, and declines.
func (g *rig) probing() {
	const id = "limited"
	g.submit(id)
	f := g.tries(id, "r8")
	g.do(&AcceptAttempt{Job: id, Fence: f, Rules: 1})
	g.do(g.ends(id, f, fleet.ClassQuotaExhausted))
	for n := range 4 {
		f := g.tries(id, "r8")
		g.do(&AcceptAttempt{Job: id, Fence: f, Rules: 1})
		if n > 0 {
			g.do(answered(id, f))
		}
		c := g.ends(id, f, fleet.ClassCancelled)
		c.Exit.Reason = "stopped"
		g.do(c)
		g.do(&RetryJob{Job: id, Rules: 1})
	}
	g.do(&OpenCircuit{Scope: fleet.ScopeHost, Runner: "r9", For: time.Minute, Reason: "a look at the disk"})
	f = g.tries(id, "r9")
	for _, c := range g.m.View().Circuits() {
		g.try(&ReleaseProbe{ID: c.ID, Fence: f})
	}
	g.do(&DeclineAttempt{Job: id, Fence: f, Code: fleet.Storage, Rules: 1})
}

// spending uses an automation's budget up, and goes on in a later window.
func (g *rig) spending() {
	for _, id := range []fleet.JobID{"night-1", "night-2", "night-3"} {
		g.submit(id, nightly)
	}
	f := g.tries("night-1", "r8")
	g.do(&AcceptAttempt{Job: "night-1", Fence: f, Rules: 1})
	g.do(g.ends("night-1", f, fleet.ClassTaskFailed))
	g.do(&AssignJob{Job: "night-2", Runner: "r8", Turn: 1, Rules: 1, Automation: 1})
	g.refused(fleet.BudgetSpent, &AssignJob{Job: "night-3", Runner: "r8", Turn: 1, Rules: 1, Automation: 2})
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation:night"}, Remove: true})
	f = g.tries("night-3", "r8")
	g.do(&AcceptAttempt{Job: "night-3", Fence: f, Rules: 1})
	g.do(&LoseAttempt{Job: "night-3", Fence: f, Rules: 1})
	g.do(&AttemptGone{Job: "night-3", Fence: f, Rules: 1})
	g.do(&RetryJob{Job: "night-3", Grant: true, Rules: 1})
}
