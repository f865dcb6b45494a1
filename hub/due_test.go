package hub

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// silentWorld is one leader and one runner in made-up time.
type silentWorld struct {
	start       time.Time
	heard, seen time.Duration // after start; negative: never
	runner      fleet.Runner
	lease       lease
	open        []state.Open
}

func newSilent(attempts ...*fleet.Attempt) *silentWorld {
	w := &silentWorld{start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), heard: -1, seen: -1, runner: fleet.Runner{ID: "r", Name: "lead"}}
	at := func(d time.Duration) time.Time {
		if d < 0 {
			return time.Time{}
		}
		return w.start.Add(d)
	}
	w.lease = lease{
		since: w.start, began: w.start, first: map[fleet.Fence]time.Time{},
		heard:    func(fleet.RunnerID) time.Time { return at(w.heard) },
		shown:    func(fleet.RunnerID, fleet.Fence) time.Time { return at(w.seen) },
		runner:   func(fleet.RunnerID) (*fleet.Runner, bool) { return &w.runner, true },
		interval: func(fleet.RunnerID) time.Duration { return 5 * time.Second },
	}
	for i, a := range attempts {
		a.N, a.Fence, a.Runner, a.RunnerName = 1, fleet.Fence{Epoch: 1, Index: uint64(10 + i)}, "r", "lead"
		w.open = append(w.open, state.Open{Job: &fleet.Job{ID: "j"}, Turn: &fleet.Turn{N: 1}, Attempt: a})
	}
	return w
}

// at gives what is due so long after the start.
func (w *silentWorld) at(d time.Duration) []string {
	w.lease.now = w.start.Add(d)
	var out []string
	for _, c := range due(w.open, w.lease) {
		switch c := c.(type) {
		case *state.ReturnAttempt:
			out = append(out, "return "+c.Fence.String())
		case *state.LoseAttempt:
			out = append(out, "lose "+c.Fence.String())
		}
	}
	return out
}

func TestUnacceptedAttemptsGoBack(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptAssigned, AssignedAt: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)})
	step := func(d time.Duration, want ...string) {
		t.Helper()
		if got := w.at(d); !cmp.Equal(got, want) {
			t.Errorf("after %s: %v; want %v", d, got, want)
		}
	}
	step(5 * time.Second) // first looked at: the record's own time does not count
	step(35 * time.Second)
	step(36*time.Second, "return 1-10")
	w.seen = 30 * time.Second // it shows it
	step(60 * time.Second)
	step(61*time.Second, "return 1-10")
	w.seen = -1 // its present session shows nothing
	step(61*time.Second, "return 1-10")
}

func TestSilentRunnersLoseWhatTheyAccepted(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptRunning}, &fleet.Attempt{State: fleet.AttemptFinished}, &fleet.Attempt{State: fleet.AttemptLost})
	step := func(d time.Duration, want ...string) {
		t.Helper()
		if got := w.at(d); !cmp.Equal(got, want) {
			t.Errorf("after %s: %v; want %v", d, got, want)
		}
	}
	step(10 * time.Minute) // never heard, and yet a full lease from the start
	step(10*time.Minute+1, "lose 1-10")
	w.heard = 8 * time.Minute
	step(18 * time.Minute)
	step(18*time.Minute+1, "lose 1-10")
	// Another node leads: everybody who was not found silent has a full lease again.
	w.leads(20 * time.Minute)
	step(30 * time.Minute)
	step(30*time.Minute+1, "lose 1-10")
}

// leads makes another leader, which has heard nobody yet.
func (w *silentWorld) leads(d time.Duration) {
	w.lease.since, w.lease.began = w.start.Add(d), w.start.Add(d)
	w.heard = -1
}

// look does what a leader does at one moment: it records silence, and says whether the
// attempt is lost.
func (w *silentWorld) look(t *testing.T, d time.Duration) (lost bool) {
	t.Helper()
	w.lease.now = w.start.Add(d)
	var marked []*fleet.Runner
	if w.runner.SilentSince != nil {
		marked = append(marked, &w.runner)
	}
	for i, c := range silences(w.open, marked, w.lease) {
		c, ok := c.(*state.SilenceRunner)
		if !ok || i > 0 || c.ID != "r" {
			t.Fatalf("at %s: records %+v", d, c)
		}
		if c.Since.IsZero() == (w.runner.SilentSince == nil) {
			t.Fatalf("at %s: records the same again", d)
		}
		r := w.runner
		r.SilentSince = nil
		if !c.Since.IsZero() {
			r.SilentSince = &c.Since
		}
		w.runner = r
	}
	return len(due(w.open, w.lease)) > 0
}

// silent gives since when the runner is on record as silent.
func (w *silentWorld) silent() string {
	if w.runner.SilentSince == nil {
		return "heard"
	}
	return w.runner.SilentSince.Sub(w.start).String()
}

// TestSilenceIsRecordedOnce: when a runner with accepted work turns stale, and when it
// is heard again.
func TestSilenceIsRecordedOnce(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptRunning}, &fleet.Attempt{State: fleet.AttemptRunning})
	step := func(d time.Duration, want string) {
		t.Helper()
		if w.look(t, d); w.silent() != want {
			t.Errorf("after %s the runner is %s; want %s", d, w.silent(), want)
		}
	}
	step(90*time.Second, "heard") // it may have been told the longest interval
	step(91*time.Second, "0s")
	step(92*time.Second, "0s")
	w.heard = 100 * time.Second
	step(101*time.Second, "heard")
	step(115*time.Second, "heard")
	step(115*time.Second+1, "1m40s") // three of the interval that it is known to have
	w.heard = 200 * time.Second
	step(200*time.Second, "heard")
	w.open = nil // it has no work: nothing depends on its silence
	step(time.Hour, "heard")
}

// TestLeaseAfterAnElection: of the length that a new leader gives, by how long the
// runner was on record as silent when that began to lead.
func TestLeaseAfterAnElection(t *testing.T) {
	for _, c := range []struct{ silent, want time.Duration }{
		{-1, 10 * time.Minute}, // not on record
		{0, 10 * time.Minute},
		{20 * time.Second, 9*time.Minute + 40*time.Second},
		{9 * time.Minute, time.Minute},
		{9*time.Minute + 44*time.Second, 16 * time.Second},
		{9*time.Minute + 46*time.Second, 15 * time.Second}, // three heartbeats at least
		{time.Hour, 15 * time.Second},
		{-time.Hour, 10 * time.Minute}, // the other leader's clock was ahead
	} {
		w := newSilent(&fleet.Attempt{State: fleet.AttemptRunning})
		w.leads(2 * time.Hour)
		if c.silent != -1 {
			since := w.lease.began.Add(-c.silent)
			w.runner.SilentSince = &since
		}
		if w.lease.now = w.lease.since.Add(c.want); len(due(w.open, w.lease)) != 0 {
			t.Errorf("silent for %s: lost before %s of the term", c.silent, c.want)
		}
		if w.lease.now = w.lease.since.Add(c.want + 1); len(due(w.open, w.lease)) != 1 {
			t.Errorf("silent for %s: not lost after %s of the term", c.silent, c.want)
		}
		w.heard = 2*time.Hour + time.Second // it came back: a full lease
		if w.lease.now = w.lease.since.Add(10*time.Minute + time.Second); len(due(w.open, w.lease)) != 0 {
			t.Errorf("silent for %s: lost although it was heard", c.silent)
		}
	}
}

// TestLeadersThatFlap: a new leader every two minutes puts off the loss by no more than
// what the first one needed to notice and the last one's shortest lease.
func TestLeadersThatFlap(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptRunning})
	for d := time.Duration(0); ; d += time.Second {
		if d%(2*time.Minute) == 0 {
			w.leads(d)
		}
		if w.look(t, d) {
			if d < fleet.LostAfter || d > fleet.LostAfter+shortestLease+2*time.Second {
				t.Errorf("lost after %s", d)
			}
			return
		}
		if d > time.Hour {
			t.Fatal("never lost")
		}
	}
}

// TestLeadersThatFlapLoseNoConnectedRunner: one that finds every leader within its
// shortest lease keeps its work, however often they change.
func TestLeadersThatFlapLoseNoConnectedRunner(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptRunning})
	for d := time.Duration(0); d < time.Hour; d += time.Second {
		switch d % (20 * time.Second) {
		case 0:
			w.leads(d)
		case 14 * time.Second:
			w.heard = d
		}
		if w.look(t, d) {
			t.Fatalf("lost after %s", d)
		}
	}
}

func TestWhatWasSeenIsForgotten(t *testing.T) {
	w := newSilent()
	for i := range 1000 {
		a := &fleet.Attempt{State: fleet.AttemptAssigned, Fence: fleet.Fence{Epoch: 1, Index: uint64(i)}}
		w.open = []state.Open{{Job: &fleet.Job{ID: "j"}, Attempt: a}}
		w.at(time.Duration(i) * time.Second)
	}
	if n := len(w.lease.first); n != 1 {
		t.Errorf("%d assignments are remembered; want the open one", n)
	}
	w.open[0].Attempt.State = fleet.AttemptRunning
	w.at(time.Hour)
	if n := len(w.lease.first); n != 0 {
		t.Errorf("%d assignments are remembered after the accept", n)
	}
}

// With so many runners that letting them all in takes half a minute, those that come
// last are neither called silent nor lose what they were to accept.
func TestALongQueueAtTheDoorIsNoSilence(t *testing.T) {
	w := newSilent(&fleet.Attempt{State: fleet.AttemptAssigned}, &fleet.Attempt{State: fleet.AttemptRunning})
	w.lease.spread = 30 * time.Second
	if got := w.at(w.lease.spread + fleet.AcceptDeadline - time.Second); len(got) > 0 {
		t.Errorf("while runners are still let in: %v", got)
	}
	if _, stale := w.lease.stale("r"); stale {
		t.Error("a runner that may still wait at the door is stale")
	}
	silent := w.start.Add(-fleet.LostAfter)
	w.runner.SilentSince = &silent
	if _, length := w.lease.of("r"); length != shortestLease+w.lease.spread {
		t.Errorf("one that was silent before gets %s", length)
	}
	w.runner.SilentSince = nil
	w.lease.now = w.start.Add(fleet.StaleHeartbeats*longestInterval + w.lease.spread + time.Second)
	if _, stale := w.lease.stale("r"); !stale {
		t.Error("one that does not come at all is never stale")
	}
	// Who is in is judged by its own heartbeats.
	w.heard = time.Second
	w.lease.now = w.start.Add(20 * time.Second)
	if _, stale := w.lease.stale("r"); !stale {
		t.Error("one that came and fell silent is not stale")
	}
}
