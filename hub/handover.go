package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/shared/fleet"
)

const (
	handTime = 3 * time.Second // for leadership to be taken over before a planned stop
	awayTime = 30 * time.Second
	metTime  = 3 * time.Second // for a new leader to have asked all others how they are
	metLook  = 50 * time.Millisecond
)

// meet waits until this node has asked all others how they are, which a new leader does
// within a second or so: until then it knows of nobody who could lead next.
func (h *Hub) meet(ctx context.Context) {
	if h.peers == nil || !h.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, metTime)
	defer cancel()
	_ = awaitEvery(ctx, metLook, func() error { // whoever has to be known is missed by who asks for it
		for _, s := range h.peers.Samples() {
			if errors.Is(s.Err, peer.ErrNotAsked) {
				return s.Err
			}
		}
		return nil
	})
}

// heir gives the voter that is fittest to lead next.
func (h *Hub) heir() (id string, ok bool) {
	if h.peers == nil {
		return "", false
	}
	var best peer.Sample
	for _, s := range h.peers.Samples() {
		if s.ID == h.id.Node || s.Err != nil || s.Heard.IsZero() || time.Since(s.Heard) > alive || h.unfitToLead(s) != "" || h.node.CanLead(s.ID) != nil {
			continue
		}
		if best.ID == "" || s.Facts.Last > best.Facts.Last {
			best = s
		}
	}
	return best.ID, best.ID != ""
}

// unfitToLead says why a node that was asked how it is should not lead, or is empty.
func (h *Hub) unfitToLead(s peer.Sample) string {
	off := h.off(s.Offset)
	switch f := s.Facts; {
	case f.Draining:
		return "is drained and leads no more; `tugline hub drain --back " + s.ID + "` ends that"
	case f.DiskFull:
		return "has a full disk"
	case f.Stalled:
		return "has a disk that is too slow for a leader's log"
	case off.Abs() > maxApart:
		return fmt.Sprintf("has a clock that is %s off", off.Round(time.Second))
	}
	return ""
}

// giveAway hands leadership to another voter, if there is one that can take it. An error
// says that one was to take it and did not.
func (h *Hub) giveAway(ctx context.Context, why error) error {
	to, ok := h.heir()
	if !ok {
		return nil
	}
	h.log.Warn("giving leadership away", "to", to, "err", why)
	err := h.node.Transfer(ctx, to)
	if err == nil || errors.Is(err, consensus.ErrNotLeader) {
		return nil
	}
	h.log.Warn("leadership was not taken over", "to", to, "err", err)
	return err
}

// Transfer gives leadership to a node, or with "" to any that can take it.
func (h *Hub) Transfer(ctx context.Context, to string) error {
	if to == "" {
		h.meet(ctx)
		id, ok := h.heir()
		if !ok {
			return fmt.Errorf("no other voter can lead now; `tugline hub members` says why: %w", fleet.Conflict)
		}
		to = id
	}
	if n, ok := h.entries.View().Node(to); to != h.id.Node && (!ok || n.Removed()) {
		return fmt.Errorf("there is no node %s; `tugline hub members` lists them: %w", to, fleet.NotFound)
	}
	if h.peers != nil {
		for _, s := range h.peers.Samples() {
			if why := h.unfitToLead(s); s.ID == to && to != h.id.Node && why != "" {
				return fmt.Errorf("node %s %s: %w", to, why, fleet.Conflict)
			}
		}
	}
	err := h.node.Transfer(ctx, to)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, consensus.ErrNotMember):
		return fmt.Errorf("node %s is no voter; `tugline hub members` lists them: %w", to, fleet.Conflict)
	case errors.Is(err, consensus.ErrAway):
		return fmt.Errorf("node %s does not answer, so that it cannot lead; `tugline hub members` says more: %w", to, fleet.Conflict)
	case errors.Is(err, consensus.ErrBehind):
		return fmt.Errorf("node %s has not caught up with the log yet; `tugline hub members` shows its lag: %w", to, fleet.Conflict)
	case errors.Is(err, consensus.ErrNotLeader):
		return fleet.Say(fleet.Unavailable, "this node does not lead any more; try again")
	}
	return fmt.Errorf("%w: %w", fleet.Say(fleet.Conflict, "node %s did not take leadership over in time; `tugline hub members` says who leads", to), err)
}

// Drain prepares a node for a planned stop, or ends that: a node that is drained
// gives leadership away and takes none.
func (h *Hub) Drain(ctx context.Context, id string, on bool) error {
	b, err := json.Marshal(on)
	if err != nil {
		return err
	}
	if id == "" || id == h.id.Node {
		_, err = h.answerDrain(ctx, h.id.Node, b)
		return err
	}
	if h.peers == nil || !slices.Contains(h.others(), id) {
		return fmt.Errorf("there is no node %s; `tugline hub members` lists them: %w", id, fleet.NotFound)
	}
	_, err = h.peers.Call(ctx, id, callDrain, b)
	return err
}

func (h *Hub) answerDrain(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var on bool
	if err := json.Unmarshal(body, &on); err != nil {
		return nil, fmt.Errorf("read the request to drain: %v: %w", err, fleet.BadRequest)
	}
	if on && !h.leading.Load() {
		h.draining.Store(true)
		return nil, nil
	}
	if !on {
		h.draining.Store(false)
		return nil, nil
	}
	h.meet(ctx)
	to, ok := h.heir()
	if !ok {
		return nil, fmt.Errorf("no other voter can lead now, so that work would wait while this node is stopped; `tugline hub members` says why: %w", fleet.Conflict)
	}
	h.draining.Store(true)
	h.sessions.Restarting(0, awayTime, h.successors(to))
	err := h.Transfer(ctx, to)
	if leader := h.node.Leader(); err != nil && (leader == "" || leader == h.id.Node) {
		h.draining.Store(false) // else it would be tried again and again
		return nil, err
	}
	return nil, nil
}

// successors are the URLs of the nodes that runners should turn to, the likeliest
// first.
func (h *Hub) successors(to string) []string {
	var out []string
	for _, n := range h.entries.View().Nodes() {
		if n.URL == "" || n.ID == h.id.Node {
			continue
		}
		if n.ID == to {
			out = slices.Insert(out, 0, n.URL)
		} else {
			out = append(out, n.URL)
		}
	}
	return out
}

// resign is what the end of a term asks for: the runners belong to the next leader.
func (h *Hub) resign() {
	h.leading.Store(false)
	h.sessions.EndAll(fleet.SessionEnded, "this hub node does not lead any more")
}

// standDown prepares a planned stop: leadership goes to another node, if there is
// one, and the runners are told where to turn.
func (h *Hub) standDown(ctx context.Context) {
	h.draining.Store(true)
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	h.meet(ctx)
	to, ok := h.heir()
	if !ok || !h.leading.Load() {
		h.sessions.Restarting(0, awayTime, h.successors(""))
		return
	}
	h.sessions.Restarting(0, awayTime, h.successors(to))
	if err := h.node.Transfer(ctx, to); err != nil && !errors.Is(err, consensus.ErrNotLeader) {
		h.log.Warn("leadership was not taken over before the stop", "err", err)
	}
}
