package state

import (
	"math"
	"strconv"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var _ = register(func() Command { return new(Expire) })

// Expire deletes what has reached its end: the named job records, idempotency
// keys older than a day, audit records older than AuditAge, tickets a day past their
// end, browsers' sessions at their end, orphans that were settled long ago. At most Limit of each go in one entry, so
// that none is long.
type Expire struct {
	Jobs     []fleet.JobID `json:"jobs,omitempty"`
	AuditAge time.Duration `json:"audit_age_ns"`
	Limit    int           `json:"limit"`
}

func (*Expire) kind() Kind { return 48 }

func (c *Expire) apply(t *txn) Result {
	for _, id := range c.Jobs {
		if j := t.job(id); j != nil && j.State.Ended() && !anyOpen(j) {
			t.drop(j)
		}
	}
	var keys []*Idem
	each(t.Txn, tableIdem, "at", func(i *Idem) bool {
		if t.now().Sub(i.At) < KeepKeys || len(keys) >= c.Limit {
			return false
		}
		keys = append(keys, i)
		return true
	})
	for _, i := range keys {
		t.delete(tableIdem, i)
		t.add("idem", -1)
		t.add("idem:"+i.Actor, -1)
	}
	var audit []*Audit
	each(t.Txn, tableAudit, "id", func(a *Audit) bool {
		if t.now().Sub(a.At) < c.AuditAge || len(audit) >= c.Limit {
			return false
		}
		audit = append(audit, a)
		return true
	})
	for _, a := range audit {
		t.delete(tableAudit, a)
	}
	var tickets []*fleet.Ticket
	each(t.Txn, tableTickets, "id", func(k *fleet.Ticket) bool {
		if t.now().After(k.ExpiresAt.Add(KeepKeys)) {
			tickets = append(tickets, k)
		}
		return len(tickets) < c.Limit
	})
	for _, k := range tickets {
		t.delete(tableTickets, k)
	}
	var orphans []*fleet.Orphan
	each(t.Txn, tableOrphans, "id", func(o *fleet.Orphan) bool {
		if o.Settled != "" && len(orphans) < c.Limit && t.now().Sub(*o.SettledAt) > keepOrphans {
			orphans = append(orphans, o)
		}
		return true
	})
	for _, o := range orphans {
		t.delete(tableOrphans, o)
	}
	t.expireCircuits(c.Limit)
	t.forgetFootprints(c.Limit)
	t.expireSignIns(c.Limit)
	return Result{}
}

// audited says whether an entry leaves an audit record: what persons do, and what
// changes the cluster itself whoever did it.
func audited(h Head, c Command) bool {
	switch c.(type) {
	case *AdmitNode, *RemoveNode, *RaiseEpoch:
		return true
	}
	return !h.Machine()
}

func anyOpen(j *fleet.Job) bool { return len(opens(j)) > 0 }

// audit records who did what.
func (t *txn) audit(c Command, r Result) {
	a := &Audit{Index: t.index, At: t.now(), Actor: t.head.Actor, From: t.head.From, Command: verb(c), Subject: r.ID}
	switch c := c.(type) {
	case *CancelJob:
		if c.Abandon {
			a.Detail = "abandon"
		}
	case *RemoveRunner:
		if c.AbandonJobs {
			a.Detail = "abandon jobs"
		}
	case *SettleJob:
		a.Detail = "reject"
		if c.Accept {
			a.Detail = "accept"
		}
	case *RetryJob:
		if c.Grant {
			a.Detail = "grant"
		}
	case *SetSlots:
		a.Detail = "automation: the default"
		if c.Automation != nil {
			a.Detail = "automation: " + strconv.Itoa(*c.Automation)
		}
	case *ResetCircuit:
		a.Detail = c.audit()
	case *OpenCircuit:
		a.Detail = c.audit()
	case *HoldRunner:
		a.Detail = c.words()
	case *SetBudget:
		a.Detail = "set"
		if c.Remove {
			a.Detail = "remove"
		}
	case *Set:
		a.Detail = c.Value
	case *SetRing:
		a.Detail = string(c.Ring)
	case *WantRelease:
		a.Detail = c.Version
		if c.Downgrade {
			a.Detail += ", a downgrade"
		}
	case *MoveRelease:
		a.Detail = string(c.Ring)
	case *ActivateKeys:
		a.Detail = c.ID
	case *AdmitNode:
		a.Detail = c.Replaces
	case *RemoveNode:
		a.Detail = c.Why
	case *RaiseEpoch:
		a.Subject, a.Detail = strconv.FormatUint(c.To, 10), c.Cause
	case *SettleOrphan:
		a.Detail = "discard"
		if c.Adopt {
			a.Detail = "adopt"
		}
	}
	t.insert(tableAudit, a)
}

// verb names a command in the audit record.
func verb(c Command) string {
	switch c := c.(type) {
	case *SubmitJob:
		return "job.submit"
	case *CancelJob:
		return "job.cancel"
	case *SettleJob:
		return "job.settle"
	case *RetryJob:
		return "job.retry"
	case *FollowUp:
		return "job.follow_up"
	case *MarkPulled:
		return "job.pulled"
	case *Set:
		return "setting.set"
	case *Expire:
		if c.AuditAge == math.MaxInt64 { // a person's that deletes nothing: the first entry by a clock that they accepted
			return "time.accept"
		}
	case *CreateToken:
		return "token.create"
	case *RevokeToken:
		return "token.revoke"
	case *SignIn:
		return "session.begin"
	case *SignOut:
		return "session.end"
	case *AddPasskey:
		return "passkey.add"
	case *RemovePasskey:
		return "passkey.remove"
	case *CreateTicket:
		return "ticket.create"
	case *Enrol:
		return "runner.enrol"
	case *ResetCircuit:
		return "circuit.reset"
	case *OpenCircuit:
		return "circuit.open"
	case *ReleaseProbe:
		return "circuit.release"
	case *FlagRunner:
		return "runner.flag"
	case *SetBudget:
		return "budget.set"
	case *SetSlots:
		return "runner.slots"
	case *HoldRunner:
		switch {
		case c.Hold == nil:
			return "runner.resume"
		case c.Hold.Drain:
			return "runner.drain"
		}
		return "runner.cordon"
	case *RemoveRunner:
		return "runner.remove"
	case *RevokeRunner:
		return "runner.revoke"
	case *ActivateKeys:
		return "keys.rotate"
	case *AdmitNode:
		return "hub.admit"
	case *UpdateNode:
		return "hub.update"
	case *RemoveNode:
		return "hub.remove"
	case *RaiseEpoch:
		return "hub.raise_epoch"
	case *SettleOrphan:
		return "orphan.settle"
	case *AddRelease:
		return "release.add"
	case *RemoveRelease:
		return "release.remove"
	case *MoveRelease:
		return "release.offer"
	case *SetRing:
		return "runner.ring"
	case *WantRelease:
		return "runner.update"
	}
	return "other"
}
