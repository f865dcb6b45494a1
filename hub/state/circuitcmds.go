package state

import (
	"strings"
	"time"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(ResetCircuit) })
	_ = register(func() Command { return new(OpenCircuit) })
	_ = register(func() Command { return new(ReleaseProbe) })
)

// MaxOpenFor bounds the time for which a person opens a circuit.
const MaxOpenFor = 365 * 24 * time.Hour

// ResetCircuit closes a circuit because a person says so. A blocked one needs to be
// told what was repaired. It may assume the circuit's recovery generation.
type ResetCircuit struct {
	ID         string  `json:"id"`
	Reason     string  `json:"reason,omitempty"`
	Repaired   string  `json:"repaired,omitempty"`
	Generation *uint64 `json:"recovery_generation,omitempty"`
}

func (*ResetCircuit) kind() Kind { return 51 }

func (c *ResetCircuit) apply(t *txn) Result {
	was := t.circuit(c.ID)
	reason, repaired := strings.TrimSpace(c.Reason), strings.TrimSpace(c.Repaired)
	switch {
	case was == nil:
		return refuse(fleet.NotFound, "there is no circuit %s; see `tugline circuit list`", c.ID)
	case c.Generation != nil && *c.Generation != was.Generation:
		return refuse(fleet.Conflict, "circuit %s was repaired since: its recovery generation is %d, not %d; look at it again", c.ID, was.Generation, *c.Generation)
	case len(reason) > fleet.MaxDetail || len(repaired) > fleet.MaxDetail:
		return refuse(fleet.TooLarge, "a reason, and what was repaired, have at most %d bytes", fleet.MaxDetail)
	case was.State == fleet.CircuitBlocked && repaired == "":
		return refuse(fleet.BadRequest, "circuit %s is blocked; say what was repaired (--repaired)", c.ID)
	case was.State == fleet.CircuitClosed:
		return Result{ID: c.ID, Repeated: true}
	}
	t.putCircuits([]*fleet.Circuit{circuit.Reset(was, t.head.Actor, reason, repaired, t.moment())})
	return Result{ID: c.ID}
}

// audit gives what the audit record says of it.
func (c *ResetCircuit) audit() string {
	reason, repaired := strings.TrimSpace(c.Reason), strings.TrimSpace(c.Repaired)
	if repaired == "" {
		return reason
	}
	return strings.TrimPrefix(reason+"; repaired: "+repaired, "; ")
}

// OpenCircuit keeps work away by a person's decision, for a time or until it is reset.
// It is over a provider on one runner or on all, over a model on one runner or on all,
// or over one runner's machine.
type OpenCircuit struct {
	Scope    fleet.Scope    `json:"scope"`
	Runner   fleet.RunnerID `json:"runner,omitempty"`
	Provider string         `json:"provider,omitempty"`
	Account  string         `json:"account,omitempty"`
	Model    string         `json:"model,omitempty"`
	For      time.Duration  `json:"for_ns,omitempty"` // 0: until it is reset
	Reason   string         `json:"reason,omitempty"`
}

func (*OpenCircuit) kind() Kind { return 52 }

func (c *OpenCircuit) apply(t *txn) Result {
	if bad := c.check(t); bad.Code != "" {
		return bad
	}
	want := fleet.Circuit{Scope: c.Scope, Runner: c.Runner, Provider: c.Provider, Account: c.Account, Model: c.Model}
	o := circuit.Open(t.circuit, want, t.head.Actor, strings.TrimSpace(c.Reason), c.For, t.moment())
	t.putCircuits([]*fleet.Circuit{o})
	return Result{ID: o.ID}
}

// audit gives what the audit record says of it.
func (c *OpenCircuit) audit() string {
	reason := strings.TrimSpace(c.Reason)
	if c.For > 0 {
		return strings.TrimPrefix(reason+"; for "+c.For.String(), "; ")
	}
	return reason
}

// check refuses what is over nothing.
func (c *OpenCircuit) check(t *txn) Result {
	switch {
	case c.For < 0 || c.For > MaxOpenFor:
		return refuse(fleet.BadRequest, "a circuit is opened for a time up to %s, or, with none, until it is reset", MaxOpenFor)
	case len(c.Reason) > fleet.MaxDetail || len(c.Provider) > fleet.MaxDetail || len(c.Account) > fleet.MaxDetail || len(c.Model) > fleet.MaxDetail:
		return refuse(fleet.TooLarge, "a reason, a provider, an account and a model have at most %d bytes each", fleet.MaxDetail)
	}
	switch c.Scope {
	case fleet.ScopeHost:
		if c.Runner == "" || c.Provider != "" || c.Account != "" || c.Model != "" {
			return refuse(fleet.BadRequest, "a circuit over a machine names its runner and nothing else")
		}
	case fleet.ScopeProvider:
		if c.Provider == "" || c.Model != "" {
			return refuse(fleet.BadRequest, "a circuit over a provider names the provider and no model")
		}
	case fleet.ScopeModel:
		if c.Provider == "" || c.Model == "" || c.Account != "" {
			return refuse(fleet.BadRequest, "a circuit over a model names its provider and the model, and no account")
		}
	default:
		return refuse(fleet.BadRequest, "a circuit is over a provider, a model or a host, not over %q", c.Scope)
	}
	if c.Runner != "" {
		if r := t.runner(c.Runner); r == nil || r.Removed {
			return refuse(fleet.RunnerUnknown, "there is no runner %s", c.Runner)
		}
	}
	return Result{}
}

// ReleaseProbe takes the lease of a half-open circuit from an attempt that nothing has
// shown alive for the length of a lease: another job may try it.
type ReleaseProbe struct {
	ID    string      `json:"id"`
	Fence fleet.Fence `json:"fence"`
}

func (*ReleaseProbe) kind() Kind { return 53 }

func (c *ReleaseProbe) apply(t *txn) Result {
	if t.circuit(c.ID) == nil {
		return refuse(fleet.NotFound, "there is no circuit %s", c.ID)
	}
	return Result{ID: c.ID, Repeated: !t.release(c.ID, c.Fence)}
}
