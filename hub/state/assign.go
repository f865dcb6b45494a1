package state

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(AssignJob) })
	_ = register(func() Command { return new(AcceptAttempt) })
	_ = register(func() Command { return new(DeclineAttempt) })
	_ = register(func() Command { return new(ReturnAttempt) })
)

// AssignJob gives the newest turn of a queued job to a runner. The fence of the
// attempt is the cluster's epoch and this command's index. It assumes the turn, the
// number of attempts made so far, and that the runner has a free slot: of Slots, or
// under Rules of the kind that the job needs.
type AssignJob struct {
	Job        fleet.JobID    `json:"job"`
	Runner     fleet.RunnerID `json:"runner"`
	Turn       int            `json:"turn"`
	Attempts   int            `json:"attempts"`
	Slots      int            `json:"slots"` // without Rules
	Rules      int            `json:"rules,omitempty"`
	Choice     int            `json:"choice,omitempty"`     // the place among the job's choices that the turn is taken to be at
	Reserve    int64          `json:"reserve,omitempty"`    // bytes of disk
	Probes     []string       `json:"probes,omitempty"`     // circuits that the attempt is to try
	Base       int            `json:"base,omitempty"`       // slots for manual work that the runner offers
	Automation int            `json:"automation,omitempty"` // slots for automation that are in effect there
}

func (*AssignJob) kind() Kind { return 2 }

func (c *AssignJob) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	tu := j.Turn()
	r := t.runner(c.Runner)
	switch {
	case j.State != fleet.Queued || tu.N != c.Turn || len(tu.Attempts) != c.Attempts:
		return refuse(fleet.Conflict, "job %s is no longer waiting as it was", c.Job)
	case r == nil || r.Removed:
		return refuse(fleet.RunnerUnknown, "runner %s is not enrolled", c.Runner)
	case r.Cordoned || r.Conflict != "":
		return refuse(fleet.Conflict, "runner %s takes no work", r.Name)
	}
	if c.Rules == 0 {
		if t.held(c.Runner).all() >= c.Slots {
			return refuse(fleet.NoSlot, "runner %s has no free slot", r.Name)
		}
	} else if bad := t.admit(c, j, tu, r); bad.Code != "" {
		return bad
	}
	if k := j.Spec.ConcurrencyKey; k != "" {
		if by, held := (View{t.Txn}).Holder(k, j.ID); held {
			return refuse(fleet.Conflict, "concurrency key %q is held by job %s", k, by)
		}
	}
	a := &fleet.Attempt{
		N: len(tu.Attempts) + 1, Fence: fleet.Fence{Epoch: t.meta.Epoch, Index: t.index},
		Runner: r.ID, RunnerName: r.Name, State: fleet.AttemptAssigned, AssignedAt: t.now(), PhaseAt: t.now(),
	}
	if c.Rules > 0 {
		choice := j.ChoiceOf(tu)
		a.Harness, a.Provider, a.Requested, a.Reserve = orElse(choice.Harness, string(j.Spec.Kind)), choice.Provider(), choice.Model, c.Reserve
		a.Account = accountOf(r, choice)
		if bad := t.leaseProbes(j, a, c.Probes); bad.Code != "" {
			return bad
		}
		tu.NotBefore = nil
	}
	// A lost attempt keeps the authority until its rerun is accepted.
	if cur := j.Current(); cur == nil || cur.State != fleet.AttemptLost {
		tu.Current = a.N
	}
	tu.Attempts = append(tu.Attempts, a)
	t.become(j, fleet.Assigned, "assigned", "given to %s", r.Name)
	res := t.put(j)
	res.Fence = a.Fence
	return res
}

// admit refuses, under the rules, what the job or the runner has no room for.
func (t *txn) admit(c *AssignJob, j *fleet.Job, tu *fleet.Turn, r *fleet.Runner) Result {
	held := t.held(r.ID)
	switch {
	case c.Choice != tu.Choice:
		return refuse(fleet.Conflict, "job %s is no longer waiting as it was", c.Job)
	case r.HeldAt(t.now()):
		return refuse(fleet.Cordoned, "runner %s takes no work", r.Name)
	case tu.NotBefore != nil && t.now().Before(*tu.NotBefore):
		return refuse(fleet.RetryWaits, "job %s waits until %s before it is tried again", j.ID, tu.NotBefore.Format(time.RFC3339))
	case c.Reserve < 0 || len(c.Probes) > maxProbes:
		return refuse(fleet.BadRequest, "an assignment reserves no less than nothing, and tries at most %d circuits", maxProbes)
	case !HasRoom(j.Spec.Automated(), held.manual, held.automation, c.Base, min(c.Automation, r.AutomationSlots())):
		return refuse(fleet.NoSlot, "runner %s has no free slot", r.Name)
	}
	return t.affordable(j)
}

// maxProbes bounds the circuits that one attempt tries.
const maxProbes = 16

// AcceptAttempt records that the runner is ready; its commit is the permit to start.
type AcceptAttempt struct {
	Job         fleet.JobID       `json:"job"`
	Fence       fleet.Fence       `json:"fence"`
	Permissions fleet.Permissions `json:"permissions,omitempty"`
	BaseCommit  string            `json:"base_commit,omitempty"`
	Notes       []string          `json:"notes,omitempty"`
	Rules       int               `json:"rules,omitempty"`
}

func (*AcceptAttempt) kind() Kind { return 3 }

func (c *AcceptAttempt) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.AcceptedAt != nil && a.State == fleet.AttemptRunning && tu == j.Turn() && tu.Current == a.N {
		return Result{ID: string(j.ID), Fence: a.Fence, Repeated: true, Job: j}
	}
	if a.State == fleet.AttemptLost && mayReturn(j, tu, a) && a.Stop == "" {
		res := t.revive(j, tu, a) // its accept was committed, and the answer did not reach it
		res.Fence = a.Fence
		return res
	}
	if a != pending(j.Turn()) || j.State != fleet.Assigned && j.State != fleet.Preparing {
		if j.CancelRequestedAt != nil || a.Stop == "cancelled" {
			return refuse(fleet.CancelRequested, "job %s was cancelled", j.ID)
		}
		return refuse(fleet.StaleFence, "attempt %s of job %s no longer holds the assignment", c.Fence, c.Job)
	}
	if cur := j.Current(); cur != nil && cur != a && cur.State == fleet.AttemptLost {
		cur.Stop = string(fleet.Superseded)
	}
	tu.Current = a.N
	a.State, a.AcceptedAt, a.Phase, a.PhaseAt = fleet.AttemptRunning, at(t.now()), "accepted", t.now()
	a.Permissions, a.BaseCommit, a.Notes = c.Permissions, c.BaseCommit, c.Notes
	t.become(j, fleet.Running, "running", "on %s", a.RunnerName)
	if c.Rules > 0 {
		t.acceptedBy(j, tu, a)
	}
	res := t.put(j)
	res.Fence = a.Fence
	return res
}

// DeclineAttempt gives an assignment back before it was accepted. The job stays
// away from that runner until the runner's facts change or RetryAfter passes. With
// Block no other runner could do better, and the job waits for a person.
type DeclineAttempt struct {
	Job        fleet.JobID   `json:"job"`
	Fence      fleet.Fence   `json:"fence"`
	Code       fleet.Code    `json:"code"`
	Detail     string        `json:"detail"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Block      bool          `json:"block,omitempty"`
	Rules      int           `json:"rules,omitempty"`
}

func (*DeclineAttempt) kind() Kind { return 4 }

func (c *DeclineAttempt) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.State == fleet.AttemptDeclined {
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	}
	if a.AcceptedAt != nil {
		return refuse(fleet.Conflict, "attempt %s of job %s was accepted and cannot be declined", c.Fence, c.Job)
	}
	if a != pending(j.Turn()) {
		if a.Gone {
			return Result{ID: string(j.ID), Repeated: true, Job: j}
		}
		a.Gone = true // it will not run; nothing else depends on it
		return t.put(j)
	}
	a.State, a.Code, a.Detail, a.Gone, a.FinishedAt = fleet.AttemptDeclined, c.Code, c.Detail, true, at(t.now())
	keepCurrent(tu, a)
	class, faulty := hostClass(c.Code)
	if faulty = faulty && c.Rules > 0; faulty {
		t.hostFault(j, tu, a, class)
	}
	if c.Block {
		t.become(j, fleet.Blocked, string(c.Code), "%s", c.Detail)
		t.ended(j)
		return t.put(j)
	}
	if !faulty { // else the circuit keeps it away from there, until it ends or somebody resets it
		t.exclude(j, a.Runner, c.Code, c.Detail, c.RetryAfter)
	}
	t.requeue(j, "declined", "%s declined: %s", a.RunnerName, c.Detail)
	return t.put(j)
}

// ReturnAttempt puts a job back in the queue whose unaccepted attempt fell silent.
type ReturnAttempt struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Detail string      `json:"detail"`
}

func (*ReturnAttempt) kind() Kind { return 5 }

func (c *ReturnAttempt) apply(t *txn) Result {
	j, _, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a != pending(j.Turn()) {
		return refuse(fleet.NotCurrent, "attempt %s of job %s is not waiting to be accepted", c.Fence, c.Job)
	}
	t.giveBack(j, a, c.Detail)
	return t.put(j)
}

// giveBack ends an unaccepted attempt at no cost and keeps the job away from that
// runner for a minute, so that one broken runner cannot hold a job for ever.
func (t *txn) giveBack(j *fleet.Job, a *fleet.Attempt, detail string) {
	a.State, a.Stop, a.Detail, a.FinishedAt = fleet.AttemptReturned, "returned", detail, at(t.now())
	keepCurrent(j.Turn(), a)
	t.exclude(j, a.Runner, "no_accept", detail, time.Minute)
	t.requeue(j, "returned", "%s: %s", a.RunnerName, detail)
}

// keepCurrent takes the authority from an attempt that ended without an accept.
func keepCurrent(tu *fleet.Turn, a *fleet.Attempt) {
	if tu.Current == a.N {
		tu.Current = 0
	}
}

func (t *txn) exclude(j *fleet.Job, id fleet.RunnerID, code fleet.Code, detail string, d time.Duration) {
	x := fleet.Exclusion{Runner: id, Code: code, Detail: detail}
	if r := t.runner(id); r != nil {
		x.Facts = r.FactsRev
	}
	if d > 0 {
		x.Until = at(t.now().Add(d))
	}
	kept := []fleet.Exclusion{x}
	for _, o := range j.Excluded {
		if o.Runner != id && len(kept) < 64 {
			kept = append(kept, o)
		}
	}
	j.Excluded = kept
}

// attempt finds an attempt in a copy of its job that may be changed.
func (t *txn) attempt(id fleet.JobID, f fleet.Fence) (*fleet.Job, *fleet.Turn, *fleet.Attempt, Result) {
	j, bad := t.edit(id)
	if j == nil {
		return nil, nil, nil, bad
	}
	tu, a := j.Find(f)
	if a == nil {
		return nil, nil, nil, refuse(fleet.StaleFence, "job %s has no attempt %s", id, f)
	}
	return j, tu, a, Result{}
}
