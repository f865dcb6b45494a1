package hub

import (
	"slices"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// awaitTime is for how long a runner that the leader before had connected is expected
// to come to this one, beside the time that so many take to be admitted.
const awaitTime = 30 * time.Second

// awaited are the runners that were connected when another node led. Nothing is decided
// by it: it is shown to people, who would otherwise take a change of leaders for the
// loss of all runners.
type awaited struct {
	until   time.Time
	runners []fleet.Presence
}

// expect remembers who was connected to the leader before; it is called before this
// node says that it leads.
func (h *Hub) expect() {
	if h.peers == nil {
		return
	}
	all, _, _ := h.peers.Presence()
	v := h.entries.View()
	var busy []fleet.RunnerID
	v.Open(func(o state.Open) bool {
		if r, ok := v.Runner(o.Attempt.Runner); ok && r.SilentSince == nil {
			busy = append(busy, r.ID)
		}
		return true
	})
	h.awaited.Store(expecting(all, busy))
}

// expecting lists who was told of as connected, and those who have work and were not
// told of, since what is told is up to two seconds old.
func expecting(all []fleet.Presence, busy []fleet.RunnerID) *awaited {
	w := &awaited{}
	told := map[fleet.RunnerID]bool{}
	for _, p := range all {
		told[p.Runner] = true
	}
	for _, id := range busy {
		if !told[id] {
			told[id] = true
			w.runners = append(w.runners, fleet.Presence{Runner: id, Awaited: true})
		}
	}
	for _, p := range all {
		if p.Connected || p.Awaited {
			p.Connected, p.Awaited, p.Session, p.Slots = false, true, "", 0
			w.runners = append(w.runners, p)
		}
	}
	w.until = time.Now().Add(awaitTime + time.Duration(len(w.runners))*time.Millisecond)
	return w
}

// presence is what this node knows of the runners' connections while it leads: its own,
// and for a while those that are expected.
func (h *Hub) presence() []fleet.Presence { return h.awaited.Load().beside(h.sessions.Presence()) }

// beside adds those who are still expected to those who were seen.
func (w *awaited) beside(own []fleet.Presence) []fleet.Presence {
	if w == nil || time.Now().After(w.until) {
		return own
	}
	out := slices.Clone(own)
	at := map[fleet.RunnerID]int{}
	for i, p := range own {
		at[p.Runner] = i
	}
	for _, p := range w.runners {
		i, known := at[p.Runner]
		switch {
		case !known:
			out = append(out, p)
		case !own[i].Connected && own[i].LastBeat.Before(p.LastBeat):
			out[i] = p
		}
	}
	return out
}
