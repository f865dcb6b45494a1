package web

import (
	"sync"

	"tugline.dev/tugline/shared/fleet"
)

// live hands partial events to those who watch a job now. It remembers nothing,
// and who cannot keep up misses some.
type live struct {
	mu   sync.Mutex
	subs map[fleet.JobID]map[chan []fleet.Event]bool
}

func newLive() *live { return &live{subs: map[fleet.JobID]map[chan []fleet.Event]bool{}} }

func (l *live) publish(job fleet.JobID, events []fleet.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.subs[job] {
		select {
		case ch <- events:
		default:
		}
	}
}

func (l *live) watch(job fleet.JobID) (<-chan []fleet.Event, func()) {
	ch := make(chan []fleet.Event, 16)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs[job] == nil {
		l.subs[job] = map[chan []fleet.Event]bool{}
	}
	l.subs[job][ch] = true
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs[job], ch)
		if len(l.subs[job]) == 0 {
			delete(l.subs, job)
		}
	}
}
