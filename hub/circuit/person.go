package circuit

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Reset closes a circuit because a person says so. Attempts assigned before it say
// nothing about what was repaired.
func Reset(c *fleet.Circuit, actor, reason, repaired string, m Moment) *fleet.Circuit {
	d := clone(c)
	shut(d, m)
	d.Generation++
	d.Actor, d.Text, d.Repaired, d.Since = actor, reason, repaired, m.Fence
	return d
}

// Open gives a circuit that a person opens for a time, or until it is reset (0).
func Open(find Find, want fleet.Circuit, actor, reason string, d time.Duration, m Moment) *fleet.Circuit {
	c := find.edit(want.Scope, fleet.CircuitOperator, want.Runner, want.Provider, want.Account, want.Model)
	c.Step, c.Actor, c.Text, c.Fence = 1, actor, reason, fleet.Fence{}
	if d > 0 {
		until := m.Now.Add(d)
		open(c, m, &until)
	} else {
		open(c, m, nil)
	}
	return c
}

// Renewed gives a circuit of refused credentials closed, if what its runner says of itself
// now shows other credentials for the provider than before: another account, or a sign-in
// where there was none. Else it gives nil. That nothing was said before shows nothing: a
// runner that has just started has not looked yet, and an answer may have failed to come.
func Renewed(c *fleet.Circuit, old, now fleet.RunnerFacts, m Moment) *fleet.Circuit {
	if c.Class != fleet.CircuitAuth || c.State == fleet.CircuitClosed {
		return nil
	}
	for _, h := range now.Harnesses {
		own := fleet.ProviderOf(h.Name, "")
		if own == "" || own != c.Provider && own != h.Name { // one that speaks to many may be the one
			continue
		}
		was, _ := old.Harness(h.Name)
		had, has := was.AccountOf(c.Provider), h.AccountOf(c.Provider)
		if c.Account != "" && had != "" && had != c.Account {
			continue // it was another one's that was refused
		}
		other := has != "" && has != c.Account
		if c.Account == "" {
			other = has != "" && has != had && (was.SignedIn == "yes" || was.SignedIn == "no")
		}
		if other || was.SignedIn == "no" && h.SignedIn == "yes" {
			d := clone(c)
			shut(d, m)
			d.Since = m.Fence
			return d
		}
	}
	return nil
}
