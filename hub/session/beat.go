package session

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// heartbeat takes one in and gives the body of the reply. By itself it never
// reaches the log; what it shows for the first time is proposed beside it.
func (x *session) heartbeat(body []byte) ([]byte, error) {
	var hb wire.Heartbeat
	if err := wire.Decode(body, &hb); err != nil {
		return nil, fmt.Errorf("decode heartbeat: %w", err)
	}
	if len(hb.Attempts) > maxViews {
		return nil, fmt.Errorf("heartbeat lists %d attempts, at most %d: %w", len(hb.Attempts), maxViews, fleet.TooLarge)
	}
	s := x.srv
	v := s.cfg.Proposer.View()
	if err := s.current(v); err != nil {
		x.end(wire.Goodbye{Code: fleet.SessionEnded, Detail: sentence(err)})
		return nil, nil
	}
	r, ok := v.Runner(x.runner)
	if !ok {
		return nil, fmt.Errorf("runner %s is not enrolled: %w", x.runner, fleet.RunnerUnknown)
	}
	if bye := barred(r, x.generation); bye != nil {
		x.end(*bye)
		return nil, nil
	}
	if _, ok := s.cfg.Keys().Masters[x.master]; !ok {
		x.end(ended(r, x.master))
		return nil, nil
	}
	if !s.cfg.Leading() {
		x.end(wire.Goodbye{Code: fleet.SessionEnded, Detail: "this hub does not lead any more"})
		return nil, nil
	}
	open := v.OpenOf(x.runner)
	interval := s.interval(open)
	strays := x.findStrays(v, hb.Attempts)
	m := machineOf(&hb, s.now())
	x.mu.Lock()
	if hb.Count < x.count {
		was := x.count
		x.mu.Unlock()
		return nil, fmt.Errorf("the journal counter went back from %d to %d in one session: %w", was, hb.Count, fleet.BadSequence)
	}
	x.beatAt, x.interval, x.slots, x.declining, x.count = s.now(), interval, max(hb.Slots, 0), hb.Declining, hb.Count
	x.full = x.full || hb.Full
	x.views, x.strays = hb.Attempts, strays
	x.automation, x.limitedBy = offered(hb.Automation), joinReasons(hb.LimitedBy)
	x.machine.take(m)
	x.sessions = soundSessions(hb.Sessions)
	if hb.Keys != nil {
		x.held = hb.Keys
	}
	x.mu.Unlock()
	changed := s.note(x)
	s.pass(x.runner, m)
	for _, d := range hb.Errands[:min(len(hb.Errands), wire.MaxAnswers)] {
		if len(d.Body) <= wire.MaxAnswer {
			d.Detail = fleet.CutText(d.Detail, fleet.MaxDetail)
			s.cfg.OnErrand(x.runner, d)
		}
	}
	if hb.Provision != nil {
		if cmd := s.cfg.OnProvision(v, x.runner, *hb.Provision); cmd != nil {
			x.once(fleet.Fence{Index: provisioning}, 0, cmd)
		}
	}
	x.tell(r, v, hb)
	if changed {
		s.cfg.OnBeat(x.runner)
	}
	return x.reply(v, open, hb.Attempts, interval)
}

// provisioning is what stands for an attempt where installations are proposed; no entry
// has that index.
const provisioning = math.MaxUint64

// interval is how long the runner may wait until its next heartbeat: short while
// an attempt concerns it, else longer the more runners there are.
func (s *Server) interval(open []state.Open) time.Duration {
	if len(open) > 0 {
		return s.cfg.ActiveInterval
	}
	return min(max(s.cfg.IdleInterval, time.Duration(s.connected())*10*time.Millisecond), maxInterval)
}

// tell proposes what a heartbeat shows and the log does not know: facts that
// changed, progress of an attempt that was only assigned, life of one that was lost.
func (x *session) tell(r *fleet.Runner, v state.View, hb wire.Heartbeat) {
	if hb.Facts != nil && !reflect.DeepEqual(normal(r.Facts), normal(*hb.Facts)) {
		if b, err := json.Marshal(hb.Facts); err == nil && len(b) <= maxFollow {
			x.once(fleet.Fence{}, 0, &state.UpdateRunner{ID: x.runner, Facts: hb.Facts})
		}
	}
	for _, view := range hb.Attempts {
		j, ok := v.Job(view.Job)
		if !ok {
			continue
		}
		_, a := j.Find(view.Fence)
		if a == nil || a.Runner != x.runner {
			continue
		}
		switch {
		case a.State == fleet.AttemptAssigned && a.Phase == "" && view.Phase == "preparing":
			x.once(a.Fence, lasting, &state.RecordFacts{Job: j.ID, Fence: a.Fence, Facts: []state.Fact{{Kind: "phase", Value: json.RawMessage(`"preparing"`)}}})
		case a.State == fleet.AttemptLost && !a.Gone && alive(view.Phase):
			x.once(a.Fence, 0, &state.ReviveAttempt{Job: j.ID, Fence: a.Fence})
		}
	}
}

// alive says whether an attempt in a phase goes on. One that finished reports its
// result instead.
func alive(phase string) bool {
	switch phase {
	case "ready", "running", "stopping", "finishing":
		return true
	}
	return false
}

// lasting is how long an attempt has to prepare before that is worth an entry of its
// own: most small jobs are accepted sooner.
const lasting = 100 * time.Millisecond

// once proposes a command beside the session's other work, after a time, unless one
// for the same attempt is still on its way. One that was to wait is not proposed where
// its attempt went on meanwhile. What is not committed is found again at the next beat.
func (x *session) once(f fleet.Fence, after time.Duration, cmd state.Command) {
	x.mu.Lock()
	if x.proposed[f] || x.ended != nil {
		x.mu.Unlock()
		return
	}
	if x.proposed == nil {
		x.proposed = map[fleet.Fence]bool{}
	}
	x.proposed[f] = true
	x.mu.Unlock()
	forget := func() {
		x.mu.Lock()
		delete(x.proposed, f)
		x.mu.Unlock()
	}
	ok := x.srv.spawn(func() {
		defer forget()
		if after > 0 && !x.still(f, after) {
			return
		}
		if err := x.srv.propose(x.srv.life, cmd); err != nil {
			x.srv.cfg.Logger.Info("propose what a heartbeat showed", "runner", x.runner, "fence", f.String(), "err", err)
		}
	})
	if !ok {
		forget()
	}
}

// still waits, and says whether the attempt is then as it was: assigned, and nothing
// more is known of it.
func (x *session) still(f fleet.Fence, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.srv.life.Done():
		return false
	}
	for _, o := range x.srv.cfg.Proposer.View().OpenOf(x.runner) {
		if o.Attempt.Fence == f {
			return o.Attempt.State == fleet.AttemptAssigned && o.Attempt.Phase == ""
		}
	}
	return false
}
