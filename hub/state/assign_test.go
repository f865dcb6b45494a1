package state

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestAssignAssumptions: an assignment holds only for what its proposer saw.
func TestAssignAssumptions(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	yes := true
	g.submit("a", func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	g.submit("b", func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	g.submit("c", func(s *fleet.Spec) { s.ConcurrencyKey = "k\x00b" }) // another key
	g.refused(fleet.Conflict, &AssignJob{Job: "a", Runner: "r1", Turn: 2, Slots: 1})
	g.refused(fleet.Conflict, &AssignJob{Job: "a", Runner: "r1", Turn: 1, Attempts: 1, Slots: 1})
	g.refused(fleet.NoSlot, &AssignJob{Job: "a", Runner: "r1", Turn: 1, Slots: 0})
	g.refused(fleet.RunnerUnknown, &AssignJob{Job: "a", Runner: "r9", Turn: 1, Slots: 1})
	g.do(&FlagRunner{ID: "r1", Cordoned: &yes})
	g.refused(fleet.Conflict, &AssignJob{Job: "a", Runner: "r1", Turn: 1, Slots: 1})
	yes = false
	g.do(&FlagRunner{ID: "r1", Cordoned: &yes})
	f := g.run("a", "r1")
	g.refused(fleet.Conflict, &AssignJob{Job: "b", Runner: "r1", Turn: 1, Slots: 2})
	g.refused(fleet.NoSlot, &AssignJob{Job: "c", Runner: "r1", Turn: 1, Slots: 1})
	g.assign("c", "r1")
	g.do(&LoseAttempt{Job: "a", Fence: f})
	g.refused(fleet.Conflict, &AssignJob{Job: "b", Runner: "r1", Turn: 1, Slots: 9})
	g.do(&AttemptGone{Job: "a", Fence: f})
	if by, held := g.m.View().Holder("k", ""); held {
		t.Errorf("%s still holds the key", by)
	}
	g.run("b", "r1")
	g.do(g.finish("a", f)) // the processes were gone, and yet a result came
	if by, held := g.m.View().Holder("k", "a"); !held || by != "b" {
		t.Errorf("of the others %q holds the key", by)
	}
	if by, held := g.m.View().Holder("k", "b"); !held || by != "a" {
		t.Errorf("of the others %q holds the key", by)
	}
}

// TestDecline excludes the pair until facts change, and costs nothing.
func TestDecline(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	queued := g.job("a").Turn().QueuedAt
	f := g.assign("a", "r1")
	g.do(&DeclineAttempt{Job: "a", Fence: f, Code: fleet.Storage, Detail: "3 GiB free"})
	g.repeated(&DeclineAttempt{Job: "a", Fence: f, Code: fleet.Storage})
	j := g.is("a", fleet.Queued)
	r, _ := g.m.View().Runner("r1")
	if len(j.Excluded) != 1 || j.Excluded[0].Facts != r.FactsRev || j.Excluded[0].Until != nil || accepted(j.Turn()) != 0 || j.Current() != nil {
		t.Errorf("declined job is %+v", j)
	}
	if !j.Turn().QueuedAt.Equal(queued) {
		t.Error("a job that was given back waits since it was queued first")
	}
	g.do(&UpdateRunner{ID: "r1", Facts: &r.Facts})
	if same, _ := g.m.View().Runner("r1"); same.FactsRev != r.FactsRev {
		t.Error("the same facts again are no change")
	}
	facts := r.Facts
	facts.Slots++
	g.do(&UpdateRunner{ID: "r1", Facts: &facts})
	if n, _ := g.m.View().Runner("r1"); n.FactsRev == r.FactsRev {
		t.Error("other facts are a change")
	}
	f = g.assign("a", "r1")
	g.do(&DeclineAttempt{Job: "a", Fence: f, Code: fleet.OwnerPolicy, RetryAfter: time.Hour})
	j = g.job("a")
	if len(j.Excluded) != 1 || !j.Excluded[0].Until.Equal(g.now.Add(time.Hour)) {
		t.Errorf("exclusions are %+v", j.Excluded)
	}
	f = g.run("a", "r1")
	g.refused(fleet.Conflict, &DeclineAttempt{Job: "a", Fence: f})
	if a := g.attempt("a", f); a.Gone || a.State != fleet.AttemptRunning {
		t.Errorf("a decline after the accept changed the attempt: %+v", a)
	}
}

// TestReturn puts a silent assignment back and keeps its runner off it for a while.
func TestReturn(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.assign("a", "r1")
	g.do(&ReturnAttempt{Job: "a", Fence: f, Detail: "silent"})
	j := g.is("a", fleet.Queued)
	if len(j.Excluded) != 1 || !j.Excluded[0].Until.Equal(g.now.Add(time.Minute)) {
		t.Errorf("exclusions are %+v", j.Excluded)
	}
	g.refused(fleet.StaleFence, &AcceptAttempt{Job: "a", Fence: f})
	g.refused(fleet.NotCurrent, &ReturnAttempt{Job: "a", Fence: f})
	if w := want(t, g, "a", f); w != "stop returned" {
		t.Errorf("the hub wants %q", w)
	}
	f = g.run("a", "r1")
	g.refused(fleet.NotCurrent, &ReturnAttempt{Job: "a", Fence: f})
}

// TestAssignmentsBounded: a job that every runner gives back ends up with a person.
func TestAssignmentsBounded(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	for range MaxAttempts {
		g.is("a", fleet.Queued)
		g.do(&ReturnAttempt{Job: "a", Fence: g.assign("a", "r1"), Detail: "silent"})
	}
	if j := g.is("a", fleet.Blocked); j.Reason.Code != "attempts" {
		t.Errorf("reason is %+v", j.Reason)
	}
}

// TestFences: every attempt has a greater fence than those before it.
func TestFences(t *testing.T) {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "c", Epoch: 4})
	g.refused(fleet.Conflict, &InitCluster{Cluster: "d", Epoch: 5})
	g.enrol("r1")
	g.submit("a")
	f := g.assign("a", "r1")
	if f.Epoch != 4 || f.Index != g.index {
		t.Errorf("fence is %s at index %d", f, g.index)
	}
	g.do(&ReturnAttempt{Job: "a", Fence: f})
	if n := g.assign("a", "r1"); !f.Less(n) {
		t.Errorf("%s is not greater than %s", n, f)
	}
}
