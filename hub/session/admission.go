package session

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// AdmitEvery is the least time between two handshakes that begin, so that at most
	// 1,000 begin in a second however many runners come at once after an election.
	AdmitEvery = time.Millisecond
	// admitWait is how far ahead a handshake may be put off; runners that would wait
	// longer are told when to come back instead. It holds 500 runners with room to spare.
	admitWait = 2 * time.Second
	// perSecond is how many runners are asked to come back in one second while no hub
	// leads, so that those who ask do not keep the hubs from electing one.
	perSecond = 500
)

// admission spreads handshakes over time.
type admission struct {
	mu        sync.Mutex
	next      time.Time // when the next handshake may begin
	runners   int       // on record
	countedAt time.Time
}

// reserve gives how long a handshake waits for its turn. Where that is too long it gets
// none, and ok is false.
func (a *admission) reserve(now time.Time) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next.Before(now) {
		a.next = now
	}
	wait = a.next.Sub(now)
	if wait > admitWait {
		return wait, false
	}
	a.next = a.next.Add(AdmitEvery)
	return wait, true
}

// admitted waits for a handshake's turn; otherwise it has answered.
func (s *Server) admitted(w http.ResponseWriter, r *http.Request) bool {
	wait, ok := s.admission.reserve(s.now())
	if !ok {
		s.busy(w, wait)
		return false
	}
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	case <-s.life.Done():
		s.problem(w, http.StatusServiceUnavailable, fmt.Errorf("the hub is stopping: %w", context.Cause(s.life)))
		return false
	}
}

// busy tells a runner when to come back.
func (s *Server) busy(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds(wait)))
	s.problem(w, http.StatusServiceUnavailable, fmt.Errorf("too many runners connect at this moment; try again: %w", fleet.Unavailable))
}

// again is after what time a runner that was refused may ask once more: the more
// runners there are, the later. They are counted once a second.
func (s *Server) again() time.Duration {
	a, now := &s.admission, s.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.countedAt) > time.Second {
		a.runners, a.countedAt = len(s.cfg.Proposer.View().Runners()), now
	}
	return time.Duration(a.runners) * time.Second / perSecond
}

// seconds gives a time as Retry-After has it.
func seconds(d time.Duration) int {
	return int(min(max((d+time.Second-1)/time.Second, 1), 30))
}
