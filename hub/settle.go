package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const settleLook = 100 * time.Millisecond

// isSettled says whether the state holds all that was committed before this start.
func (h *Hub) isSettled() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

func (h *Hub) settled() { h.once.Do(func() { close(h.ready) }) }

// settleBehind makes a node ready that does not lead, once it has applied what its
// leader had when it was heard.
func (h *Hub) settleBehind(ctx context.Context) {
	tick := time.NewTicker(settleLook)
	defer tick.Stop()
	for !h.isSettled() {
		if !h.leading.Load() && h.entries.View().Meta().Cluster == h.id.Cluster && h.peers.Ready() == nil {
			if err := errors.Join(h.founded(), h.sawEpoch(h.entries.View().Meta().Epoch)); err != nil {
				h.log.Error("recording that this node has a log failed", "err", err)
			}
			h.settled()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// serves says whether the node can take a write.
func (h *Hub) serves() error {
	if err := h.node.Err(); err != nil {
		return err
	}
	switch {
	case h.leading.Load():
	case h.peers == nil:
		return fmt.Errorf("this node does not lead: %w", fleet.Unavailable)
	default:
		if err := h.peers.Ready(); err != nil {
			return err
		}
	}
	if !h.isSettled() {
		return fmt.Errorf("this node has not caught up with the cluster yet: %w", fleet.Unavailable)
	}
	if err := h.disk.room(); err != nil {
		return err
	}
	return h.entries.timely()
}
