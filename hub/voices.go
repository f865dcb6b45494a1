package hub

import (
	"slices"
	"time"

	"tugline.dev/tugline/consensus"
)

// voices are the clocks of the other voters, as far as they were heard.
func (h *Hub) voices() []voice {
	if h.peers == nil {
		return nil
	}
	members, err := h.node.Members()
	if err != nil {
		return nil
	}
	var out []voice
	for _, s := range h.peers.Samples() {
		if s.ID == h.id.Node || s.Heard.IsZero() || !slices.ContainsFunc(members, func(m consensus.Member) bool { return m.ID == s.ID && m.Voter }) {
			continue
		}
		out = append(out, voice{wall: s.Facts.Wall.Add(s.Trip / 2), age: time.Since(s.Heard)})
	}
	return out
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

// off is how far a clock is ahead of the median of the voters', given how far it is ahead
// of this node's, which may be the one that is wrong.
func (h *Hub) off(ahead time.Duration) time.Duration {
	_, low, high := middle(h.entries.clock.wall(), h.entries.state.Time(), h.voices())
	return apart(ahead, low, high)
}
