package replica

import (
	"context"
	"errors"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// offerAll has every connected peer look at the stream; mu is held.
func (s *stream) offerAll() {
	for _, p := range s.t.r.connected() {
		s.offerLocked(p)
	}
}

// offer has a peer look at the stream.
func (s *stream) offer(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offerLocked(p)
}

func (s *stream) offerLocked(p *peer) {
	l := p.up()
	if l == nil || s.retired {
		return
	}
	if c := s.copyOver(p, l); !c.queued && !c.busy {
		c.queued = true
		p.enqueue(s)
	}
}

// copyOver gives what is known of the peer's copy over a connection; mu is held.
func (s *stream) copyOver(p *peer, l *link) *copied {
	c := s.copies[p.id]
	if c == nil || c.link != l {
		c = &copied{link: l}
		s.copies[p.id] = c
	}
	return c
}

// push sends the peer the next thing that it lacks, if nothing is on its way.
func (s *stream) push(p *peer, l *link, full bool) {
	s.mu.Lock()
	c := s.copyOver(p, l)
	c.queued = false
	// One that is not open yet is offered by whoever opens it.
	if !s.isOpen() || c.busy || s.t.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	if c.state == apart && !c.tried && s.stamp.IsZero() && s.floor == 0 && s.end <= maxChunk {
		c.state = joined // a stream of this term: what the peer has of it is from here
	}
	c.tried = true
	m := &message{Ballot: s.t.ballot, Key: s.key, Stamp: s.stamp}
	from, to := c.size, s.end
	if c.state == filling {
		to = s.floor
	}
	switch {
	case c.state == apart, c.state == filling && from >= to:
		m.Kind, m.Prior, m.Floor, c.state = kindJoin, s.prior, s.floor, apart
	case from < to && !full:
		m.Kind, m.Fill, m.Offset = kindAppend, c.state == filling, from
		m.Data = make([]byte, min(maxChunk, to-from))
	case s.seal != nil && !c.sealed && c.state == joined && from == s.seal.length:
		m.Kind, m.Length, m.Digest = kindSeal, s.seal.length, s.seal.digest
	default:
		s.mu.Unlock()
		return
	}
	c.busy = true
	losses := s.losses
	s.mu.Unlock()
	if len(m.Data) > 0 {
		if err := s.t.r.spool.ReadWritten(s.key, m.Data, m.Offset, losses); err != nil {
			s.mu.Lock()
			c.busy = false // whoever writes next begins another round and offers it anew
			s.mu.Unlock()
			if !errors.Is(err, fleet.Conflict) && !errors.Is(err, fleet.NotFound) {
				s.t.r.log.Warn("reading output to copy it failed", "job", s.key.Job, "fence", s.key.Fence, "err", err)
			}
			return
		}
	}
	p.took(l, len(m.Data))
	l.send(m, func(a *message, err error) {
		p.took(l, -len(m.Data))
		s.answered(p, c, m, a, err)
	})
}

// answered takes up what a peer said.
func (s *stream) answered(p *peer, c *copied, m, a *message, err error) {
	s.mu.Lock()
	c.busy = false
	if a == nil || s.copies[p.id] != c || s.stamp != m.Stamp {
		s.mu.Unlock()
		return // another connection, or another round
	}
	align := false
	switch code := codeOf(err); {
	case err == nil && m.Kind == kindSeal:
		c.sealed = true
	case err == nil && m.Kind == kindJoin && a.Size >= s.floor:
		c.state, c.size = joined, a.Size
	case err == nil && m.Kind == kindJoin:
		c.state, c.size = filling, a.Size
	case err == nil:
		c.size = a.Size
	case a.Promised.Compare(s.t.ballot) > 0:
		s.mu.Unlock()
		s.t.end(errDeposed)
		return
	case code == fleet.SpoolGap:
		c.size = a.Size
	case code == fleet.SpoolMismatch, code == fleet.LogSealed, code == fleet.Conflict && m.Kind == kindJoin:
		align, c.busy = true, true
	case code == fleet.Conflict:
		c.state = apart
	case code == fleet.DiskFull:
		p.fullNow()
		s.mu.Unlock()
		return // until it says that it has room again
	default:
		s.t.r.log.Warn("copying output failed", "node", p.id, "job", s.key.Job, "fence", s.key.Fence, "err", err)
		c.queued = true
		s.mu.Unlock()
		p.later(s)
		return
	}
	if align {
		s.mu.Unlock()
		if !s.t.r.spawn(func(ctx context.Context) { s.align(p, c, m.Kind != kindJoin) }) {
			s.free(c)
		}
		return
	}
	more := c.state != joined || c.size < s.end || s.seal != nil && !c.sealed
	if more {
		s.offerLocked(p)
	}
	s.mu.Unlock()
	s.recount()
}

func (s *stream) free(c *copied) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.busy = false
}

// align finds how far a copy is equal to ours and has the peer cut the rest. again
// says that the copy stands under our ballot already and yet is another: then a
// disk has changed it.
func (s *stream) align(p *peer, c *copied, again bool) {
	r, l := s.t.r, c.link
	ctx, cancel := context.WithCancel(s.t.ctx)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	s.mu.Lock()
	m := &message{Kind: kindJoin, Ballot: s.t.ballot, Key: s.key, Stamp: s.stamp, Prior: s.prior, Floor: s.floor, Fill: again}
	most := s.floor
	if again {
		most = s.local
	}
	s.mu.Unlock()
	a, err := l.call(ctx, &message{Kind: kindProbe, Ballot: s.t.ballot, Keys: []spool.Key{s.key}})
	if err == nil && len(a.Holdings) == 1 {
		if m.Offset, err = r.common(ctx, l, s.key, min(most, a.Holdings[0].Size)); err == nil {
			m.Digest, err = r.spool.Sum(ctx, s.key, 0, m.Offset)
		}
	}
	if err == nil {
		r.log.Warn("a copy of output differs and is cut", "node", p.id, "job", s.key.Job, "fence", s.key.Fence, "at", m.Offset)
		a, err = l.call(ctx, m)
	}
	if err != nil {
		r.log.Warn("comparing a copy of output failed", "node", p.id, "job", s.key.Job, "fence", s.key.Fence, "err", err)
		s.mu.Lock()
		c.state, c.busy, c.queued = apart, false, true
		s.mu.Unlock()
		p.later(s)
		return
	}
	s.answered(p, c, m, a, nil)
}
