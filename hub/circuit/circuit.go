// Package circuit decides what keeps work away from what has failed for a reason that
// is not the work's: what the end of an attempt, or the first response that its
// provider completed, does to circuits; what people and new credentials do; and
// whether circuits let a job start on a runner. It is a function of the circuits, what
// was seen and the time alone, so that every node comes to the same circuits.
//
// An end of an attempt that was assigned before a circuit opened last says nothing new
// about it. A circuit of one runner is moved by attempts on that runner only, but for
// those over a model, which two runners close to everybody. While one job tries a
// half-open circuit no other one does.
package circuit

import (
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Everywhere stands for the runner in the id of a circuit that is over all of them.
const Everywhere fleet.RunnerID = "*"

// How long a circuit is remembered: a closed one after its last change, and a half-open
// one that nobody tries, since it could have been.
const (
	KeepClosed  = 7 * 24 * time.Hour
	KeepUntried = 30 * 24 * time.Hour
)

// Moment is when something happens: the state's time, and the place in the log, by
// which attempts assigned before are told from those assigned after.
type Moment struct {
	Now   time.Time
	Fence fleet.Fence
}

// Find gives a circuit by its id; nil where there is none.
type Find func(id string) *fleet.Circuit

// ladder gives how long a class stays open at each step; a class with no ladder has an
// end of its own. The last rung is repeated.
func ladder(class fleet.CircuitClass) []time.Duration {
	switch class {
	case fleet.CircuitQuota, fleet.CircuitModel, fleet.CircuitStartup, fleet.CircuitLost:
		return []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour}
	case fleet.CircuitOutage:
		return []time.Duration{2 * time.Minute, 5 * time.Minute, 15 * time.Minute}
	case fleet.CircuitDisk, fleet.CircuitMemory, fleet.CircuitDocker:
		return []time.Duration{fleet.HostFaultPause}
	}
	return nil
}

// rung gives how long a class stays open at a step, counted from 1.
func rung(class fleet.CircuitClass, step int) time.Duration {
	l := ladder(class)
	if len(l) == 0 {
		return 0
	}
	return l[min(max(step, 1), len(l))-1]
}

// At gives the state in which a circuit is at a time: that an open one becomes half
// open, or ends, is a matter of the clock and is not recorded.
func At(c *fleet.Circuit, now time.Time) fleet.CircuitState {
	if c.State != fleet.CircuitOpen || c.Until == nil || now.Before(*c.Until) {
		return c.State
	}
	if c.Class == fleet.CircuitBurst || c.Class == fleet.CircuitOperator {
		return fleet.CircuitClosed // a rate limit delays only the next start, and a person who gave a time meant it
	}
	return fleet.CircuitHalf
}

// Forgettable says whether a circuit need not be remembered: it has been closed for long,
// or half open for so long that what opened it, perhaps an account that is no more, is of
// no interest to anybody.
func Forgettable(c *fleet.Circuit, now time.Time) bool {
	last := c.ChangedAt
	if c.Until != nil && c.Until.After(last) {
		last = *c.Until
	}
	switch At(c, now) {
	case fleet.CircuitClosed:
		return now.Sub(last) >= KeepClosed
	case fleet.CircuitHalf:
		return c.Probe == nil && now.Sub(last) >= KeepUntried
	}
	return false
}

// Of gives what the ids of the circuits start with that are over one runner alone.
func Of(s fleet.Scope, r fleet.RunnerID) string {
	return strings.TrimSuffix(fleet.CircuitID(s, "", r, "", "", ""), "-/-/-/-")
}

// Blank says whether a circuit is as one that never was: no row is kept for it.
func Blank(c *fleet.Circuit) bool {
	return c.State == fleet.CircuitClosed && c.Step == 0 && c.Failures == 0 && c.OpenedAt.IsZero() && c.Generation == 0
}

// edit gives the circuit as it is known, to be changed, or a closed one.
func (find Find) edit(scope fleet.Scope, class fleet.CircuitClass, r fleet.RunnerID, provider, account, model string) *fleet.Circuit {
	inID := r
	if r == "" {
		inID = Everywhere
	}
	id := fleet.CircuitID(scope, class, inID, provider, account, model)
	if was := find(id); was != nil {
		return clone(was)
	}
	return &fleet.Circuit{ID: id, Scope: scope, Class: class, Runner: r, Provider: provider, Account: account, Model: model, State: fleet.CircuitClosed}
}

func clone(c *fleet.Circuit) *fleet.Circuit {
	d := *c
	d.Runners = slices.Clone(c.Runners)
	return &d
}

// open opens a circuit until a time, or blocks it where there is none.
func open(c *fleet.Circuit, m Moment, until *time.Time) {
	c.State = fleet.CircuitOpen
	if until == nil {
		c.State = fleet.CircuitBlocked
	}
	c.Until, c.OpenedAt, c.Since, c.ChangedAt = until, m.Now, m.Fence, m.Now
	c.Failures, c.Successes, c.SuccessAt, c.Probe = 0, 0, nil, nil
}

// climb opens a circuit for the next rung of its ladder.
func climb(c *fleet.Circuit, m Moment) {
	c.Step = min(c.Step+1, max(len(ladder(c.Class)), 1))
	until := m.Now.Add(rung(c.Class, c.Step))
	open(c, m, &until)
}

// shut closes a circuit and begins its ladder anew.
func shut(c *fleet.Circuit, m Moment) {
	c.State, c.Until, c.Step, c.ChangedAt = fleet.CircuitClosed, nil, 0, m.Now
	c.Failures, c.Successes, c.SuccessAt, c.Probe, c.Runners, c.Automation = 0, 0, nil, nil, nil, false
}
