package hub

import (
	"errors"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestClocksOfACluster: a clock that jumped is refused where it leads, and is no
// reason to refuse another that leads.
func TestClocksOfACluster(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	const year = 365 * 24 * time.Hour
	at := func(d time.Duration, age time.Duration) voice { return voice{now.Add(d - age), age} }
	fresh := func(ds ...time.Duration) (out []voice) {
		for _, d := range ds {
			out = append(out, at(d, time.Second))
		}
		return out
	}
	state := now.Add(-20 * time.Second)
	for _, c := range []struct {
		name   string
		off    time.Duration // of this node's clock
		state  time.Time
		others []voice
		ok     bool
	}{
		{"alone", 0, state, nil, true},
		{"alone, an hour ahead: for the other rule to say", time.Hour, state, nil, true},
		{"all alike", 0, state, fresh(0, 0), true},
		{"a little apart", 0, state, fresh(25*time.Second, 29*time.Second), true},
		{"within half a minute", 30 * time.Second, state, fresh(0, 0), true},
		{"beyond half a minute", 31 * time.Second, state, fresh(0, 0), false},
		{"this one an hour ahead", time.Hour, state, fresh(0, 0), false},
		{"this one an hour behind", -time.Hour, state, fresh(0, 0), false},
		{"this one ten years ahead", 10 * year, state, fresh(0, 0), false},
		{"another an hour ahead", 0, state, fresh(time.Hour, 0), true},
		{"another an hour behind", 0, state, fresh(0, -time.Hour), true},
		{"another ten years ahead", 0, state, fresh(10*year, 0), true},
		{"both others ten years ahead", 0, state, fresh(10*year, 10*year), false},
		{"all three contradict each other, this one in the middle", 0, state, fresh(time.Hour, -time.Hour), true},
		{"all three contradict each other, this one ahead", 2 * time.Hour, state, fresh(time.Hour, 0), false},
		{"one of two heard: this one jumped ahead", time.Hour, state, fresh(0), false},
		{"one of two heard: this one jumped back", -time.Hour, state, fresh(0), false},
		{"one of two heard: this one jumped ten years", 10 * year, state, fresh(0), false},
		{"one of two heard: the other jumped ahead", 0, state, fresh(time.Hour), true},
		{"one of two heard: the other jumped back", 0, state, fresh(-time.Hour), true},
		{"both were off for a week", 0, now.Add(-7 * 24 * time.Hour), fresh(0), true},
		{"off for a week, and this one jumped", time.Hour, now.Add(-7 * 24 * time.Hour), fresh(0), false},
		{"a new cluster", 0, time.Time{}, fresh(0), true},
		{"a new cluster whose two clocks contradict each other", time.Hour, time.Time{}, fresh(0), true},
		{"five voters, two jumped", 0, state, fresh(time.Hour, 10*year, 0, 0), true},
		{"five voters, this one and another jumped", time.Hour, state, fresh(time.Hour, 0, 0, 0), false},
		{"what was said long ago does not count", time.Hour, state, []voice{at(0, 11*time.Second), at(0, time.Minute)}, true},
		{"what was said a while ago still counts", time.Hour, state, []voice{at(0, 9*time.Second), at(0, 10*time.Second)}, false},
	} {
		err := agree(now.Add(c.off), c.state, c.others)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, fleet.ClockSkew) {
			t.Errorf("%s: %v; want agreement %v", c.name, err, c.ok)
		}
	}
}
