package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"tugline.dev/tugline/consensus"
)

const clocksLook = time.Second

// unfit says why this node should not lead although it could, or nil.
func (h *Hub) unfit() error {
	if h.draining.Load() {
		return errors.New("it is being drained")
	}
	if err := h.disk.room(); err != nil {
		return err
	}
	return h.entries.timely()
}

// watchFitness keeps what is known of the other voters' clocks current, and has a
// node that should not lead stand for no election.
func (h *Hub) watchFitness(ctx context.Context) {
	tick := time.NewTicker(clocksLook)
	defer tick.Stop()
	for {
		h.hearClocks()
		h.node.Abstain(h.unfit() != nil && h.accompanied())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// accompanied says whether another node has a vote.
func (h *Hub) accompanied() bool {
	members, err := h.node.Members()
	return err == nil && slices.ContainsFunc(members, func(m consensus.Member) bool { return m.Voter && m.ID != h.id.Node })
}
