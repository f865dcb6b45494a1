package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func TestRaiseEpoch(t *testing.T) {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "c", Epoch: 1})
	g.enrol("r1")
	g.submit("pending")
	pending := g.assign("pending", "r1")
	running := g.run(g.submit("running"), "r1")
	lost := g.run(g.submit("lost"), "r1")
	g.do(&LoseAttempt{Job: "lost", Fence: lost})
	g.submit("queued")
	queuedAt := g.job("pending").Turn().QueuedAt

	g.refused(fleet.StaleEpoch, &RaiseEpoch{To: 1, Cause: "recover"})
	g.refused(fleet.StaleEpoch, &RaiseEpoch{To: 0, Cause: "recover"})
	_, changes := g.apply(Head{Actor: "hub"}, &RaiseEpoch{To: 5, Cause: "recover"})
	g.repeated(&RaiseEpoch{To: 5, Cause: "recover"})
	g.refused(fleet.StaleEpoch, &RaiseEpoch{To: 5, Cause: "restore"})
	if len(changes) != 2 || changes[0].Job.ID != "pending" || changes[1].What != "epoch" {
		t.Errorf("told of %+v", changes)
	}
	m := g.m.View().Meta()
	if d := cmp.Diff([]fleet.Epoch{{Epoch: 5, At: m.Epochs[0].At, Index: m.Epochs[0].Index, Cause: "recover", Returned: 1, Open: 2}}, m.Epochs); d != "" || m.Epoch != 5 {
		t.Errorf("epoch %d, raised (-want +got)\n%s", m.Epoch, d)
	}
	if a := g.m.View().Audit(0, 1)[0]; a.Command != "hub.raise_epoch" || a.Actor != "hub" || a.Subject != "5" || a.Detail != "recover" {
		t.Errorf("audited as %+v", a)
	}

	// What was not accepted waits again, as if it had never been given out.
	j := g.is("pending", fleet.Queued)
	if j.Reason.Code != StopEpoch || !j.Turn().QueuedAt.Equal(queuedAt) || len(j.Excluded) != 0 || accepted(j.Turn()) != 0 {
		t.Errorf("the job is %+v of %+v", j, j.Turn())
	}
	g.refused(fleet.StaleFence, &AcceptAttempt{Job: "pending", Fence: pending})
	if f := g.run("pending", "r1"); f.Epoch != 5 || !running.Less(f) {
		t.Errorf("the next fence is %s", f)
	}

	// What was accepted goes on, and is renewed before it may have an effect.
	g.is("running", fleet.Running)
	permit := &GrantPush{Job: "running", Fence: running, Remote: "origin"}
	g.refused(fleet.Unavailable, permit)
	g.refused(fleet.StaleEpoch, &RenewAttempt{Job: "running", Fence: running, Epoch: 4})
	g.refused(fleet.StaleEpoch, &RenewAttempt{Job: "running", Fence: running, Epoch: 6})
	g.do(&RenewAttempt{Job: "running", Fence: running, Epoch: 5, Accepted: true})
	g.repeated(&RenewAttempt{Job: "running", Fence: running, Epoch: 5})
	g.do(permit)
	if a := g.attempt("running", running); a.Authority() != 5 || a.Fence.Epoch != 1 {
		t.Errorf("attempt %s has the authority of epoch %d", a.Fence, a.Authority())
	}
	g.do(&RenewAttempt{Job: "lost", Fence: lost, Epoch: 5})
	g.do(&ReviveAttempt{Job: "lost", Fence: lost})

	// And again: a raise takes the authority of those that were renewed, too.
	g.raise()
	g.refused(fleet.Unavailable, permit)
	g.refused(fleet.StaleEpoch, &RenewAttempt{Job: "running", Fence: running, Epoch: 5})
	g.do(&RenewAttempt{Job: "running", Fence: running, Epoch: 6})
	g.do(&CancelJob{Job: "running"})
	g.raise()
	g.refused(fleet.NotCurrent, &RenewAttempt{Job: "running", Fence: running, Epoch: 7}) // it is told to stop
	for i := range maxEpochs {
		g.do(&RaiseEpoch{To: uint64(100 + i), Cause: "restore"})
	}
	if es := g.m.View().Meta().Epochs; len(es) != maxEpochs || es[0].Epoch != 100 {
		t.Errorf("%d raises are remembered, the first to %d", len(es), es[0].Epoch)
	}
}

// TestPushAfterARaise: a result that is recorded may be pushed only by a runner that
// took the new epoch up.
func TestPushAfterARaise(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	f := g.run(g.submit("a", push), "r1")
	g.do(g.judged("a", f, fleet.Accept))
	permit := &GrantPush{Job: "a", Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: "tip"}
	g.do(permit)
	g.raise()
	g.refused(fleet.Unavailable, permit) // granted before, and yet not now
	g.do(&RenewAttempt{Job: "a", Fence: f, Epoch: 1})
	g.repeated(permit)
	g.do(&RecordPush{Job: "a", Fence: f, Ref: "refs/heads/x", SHA: "tip", Result: "pushed"})
}

// TestRegain: an attempt of which only the accept was lost goes on as the current one,
// by its runner's word, unless the job has gone on without it.
func TestRegain(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  func(*rig)
		regain bool
	}{
		{"at once", func(*rig) {}, true},
		{"while it is given to another", func(g *rig) { g.assign("a", "r2") }, true},
		{"while another prepares it", func(g *rig) { g.do(preparing("a", g.assign("a", "r2"))) }, true},
		{"while it is blocked", func(g *rig) { g.do(&BlockJob{Job: "a", Turn: 1, Code: "queue_timeout"}) }, true},
		{"after another raise", func(g *rig) { g.raise() }, true},
		{"once another has accepted it", func(g *rig) { g.run("a", "r2") }, false},
		{"once another has finished it", func(g *rig) { g.do(g.judged("a", g.run("a", "r2"), fleet.Reject)) }, false},
		{"once it was cancelled", func(g *rig) { g.do(&CancelJob{Job: "a"}) }, false},
		{"once its runner said that it is gone", func(g *rig) { g.do(&AttemptGone{Job: "a", Fence: g.job("a").Turn().Attempts[0].Fence}) }, false},
	} {
		for _, finish := range []bool{false, true} {
			g := newRig(t)
			g.enrol("r1")
			g.enrol("r2")
			g.submit("a")
			f := g.assign("a", "r1")
			g.raise()
			c.after(g)
			before := g.job("a").State
			var cmd Command = &RenewAttempt{Job: "a", Fence: f, Epoch: g.m.View().Meta().Epoch, Accepted: true}
			if finish {
				cmd = g.judged("a", f, fleet.Accept)
			}
			res := g.try(cmd)
			j, a := g.job("a"), g.attempt("a", f)
			switch {
			case c.regain && !finish:
				if res.Code != "" || j.State != fleet.Running || j.Current() != a || a.Authority() != g.m.View().Meta().Epoch || a.AcceptedAt == nil {
					t.Errorf("renewed %s: %s; the job is %s", c.name, res.Code, describeJob(j))
				}
			case c.regain:
				if res.Code != "" || j.State != fleet.Succeeded || j.Current() != a {
					t.Errorf("finished %s: %s; the job is %s", c.name, res.Code, describeJob(j))
				}
			case !finish:
				if res.Code == "" || j.State != before {
					t.Errorf("renewed %s: %q; the job is %s", c.name, res.Code, describeJob(j))
				}
			default: // its result is kept, and settles nothing
				if res.Code != "" || j.State != before || a.State != fleet.AttemptFinished || j.Current() == a {
					t.Errorf("finished %s: %s; the job is %s", c.name, res.Code, describeJob(j))
				}
			}
		}
	}
}

// TestRegainBesideALostOne: the rerun of a lost attempt had been accepted, and that
// record was lost: the lost one is out, as it had been.
func TestRegainBesideALostOne(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	first := g.run(g.submit("a", rerun), "r1")
	g.do(&LoseAttempt{Job: "a", Fence: first})
	second := g.assign("a", "r2")
	g.raise()
	g.do(&RenewAttempt{Job: "a", Fence: second, Epoch: 1, Accepted: true})
	g.is("a", fleet.Running)
	if a := g.attempt("a", first); a.Stop != string(fleet.Superseded) {
		t.Errorf("the lost attempt is told %q", a.Stop)
	}
	g.refused(fleet.NotCurrent, &RenewAttempt{Job: "a", Fence: first, Epoch: 1})
}

func TestRaiseRegroups(t *testing.T) {
	g := newRig(t)
	g.do(&UpdateNode{Node: hubNode("n-1")})
	joined := g.now
	g.do(&AdmitNode{Ticket: g.hubTicket("two"), Node: hubNode("n-2")})
	g.do(&AdmitNode{Ticket: g.hubTicket("three"), Node: hubNode("n-3")})
	g.do(&RemoveNode{ID: "n-3", Why: "by mistake"})
	bad := hubNode("n-4")
	bad.SealKey = nil
	g.refused(fleet.BadRequest, &RaiseEpoch{To: 9, Cause: "recover", Nodes: []fleet.HubNode{bad}})
	now := hubNode("n-1")
	now.URL = "https://moved"
	g.do(&RaiseEpoch{To: 9, Cause: "recover", Nodes: []fleet.HubNode{now, hubNode("n-3"), hubNode("n-4")}})
	if got := g.nodes(); got != "n-1 n-3 n-4" {
		t.Errorf("nodes %s", got)
	}
	one, _ := g.m.View().Node("n-1")
	if one.URL != "https://moved" || !one.JoinedAt.Equal(joined) {
		t.Errorf("the first node is %+v", one)
	}
	if two, _ := g.m.View().Node("n-2"); two.RemovedWhy != "the cluster went on without it: recover" {
		t.Errorf("the second node is %+v", two)
	}
}

func describeJob(j *fleet.Job) string {
	s := string(j.State) + ":"
	for _, a := range j.Turn().Attempts {
		s += " " + string(a.State)
		if j.Current() == a {
			s += "*"
		}
	}
	return s
}
