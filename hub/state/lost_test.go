package state

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// TestLostComesBack: the same attempt goes on, and its late report settles the job.
func TestLostComesBack(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit(gridJob)
	f := g.run(gridJob, "r1")
	lose(g, f)
	g.is(gridJob, fleet.Lost)
	if n := g.m.View().Held("r1"); n != 1 {
		t.Errorf("a lost attempt holds %d slots, want 1", n)
	}
	g.do(&ReviveAttempt{Job: gridJob, Fence: f})
	g.is(gridJob, fleet.Running)
	lose(g, f)
	g.do(g.finish(gridJob, f))
	g.is(gridJob, fleet.Verifying)
	if n := g.m.View().Held("r1"); n != 0 {
		t.Errorf("a finished attempt holds %d slots, want 0", n)
	}
}

// TestRerunWithdrawn: before its accept a rerun gives way to the attempt that returns.
func TestRerunWithdrawn(t *testing.T) {
	for _, finish := range []bool{false, true} {
		g := newRig(t)
		g.enrol("r1")
		g.enrol("r2")
		g.submit(gridJob, rerun)
		old := g.run(gridJob, "r1")
		lose(g, old)
		again := g.assign(gridJob, "r2")
		if g.job(gridJob).Current().Fence != old {
			t.Fatal("the lost attempt must keep the authority until the rerun is accepted")
		}
		if finish {
			g.do(g.judged(gridJob, old, fleet.Accept))
			g.is(gridJob, fleet.Succeeded)
		} else {
			g.do(&ReviveAttempt{Job: gridJob, Fence: old})
			g.is(gridJob, fleet.Running)
		}
		if a := g.attempt(gridJob, again); a.State != fleet.AttemptWithdrawn || a.HoldsSlot() {
			t.Errorf("the rerun is %+v", a)
		}
		g.refused(fleet.StaleFence, &AcceptAttempt{Job: gridJob, Fence: again})
		if w := want(t, g, gridJob, again); w == "run" || w == "forget" {
			t.Errorf("the hub wants %q of a withdrawn rerun, want a stop", w)
		}
	}
}

// TestSuperseded: once the rerun is accepted, the old attempt is stopped, its result
// is kept on it, and its push refused.
func TestSuperseded(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	g.submit(gridJob, rerun)
	old := g.run(gridJob, "r1")
	lose(g, old)
	g.run(gridJob, "r2")
	if w := want(t, g, gridJob, old); w != "stop superseded" {
		t.Errorf("the hub wants %q of the old attempt", w)
	}
	g.repeated(&ReviveAttempt{Job: gridJob, Fence: old})
	g.refused(fleet.StaleFence, &GrantPush{Job: gridJob, Fence: old, Remote: "origin"})
	g.do(g.judged(gridJob, old, fleet.Accept))
	g.is(gridJob, fleet.Running)
	if a := g.attempt(gridJob, old); a.State != fleet.AttemptFinished || a.Evidence == nil || a.HoldsSlot() {
		t.Errorf("the old attempt is %+v", a)
	}
	g.refused(fleet.StaleFence, &GrantPush{Job: gridJob, Fence: old, Remote: "origin", Ref: "refs/heads/x", SHA: "tip"})
	g.refused(fleet.NotCurrent, verdictOfFence(old, fleet.Accept))
}

func verdictOfFence(f fleet.Fence, d fleet.Decision) *DecideJob {
	return &DecideJob{Job: gridJob, Fence: f, Verdict: fleet.Verdict{Decision: d}}
}

// TestRetryOfLost: a person's retry leaves the lost attempt its chance too, unless
// it was told to stop.
func TestRetryOfLost(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	g.submit(gridJob)
	old := g.run(gridJob, "r1")
	lose(g, old)
	g.do(&RetryJob{Job: gridJob})
	g.do(&ReviveAttempt{Job: gridJob, Fence: old})
	g.is(gridJob, fleet.Running)

	lose(g, old)
	g.do(&CancelJob{Job: gridJob})
	g.do(&RetryJob{Job: gridJob})
	again := g.run(gridJob, "r2")
	g.do(g.judged(gridJob, old, fleet.Reject))
	if j := g.is(gridJob, fleet.Running); j.Current().Fence != again {
		t.Errorf("current attempt is %+v", j.Current())
	}
}

// TestAcceptAnsweredLate: an accept whose answer was lost is repeated after the
// silence and still gives the permit, unless it no longer may.
func TestAcceptAnsweredLate(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	g.submit(gridJob, rerun)
	old := g.run(gridJob, "r1")
	if r := g.repeated(&AcceptAttempt{Job: gridJob, Fence: old}); r.Fence != old {
		t.Errorf("a repeated accept gave %+v", r)
	}
	lose(g, old)
	again := g.assign(gridJob, "r2")
	if r := g.do(&AcceptAttempt{Job: gridJob, Fence: old}); r.Fence != old {
		t.Errorf("a late accept gave %+v", r)
	}
	g.is(gridJob, fleet.Running)
	g.refused(fleet.StaleFence, &AcceptAttempt{Job: gridJob, Fence: again})
	lose(g, old)
	g.run(gridJob, "r2")
	g.refused(fleet.StaleFence, &AcceptAttempt{Job: gridJob, Fence: old})
}

// TestLostWhileRerunBlocked: a result is worth more than a block.
func TestLostWhileRerunBlocked(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit(gridJob, rerun)
	f := g.run(gridJob, "r1")
	lose(g, f)
	g.do(&FollowUp{Job: gridJob, Prompt: digest("next")})
	g.do(&BlockJob{Job: gridJob, Turn: 1, Code: "queue_timeout"})
	if j := g.is(gridJob, fleet.Blocked); j.Paused == "" {
		t.Error("follow-ups of a blocked job must say why they wait")
	}
	g.do(g.judged(gridJob, f, fleet.Ask))
	if j := g.is(gridJob, fleet.Queued); len(j.Turns) != 2 || j.Turns[0].State != fleet.NeedsReview || j.Paused != "" {
		t.Errorf("job is %+v", j)
	}
}

// TestLostInAnEarlierTurn: the job has gone on to another turn, so the attempt that
// comes back is stopped; until then it holds its slot.
func TestLostInAnEarlierTurn(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit(gridJob, rerun)
	f := g.run(gridJob, "r1")
	lose(g, f)
	g.do(&BlockJob{Job: gridJob, Turn: 1, Code: "queue_timeout"})
	g.do(&FollowUp{Job: gridJob, Fresh: true})
	g.is(gridJob, fleet.Queued)
	if w := want(t, g, gridJob, f); w != "run" {
		t.Errorf("before it was seen the hub wants %q", w)
	}
	g.do(&ReviveAttempt{Job: gridJob, Fence: f})
	g.is(gridJob, fleet.Queued)
	if w := want(t, g, gridJob, f); w != "stop superseded" || g.m.View().Held("r1") != 1 {
		t.Errorf("the hub wants %q of it", w)
	}
	g.do(&CancelJob{Job: gridJob, Abandon: true})
	if n := g.m.View().Held("r1"); n != 0 {
		t.Errorf("%d slots are held after the abandon, want 0", n)
	}
}

// TestBudget: a turn has so many accepted attempts, and one more for each grant.
// Unaccepted ones cost nothing.
func TestBudget(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit(gridJob, rerun)
	for range 3 {
		g.do(&ReturnAttempt{Job: gridJob, Fence: g.assign(gridJob, "r1"), Detail: "silent"})
	}
	for range fleet.AttemptBudget {
		g.is(gridJob, fleet.Queued)
		lose(g, g.run(gridJob, "r1"))
	}
	if j := g.is(gridJob, fleet.Lost); j.Reason.Code != "budget" {
		t.Errorf("reason is %+v", j.Reason)
	}
	g.refused(fleet.Conflict, &RetryJob{Job: gridJob})
	if g.job(gridJob).Turn().Granted != 0 {
		t.Error("a refused retry changed the grant")
	}
	g.do(&RetryJob{Job: gridJob, Grant: true})
	lose(g, g.run(gridJob, "r1"))
	g.is(gridJob, fleet.Lost)
	g.refused(fleet.Conflict, &RetryJob{Job: gridJob})
}

// TestNewJournal: a runner that lost its memory loses its accepted attempts at once;
// the others go back, and its counter begins again.
func TestNewJournal(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.do(&UpdateRunner{ID: "r1", JournalID: "j-r1", JournalCount: 900})
	g.submit("a")
	g.submit("b")
	g.submit("c", rerun)
	g.run("a", "r1")
	g.assign("b", "r1")
	g.do(&LoseAttempt{Job: "c", Fence: g.run("c", "r1")})
	again := g.assign("c", "r1") // the lost attempt and its rerun are on one runner
	g.do(&UpdateRunner{ID: "r1", JournalID: "j-r1", JournalCount: 901})
	g.is("a", fleet.Running)
	g.do(&UpdateRunner{ID: "r1", JournalID: "other", JournalCount: 3})
	g.is("a", fleet.Lost)
	g.is("b", fleet.Queued)
	g.is("c", fleet.Queued)
	if a := g.attempt("c", again); a.State != fleet.AttemptReturned {
		t.Errorf("the rerun is %s", a.State)
	}
	if r, _ := g.m.View().Runner("r1"); r.JournalCount != 3 || r.JournalID != "other" {
		t.Errorf("runner is %+v", r)
	}
}

// TestRemoveRunner: unaccepted attempts go back, accepted ones need a word.
func TestRemoveRunner(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	g.submit("a")
	g.submit("b")
	g.submit("c", rerun)
	g.submit("d")
	fa := g.run("a", "r1")
	g.assign("b", "r1")
	lost := g.run("c", "r1")
	g.do(&LoseAttempt{Job: "c", Fence: lost})
	again := g.assign("c", "r1")
	fd := g.run("d", "r1")
	g.do(g.finish("d", fd))
	before := snapshot(t, g.m)
	g.refused(fleet.Conflict, &RemoveRunner{ID: "r1"})
	if sameButMeta(before, snapshot(t, g.m)) == false {
		t.Error("a refused removal changed something")
	}
	g.do(&RemoveRunner{ID: "r1", AbandonJobs: true})
	g.is("a", fleet.Cancelled)
	g.is("b", fleet.Queued)
	g.is("c", fleet.Queued)
	g.is("d", fleet.Verifying)
	if g.attempt("a", fa).State != fleet.AttemptAbandoned || g.attempt("c", lost).State != fleet.AttemptAbandoned || g.attempt("c", again).State != fleet.AttemptReturned {
		t.Errorf("attempts are %s", describe2(g, "a", "c"))
	}
	if !g.attempt("d", fd).Log.Sealed {
		t.Error("what a removed runner has not sent will not come")
	}
	v := g.m.View()
	if n := v.Held("r1"); n != 0 || len(v.Runners()) != 1 {
		t.Errorf("%d slots are held and %d runners are left", n, len(v.Runners()))
	}
	g.refused(fleet.RunnerUnknown, &AssignJob{Job: "b", Runner: "r1", Turn: 1, Attempts: 1, Slots: 9})
	g.refused(fleet.RunnerUnknown, &RemoveRunner{ID: "r1"})
	g.refused(fleet.RunnerUnknown, &UpdateRunner{ID: "r1"})
}

func describe2(g *rig, ids ...fleet.JobID) (s string) {
	for _, id := range ids {
		for _, a := range g.job(id).Turn().Attempts {
			s += string(id) + ":" + string(a.State) + " "
		}
	}
	return s
}
