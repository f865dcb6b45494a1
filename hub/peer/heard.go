package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// Unknown is the age after which relayed presence is worth nothing.
	Unknown = 10 * time.Second

	quietTime = 3 * tellEvery // a stream that says nothing for so long is given up
	retryTime = 500 * time.Millisecond
	maxParts  = 1024 // lines of one message
)

// heard is the follower's side of the stream: what the leader said last.
type heard struct {
	mu    sync.Mutex
	stamp line
	at    time.Time // of this node's monotonic clock, when the newest whole message came
	all   map[fleet.RunnerID]sighting
	parts []line // of a message that is not whole yet
}

// take takes a line in; what it says counts once its message is whole. False means
// that it is older than what is known, or that its message has no end.
func (h *heard) take(l line, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.Term < h.stamp.Term || len(h.parts) >= maxParts {
		h.parts = nil
		return false
	}
	if l.Whole {
		h.parts = nil // the rest of what came before was cut off
	}
	h.parts = append(h.parts, l)
	if l.More {
		return true
	}
	for _, part := range h.parts {
		if part.Whole || h.all == nil {
			h.all = map[fleet.RunnerID]sighting{}
		}
		for _, s := range part.Set {
			h.all[s.Runner] = s.after(h.all[s.Runner])
		}
		for _, id := range part.Gone {
			delete(h.all, id)
		}
	}
	h.parts = nil
	h.stamp = line{From: l.From, Term: l.Term, Index: l.Index, Clock: l.Clock}
	h.at = now
	return true
}

// presence gives what was heard, by this node's clock.
func (h *heard) presence(now time.Time) (all []fleet.Presence, from string, age time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() || now.Sub(h.at) > Unknown {
		return nil, "", 0
	}
	all = make([]fleet.Presence, 0, len(h.all))
	for _, s := range h.all {
		if s.Beat > 0 {
			s.LastBeat = h.at.Add(s.Beat - h.stamp.Clock)
		}
		if s.Sampled > 0 {
			s.HealthAt = h.at.Add(s.Sampled - h.stamp.Clock)
		}
		all = append(all, s.Presence)
	}
	slices.SortFunc(all, byRunner)
	return all, h.stamp.From, now.Sub(h.at)
}

// index gives what the leader had applied when it was heard last.
func (h *heard) index(now time.Time) (index uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stamp.Index, !h.at.IsZero() && now.Sub(h.at) <= Unknown
}

// Presence gives the connections of the runners, the node that saw them, and how
// long ago that was told. On the leader they are its own, just now. Nobody saw them
// (from is empty) when the leader has not been heard for 10 s.
func (p *Peers) Presence() (all []fleet.Presence, from string, age time.Duration) {
	if p.cfg.Leading() {
		return p.cfg.Presence(), p.cfg.Self, 0
	}
	return p.heard.presence(time.Now())
}

// Ready says why this node cannot serve as part of the cluster, or nil: it leads, or
// hears the leader and has applied what that had applied when it was last heard.
func (p *Peers) Ready() error {
	if p.cfg.Leading() {
		return nil
	}
	leader := p.cfg.Leader()
	if leader == "" || leader == p.cfg.Self {
		return fmt.Errorf("no node leads: %w", fleet.Unavailable)
	}
	want, ok := p.heard.index(time.Now())
	if !ok {
		return fmt.Errorf("node %s, which leads, has not been heard for %s: %w", leader, Unknown, fleet.Unavailable)
	}
	if have := p.cfg.Facts().Applied; have < want {
		return fmt.Errorf("this node has applied %d of %d entries: %w", have, want, fleet.Unavailable)
	}
	return nil
}

// follow holds a stream from whoever leads, unless this node does.
func (p *Peers) follow(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		leader := p.cfg.Leader()
		if leader != "" && leader != p.cfg.Self && !p.cfg.Leading() {
			err := p.listen(ctx, leader)
			// Pooled connections to a node that went away break under the request that
			// takes one, and whether it was done would be unknown for nothing.
			p.wire.CloseIdleConnections()
			if ctx.Err() == nil {
				p.log.Debug("stream of presence ended", "node", leader, "err", err)
			}
			wait := time.NewTimer(retryTime/2 + rand.N(retryTime))
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// listen takes in the stream of one node until it ends, says nothing, or another
// node leads.
func (p *Peers) listen(ctx context.Context, leader string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(quietTime, func() { cancel(errors.New("it says nothing")) })
	defer quiet.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	over := make(chan struct{})
	defer close(over)
	wg.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if p.cfg.Leader() != leader {
					cancel(errMoved)
				}
			}
		}
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+leader+"/presence", nil)
	if err != nil {
		return err
	}
	res, err := p.calls.Do(req)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		_, err := readAnswer(res)
		return err
	}
	for in := lines(res); ; {
		if !in.Scan() {
			return errors.Join(in.Err(), context.Cause(ctx))
		}
		quiet.Reset(quietTime)
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return fmt.Errorf("read presence: %w", err)
		}
		switch {
		case l.From != leader:
			return fmt.Errorf("node %s speaks as %q", leader, l.From)
		case l.Job != "":
			p.cfg.OnLive(l.Job, l.Live)
		case !p.heard.take(l, time.Now()):
			return fmt.Errorf("node %s speaks of term %d, which is over", leader, l.Term)
		}
	}
}
