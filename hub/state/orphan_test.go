package state

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// stray is the fence of an attempt that no record knows, in rigs that start in epoch 0.
var stray = fleet.Fence{Epoch: 0, Index: 999}

func orphanRig(t *testing.T) *rig {
	g := newRig(t)
	g.enrol("r1")
	g.raise()
	return g
}

func TestReportOrphan(t *testing.T) {
	g := orphanRig(t)
	o := g.orphan("gone", stray)
	g.do(&ReportOrphan{Orphan: o})
	reported := g.now
	g.repeated(&ReportOrphan{Orphan: o})
	o.Log.Sealed, o.Log.Durable = true, 9
	g.do(&ReportOrphan{Orphan: o})
	o.Log = fleet.LogState{Bytes: 9}
	g.repeated(&ReportOrphan{Orphan: o}) // a repeated result: what is sealed stays sealed
	o.Evidence = &fleet.Evidence{Tip: "later"}
	g.do(&ReportOrphan{Orphan: o})
	got, ok := g.m.View().Orphan("0-999")
	want := o
	want.ID, want.ReportedAt, want.Log = "0-999", reported, fleet.LogState{Bytes: 9, Durable: 9, Events: 2, Sealed: true}
	if d := cmp.Diff(&want, got); d != "" || !ok {
		t.Errorf("recorded (-want +got)\n%s", d)
	}
	other := o
	other.Runner = "r2"
	g.refused(fleet.Conflict, &ReportOrphan{Orphan: other})
	other = o
	other.Job = "another"
	g.refused(fleet.Conflict, &ReportOrphan{Orphan: other})
	known := g.run(g.submit("known"), "r1")
	g.refused(fleet.StaleFence, &ReportOrphan{Orphan: g.orphan("known", fleet.Fence{Epoch: known.Epoch, Index: 1})})
	g.raise()
	g.refused(fleet.Conflict, &ReportOrphan{Orphan: g.orphan("known", known)})
	for name, spoil := range map[string]func(*fleet.Orphan){
		"no job":     func(o *fleet.Orphan) { o.Job = "" },
		"no runner":  func(o *fleet.Orphan) { o.Runner = "" },
		"no turn":    func(o *fleet.Orphan) { o.Turn = 0 },
		"no attempt": func(o *fleet.Orphan) { o.Attempt = 0 },
	} {
		o := g.orphan("x", fleet.Fence{Index: 5})
		spoil(&o)
		if res := g.try(&ReportOrphan{Orphan: o}); res.Code != fleet.BadRequest {
			t.Errorf("%s: %s", name, res.Code)
		}
	}
}

func TestOrphansAreBounded(t *testing.T) {
	g := orphanRig(t)
	for i := range fleet.MaxOrphans {
		g.do(&ReportOrphan{Orphan: g.orphan("gone", fleet.Fence{Index: uint64(1000 + i)})})
	}
	next := &ReportOrphan{Orphan: g.orphan("gone", stray)}
	g.refused(fleet.OrphansFull, next)
	g.do(&SettleOrphan{ID: "0-1000"})
	g.do(next)
}

// TestAdoptUnknownJob: a job that no record knows comes back with this one attempt, and
// its evidence decides.
func TestAdoptUnknownJob(t *testing.T) {
	g := orphanRig(t)
	o := g.orphan("gone", stray)
	o.Turn, o.Attempt, o.Log.Sealed, o.Log.Durable = 3, 2, true, 9
	g.do(&ReportOrphan{Orphan: o})
	settle := &SettleOrphan{ID: "0-999", Adopt: true}
	g.do(settle)
	g.repeated(settle)
	g.refused(fleet.Conflict, &SettleOrphan{ID: "0-999"})
	j := g.is("gone", fleet.Verifying)
	a := j.Current()
	if a == nil || a.Fence != stray || a.State != fleet.AttemptFinished || a.Evidence.Bundle != o.Evidence.Bundle || a.Evidence.RescueRef == "" || j.Spec.Harness != "codex" ||
		j.Turn().Prompt != o.Prompt || !j.CreatedAt.Equal(o.CreatedAt) || j.Actor != "t-person" || len(a.Notes) != 1 {
		t.Errorf("the job is %+v with %+v", j, a)
	}
	if open := g.m.View().OpenOf("r1"); len(open) != 1 { // until it is judged
		t.Errorf("%d attempts are open", len(open))
	}
	g.do(&DecideJob{Job: "gone", Fence: stray, Verdict: fleet.Verdict{Decision: fleet.Accept, By: "gate"}, Evidence: a.Evidence})
	g.is("gone", fleet.Succeeded)
	got, _ := g.m.View().Orphan("0-999")
	if got.Settled != fleet.OrphanAdopted || got.SettledBy != "t-person" || got.SettledAt == nil {
		t.Errorf("the orphan is %+v", got)
	}
	if a := g.m.View().Audit(0, 9); !hasAudit(a, "orphan.settle", "adopt") {
		t.Errorf("audited as %+v", a)
	}
	g.refused(fleet.NotFound, &SettleOrphan{ID: "0-1", Adopt: true})
}

func hasAudit(as []*Audit, command, detail string) bool {
	for _, a := range as {
		if a.Command == command && a.Detail == detail {
			return true
		}
	}
	return false
}

// TestAdoptKnownJob: an orphan settles its job only where nothing else was accepted in
// its turn; else it is kept beside what the job has come to.
func TestAdoptKnownJob(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*rig)
		turn int
		want string
	}{
		{"queued", func(g *rig) { g.submit("a") }, 1, "verifying: finished*"},
		{"assigned", func(g *rig) { g.submit("a"); g.assign("a", "r1") }, 1, "verifying: withdrawn finished*"},
		{"blocked", func(g *rig) { g.submit("a"); g.do(&BlockJob{Job: "a", Turn: 1, Code: "queue_timeout"}) }, 1, "verifying: finished*"},
		{"running", func(g *rig) { g.submit("a"); g.run("a", "r1") }, 1, "running: running* finished"},
		{"lost, to be run again", func(g *rig) {
			g.do(&LoseAttempt{Job: g.submit("a", rerun), Fence: g.run("a", "r1")})
		}, 1, "queued: lost* finished"},
		{"given out again", func(g *rig) {
			g.do(&LoseAttempt{Job: g.submit("a", rerun), Fence: g.run("a", "r1")})
			g.assign("a", "r1")
		}, 1, "assigned: lost* finished assigned"},
		{"cancelled", func(g *rig) { g.submit("a"); g.do(&CancelJob{Job: "a"}) }, 1, "cancelled: finished"},
		{"succeeded", func(g *rig) { g.submit("a"); g.do(g.judged("a", g.run("a", "r1"), fleet.Accept)) }, 1, "succeeded: finished* finished"},
		{"of a later turn", func(g *rig) { g.submit("a") }, 2, "queued: finished"},
	} {
		g := orphanRig(t)
		c.make(g)
		o := g.orphan("a", stray)
		o.Turn, o.Log.Sealed = c.turn, true
		g.do(&ReportOrphan{Orphan: o})
		g.do(&SettleOrphan{ID: "0-999", Adopt: true})
		j := g.job("a")
		if got := describeJob(j); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if _, a := j.Find(stray); a == nil || j.Turn().Attempts[a.N-1] != a {
			t.Errorf("%s: the adopted attempt is numbered %+v", c.name, a)
		}
		if p := pending(j.Turn()); p != nil {
			g.do(&AcceptAttempt{Job: "a", Fence: p.Fence})
		}
	}
}

func TestDiscardedOrphansAreForgotten(t *testing.T) {
	g := orphanRig(t)
	o := g.orphan("gone", stray)
	g.do(&ReportOrphan{Orphan: o})
	g.do(&SettleOrphan{ID: "0-999"})
	g.repeated(&SettleOrphan{ID: "0-999"})
	g.refused(fleet.Conflict, &SettleOrphan{ID: "0-999", Adopt: true})
	g.repeated(&ReportOrphan{Orphan: o}) // its runner says it again
	g.do(&ReportOrphan{Orphan: g.orphan("waits", fleet.Fence{Index: 1})})
	if _, ok := g.m.View().Job("gone"); ok {
		t.Error("a discarded orphan made a job")
	}
	g.now = g.now.Add(keepOrphans - time.Minute)
	g.do(&Expire{Limit: 10})
	if n := len(g.m.View().Orphans()); n != 2 {
		t.Errorf("%d orphans are on record before their time", n)
	}
	g.now = g.now.Add(time.Hour)
	g.do(&Expire{Limit: 10})
	if all := g.m.View().Orphans(); len(all) != 1 || all[0].ID != "0-1" {
		t.Errorf("orphans on record: %+v", all)
	}
}
