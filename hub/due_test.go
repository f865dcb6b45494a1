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
	lease       lease
	open        []state.Open
}

func newSilent(attempts ...*fleet.Attempt) *silentWorld {
	w := &silentWorld{start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), heard: -1, seen: -1}
	at := func(d time.Duration) time.Time {
		if d < 0 {
			return time.Time{}
		}
		return w.start.Add(d)
	}
	w.lease = lease{
		since: w.start, first: map[fleet.Fence]time.Time{},
		heard: func(fleet.RunnerID) time.Time { return at(w.heard) },
		shown: func(fleet.RunnerID, fleet.Fence) time.Time { return at(w.seen) },
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
	// Another node leads: everybody has a full lease again.
	w.lease.since = w.start.Add(20 * time.Minute)
	step(30 * time.Minute)
	step(30*time.Minute+1, "lose 1-10")
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
