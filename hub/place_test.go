package hub

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/shared/fleet"
)

// air is flights whose proposals end when the test says so.
type air struct {
	flights
	answers map[fleet.JobID]chan bool
	pokes   int
}

func (a *air) begin(more bool, ids ...fleet.JobID) {
	var all []sched.Assignment
	answers := map[fleet.JobID]chan bool{}
	for _, id := range ids {
		answers[id] = make(chan bool)
		all = append(all, sched.Assignment{Job: id})
	}
	maps.Copy(a.answers, answers)
	a.flights.begin(all, more, func(x sched.Assignment) bool { return <-answers[x.Job] }, func() { a.pokes++ })
}

func (a *air) end(id fleet.JobID, ok bool) {
	a.answers[id] <- ok
	synctest.Wait()
}

func inTheAir(t *testing.T, f func(*air)) {
	synctest.Test(t, func(*testing.T) {
		a := &air{answers: map[fleet.JobID]chan bool{}}
		f(a)
		a.under.Wait()
	})
}

// TestLooksOverlap: a look takes for granted what those before it have proposed, until it
// is known what became of that.
func TestLooksOverlap(t *testing.T) {
	inTheAir(t, func(a *air) {
		a.begin(false, "j1", "j2")
		if all, ok := a.look(); !ok || len(all) != 2 {
			t.Errorf("the second look takes %v for granted, %t; want both", all, ok)
		}
		a.end("j1", true)
		if all, ok := a.look(); !ok || len(all) != 1 {
			t.Errorf("the third look takes %v for granted, %t; want one", all, ok)
		}
		a.end("j2", true)
		if all, ok := a.look(); !ok || len(all) != 0 || a.pokes != 0 {
			t.Errorf("the last look takes %v for granted, %t, after %d pokes; want none", all, ok, a.pokes)
		}
	})
}

// TestLooksAreBounded: a look too many is put off until one of those under way is done.
func TestLooksAreBounded(t *testing.T) {
	inTheAir(t, func(a *air) {
		for i := range looksAtOnce {
			if _, ok := a.look(); !ok {
				t.Errorf("look %d is put off", i)
			}
			a.begin(false, fleet.JobID(fmt.Sprint("j", i)))
		}
		if _, ok := a.look(); ok {
			t.Errorf("more than %d looks are under way", looksAtOnce)
		}
		if a.end("j1", true); a.pokes != 1 {
			t.Errorf("%d pokes after the end of a look while one was put off; want 1", a.pokes)
		}
		if _, ok := a.look(); !ok {
			t.Error("a look is put off with room for it")
		}
		for _, id := range []fleet.JobID{"j0", "j2", "j3"} {
			a.end(id, true)
		}
		if a.pokes != 1 {
			t.Errorf("%d pokes in all; want 1: nothing was put off since", a.pokes)
		}
	})
	inTheAir(t, func(a *air) {
		var ids []fleet.JobID
		for i := range assignAtOnce {
			ids = append(ids, fleet.JobID(fmt.Sprint("j", i)))
		}
		a.begin(true, ids...)
		if _, ok := a.look(); ok {
			t.Errorf("a look begins with %d assignments under way", assignAtOnce)
		}
		for _, id := range ids {
			a.end(id, true)
		}
		if a.pokes != 1 {
			t.Errorf("%d pokes after a look that found more than it could take; want 1", a.pokes)
		}
	})
}

// TestRefusedAssignmentIsLookedAtAgain: what a later look took for granted and did not come
// to pass is looked for anew; where no look came in between, the change itself brings one.
func TestRefusedAssignmentIsLookedAtAgain(t *testing.T) {
	inTheAir(t, func(a *air) {
		a.look()
		a.begin(false, "j1")
		if a.end("j1", false); a.pokes != 0 {
			t.Errorf("%d pokes though no look counted on it", a.pokes)
		}
		a.look()
		a.begin(false, "j2")
		a.look()
		if a.end("j2", false); a.pokes != 1 {
			t.Errorf("%d pokes; want 1, for the look that counted on it", a.pokes)
		}
	})
}

// TestWhatIsSeenIsBroughtOver: what was seen of a runner is as old in the time of records as
// it is by this machine's clock, and what was never seen stays so.
func TestWhatIsSeenIsBroughtOver(t *testing.T) {
	now := time.Now()
	p := fleet.Presence{LastBeat: now.Add(-10 * time.Second)}
	for _, ahead := range []time.Duration{0, time.Hour, -24 * time.Hour} {
		c := clocked(p, ahead)
		if age := now.Add(ahead).Sub(c.LastBeat); age != 10*time.Second || !c.HealthAt.IsZero() {
			t.Errorf("%s ahead: the last beat is %s old, the sample of %s", ahead, age, c.HealthAt)
		}
	}
}
