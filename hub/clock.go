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
// than a day behind state time, or more than a day ahead of what it should say:
// that is state time, or where the clock last stood while the hub was alive and
// what has passed since then by a clock that nobody can set. No single entry takes
// state time further than an hour; what a node that was off or asleep has to make
// up goes in steps of that, with nothing else in them.

const (
	maxBehind = 24 * time.Hour
	maxAhead  = 24 * time.Hour
	maxStep   = time.Hour
	manySteps = 200 // at most, where somebody said that the clock is right
	// maxOff is how long a machine that was started anew is taken to have been off,
	// for which there is nothing but its own clock's word.
	maxOff = 7 * 24 * time.Hour
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

// believe says whether a wall clock may be proposed with; expected is what it should
// say by the hub's last sign of life. A state time of zero is of a cluster that has
// no entry yet.
func believe(wall, stateTime, expected, built time.Time, told bool) error {
	const form = "2006-01-02 15:04 MST"
	switch {
	case wall.Before(built):
		return fmt.Errorf("this machine's clock says %s, which is before this program was built (%s): set the clock: %w", wall.UTC().Format(form), built.UTC().Format(form), fleet.ClockSkew)
	case stateTime.IsZero() || told:
		return nil
	case wall.Sub(stateTime) < -maxBehind:
		return fmt.Errorf("this machine's clock says %s, and the hub's log goes to %s: set the clock, or, if it is right, say so with `tugline hub time accept`: %w", wall.UTC().Format(form), stateTime.UTC().Format(form), fleet.ClockSkew)
	case wall.Sub(later(stateTime, expected)) > maxAhead:
		return fmt.Errorf("this machine's clock says %s, and the hub's log ends at %s: set the clock, or, if it is right and the hub was off for so long, say so with `tugline hub time accept`: %w", wall.UTC().Format(form), stateTime.UTC().Format(form), fleet.ClockSkew)
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
		if err := h.entries.timely(); err != nil {
			return err
		}
		if at.IsZero() || h.wall().Sub(at) <= maxStep {
			return nil
		}
		if _, ok := l.propose(ctx, &state.Expire{AuditAge: 1<<63 - 1}); !ok {
			return fmt.Errorf("make up for the time that the hub was off: %w", fleet.Unavailable)
		}
	}
}
