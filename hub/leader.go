package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	assignAtOnce = 256              // assignments of one look at the queue
	lookEvery    = time.Second      // for what time alone changes
	retainEvery  = time.Minute      // retention
	proposeTime  = 10 * time.Second // bound of one proposal
)

// lead is the leader's loop: look, decide, propose. It runs from the barrier of a
// term until leadership is lost.
func (h *Hub) lead(ctx context.Context) error {
	h.leading.Store(true)
	defer h.leading.Store(false)
	h.log.Info("leading")
	l := &term{hub: h, since: time.Now(), firstSeen: map[fleet.Fence]time.Time{}}
	if err := l.found(ctx); err != nil {
		return err
	}
	h.settled()
	look, retain := time.NewTicker(lookEvery), time.NewTicker(retainEvery)
	defer look.Stop()
	defer retain.Stop()
	h.poke()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.pokes:
			l.place(ctx)
			l.verify(ctx)
		case <-look.C:
			l.overdue(ctx)
			l.silence(ctx)
			l.place(ctx)
			l.verify(ctx)
		case <-retain.C:
			l.retain(ctx)
		}
	}
}

// poke asks the leader for a look at the queue; pokes that come while one waits
// are one.
func (h *Hub) poke() {
	select {
	case h.pokes <- struct{}{}:
	default:
	}
}

// term is one time of leading.
type term struct {
	hub       *Hub
	since     time.Time // every runner has a full lease from here
	firstSeen map[fleet.Fence]time.Time
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

func (l *term) presence() map[fleet.RunnerID]fleet.Presence {
	out := map[fleet.RunnerID]fleet.Presence{}
	for _, p := range l.hub.sessions.Presence() {
		out[p.Runner] = p
	}
	return out
}

// place gives queued jobs to free runners. The proposals of one look go out
// together, so that they share a write of the log.
func (l *term) place(ctx context.Context) {
	plan := sched.Pick(l.hub.entries.View(), l.presence(), time.Now(), assignAtOnce)
	var wg sync.WaitGroup
	for _, a := range plan.Assign {
		wg.Go(func() {
			cmd := &state.AssignJob{Job: a.Job, Runner: a.Runner, Turn: a.Turn, Attempts: a.Attempts, Slots: a.Slots}
			if _, ok := l.propose(ctx, cmd); ok {
				l.hub.sessions.Nudge(a.Runner)
			}
		})
	}
	wg.Wait()
	if len(plan.Assign) == assignAtOnce {
		l.hub.poke()
	}
}

// overdue blocks jobs that waited longer than they may.
func (l *term) overdue(ctx context.Context) {
	v := l.hub.entries.View()
	for _, b := range sched.Overdue(v, later(time.Now(), v.Meta().Time), assignAtOnce).Block {
		l.propose(ctx, &state.BlockJob{Job: b.Job, Turn: b.Turn, Code: b.Code, Detail: b.Detail})
	}
}

// silence ends attempts of runners that do not answer: an unaccepted one goes back
// to the queue, an accepted one is lost. Time counts from when this node began to
// lead or heard the runner last, whichever is later.
func (l *term) silence(ctx context.Context) {
	present := l.presence()
	now := time.Now()
	for _, o := range collect(l.hub.entries.View()) {
		a := o.Attempt
		heard := later(l.since, present[a.Runner].LastBeat)
		switch a.State {
		case fleet.AttemptAssigned:
			shown := later(l.since, l.hub.sessions.Shown(a.Runner, a.Fence))
			if given := l.assignedAt(a, now); given.After(shown) {
				shown = given
			}
			if now.Sub(shown) > fleet.AcceptDeadline {
				l.propose(ctx, &state.ReturnAttempt{Job: o.Job.ID, Fence: a.Fence, Detail: "did not show it for " + fleet.AcceptDeadline.String()})
			}
		case fleet.AttemptRunning:
			if now.Sub(heard) > fleet.LostAfter {
				l.propose(ctx, &state.LoseAttempt{Job: o.Job.ID, Fence: a.Fence, Detail: a.RunnerName + " has been silent for " + fleet.LostAfter.String()})
			}
		}
	}
}

// assignedAt is when this node first saw the assignment, on its own clock: the
// time in the record may be another node's.
func (l *term) assignedAt(a *fleet.Attempt, now time.Time) time.Time {
	at, ok := l.firstSeen[a.Fence]
	if !ok {
		at = now
		l.firstSeen[a.Fence] = at
	}
	return at
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
