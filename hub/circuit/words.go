package circuit

import (
	"cmp"
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// refusal says in words why a circuit refuses.
func (s *Set) refusal(c *fleet.Circuit, now time.Time) Answer {
	a := Answer{Verdict: No, Circuit: c.ID}
	reset := "tugline circuit reset " + fleet.CircuitKey(c.ID)
	switch At(c, now) {
	case fleet.CircuitHalf:
		by := s.taken[c.ID]
		if c.Probe != nil {
			by = c.Probe.Job
		}
		a.Detail = fmt.Sprintf("waits while job %s tries whether it works again: %s", by, why(c))
		a.Change = fmt.Sprintf("what comes of job %s; or `%s`", by, reset)
	case fleet.CircuitBlocked:
		a.Detail = "is kept from it: " + why(c)
		a.Change = fmt.Sprintf("`%s --repaired 'WHAT WAS REPAIRED'`", reset)
		if c.Class == fleet.CircuitAuth {
			a.Change = "other credentials there (sign the harness in anew); or " + a.Change
		}
	default:
		a.Until = c.Until
		a.Detail = fmt.Sprintf("is kept from it until %s: %s", c.Until.UTC().Format(time.RFC3339), why(c))
		a.Change = fmt.Sprintf("that time; or `%s`", reset)
	}
	return a
}

// why says why a circuit opened.
func why(c *fleet.Circuit) string {
	with := c.Provider
	if c.Account != "" {
		with += " (account " + c.Account + ")"
	}
	s := ""
	switch c.Class {
	case fleet.CircuitBurst:
		s = "a rate limit of " + with
	case fleet.CircuitQuota:
		s = "the quota at " + with + " is used up"
	case fleet.CircuitAuth:
		s = with + " refused its credentials"
	case fleet.CircuitModel:
		s = fmt.Sprintf("%s does not have the model %s", with, cmp.Or(c.Model, "that the harness asks for by itself"))
		if c.State == fleet.CircuitBlocked {
			s += fmt.Sprintf(" for %d runners that asked", len(c.Runners))
		}
	case fleet.CircuitStartup:
		s = "the harness for " + with + " refused to start"
	case fleet.CircuitOutage:
		s = with + " cannot be reached or fails"
	case fleet.CircuitLost:
		s = "it was lost with work on it"
	case fleet.CircuitDisk:
		s = "its disk had too little room for a job" + whose(c)
	case fleet.CircuitMemory:
		s = "its memory was too small for a job" + whose(c)
	case fleet.CircuitDocker:
		s = "its Docker was not there for a job"
	case fleet.CircuitOperator:
		s = c.Actor + " keeps work from " + over(c)
	}
	if c.Text != "" {
		s += ": " + c.Text
	}
	if c.StatedEnd != "" {
		s += fmt.Sprintf(" (it states %q as the end, which is not taken)", c.StatedEnd)
	}
	return s
}

// over says what a person's circuit is over.
func over(c *fleet.Circuit) string {
	switch {
	case c.Scope == fleet.ScopeHost:
		return "this machine"
	case c.Scope == fleet.ScopeModel:
		return fmt.Sprintf("the model %s of %s", c.Model, c.Provider)
	case c.Account != "":
		return fmt.Sprintf("%s (account %s)", c.Provider, c.Account)
	}
	return c.Provider
}

// whose says whose jobs alone a circuit keeps away.
func whose(c *fleet.Circuit) string {
	if c.Automation {
		return " of an automation, which needs more than others"
	}
	return ""
}
