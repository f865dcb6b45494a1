package runner

import (
	"context"
	"reflect"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// settleTime gathers changes that come close together into one heartbeat.
const settleTime = 50 * time.Millisecond

// beats sends the heartbeats of one session: the first is full and goes at once.
func (l *link) beats(ctx context.Context, s *session) {
	told := s.facts // what the hub knows of this runner
	clocks := time.NewTicker(sleepCheck)
	defer clocks.Stop()
	for full := true; ; full = false {
		var err error
		if told, err = l.oneBeat(s, full, told); err != nil {
			s.end(err)
			return
		}
		s.clockMu.Lock()
		interval := s.interval
		s.clockMu.Unlock()
		if !l.rest(ctx, s, jitter(interval), clocks.C) {
			return
		}
	}
}

// rest waits until a heartbeat is due or something happens; false is the end.
func (l *link) rest(ctx context.Context, s *session, d time.Duration, clocks <-chan time.Time) bool {
	l.r.health.rests(time.Now().Add(d))
	due := time.NewTimer(d)
	defer due.Stop()
	last := time.Now()
	for {
		select {
		case <-due.C:
			return true
		case atOnce := <-l.beatNow:
			return atOnce || l.settled(ctx)
		case <-clocks:
			now := time.Now()
			if l.r.cfg.slept(last, now) {
				// Whoever was on the other side has given this session up, or soon will.
				l.r.log.Info("this machine slept; connecting anew")
				s.end(errSlept)
				return false
			}
			last = now
		case <-ctx.Done():
			return false
		}
	}
}

// settled waits a moment for more changes; false is the end.
func (l *link) settled(ctx context.Context) bool {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case atOnce := <-l.beatNow:
			if atOnce {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// oneBeat sends one heartbeat and gives the facts that the hub then knows.
func (l *link) oneBeat(s *session, full bool, told fleet.RunnerFacts) (fleet.RunnerFacts, error) {
	hb := l.r.heartbeat(full)
	now := l.r.facts()
	if !reflect.DeepEqual(now, told) {
		hb.Facts = &now
	}
	l.r.health.ride(&hb, time.Now())
	if hb.Health != nil {
		hb.Health.Reserved = l.r.ledger.total()
	}
	hb.Pressure = l.r.pressure.ride()
	hb.Errands = l.r.errands.ride(time.Now())
	if held := l.keys.held(); full || !reflect.DeepEqual(&held, s.held) {
		hb.Keys, s.held = &held, &held
	}
	body, err := wire.Encode(hb)
	if err != nil {
		return told, err
	}
	if err := s.send(wire.TypeHeartbeat, body); err != nil {
		l.r.pressure.missed(hb.Pressure)
		l.r.errands.missed(hb.Errands)
		return told, err
	}
	if l.r.errands.waits() {
		l.beat(false)
	}
	return now, nil
}

// heartbeat gives this runner's whole view.
func (r *Runner) heartbeat(full bool) wire.Heartbeat {
	seen := r.journal.Desired()
	hb := wire.Heartbeat{Full: full, Epoch: seen.Epoch, Term: seen.Term, Index: seen.Index, Count: r.journal.Count()}
	now := r.offer()
	hb.Slots, hb.Automation, hb.Declining, hb.LimitedBy = now.base, now.automation, now.declining, now.limitedBy
	r.mu.Lock()
	defer r.mu.Unlock()
	hb.Sessions, hb.Provision = r.owner.Sessions, r.provisions.view
	for _, h := range r.ordered() {
		v := h.attempt.View()
		hb.Attempts = append(hb.Attempts, wire.AttemptView{
			Job: v.Job, Fence: v.Fence, Phase: v.Phase, Detail: v.Detail, Since: v.Since, Unlisted: h.unlisted, Output: v.Output, Sent: v.Sent,
		})
	}
	return hb
}
