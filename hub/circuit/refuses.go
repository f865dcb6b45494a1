package circuit

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Refuses says whether Passes would refuse a start, without a word about why: whoever
// looks at ten thousand runners needs none.
func (s *Set) Refuses(a Ask, now time.Time) bool { return s.Near(a.Runner).Refuses(a, now) }

// Near is the circuits that may concern starts on one runner, at hand for many of them.
type Near struct {
	s        *Set
	all, own []*fleet.Circuit
}

// Near gives those of a runner.
func (s *Set) Near(r fleet.RunnerID) Near { return Near{s, s.by[""], s.by[r]} }

// None says that every start on the runner passes.
func (n Near) None() bool { return len(n.all)+len(n.own) == 0 }

// Refuses is Refuses of the set, for starts on that runner.
func (n Near) Refuses(a Ask, now time.Time) bool {
	for _, cs := range [...][]*fleet.Circuit{n.all, n.own} {
		for _, c := range cs {
			if a.concerns(c) && n.s.refusing(c, now) {
				return true
			}
		}
	}
	return false
}

// RefusesAll says that a start is refused on every runner, whatever its account there: it
// need not be asked of each.
func (s *Set) RefusesAll(a Ask, now time.Time) bool {
	a.Runner, a.Account = "", ""
	for _, c := range s.by[""] {
		if c.Account == "" && a.concerns(c) && s.refusing(c, now) {
			return true
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
