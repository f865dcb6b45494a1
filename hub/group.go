package hub

import (
	"context"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	groupEvery = time.Second     // looks at the members of the log's group
	giveEvery  = 3 * time.Second // between tries to give leadership away
	giveSeldom = time.Minute     // the same where they fail
)

// group keeps the log's group as the record of nodes has it: who was admitted
// learns, who was removed leaves. Votes are given elsewhere, to who has caught up.
func (l *term) group(ctx context.Context) {
	tick := time.NewTicker(groupEvery)
	defer tick.Stop()
	gave, again := time.Time{}, giveEvery
	for {
		l.regroup(ctx)
		if err := l.hub.unfit(); err != nil && time.Since(gave) > again {
			if gave = time.Now(); l.hub.giveAway(ctx, err) != nil {
				again = min(2*again, giveSeldom) // nothing is taken while it is tried
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *term) regroup(ctx context.Context) {
	h := l.hub
	if h.network == nil {
		return
	}
	members, err := h.node.Members()
	if err != nil {
		return
	}
	record := map[string]*fleet.HubNode{}
	for _, n := range h.entries.View().AllNodes() {
		record[n.ID] = n
	}
	has := map[string]bool{}
	for _, m := range members {
		has[m.ID] = true
		if n := record[m.ID]; n != nil && n.Removed() {
			if err := h.node.Remove(ctx, m.ID); err != nil {
				h.log.Warn("removing a node from the log's group failed", "node", m.ID, "err", err)
			}
		}
	}
	for id, n := range record {
		if !n.Removed() && !has[id] {
			if err := h.node.AddLearner(ctx, id); err != nil {
				h.log.Warn("adding a node to the log's group failed", "node", id, "err", err)
			}
		}
	}
}

// pilot runs what gives votes to nodes that have caught up, and takes out those that
// have been dead for long.
func (h *Hub) pilot(ctx context.Context) error {
	p := consensus.Pilot{
		Stable: h.cfg.Stable,
		Facts: func() []consensus.Fact {
			var out []consensus.Fact
			debts := h.copies.Debt()
			for _, s := range h.peers.Samples() {
				out = append(out, consensus.Fact{
					ID: s.ID, Version: s.Facts.Version,
					Alive: !s.Heard.IsZero() && time.Since(s.Heard) < alive, Ready: owed(debts[s.ID]) == 0,
				})
			}
			return out
		},
		Remove: func(ctx context.Context, id string) error {
			return h.entries.Record(ctx, &state.RemoveNode{ID: id, Why: "it had been dead for a day"})
		},
	}
	if h.cfg.Pilot != nil {
		h.cfg.Pilot(&p)
	}
	err := h.node.Autopilot(ctx, p)
	if ctx.Err() != nil {
		return nil
	}
	return err
}
