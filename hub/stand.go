package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	settleLook = 100 * time.Millisecond
	clocksLook = time.Second
	handTime   = 3 * time.Second // for leadership to be taken over before a planned stop
	awayTime   = 30 * time.Second
)

// resign is what the end of a term asks for: the runners belong to the next leader.
func (h *Hub) resign() {
	h.leading.Store(false)
	h.sessions.EndAll(fleet.SessionEnded, "this hub node does not lead any more")
}

// standDown prepares a planned stop: leadership goes to another node, if there is
// one, and the runners are told where to turn.
func (h *Hub) standDown(ctx context.Context) {
	h.draining.Store(true)
	to, ok := h.heir()
	if !ok || !h.leading.Load() {
		h.sessions.Restarting(0, awayTime, h.successors(""))
		return
	}
	h.sessions.Restarting(0, awayTime, h.successors(to))
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	if err := h.node.Transfer(ctx, to); err != nil && !errors.Is(err, consensus.ErrNotLeader) {
		h.log.Warn("leadership was not taken over before the stop", "err", err)
	}
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
			res, err := h.entries.Propose(ctx, &state.RemoveNode{ID: id, Why: "it had been dead for a day"})
			if err == nil {
				err = res.Err()
			}
			return err
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

func (h *Hub) hearClocks() {
	v := h.voices()
	h.heard.Store(&clocks{v, time.Now()})
}

// clocks are voices as of a moment.
type clocks struct {
	voices []voice
	at     time.Time
}

// heardVoices gives the voices, older by the time that has passed since.
func (h *Hub) heardVoices() []voice {
	c := h.heard.Load()
	if c == nil || len(c.voices) == 0 {
		return nil
	}
	passed := time.Since(c.at)
	out := make([]voice, len(c.voices))
	for i, v := range c.voices {
		out[i] = voice{wall: v.wall, age: v.age + passed}
	}
	return out
}

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
