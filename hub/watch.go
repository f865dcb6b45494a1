package hub

import (
	"context"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// watch follows the feed: what changed may free a slot, wake the leader, or end a
// runner's session.
func (h *Hub) watch(ctx context.Context) error {
	after := h.entries.View().Meta().Index
	h.judgeSettings()
	for ctx.Err() == nil {
		sub, err := h.feed.Subscribe(after)
		if err != nil {
			after = h.entries.View().Meta().Index
			continue
		}
		for {
			ev, err := sub.Next(ctx)
			if err != nil {
				break // dropped or ended: start again from the present state
			}
			after = ev.Index
			if c, ok := ev.Data.(state.Change); ok {
				h.changed(ctx, c)
			}
		}
		sub.Close()
		h.poke()
	}
	return nil
}

func (h *Hub) changed(ctx context.Context, c state.Change) {
	switch {
	case c.What == "epoch":
		if err := h.sawEpoch(h.entries.View().Meta().Epoch); err != nil {
			h.log.Error("remembering the cluster's epoch failed", "err", err)
		}
		h.poke()
	case c.What == "alert":
		h.alerted()
	case c.What == "setting":
		h.judgeSettings()
		h.alerted() // there may be a webhook now
		h.poke()
	case c.What == "circuit", c.What == "budget":
		h.poke()
	case c.What == "keys":
		poke(h.keyNews)
	case c.What == "node" || c.What == "ticket":
		poke(h.rosterPokes)
		h.copies.MembersChanged()
		if c.What == "node" {
			h.nudgeMeshRunners()
		}
	case c.Runner != nil:
		if len(c.Runner.MeshKey) > 0 {
			poke(h.rosterPokes)
		}
		h.sessions.RunnerChanged(c.Runner)
		h.poke()
	case c.Job != nil:
		switch c.Job.State {
		case fleet.Queued, fleet.Verifying:
			h.poke()
		case fleet.NeedsReview:
			h.poke()
			if h.leading.Load() {
				h.rejudge(ctx, c.Job)
			}
		case fleet.Succeeded, fleet.Failed, fleet.Cancelled, fleet.Blocked, fleet.Lost:
			h.poke()
		}
		h.tell(c.Job)
	}
}

// tell nudges the runners that a change of a job concerns beyond its assignment:
// they are to stop something or may forget it.
func (h *Hub) tell(j *fleet.Job) {
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			if a.Stop != "" && !a.Gone {
				h.sessions.Nudge(a.Runner)
			}
		}
	}
}
