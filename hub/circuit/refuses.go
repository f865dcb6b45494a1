package circuit

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Refuses says whether Passes would refuse a start, without a word about why: whoever
// looks at ten thousand runners needs none.
func (s *Set) Refuses(a Ask, now time.Time) bool {
	for _, r := range [...]fleet.RunnerID{"", a.Runner} {
		for _, c := range s.by[r] {
			if a.concerns(c) && s.refusing(c, now) {
				return true
			}
		}
	}
	return false
}

// refusing says whether a circuit lets nothing pass, not even a probe.
func (s *Set) refusing(c *fleet.Circuit, now time.Time) bool {
	switch At(c, now) {
	case fleet.CircuitClosed:
		return false
	case fleet.CircuitHalf:
		return c.Probe != nil || s.taken[c.ID] != ""
	}
	return true
}
