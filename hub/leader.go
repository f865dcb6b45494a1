package hub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	blockAtOnce = 256              // jobs that one look at the queue blocks
	lookEvery   = time.Second      // for what time alone changes
	retainEvery = time.Minute      // retention
	proposeTime = 10 * time.Second // bound of one proposal
)

// lead is the leader's loop: look, decide, propose. It runs from the barrier of a
// term until leadership is lost.
func (h *Hub) lead(ctx context.Context) error {
	if err := h.keysToLead(ctx); err != nil { // nothing is signed by a key that was replaced
		return err
	}
	h.hearClocks()
	if err := h.leadCopies(ctx); err != nil {
		return err
	}
	h.expect()
	h.leading.Store(true)
	defer h.resign()
	h.log.Info("leading")
	l := newTerm(h)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	defer l.wake.Stop()
	for err := l.begin(ctx); err != nil; err = l.begin(ctx) {
		if h.entries.View().Meta().Cluster == "" || !errors.Is(err, fleet.ClockSkew) {
			return err
		}
		h.settled() // it serves what it has, and says why it takes nothing new
		if !l.doubted {
			h.log.Error("the clock cannot be believed: nothing is recorded until it is right", "err", err)
		}
		l.doubted = true
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
	h.settled()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.flights.under.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() { l.housekeeping(ctx) })
	wg.Go(func() { l.group(ctx) })
	wg.Go(func() { l.farewells(ctx) })
	wg.Go(func() { l.renewAfterRemoval(ctx) })
	wg.Go(func() { l.watchHealth(ctx) })
	wg.Go(func() { l.deliver(ctx) })
	wg.Go(func() { l.rollOut(ctx) })
	wg.Go(func() { l.tidyProvisions(ctx) })
	h.poke()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.pokes:
			l.act(ctx)
		case <-l.wake.C:
			l.act(ctx)
		case <-look.C:
			l.tick(ctx)
		}
	}
}

// tick is what is looked at because time has passed. Where nothing is to be done it
// should cost next to nothing: what it leaves for the collector in a second must stay
// far below what the collector takes for quiet, with any number of runners.
func (l *term) tick(ctx context.Context) {
	if !l.timely(ctx) {
		return
	}
	l.overdue(ctx)
	l.silence(ctx)
	l.probes(ctx)
	l.serveCA(ctx)
	l.act(ctx)
}

// act is what a change may call for.
func (l *term) act(ctx context.Context) {
	if l.doubted {
		return
	}
	l.place(ctx)
	l.verify(ctx)
}

// begin is what comes before anything else in a term.
func (l *term) begin(ctx context.Context) error {
	if err := l.catchUp(ctx); err != nil {
		return err
	}
	l.doubted = false
	return l.found(ctx)
}

// timely says whether the clock can be believed, and has state time follow it.
func (l *term) timely(ctx context.Context) bool {
	err := l.catchUp(ctx)
	if doubt := err != nil; doubt != l.doubted {
		l.doubted = doubt
		if doubt {
			l.hub.log.Error("the clock cannot be believed: nothing is recorded until it is right", "err", err)
		} else {
			l.hub.log.Info("the clock is right again")
		}
	}
	return !l.doubted
}

// housekeeping does what may take its time and concerns nobody who waits.
func (l *term) housekeeping(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if l.hub.entries.timely() == nil {
				l.retain(ctx, l.hub.wall())
				l.late(ctx)
				l.unserved(ctx)
			}
		}
	}
}

// poke asks the leader for a look at the queue; pokes that come while one waits
// are one.
func (h *Hub) poke() { poke(h.pokes) }

// term is one time of leading.
type term struct {
	hub     *Hub
	since   time.Time                 // every runner that was not silent has a full lease from here
	began   time.Time                 // the same by the wall clock
	first   map[fleet.Fence]time.Time // when an unaccepted assignment was first seen
	trials  trials
	memo    sched.Memo
	doubted bool        // the clock is not believed
	wake    *time.Timer // for a look at the queue, when time alone may change its answer
	flights flights
}

func newTerm(h *Hub) *term {
	return &term{hub: h, since: time.Now(), began: h.wall(), first: map[fleet.Fence]time.Time{}, trials: trials{}, wake: time.NewTimer(lookEvery)}
}

// propose commits a command that the leader decided; a refusal only says that
// something else was faster.
func (l *term) propose(ctx context.Context, cmd state.Command) (state.Result, bool) {
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	res, err := l.hub.entries.Propose(ctx, cmd)
	if err != nil {
		if ctx.Err() == nil || !errors.Is(err, fleet.Unavailable) {
			l.hub.log.Warn("proposal failed", "err", err)
		}
		return res, false
	}
	if res.Code != "" {
		l.hub.log.Debug("proposal refused", "code", res.Code, "err", res.Detail)
	}
	return res, res.Code == ""
}

// presence tells of every runner that was connected. With a thousand of them that is
// half a MiB: it is asked for only where something depends on it.
func (l *term) presence() map[fleet.RunnerID]fleet.Presence {
	all, off := l.hub.sessions.Presence(), l.ahead()
	out := make(map[fleet.RunnerID]fleet.Presence, len(all))
	for _, p := range all {
		out[p.Runner] = clocked(p, off)
	}
	return out
}

// waiting says whether any job is queued.
func waiting(v state.View) (any bool) {
	v.Queue(func(*fleet.Job) bool { any = true; return false })
	return any
}

// overdue blocks jobs that waited longer than they may.
func (l *term) overdue(ctx context.Context) {
	v := l.hub.entries.View()
	look := l.look()
	look.Limit = blockAtOnce
	for _, b := range sched.See(v, look).Overdue().Block {
		l.propose(ctx, &state.BlockJob{Job: b.Job, Turn: b.Turn, Code: b.Code, Detail: b.Detail})
	}
}

// silence ends attempts of runners that do not answer, takes back what had better go to
// another, and ends holds.
func (l *term) silence(ctx context.Context) {
	v := l.hub.entries.View()
	open, seen, runners := collect(v), l.lease(v), v.Runners()
	l.holds(ctx, runners)
	marked := slices.DeleteFunc(runners, func(r *fleet.Runner) bool { return r.SilentSince == nil })
	for _, cmd := range slices.Concat(due(open, seen), silences(open, marked, seen), moves(open, seen, l.misplaced(v, open))) {
		l.propose(ctx, cmd)
	}
}

// lease is what this leader has seen of runners and attempts so far.
func (l *term) lease(v state.View) lease {
	present := func(r fleet.RunnerID) fleet.Presence { p, _ := l.hub.sessions.PresenceOf(r); return p }
	return lease{
		since: l.since, now: time.Now(), began: l.began, first: l.first, spread: time.Duration(len(v.Runners())) * session.AdmitEvery,
		heard:    func(r fleet.RunnerID) time.Time { return present(r).LastBeat },
		shown:    l.hub.sessions.Shown,
		runner:   v.Runner,
		interval: func(r fleet.RunnerID) time.Duration { return present(r).Interval },
	}
}

func collect(v state.View) []state.Open {
	var out []state.Open
	v.Open(func(o state.Open) bool { out = append(out, o); return true })
	return out
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
