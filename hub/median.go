package hub

import (
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Of several nodes the one that leads stamps the entries, and its clock may be the
// wrong one. So it proposes only while its clock is near the median of the voters':
// one clock that jumped is outvoted, wherever it is. Where an even number of clocks
// was heard, state time is one more voice: it is where the voters were when they last
// agreed, which tells two clocks apart that contradict each other.

const (
	maxApart  = 30 * time.Second // between a node's clock and the median
	voiceLife = 10 * time.Second // after which what a clock said counts no more
)

// voice is what another voter's wall clock said, so long ago by this node's
// monotonic clock: a jump of either wall clock shows at once.
type voice struct {
	wall time.Time
	age  time.Duration
}

// agree says whether a node may propose with its wall clock beside the other voters'.
// A node that hears nobody is judged by its own clock alone, elsewhere: without a
// quorum it commits nothing anyway. The error wraps clock_skew.
func agree(wall, stateTime time.Time, others []voice) error {
	clocks, low, high := middle(wall, stateTime, others)
	off := apart(0, low, high)
	if off.Abs() <= maxApart {
		return nil
	}
	median := -off
	const form = "2006-01-02 15:04:05 MST"
	return fmt.Errorf("this machine's clock says %s, and the median of %d hub nodes' clocks says %s: set the clock: %w",
		wall.UTC().Format(form), clocks, wall.Add(median).UTC().Format(form), fleet.ClockSkew)
}

// middle gives how many clocks were heard, this one with them, and how far their median
// is ahead of this one: the two in the middle, of which either will do, or one twice.
func middle(wall, stateTime time.Time, others []voice) (clocks int, low, high time.Duration) {
	offsets := []time.Duration{0} // of each clock to this one
	for _, v := range others {
		if v.age <= voiceLife {
			offsets = append(offsets, v.wall.Add(v.age).Sub(wall))
		}
	}
	clocks = len(offsets)
	if clocks > 1 && clocks%2 == 0 && !stateTime.IsZero() {
		offsets = append(offsets, stateTime.Sub(wall))
	}
	slices.Sort(offsets)
	return clocks, offsets[(len(offsets)-1)/2], offsets[len(offsets)/2]
}

// apart is how far a clock is ahead of the median.
func apart(offset, low, high time.Duration) time.Duration {
	switch {
	case offset < low:
		return offset - low
	case offset > high:
		return offset - high
	}
	return 0
}
