package hub

import (
	"context"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// holds gives what the time has come for: holds that end by themselves, and drains whose
// deadline has passed. now is state time.
func holds(rs []*fleet.Runner, now time.Time) []state.Command {
	var out []state.Command
	for _, r := range rs {
		switch h := r.Hold; {
		case h == nil || r.Cordoned:
		case h.Until != nil && !now.Before(*h.Until):
			out = append(out, &state.HoldRunner{ID: r.ID})
		case h.Drain && !h.Passed && h.Deadline != nil && !now.Before(*h.Deadline):
			out = append(out, &state.PassDeadline{Runner: r.ID})
		}
	}
	return out
}

func (l *term) holds(ctx context.Context, rs []*fleet.Runner) {
	for _, cmd := range holds(rs, l.hub.entries.now()) {
		l.propose(ctx, cmd)
	}
}
