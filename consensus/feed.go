package consensus

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
)

var (
	// ErrGap says that the feed no longer holds what a subscriber wants to
	// resume after, or was reset: load a snapshot and start again from there.
	ErrGap = errors.New("events are missing from the feed")
	// ErrSlow says that a subscriber fell behind by more than the feed holds.
	ErrSlow = errors.New("subscriber too slow")
)

// Event is one committed change in a feed.
type Event struct {
	Index uint64 // log index of the entry that made it
	Data  any    // shared by all subscribers, not to be changed
	// Last marks the last event of its index. Only then has a subscriber all
	// of Index, and may it name Index as the place to resume after.
	Last bool
}

// Feed hands committed changes to any number of subscribers. It holds the
// newest events once, in a ring; a subscriber is a place in the ring, so that
// a slow one costs nothing and is told when it was overtaken. Publishing never
// waits for a reader.
type Feed struct {
	publish sync.Mutex // for whoever changes the feed or enters it; Next doesn't take it
	ring    atomic.Pointer[ring]
	wake    atomic.Pointer[chan struct{}] // closed and replaced to wake the waiting
	waiting atomic.Bool                   // somebody may wait on wake
	closed  atomic.Bool
}

// ring holds the newest events. Slot seq%len has the event of that sequence
// number, or of one a whole turn older or newer.
type ring struct {
	slots []atomic.Pointer[slot]
	next  uint64 // sequence number of the next event; under Feed.publish
	floor uint64 // greatest index of which an event is missing; under Feed.publish
}

func (r *ring) at(seq uint64) *atomic.Pointer[slot] { return &r.slots[seq%uint64(len(r.slots))] }

type slot struct {
	seq   uint64
	event Event
}

// NewFeed returns a feed that holds the newest capacity events, at least 1. It
// knows every change after index 0: a feed that starts behind a snapshot is
// Reset to the snapshot's index first.
func NewFeed(capacity int) *Feed {
	f := &Feed{}
	f.ring.Store(&ring{slots: make([]atomic.Pointer[slot], max(capacity, 1))})
	wake := make(chan struct{})
	f.wake.Store(&wake)
	return f
}

// Publish appends the events of one entry. All events of an index belong in
// one call, and index grows from call to call. It never waits for subscribers.
func (f *Feed) Publish(index uint64, events ...any) {
	if len(events) == 0 {
		return
	}
	f.publish.Lock()
	defer f.publish.Unlock()
	r := f.ring.Load()
	for i, data := range events {
		at := r.at(r.next)
		if old := at.Load(); old != nil {
			r.floor = old.event.Index
		}
		at.Store(&slot{r.next, Event{Index: index, Data: data, Last: i == len(events)-1}})
		r.next++
	}
	f.broadcast()
}

// Reset forgets everything and goes on after index, as a state machine does
// when it is restored from a snapshot. Subscribers get ErrGap.
func (f *Feed) Reset(index uint64) {
	f.publish.Lock()
	defer f.publish.Unlock()
	f.ring.Store(&ring{slots: make([]atomic.Pointer[slot], len(f.ring.Load().slots)), floor: index})
	f.broadcast()
}

// Close ends all subscriptions with ErrClosed once they have read what is
// there, and refuses new ones. It may be called again.
func (f *Feed) Close() {
	f.publish.Lock()
	defer f.publish.Unlock()
	f.closed.Store(true)
	f.broadcast()
}

func (f *Feed) broadcast() {
	if f.waiting.Swap(false) {
		wake := make(chan struct{})
		close(*f.wake.Swap(&wake))
	}
}

// Subscribe returns a subscription to every event with an index greater than
// after. It returns ErrGap if some of them are gone from the ring, and
// ErrClosed after Close. after may lie ahead of the feed, as after a restart
// that still replays.
func (f *Feed) Subscribe(after uint64) (*Subscription, error) {
	f.publish.Lock()
	defer f.publish.Unlock()
	if f.closed.Load() {
		return nil, fmt.Errorf("subscribe: %w", ErrClosed)
	}
	r := f.ring.Load()
	if after < r.floor {
		return nil, fmt.Errorf("subscribe after %d: %w", after, ErrGap)
	}
	held := min(r.next, uint64(len(r.slots)))
	seq := r.next - held + uint64(sort.Search(int(held), func(i int) bool {
		return r.at(r.next-held+uint64(i)).Load().event.Index > after
	}))
	return &Subscription{feed: f, ring: r, seq: seq, after: after, done: make(chan struct{})}, nil
}

// Subscription is one reader's place in a feed. Next is for one goroutine at a
// time; Close may be called from any.
type Subscription struct {
	feed  *Feed
	ring  *ring
	seq   uint64 // of the next event
	after uint64 // events up to here are not wanted
	once  sync.Once
	done  chan struct{}
}

// Next returns the next event, waiting for it as long as ctx allows. It
// returns the cause of ctx, ErrSlow if the reader was overtaken, ErrGap after a
// reset, or ErrClosed after Close of the subscription or the feed; all but the
// first are final.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		select {
		case <-s.done:
			return Event{}, ErrClosed
		default:
		}
		wake := *s.feed.wake.Load()
		e, ok, err := s.poll()
		if ok || err != nil {
			return e, err
		}
		// Say so first, look again, and only then wait: whoever publishes in
		// between either is seen here or sees that somebody waits.
		s.feed.waiting.Store(true)
		e, ok, err = s.poll()
		if ok || err != nil {
			return e, err
		}
		select {
		case <-wake:
		case <-s.done:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// poll returns the next event if it is there.
func (s *Subscription) poll() (Event, bool, error) {
	for {
		if s.feed.ring.Load() != s.ring {
			return Event{}, false, ErrGap
		}
		// What is published before Close is seen after it.
		closed := s.feed.closed.Load()
		at := s.ring.at(s.seq).Load()
		switch {
		case at == nil || at.seq < s.seq:
			if closed {
				return Event{}, false, ErrClosed
			}
			return Event{}, false, nil
		case at.seq > s.seq:
			return Event{}, false, ErrSlow
		}
		s.seq++
		if at.event.Index > s.after {
			return at.event, true, nil
		}
	}
}

// Close ends the subscription. It may be called again.
func (s *Subscription) Close() { s.once.Do(func() { close(s.done) }) }
