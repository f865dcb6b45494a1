package hub

import (
	"context"
	"maps"
	"sync"
	"time"

	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	assignAtOnce = 256 // assignments under way
	looksAtOnce  = 4   // looks whose assignments are under way: with more, each would find less

	wakeLeast = 20 * time.Millisecond // between a look and the one that time calls for
)

// place gives queued jobs to free runners. The proposals of one look go out
// together, so that they share a write of the log, and the next look does not wait for
// them: it takes them for granted until it is known what became of them.
func (l *term) place(ctx context.Context) { l.placeBy(ctx, l.look()) }

func (l *term) placeBy(ctx context.Context, look sched.Look) {
	flying, ok := l.flights.look() // before the view, which shows what ended since
	if !ok {
		return
	}
	v := l.hub.entries.View()
	if !waiting(v) {
		return
	}
	room := assignAtOnce - len(flying)
	look.Flying, look.Limit = flying, room
	plan := sched.See(v, look).Pick()
	l.wakeAt(plan.Next, look.Now)
	l.flights.begin(plan.Assign, len(plan.Assign) == room, func(a sched.Assignment) bool {
		cmd := &state.AssignJob{Job: a.Job, Runner: a.Runner, Turn: a.Turn, Attempts: a.Attempts, Slots: a.Base, Choice: a.Choice, Reserve: a.Reserve, Probes: a.Probes, Base: a.Base, Automation: a.Automation}
		_, ok := l.propose(ctx, cmd)
		if ok {
			l.hub.sessions.Nudge(a.Runner)
		}
		return ok
	}, l.hub.poke)
}

// look is what a decision is made from beside the state. It belongs to the loop: what is
// kept from look to look is in it.
func (l *term) look() sched.Look {
	off := l.ahead()
	return sched.Look{
		Presence: l.presence, Since: l.since.Add(off), Now: time.Now().Add(off),
		Memo: &l.memo,
	}
}

// ahead is how far the time that records go by is ahead of this machine's clock, which
// stamps what is seen of runners: not at all, but where the clock was set.
func (l *term) ahead() time.Duration {
	off := l.hub.entries.now().Round(0).Sub(time.Now().Round(0))
	if off.Abs() < lookEvery {
		return 0
	}
	return off
}

// clocked gives a presence in the time that records go by. What is older by this machine's
// monotonic clock stays older.
func clocked(p fleet.Presence, ahead time.Duration) fleet.Presence {
	if ahead != 0 {
		for _, t := range []*time.Time{&p.LastBeat, &p.HealthAt} {
			if !t.IsZero() {
				*t = t.Add(ahead)
			}
		}
	}
	return p
}

// wakeAt has the loop look again when time alone may change the answer.
func (l *term) wakeAt(next, now time.Time) {
	if !next.IsZero() {
		l.wake.Reset(max(next.Sub(now), wakeLeast))
	}
}

// flights are the assignments that a term has proposed and that have no answer yet.
type flights struct {
	under sync.WaitGroup

	mu     sync.Mutex
	all    map[fleet.JobID]sched.Assignment
	count  int  // looks so far
	flying int  // looks of which some are under way
	again  bool // a look was put off, or found more than it could take
}

// look gives what is under way; false says that it is too much for another look, which
// is asked for when that has changed.
func (f *flights) look() (map[fleet.JobID]sched.Assignment, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying >= looksAtOnce || len(f.all) >= assignAtOnce {
		f.again = true
		return nil, false
	}
	f.count++
	return maps.Clone(f.all), true
}

// begin has all assignments of a look proposed. With more it could not take all that it
// found. poke asks for a look that is due because of what became of them.
func (f *flights) begin(all []sched.Assignment, more bool, propose func(sched.Assignment) bool, poke func()) {
	if len(all) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[fleet.JobID]sched.Assignment{}
	}
	f.flying++
	f.again = f.again || more
	left, seen := len(all), f.count
	for _, a := range all {
		f.all[a.Job] = a
		f.under.Go(func() {
			ok := propose(a)
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.all, a.Job)
			if left--; left == 0 {
				f.flying--
			}
			// A look since then took for granted what did not come to pass.
			if f.again && left == 0 || !ok && f.count > seen {
				f.again = f.again && left > 0
				poke()
			}
		})
	}
}
