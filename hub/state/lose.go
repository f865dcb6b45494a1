package state

import "tugline.dev/tugline/shared/fleet"

var (
	_ = register(func() Command { return new(LoseAttempt) })
	_ = register(func() Command { return new(ReviveAttempt) })
	_ = register(func() Command { return new(AttemptGone) })
)

// LoseAttempt says that nobody knows how an accepted attempt goes on. The job is
// lost; it runs again only where its own rule says so.
type LoseAttempt struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Detail string      `json:"detail"`
	Rules  int         `json:"rules,omitempty"`
}

func (*LoseAttempt) kind() Kind { return 13 }

func (c *LoseAttempt) apply(t *txn) Result {
	j, _, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.State == fleet.AttemptLost {
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	}
	if a.State != fleet.AttemptRunning {
		return refuse(fleet.NotCurrent, "attempt %s of job %s is %s, not running", c.Fence, c.Job, a.State)
	}
	t.lose(j, a, c.Detail, c.Rules)
	return t.put(j)
}

func (t *txn) lose(j *fleet.Job, a *fleet.Attempt, detail string, rules int) {
	a.State, a.Detail = fleet.AttemptLost, detail
	// What a runner was told to stop, and says is gone, was not lost: it may have been
	// stopped before any process of it began.
	if tu, _ := j.Find(a.Fence); rules > 0 && !(a.Gone && a.Stop != "") {
		t.lostRunner(j, tu, a)
	}
	if j.Current() != a || j.State != fleet.Running {
		return
	}
	tu := j.Turn()
	switch {
	case j.CancelRequestedAt != nil && a.Gone:
		t.become(j, fleet.Cancelled, "cancelled", "%s", because("cancelled; its processes are gone", j.CancelWhy))
		t.ended(j)
	case j.CancelRequestedAt != nil:
		t.become(j, fleet.Lost, "cancel_requested", "lost while cancelling: %s", detail)
		t.ended(j)
	case j.Spec.OnLost == "rerun" && rules > 0:
		t.rerun(j, tu, a, detail)
	case j.Spec.OnLost == "rerun" && accepted(tu) < fleet.AttemptBudget+tu.Granted:
		t.queue(j, "rerun", "attempt %d was lost (%s); runs again because the job says so", a.N, detail)
	case j.Spec.OnLost == "rerun":
		t.become(j, fleet.Lost, "budget", "lost %d times, the budget of a turn; `job retry --grant` allows one more: %s", accepted(tu), detail)
		t.ended(j)
	default:
		t.become(j, fleet.Lost, "lost", "%s", detail)
		t.ended(j)
	}
}

// ReviveAttempt says that a lost attempt was seen alive again. While it holds the
// authority the job runs on, and a rerun not yet accepted is withdrawn.
type ReviveAttempt struct {
	Job   fleet.JobID `json:"job"`
	Fence fleet.Fence `json:"fence"`
}

func (*ReviveAttempt) kind() Kind { return 14 }

func (c *ReviveAttempt) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.State == fleet.AttemptRunning {
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	}
	if a.State != fleet.AttemptLost || a.Gone {
		return refuse(fleet.NotCurrent, "attempt %s of job %s is %s, not lost", c.Fence, c.Job, a.State)
	}
	if mayReturn(j, tu, a) {
		return t.revive(j, tu, a)
	}
	if a.Stop != "" {
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	}
	a.Stop = string(fleet.Superseded)
	return t.put(j)
}

// mayReturn says whether the job goes on with its lost attempt if that comes back.
func mayReturn(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) bool {
	return tu == j.Turn() && tu.Current == a.N && !a.Gone && j.State != fleet.Cancelled
}

func (t *txn) revive(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) Result {
	withdraw(tu, "the lost attempt came back")
	a.State, a.Detail = fleet.AttemptRunning, ""
	if j.CancelRequestedAt != nil {
		t.become(j, fleet.Running, "cancelling", "on %s, which came back and is told to stop", a.RunnerName)
	} else {
		t.become(j, fleet.Running, "running", "on %s, which came back", a.RunnerName)
	}
	return t.put(j)
}

// AttemptGone says that no process of an attempt is left and that there is no
// result: its slot is free.
type AttemptGone struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Detail string      `json:"detail,omitempty"`
	Rules  int         `json:"rules,omitempty"`
}

func (*AttemptGone) kind() Kind { return 15 }

func (c *AttemptGone) apply(t *txn) Result {
	j, _, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.Gone {
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	}
	a.Gone = true
	switch {
	case a == pending(j.Turn()):
		t.giveBack(j, a, orElse(c.Detail, "the runner no longer has it"))
	case a.State == fleet.AttemptRunning:
		t.lose(j, a, orElse(c.Detail, "its processes are gone and left no result"), c.Rules)
	case a.State == fleet.AttemptLost && j.State == fleet.Lost && j.Current() == a && j.CancelRequestedAt != nil:
		t.become(j, fleet.Cancelled, "cancelled", "%s", because("cancelled; its processes are gone", j.CancelWhy))
		t.ended(j)
	}
	return t.put(j)
}
