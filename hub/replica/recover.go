package replica

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"tugline.dev/tugline/hub/spool"
)

// recover readies a stream for use in this term. Of one that an earlier leader may
// have added to, it asks a majority what they have, takes over the newest copy
// where that is not its own, and has a majority hold it under its own ballot before
// anybody is told how far the stream goes.
func (s *stream) recover() {
	ctx, cancel := s.t.r.patient(s.t.ctx)
	defer cancel()
	err := s.take(ctx)
	if err == nil {
		close(s.opened)
		s.mu.Lock()
		s.offerAll()
		s.mu.Unlock()
		s.recount()
		return
	}
	s.failed = fmt.Errorf("find out how far stream %s goes: %w", s.key, err)
	s.t.mu.Lock()
	if s.t.streams[s.key] == s {
		delete(s.t.streams, s.key)
	}
	s.t.mu.Unlock()
	close(s.opened)
}

// young says whether nobody can have added to the stream before this term.
func (t *term) young(k spool.Key) bool {
	return t.since > 0 && k.Fence.Epoch == t.ballot.Epoch && k.Fence.Index > t.since
}

// take finds what there is, and has this node hold it.
func (s *stream) take(ctx context.Context) error {
	r := s.t.r
	select {
	case <-s.t.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	unlock := r.locks.hold(s.key)
	own := r.holding(s.key)
	unlock()
	if !s.t.young(s.key) && own.Stamp.Ballot.term() != s.t.ballot {
		found, err := s.ask(ctx, own)
		if err != nil {
			return err
		}
		unlock := r.locks.hold(s.key)
		own, err = s.adopt(ctx, found)
		unlock()
		if err != nil {
			return err
		}
	} else {
		s.stamp, s.prior = own.Stamp.Ballot, own.Stamp
		if !own.Stamp.Ballot.IsZero() { // begun, forgotten and opened again in this term
			s.floor = own.Size
		}
	}
	s.found = s.floor
	s.end, s.local, s.losses = own.Size, own.Size, r.spool.Losses(s.key)
	if own.Sealed {
		digest, err := own.Digest, error(nil)
		if digest == "" {
			digest, err = r.spool.SealSum(ctx, s.key, own.Size)
		}
		if err != nil {
			return err
		}
		s.seal = &sealing{own.Size, digest}
	}
	return nil
}

// found is the newest copy of a stream among a majority.
type found struct {
	holding
	peer *peer // who has it; nil: this node
}

// ask has a majority of the voters promise, and tell what they have.
func (s *stream) ask(ctx context.Context, own holding) (found, error) {
	r := s.t.r
	for {
		v := r.view.Load()
		best, n := found{holding: own}, 0
		if v.voters[v.self] {
			n++
		}
		voters := slices.DeleteFunc(r.connected(), func(p *peer) bool { return !v.voters[p.id] })
		deposed := false
		probe := &message{Kind: kindProbe, Ballot: s.t.ballot, Keys: []spool.Key{s.key}}
		ask(ctx, voters, probe, func(p *peer, a *message, err error) bool {
			switch {
			case err != nil:
				deposed = a != nil && a.Promised.Compare(s.t.ballot) > 0
			case len(a.Holdings) == 1:
				n++
				if h := a.Holdings[0]; newer(h, best.holding) > 0 {
					best = found{h, p}
				}
			}
			return !deposed && n < v.majority()
		})
		switch {
		case deposed:
			s.t.end(errDeposed)
			return found{}, errDeposed
		case n >= v.majority():
			return best, nil
		}
		if err := pause(ctx, minBackoff); err != nil {
			return found{}, err
		}
	}
}

// newer compares two copies: of two under one ballot, the longer is the newer, and
// a sealed one is the longest that there is.
func newer(a, b holding) int {
	sealed := func(h holding) int {
		if h.Sealed {
			return 1
		}
		return 0
	}
	return cmp.Or(a.Stamp.Ballot.Compare(b.Stamp.Ballot), cmp.Compare(sealed(a), sealed(b)), cmp.Compare(a.Size, b.Size))
}

// adopt makes this node's copy the one that was found, and has it stand under the
// leader's ballot. The stream is locked.
func (s *stream) adopt(ctx context.Context, f found) (own holding, err error) {
	r := s.t.r
	if r.record.promise().Compare(s.t.ballot) > 0 {
		return own, errDeposed
	}
	if own = r.holding(s.key); newer(own, f.holding) >= 0 { // it was fetched meanwhile
		f = found{holding: own}
	}
	s.prior = f.Stamp
	if f.peer != nil {
		if err := r.copyFrom(ctx, f.peer, own, f.holding); err != nil {
			return own, err
		}
		own = r.holding(s.key)
	}
	s.floor, s.stamp = own.Size, s.t.ballot
	return own, r.record.set(s.key, stamp{Ballot: s.stamp})
}

// copyFrom makes this node's copy of a stream equal to a peer's. The stream is locked.
func (r *Replica) copyFrom(ctx context.Context, p *peer, own, theirs holding) error {
	l, k := p.up(), theirs.Key
	if l == nil {
		return errHungUp
	}
	if theirs.Sealed {
		c, err := r.receive(ctx, l, theirs, nil)
		if err != nil {
			return err
		}
		return c.Place()
	}
	from := own.Size
	if alike := own.Size == 0 || !own.Sealed && own.Stamp == theirs.Stamp && !own.Stamp.Mixed; !alike || own.Size > theirs.Size {
		base, err := r.common(ctx, l, k, min(own.Size, theirs.Size))
		if err != nil {
			return err
		}
		if base < own.Size || own.Sealed {
			r.log.Warn("this node's copy of output differs from the newest and is cut", "job", k.Job, "fence", k.Fence, "at", base, "size", own.Size)
			if err := r.spool.Cut(k, base); err != nil {
				return err
			}
		}
		from = base
	}
	if own.Stamp != theirs.Stamp && from < theirs.Size {
		if err := r.record.set(k, stamp{Ballot: own.Stamp.Ballot, Mixed: true}); err != nil {
			return err
		}
	}
	in := r.remote(ctx, l, k, from, theirs.Size, nil)
	defer in.Close()
	buf := make([]byte, maxChunk)
	for from < theirs.Size {
		n, err := io.ReadFull(in, buf[:min(maxChunk, theirs.Size-from)])
		if err != nil {
			return fmt.Errorf("fetch stream %s from node %s: %w", k, p.id, err)
		}
		if _, err := r.spool.Append(ctx, k, from, buf[:n]); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// receive fetches a finished stream whole and verifies it.
func (r *Replica) receive(ctx context.Context, l *link, h holding, pace func(int) error) (*spool.Received, error) {
	if h.Digest == "" {
		a, err := l.call(ctx, &message{Kind: kindSum, Key: h.Key, Length: h.Size})
		if err != nil {
			return nil, err
		}
		h.Digest = a.Digest
	}
	in := r.remote(ctx, l, h.Key, 0, h.Size, pace)
	defer in.Close()
	return r.spool.Receive(ctx, h.Key, h.Size, h.Digest, in)
}

// common gives how many of the first n bytes a peer's copy shares with ours.
func (r *Replica) common(ctx context.Context, l *link, k spool.Key, n int64) (int64, error) {
	equal := func(from, to int64) (bool, error) {
		if from == to {
			return true, nil
		}
		a, err := l.call(ctx, &message{Kind: kindSum, Key: k, Offset: from, Length: to - from})
		if err != nil {
			return false, err
		}
		d, err := r.spool.Sum(ctx, k, from, to)
		return d == a.Digest, err
	}
	same, err := equal(0, n)
	if err != nil || same {
		return n, err
	}
	lo, hi := int64(0), n // the first lo are equal, of the first hi some differ
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		same, err := equal(lo, mid)
		switch {
		case err != nil:
			return 0, err
		case same:
			lo = mid
		default:
			hi = mid
		}
	}
	return lo, nil
}

// holding says what this node has of a stream. One that was sealed empty is nothing
// that another node could take over: the record of its job says that it has no bytes.
func (r *Replica) holding(k spool.Key) holding {
	i, _ := r.spool.Peek(k)
	return holding{Key: k, Stamp: r.record.stampOf(k), Size: i.Size, Sealed: i.Sealed && i.Size > 0, Digest: i.Digest}
}
