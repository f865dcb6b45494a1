package circuit

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestProbes: one job at a time tries a half-open circuit, and three successes far enough
// apart close it.
func TestProbes(t *testing.T) {
	w := newWorld(t)
	w.ends(w.must("r1"), fleet.ClassHarnessStartup)
	w.pass(15*time.Minute - time.Nanosecond)
	if _, ok := w.assign("r1"); ok {
		t.Fatal("a start passes before the time")
	}
	w.pass(time.Nanosecond)
	if got := At(w.only(), w.now); got != fleet.CircuitHalf {
		t.Fatalf("at its time it is %s", got)
	}
	first := w.must("r1")
	if _, ok := w.assign("r1"); ok {
		t.Fatal("two jobs try it at once")
	}
	success := func(s Seen, want int) {
		t.Helper()
		w.responds(s)
		if c := w.only(); c.Probe != nil || c.State != fleet.CircuitHalf || c.Successes != want {
			t.Fatalf("after a success: %+v, want %d successes", c, want)
		}
	}
	success(first, 1)
	w.responds(first) // told twice
	success(w.must("r1"), 1)
	w.pass(29 * time.Second)
	success(w.must("r1"), 1)
	w.pass(time.Second)
	success(w.must("r1"), 2)
	w.pass(30 * time.Second)
	last := w.must("r1")
	w.ends(last, fleet.ClassOK) // an end is a response where none was told
	c := w.only()
	if c.State != fleet.CircuitClosed || c.Step != 0 || c.Successes != 0 || c.Until != nil {
		t.Fatalf("after three: %+v", c)
	}
	w.ends(w.must("r1"), fleet.ClassHarnessStartup)
	w.until(w.only(), 15*time.Minute) // its ladder began anew
}

// TestProbeEnds: an end that says nothing of the circuit gives the lease back; a refusal
// opens it for longer, although others have succeeded.
func TestProbeEnds(t *testing.T) {
	for _, class := range []fleet.FailureClass{fleet.ClassTaskFailed, fleet.ClassCancelled, fleet.ClassTimeout, fleet.ClassStalled, fleet.ClassCrashed, fleet.ClassUnknown, fleet.ClassRateLimited} {
		w := newWorld(t)
		w.ends(w.must("r1"), fleet.ClassHarnessStartup)
		w.pass(15 * time.Minute)
		s := w.must("r1")
		w.ends(s, class)
		c := w.by[s.Probes[0]]
		if c.Probe != nil || c.Successes != 0 || c.Step != 1 || At(c, w.now) != fleet.CircuitHalf {
			t.Errorf("%s: %+v", class, c)
		}
	}
	w := newWorld(t)
	w.ends(w.must("r1"), fleet.ClassHarnessStartup)
	w.pass(15 * time.Minute)
	good := w.must("r1")
	w.responds(good)
	w.pass(time.Minute)
	other := w.must("r1")
	w.ends(good, fleet.ClassHarnessStartup, func(s *Seen) { s.Responded = true })
	c := w.only()
	w.until(c, 30*time.Minute)
	if c.Successes != 0 || c.Probe != nil {
		t.Fatalf("opened again it keeps %+v", c)
	}
	if got := w.responds(other); len(got) != 0 {
		t.Fatalf("a response to an attempt of before changes %v", got)
	}
}

// TestHostProbes: a command has no provider; what it does for a machine's circuits is to
// be accepted, and to end.
func TestHostProbes(t *testing.T) {
	command := func(s *Seen) { s.Provider = "" }
	w := newWorld(t)
	w.keep(HostFault(w.find, w.must("r1", command), fleet.CircuitDisk, w.next())...)
	w.pass(10 * time.Minute)
	for range 3 {
		s := w.must("r1", command)
		w.keep(Accepted(w.find, s, w.next())...)
		w.pass(30 * time.Second)
	}
	if c := w.only(); c.State != fleet.CircuitClosed {
		t.Fatalf("three accepts leave the disk's %s", c.State)
	}
	w = newWorld(t)
	w.ends(w.must("r1", command), fleet.ClassDocker)
	w.pass(10 * time.Minute)
	for i := range 3 {
		s := w.must("r1", command)
		if got := w.keep(Accepted(w.find, s, w.next())...); len(got) != 0 {
			t.Fatal("an accept says nothing of Docker")
		}
		w.ends(s, []fleet.FailureClass{fleet.ClassOK, fleet.ClassTaskFailed, fleet.ClassOK}[i])
		w.pass(30 * time.Second)
	}
	if c := w.only(); c.State != fleet.CircuitClosed {
		t.Fatalf("three ends leave Docker's %s", c.State)
	}
}

// TestRelease: only who has a lease gives it back.
func TestRelease(t *testing.T) {
	f := fleet.Fence{Epoch: 1, Index: 4}
	c := &fleet.Circuit{Probe: &fleet.CircuitProbe{Fence: f, At: noon}}
	if Release(nil, f, Moment{}) != nil || Release(&fleet.Circuit{}, f, Moment{}) != nil || Release(c, fleet.Fence{Epoch: 1, Index: 5}, Moment{}) != nil {
		t.Error("a lease of another, or of nobody, was taken back")
	}
	if got := Release(c, f, Moment{Now: noon}); got.Probe != nil || c.Probe == nil {
		t.Errorf("%+v from %+v", got, c)
	}
}

// TestStale: what was assigned before a circuit opened, was reset or found new credentials
// says nothing new about it.
func TestStale(t *testing.T) {
	w := newWorld(t)
	a, b := w.must("r1"), w.must("r1")
	w.ends(a, fleet.ClassQuotaExhausted, func(s *Seen) { s.ResetAt = in(time.Hour) })
	before := w.all()
	w.ends(b, fleet.ClassQuotaExhausted, func(s *Seen) { s.ResetAt = in(6 * time.Hour) })
	same(t, "after a stale refusal", w.all(), before)

	c := w.must("r2")
	w.ends(w.must("r2"), fleet.ClassAuth)
	auth := w.by[fleet.CircuitID(fleet.ScopeProvider, fleet.CircuitAuth, "r2", "openai", "", "")]
	w.keep(Reset(auth, "t-person", "signed in", "new key", w.next()))
	before = w.all()
	w.ends(c, fleet.ClassAuth)
	same(t, "after a refusal of before the repair", w.all(), before)

	w = newWorld(t)
	facts := fleet.RunnerFacts{Harnesses: []fleet.HarnessInfo{{Name: "codex"}}}
	one, two := w.must("r1"), w.must("r1")
	w.keep(Lost(w.find, one, facts, w.next())...)
	w.keep(Lost(w.find, two, facts, w.next())...)
	w.until(w.only(), 15*time.Minute) // once, although two were lost with it
}
