package state

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func (g *rig) runner(id fleet.RunnerID) *fleet.Runner {
	g.t.Helper()
	r, ok := g.m.View().Runner(id)
	if !ok {
		g.t.Fatalf("there is no runner %s", id)
	}
	return r
}

func TestSetSlots(t *testing.T) {
	n := func(n int) *int { return &n }
	for _, c := range []struct {
		name string
		base int
		set  *int
		want fleet.Code
		then int // automation slots
	}{
		{"nobody set any", 2, nil, "", 1},
		{"none", 2, n(0), "", 0},
		{"as many as there may be", 8, n(8), "", 8},
		{"too many", 2, n(9), fleet.BadRequest, 1},
		{"below zero", 2, n(-1), fleet.BadRequest, 1},
		{"too many with the base slots", 12, n(5), fleet.BadRequest, 1},
		{"just enough with them", 12, n(4), "", 4},
		{"none beside all base slots", 16, n(0), "", 0},
		{"the base slots take all", 16, nil, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.enrol("r1")
			g.do(&UpdateRunner{ID: "r1", Facts: &fleet.RunnerFacts{Slots: c.base}})
			if res := g.try(&SetSlots{ID: "r1", Automation: c.set}); res.Code != c.want {
				t.Fatalf("code %q (%s), want %q", res.Code, res.Detail, c.want)
			}
			if got := g.runner("r1").AutomationSlots(); got != c.then {
				t.Errorf("%d automation slots, want %d", got, c.then)
			}
			if c.want == "" {
				g.repeated(&SetSlots{ID: "r1", Automation: c.set})
			}
		})
	}
	g := newRig(t)
	g.refused(fleet.RunnerUnknown, &SetSlots{ID: "r1"})
}

func TestHolds(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	in := func(d time.Duration) *time.Time { return at(g.now.Add(d)) }
	held := func(when time.Duration, want bool) {
		t.Helper()
		if got := g.runner("r1").HeldAt(g.now.Add(when)); got != want {
			t.Errorf("held after %s: %v, want %v", when, got, want)
		}
	}
	g.repeated(&HoldRunner{ID: "r1"})
	held(0, false)
	g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Until: in(time.Hour), Reason: "new disk", Actor: "somebody else", Passed: true, Since: epoch0.Add(-time.Hour)}})
	want := &fleet.Hold{Since: g.now, Until: g.runner("r1").Hold.Until, Reason: "new disk", Actor: "t-person"}
	if d := cmp.Diff(want, g.runner("r1").Hold); d != "" {
		t.Errorf("hold (-want +got):\n%s", d)
	}
	held(time.Minute, true)
	held(2*time.Hour, false)
	since := g.now
	g.repeated(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Until: want.Until, Reason: "new disk"}})
	if got := g.runner("r1").Hold.Since; !got.Equal(since) {
		t.Errorf("the same again: since %s, want %s", got, since)
	}
	g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: in(time.Hour), Cancel: true}})
	held(20*time.Hour, true)
	g.do(&HoldRunner{ID: "r1"})
	held(0, false)

	// As it was said before there were holds.
	yes, no := true, false
	g.do(&FlagRunner{ID: "r1", Cordoned: &yes})
	held(0, true)
	g.do(&HoldRunner{ID: "r1"})
	held(0, false)
	g.do(&FlagRunner{ID: "r1", Cordoned: &yes})
	g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Until: in(time.Hour)}})
	held(2*time.Hour, false)
	g.do(&FlagRunner{ID: "r1", Cordoned: &no})
	held(0, false)

	for name, h := range map[string]*fleet.Hold{
		"an end that has passed":     {Until: in(-time.Hour)},
		"a deadline without a drain": {Deadline: in(time.Hour)},
		"a cancel without an end":    {Drain: true, Cancel: true},
	} {
		if res := g.try(&HoldRunner{ID: "r1", Hold: h}); res.Code != fleet.BadRequest {
			t.Errorf("%s: %q (%s)", name, res.Code, res.Detail)
		}
	}
	g.refused(fleet.RunnerUnknown, &HoldRunner{ID: "r9"})
}

func TestHoldsAreAudited(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	two := 2
	g.do(&SetSlots{ID: "r1", Automation: &two})
	g.do(&SetSlots{ID: "r1"})
	g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Reason: "new disk"}})
	g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: at(epoch0.Add(time.Hour)), Cancel: true}})
	g.do(&HoldRunner{ID: "r1"})
	var got [][3]string
	for _, a := range g.m.View().Audit(0, 5) {
		got = append(got, [3]string{a.Command, a.Subject, a.Detail})
	}
	want := [][3]string{
		{"runner.resume", "r1", ""},
		{"runner.drain", "r1", "deadline 2026-03-01T13:00:00Z; then cancel"},
		{"runner.cordon", "r1", "new disk"},
		{"runner.slots", "r1", "automation: the default"},
		{"runner.slots", "r1", "automation: 2"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
}

// TestDeadlineOfADrain: what was not accepted returns at no cost, what was goes on or
// is cancelled with its work rescued, and nothing happens twice or too early.
func TestDeadlineOfADrain(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		g := newRig(t)
		g.enrol("r1")
		g.enrol("r2")
		g.submit("accepted")
		accepted := g.run("accepted", "r1")
		g.submit("assigned")
		assigned := g.assign("assigned", "r1")
		g.submit("elsewhere")
		g.run("elsewhere", "r2")
		g.submit("finished")
		f := g.run("finished", "r1")
		g.do(g.finish("finished", f))

		g.refused(fleet.Conflict, &PassDeadline{Runner: "r1"}) // no drain
		deadline := g.now.Add(time.Hour)
		g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: &deadline, Cancel: cancel, Reason: "moving house"}})
		g.refused(fleet.Conflict, &PassDeadline{Runner: "r1"}) // too early
		g.is("assigned", fleet.Assigned)
		g.now = deadline
		g.actor = "hub"
		g.do(&PassDeadline{Runner: "r1"})
		g.repeated(&PassDeadline{Runner: "r1"})

		j := g.is("assigned", fleet.Queued)
		if a := g.attempt("assigned", assigned); a.State != fleet.AttemptReturned || a.AcceptedAt != nil || j.Turn().Current != 0 {
			t.Errorf("the assignment is %s, current %d", a.State, j.Turn().Current)
		}
		g.is("elsewhere", fleet.Running)
		g.is("finished", fleet.Verifying)
		j = g.is("accepted", fleet.Running)
		a := g.attempt("accepted", accepted)
		switch {
		case !cancel && (j.CancelRequestedAt != nil || a.Stop != ""):
			t.Errorf("it does not go on: stop %q", a.Stop)
		case cancel && (j.CancelRequestedAt == nil || j.CancelActor != "t-person" || a.Stop != "cancelled"):
			t.Errorf("it is not cancelled: by %q, stop %q", j.CancelActor, a.Stop)
		}
		if why := "the deadline of the drain of r1 has passed: moving house"; cancel && j.Reason.Detail != "on r1: "+why {
			t.Errorf("it is told to stop with the words %q", j.Reason.Detail)
		}
		if cancel { // its end is that of any cancelled job, with what it made
			c := g.finish("accepted", accepted)
			c.Exit.Reason, c.Class = "stopped", fleet.ClassCancelled
			c.Evidence.RescueRef = "refs/tugline/rescue/x"
			g.do(c)
			if d := g.is("accepted", fleet.Cancelled).Reason.Detail; d != "stopped: the deadline of the drain of r1 has passed: moving house" {
				t.Errorf("it is cancelled with the words %q", d)
			}
			if e := g.attempt("accepted", accepted).Evidence; e == nil || e.RescueRef == "" {
				t.Errorf("evidence %+v; want the rescued work", e)
			}
		}
		if r := g.runner("r1"); !r.Hold.Passed || !r.HeldAt(g.now) {
			t.Errorf("hold %+v; want it passed and going on", r.Hold)
		}
		g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: &deadline, Cancel: cancel, Reason: "again"}})
		if g.runner("r1").Hold.Passed {
			t.Error("a new drain has passed already")
		}
	}
	g := newRig(t)
	g.enrol("r1")
	g.do(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: at(g.now.Add(time.Minute)), Until: at(g.now.Add(time.Hour))}})
	g.now = g.now.Add(2 * time.Hour)
	g.refused(fleet.Conflict, &PassDeadline{Runner: "r1"}) // it has ended
	g.refused(fleet.RunnerUnknown, &PassDeadline{Runner: "r9"})
}
