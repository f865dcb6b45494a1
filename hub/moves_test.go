package hub

import (
	"fmt"
	"testing"
	"time"

	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

func TestWhatMoves(t *testing.T) {
	low := sched.Reason{Code: fleet.Storage, Detail: "has 4.0 GiB free at /data"}
	unknown := sched.Reason{Code: fleet.HealthUnknown, Detail: "has told no fresh sample"}
	held := sched.Reason{Code: fleet.Cordoned, Detail: "is drained"}
	for name, c := range map[string]struct {
		origin string
		state  fleet.AttemptState
		phase  string
		heard  time.Duration // before now
		why    sched.Reason
		want   string
	}{
		"all is well":                      {fleet.Automation, fleet.AttemptAssigned, "", 0, sched.Reason{}, ""},
		"its disk is low":                  {fleet.Automation, fleet.AttemptAssigned, "", 0, low, low.Detail},
		"its disk is low, and it prepares": {fleet.Automation, fleet.AttemptAssigned, "preparing", 0, low, ""},
		"its session began anew":           {fleet.Automation, fleet.AttemptAssigned, "", 0, sched.Reason{Code: fleet.Offline, Detail: "is away"}, ""},
		"its health is not known":          {fleet.Automation, fleet.AttemptAssigned, "", 0, unknown, unknown.Detail},
		"it is held":                       {fleet.Automation, fleet.AttemptAssigned, "", 0, held, held.Detail},
		"it is held, and prepares":         {fleet.Automation, fleet.AttemptAssigned, "preparing", 0, held, held.Detail},
		"it is stale":                      {fleet.Automation, fleet.AttemptAssigned, "preparing", 16 * time.Second, sched.Reason{}, "was not heard for a while"},
		"it beats late":                    {fleet.Automation, fleet.AttemptAssigned, "", 15 * time.Second, sched.Reason{}, ""},
		"it was accepted":                  {fleet.Automation, fleet.AttemptRunning, "", time.Minute, held, ""},
		"a person's":                       {fleet.Manual, fleet.AttemptAssigned, "", time.Minute, held, ""},
	} {
		w := newSilent(&fleet.Attempt{State: c.state, Phase: c.phase})
		w.open[0].Job.Spec.Origin.Kind = c.origin
		w.heard = time.Hour
		w.lease.now = w.start.Add(time.Hour + c.heard)
		w.lease.first[w.open[0].Attempt.Fence] = w.start.Add(time.Hour - 2*fleet.HealthFresh)
		got := ""
		for _, cmd := range moves(w.open, w.lease, func(*fleet.Job, *fleet.Attempt) sched.Reason { return c.why }) {
			r, ok := cmd.(*state.ReturnAttempt)
			if !ok || r.Job != "j" || r.Fence != w.open[0].Attempt.Fence {
				t.Fatalf("%s: %+v", name, cmd)
			}
			got += r.Detail
		}
		if got != c.want {
			t.Errorf("%s: returned because %q; want %q", name, got, c.want)
		}
	}
}

// TestANewLeaderAwaitsSamples: that it has not been told how a machine is moves nothing for
// as long as a sample counts.
func TestANewLeaderAwaitsSamples(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptAssigned})
	w.open[0].Job.Spec.Origin.Kind = fleet.Automation
	unknown := func(*fleet.Job, *fleet.Attempt) sched.Reason {
		return sched.Reason{Code: fleet.HealthUnknown, Detail: "has told no fresh sample"}
	}
	for d, want := range map[time.Duration]int{0: 0, fleet.HealthFresh: 0, fleet.HealthFresh + 1: 1} {
		w.lease.first[w.open[0].Attempt.Fence] = w.start
		w.lease.now, w.heard = w.start.Add(d), d
		if got := len(moves(w.open, w.lease, unknown)); got != want {
			t.Errorf("after %s %d assignments go back; want %d", d, got, want)
		}
	}
}

// TestTrialsAreRenewedByHeartbeats: a lease runs out two minutes after the last sign of
// life, and a new leader begins with a whole one.
func TestTrialsAreRenewedByHeartbeats(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := fleet.Fence{Epoch: 1, Index: 7}
	c := &fleet.Circuit{ID: "c", Probe: &fleet.CircuitProbe{Job: "j", Fence: f, At: start.Add(-time.Hour)}}
	a := &fleet.Attempt{Fence: f, Runner: "r", State: fleet.AttemptRunning}
	tr, shown := trials{}, time.Time{}
	look := func(d time.Duration) string {
		out := ""
		for _, cmd := range tr.look([]*fleet.Circuit{c, {ID: "other"}},
			func(id fleet.JobID, at fleet.Fence) *fleet.Attempt {
				if id != "j" || at != f {
					t.Errorf("asked for %s %s", id, at)
				}
				return a
			},
			func(fleet.RunnerID, fleet.Fence) time.Time { return shown }, start.Add(d)) {
			r := cmd.(*state.ReleaseProbe)
			out += fmt.Sprint(r.ID, " ", r.Fence)
		}
		return out
	}
	step := func(d time.Duration, want string) {
		t.Helper()
		if got := look(d); got != want {
			t.Errorf("after %s: released %q; want %q", d, got, want)
		}
	}
	step(0, "")
	step(fleet.ProbeLease, "") // it was never shown
	shown = start.Add(fleet.ProbeLease)
	step(fleet.ProbeLease+time.Second, "")
	shown = time.Time{} // its session ended
	step(2*fleet.ProbeLease, "")
	step(2*fleet.ProbeLease+1, "c 1-7")
	tr = trials{} // another node leads
	step(time.Hour, "")
	step(time.Hour+fleet.ProbeLease+1, "c 1-7")
	shown = start.Add(2 * time.Hour)
	step(2*time.Hour, "")
	a = nil // it has ended
	step(2*time.Hour, "c 1-7")
	c.Probe = nil
	if step(2*time.Hour, ""); len(tr) != 0 {
		t.Errorf("%d leases are kept in mind without a trial", len(tr))
	}
}
