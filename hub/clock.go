package hub

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// State time follows the wall clock of the node that leads, and deletion, expiry
// and timeouts follow state time. A wall clock that is plainly wrong must not be
// believed: nothing is proposed while it is before this program was built, more
// than a day behind state time, or more than a week ahead of it. A week is how
// long a node may be off or asleep before somebody has to say that its clock is
// right. No single entry takes state time further than an hour; what a node that
// was off has to make up goes in steps of that, with nothing else in them.

const (
	maxBehind = 24 * time.Hour
	maxAhead  = 7 * 24 * time.Hour
	maxStep   = time.Hour
	manySteps = 200 // at most, where more than a week is made up
)

// built is before this program: of its commit where the build recorded it.
var built = sync.OnceValue(func() time.Time {
	at := time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil && t.After(at) {
				at = t
			}
		}
	}
	return at
})

// believe says whether a wall clock may be proposed with. A state time of zero is
// of a cluster that has no entry yet.
func believe(wall, stateTime, built time.Time, told bool) error {
	const form = "2006-01-02 15:04 MST"
	switch off := wall.Sub(stateTime); {
	case wall.Before(built):
		return fmt.Errorf("this machine's clock says %s, which is before this program was built (%s): set the clock: %w", wall.UTC().Format(form), built.UTC().Format(form), fleet.ClockSkew)
	case stateTime.IsZero() || told:
		return nil
	case off < -maxBehind:
		return fmt.Errorf("this machine's clock says %s, and the hub's log goes to %s: set the clock: %w", wall.UTC().Format(form), stateTime.UTC().Format(form), fleet.ClockSkew)
	case off > maxAhead:
		return fmt.Errorf("this machine's clock says %s, and the hub's log ends at %s: set the clock, or, if it is right and the hub was off for so long, start the hub with --accept-clock: %w", wall.UTC().Format(form), stateTime.UTC().Format(form), fleet.ClockSkew)
	}
	return nil
}

// stamp gives the time that an entry may carry.
func stamp(wall, stateTime time.Time, step time.Duration) time.Time {
	if limit := stateTime.Add(step); !stateTime.IsZero() && wall.After(limit) {
		return limit
	}
	return wall
}

// step is how far one entry may take state time.
func step(wall, stateTime time.Time, told bool) time.Duration {
	if off := wall.Sub(stateTime); told && off > manySteps*maxStep {
		return off/manySteps + 1
	}
	return maxStep
}

// catchUp brings state time to the wall clock. It gives why it cannot.
func (l *term) catchUp(ctx context.Context) error {
	h := l.hub
	for {
		at := h.entries.View().Meta().Time
		if err := h.entries.clock(); err != nil {
			return err
		}
		if at.IsZero() || h.entries.wall().Sub(at) <= maxStep {
			return nil
		}
		if _, ok := l.propose(ctx, &state.Expire{AuditAge: 1<<63 - 1}); !ok {
			return fmt.Errorf("make up for the time that the hub was off: %w", fleet.Unavailable)
		}
	}
}
