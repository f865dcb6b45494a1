package circuit

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tester is a test, or one draw of a property.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world keeps circuits as the state does, and counts entries.
type world struct {
	t     tester
	now   time.Time
	index uint64
	by    map[string]*fleet.Circuit
}

func newWorld(t tester) *world { return &world{t: t, now: noon, by: map[string]*fleet.Circuit{}} }

func (w *world) find(id string) *fleet.Circuit { return w.by[id] }

// next is the moment of the next entry.
func (w *world) next() Moment {
	w.index++
	return Moment{w.now, fleet.Fence{Epoch: 1, Index: w.index}}
}

func (w *world) keep(cs ...*fleet.Circuit) []*fleet.Circuit {
	for _, c := range cs {
		if w.by[c.ID] = c; Blank(c) {
			delete(w.by, c.ID)
		}
	}
	return cs
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// all gives the circuits in a copy: the world goes on.
func (w *world) all() map[string]fleet.Circuit {
	out := map[string]fleet.Circuit{}
	for id, c := range w.by {
		out[id] = *clone(c)
	}
	return out
}

func (w *world) set() *Set {
	var cs []*fleet.Circuit
	for _, c := range w.by {
		cs = append(cs, c)
	}
	return NewSet(cs)
}

// assign gives an attempt on a runner, with the leases that it needs; ok is false where
// circuits refuse it.
func (w *world) assign(r fleet.RunnerID, change ...func(*Seen)) (s Seen, ok bool) {
	s = Seen{Runner: r, Provider: "openai", Model: "gpt-x", Exit: "exited"}
	for _, f := range change {
		f(&s)
	}
	a := w.set().Passes(Ask{Runner: s.Runner, Harness: "codex", Provider: s.Provider, Account: s.Account, Model: s.Model, Automated: s.Automated, Docker: true}, w.now)
	if a.Verdict == No {
		return s, false
	}
	m := w.next()
	s.Fence, s.Probes = m.Fence, a.Probes
	for _, id := range a.Probes {
		w.keep(Lease(w.by[id], "job", m))
	}
	return s, true
}

// must gives an attempt that nothing refuses.
func (w *world) must(r fleet.RunnerID, change ...func(*Seen)) Seen {
	w.t.Helper()
	s, ok := w.assign(r, change...)
	if !ok {
		w.t.Fatalf("a start on %s is refused: %+v", r, w.set().Passes(Ask{Runner: r, Harness: "codex", Provider: s.Provider, Account: s.Account, Model: s.Model}, w.now))
	}
	return s
}

// ends ends an attempt with a class, and takes back what leases it still has.
func (w *world) ends(s Seen, class fleet.FailureClass, change ...func(*Seen)) []*fleet.Circuit {
	s.Class = class
	for _, f := range change {
		f(&s)
	}
	m := w.next()
	out := w.keep(Ended(w.find, s, m)...)
	w.release(s, m)
	return out
}

func (w *world) release(s Seen, m Moment) {
	for _, id := range s.Probes {
		if c := Release(w.by[id], s.Fence, m); c != nil {
			w.keep(c)
		}
	}
}

func (w *world) responds(s Seen) []*fleet.Circuit {
	return w.keep(Responded(w.find, s, w.next())...)
}

// only gives the one circuit that there is.
func (w *world) only() *fleet.Circuit {
	w.t.Helper()
	if len(w.by) != 1 {
		w.t.Fatalf("%d circuits, want one: %v", len(w.by), w.all())
	}
	for _, c := range w.by {
		return c
	}
	return nil
}

// until checks that a circuit is open for a time from now, or blocked (0).
func (w *world) until(c *fleet.Circuit, d time.Duration) {
	w.t.Helper()
	switch {
	case d == 0 && c.State != fleet.CircuitBlocked:
		w.t.Fatalf("%s is %s, want it blocked", c.ID, c.State)
	case d > 0 && (c.State != fleet.CircuitOpen || c.Until == nil || c.Until.Sub(w.now) != d):
		w.t.Fatalf("%s is %s until %v at %v, want it open for %s", c.ID, c.State, c.Until, w.now, d)
	}
}

func same(t tester, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
