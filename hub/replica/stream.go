package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// stream is what the leader knows of a stream and its copies.
type stream struct {
	t      *term
	key    spool.Key
	opened chan struct{} // closed when it may be used, or cannot be
	failed error         // why it cannot

	order sync.Mutex // held while bytes are put into the file, so that they are handed on in order

	mu      sync.Mutex
	stamp   Ballot // under which copies stand; its round is raised when bytes were given up
	prior   stamp  // under which the leader found what it went on from
	floor   int64  // how many bytes it found, or kept when it gave bytes up
	found   int64  // how many it found; set before opened is closed
	losses  int    // of the file, when it was looked at last
	end     int64  // bytes in this node's file
	local   int64  // of these, durable
	acked   int64  // durable on a majority
	seal    *sealing
	sealed  bool // the seal is on a majority
	copies  map[string]*copied
	changed chan struct{} // made by whoever waits; closed when acked or sealed change
	users   int
	used    time.Time
	retired bool
}

// sealing is a seal that is on this node.
type sealing struct {
	length int64
	digest fleet.Digest
}

// copied is what is known of a peer's copy, over one connection.
type copied struct {
	link   *link
	state  copyState
	size   int64 // durable bytes there
	sealed bool
	queued bool // the peer has it in its queue
	busy   bool // something is on its way
	tried  bool // this connection was used for it before
}

type copyState byte

const (
	apart   copyState = iota // nobody knows yet how it stands to ours
	filling                  // it is the beginning of what the leader found
	joined                   // it stands under the leader's ballot
)

// open gives the stream, which is then as far as any majority acknowledged.
// Whoever gets it calls leave.
func (t *term) open(ctx context.Context, k spool.Key) (*stream, error) {
	for {
		t.mu.Lock()
		s := t.streams[k]
		if s == nil {
			s = &stream{t: t, key: k, opened: make(chan struct{}), copies: map[string]*copied{}, used: time.Now()}
			t.streams[k] = s
			if !t.r.spawn(func(context.Context) { s.recover() }) {
				s.failed = errNotRunning
				delete(t.streams, k)
				close(s.opened)
			}
		}
		t.mu.Unlock()
		select {
		case <-s.opened:
		case <-t.ctx.Done():
			return nil, context.Cause(t.ctx)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if s.failed != nil {
			return nil, s.failed
		}
		if s.enter() {
			return s, nil
		}
	}
}

func (s *stream) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.users++
	return true
}

// isOpen says whether the stream may be used.
func (s *stream) isOpen() bool {
	select {
	case <-s.opened:
		return s.failed == nil
	default:
		return false
	}
}

func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.used = time.Now()
}

// append is Append on the leader.
func (s *stream) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	r := s.t.r
	if acked, err := s.await(ctx, s.found); err != nil {
		return acked, err
	}
	unlock := r.locks.share(s.key)
	if r.record.promise().Compare(s.t.ballot) > 0 {
		unlock()
		return s.acknowledged(), errDeposed
	}
	r.anew(string(s.key.Job))
	s.order.Lock()
	p, err := r.spool.Write(ctx, s.key, offset, data)
	if err == nil {
		err = s.wrote(p)
		if err != nil {
			p.Commit() // it ends what was begun; the bytes are in no copy
		}
	}
	s.order.Unlock()
	if err != nil {
		unlock()
		return s.refuse(err)
	}
	local, err := p.Commit()
	unlock()
	s.settled(local)
	if err != nil {
		return s.acknowledged(), err
	}
	return s.await(ctx, offset+int64(len(data)))
}

// refuse is a refusal by the store, which knows only what is durable here.
func (s *stream) refuse(err error) (int64, error) {
	acked := s.acknowledged()
	var gap *spool.GapError
	if errors.As(err, &gap) {
		gap.Want = min(gap.Want, acked)
	}
	return acked, err
}

func (s *stream) acknowledged() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// wrote takes note of bytes in the file and has them handed on; order is held.
func (s *stream) wrote(p *spool.Pending) error {
	s.mu.Lock()
	lost := p.Losses != s.losses
	s.mu.Unlock()
	if lost {
		if err := s.anew(p.Start, p.Losses); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.End > s.end {
		s.end = p.End
		s.offerAll()
	}
	return nil
}

// anew begins another round, since bytes after the first size were handed on and
// then given up here: what is written in their place must not pass for them.
func (s *stream) anew(size int64, losses int) error {
	s.mu.Lock()
	next, prior := s.stamp, stamp{Ballot: s.stamp}
	s.mu.Unlock()
	next.Epoch, next.Term, next.Round = s.t.ballot.Epoch, s.t.ballot.Term, next.Round+1
	if err := s.t.r.record.set(s.key, stamp{Ballot: next}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp, s.prior, s.floor, s.losses, s.end = next, prior, size, losses, size
	s.copies = map[string]*copied{}
	return nil
}

// settled takes note of what is durable here.
func (s *stream) settled(local int64) {
	s.mu.Lock()
	s.local = max(s.local, local)
	s.mu.Unlock()
	s.recount()
}

// recount sees what is durable on a majority of the voters by now.
func (s *stream) recount() {
	if !s.isOpen() {
		return // whoever opens it counts
	}
	v := s.t.r.view.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	var sizes []int64
	seals := 0
	for id := range v.voters {
		size, sealed := int64(0), false
		if id == v.self {
			size, sealed = s.local, s.seal != nil
		} else if c := s.copies[id]; c != nil && c.state == joined {
			size, sealed = c.size, c.sealed
		}
		sizes = append(sizes, size)
		if sealed {
			seals++
		}
	}
	if len(sizes) == 0 {
		return
	}
	slices.Sort(sizes)
	// Never more than what is durable here: every later leader finds at least that.
	acked := min(sizes[len(sizes)-v.majority()], s.local)
	sealed := s.seal != nil && seals >= v.majority()
	if acked > s.acked || sealed && !s.sealed {
		s.acked, s.sealed = max(s.acked, acked), s.sealed || sealed
		if s.changed != nil {
			close(s.changed)
			s.changed = nil
		}
	}
}

// await waits until last bytes are acknowledged.
func (s *stream) await(ctx context.Context, last int64) (int64, error) {
	err := s.until(ctx, func() bool { return s.acked >= last })
	return s.acknowledged(), err
}

// until waits for something that recount brings about; ok is called with mu held.
func (s *stream) until(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.t.ctx.Done():
			return fmt.Errorf("stream %s: %w", s.key, errDeposed)
		case <-ctx.Done():
			return fmt.Errorf("stream %s: %w", s.key, context.Cause(ctx))
		}
	}
}

// finish is Seal on the leader.
func (s *stream) finish(ctx context.Context, length int64, digest fleet.Digest) error {
	r := s.t.r
	// What is sealed counts, so that every byte of it is acknowledged first.
	if _, err := s.await(ctx, max(s.found, min(length, s.inFile()))); err != nil {
		return err
	}
	unlock := r.locks.share(s.key)
	defer unlock()
	if r.record.promise().Compare(s.t.ballot) > 0 {
		return errDeposed
	}
	s.order.Lock()
	var err error
	if digest == "" {
		digest, err = r.spool.SealSum(ctx, s.key, length)
	} else {
		err = r.spool.Seal(ctx, s.key, length, digest)
	}
	s.order.Unlock()
	if err != nil {
		_, err = s.refuse(err)
		return err
	}
	s.mu.Lock()
	s.seal = &sealing{length, digest}
	s.offerAll()
	s.mu.Unlock()
	s.recount()
	return s.until(ctx, func() bool { return s.sealed })
}

func (s *stream) inFile() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// idle says whether the stream can be forgotten: nobody used it for a while, and
// every connected peer has all of it.
func (s *stream) idle(now time.Time) bool {
	if !s.isOpen() {
		return false
	}
	peers := s.t.r.connected()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || now.Sub(s.used) < idleFor {
		return false
	}
	for _, p := range peers {
		c := s.copies[p.id]
		if c == nil || c.state != joined || c.size != s.end || c.sealed != (s.seal != nil) {
			return false
		}
	}
	s.retired = true
	return true
}

const idleFor = time.Minute
