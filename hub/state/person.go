package state

import "tugline.dev/tugline/shared/fleet"

var (
	_ = register(func() Command { return new(CancelJob) })
	_ = register(func() Command { return new(SettleJob) })
	_ = register(func() Command { return new(RetryJob) })
	_ = register(func() Command { return new(BlockJob) })
	_ = register(func() Command { return new(FollowUp) })
	_ = register(func() Command { return new(MarkPulled) })
)

// CancelJob ends a job that has not been accepted at once, and asks an accepted one
// to stop. With Abandon it ends the job although its processes are not known to be gone.
type CancelJob struct {
	Job     fleet.JobID `json:"job"`
	Abandon bool        `json:"abandon,omitempty"`
}

func (*CancelJob) kind() Kind { return 16 }

func (c *CancelJob) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	return t.cancel(j, c.Abandon)
}

func (t *txn) cancel(j *fleet.Job, abandon bool) Result {
	tu, cur, was := j.Turn(), j.Current(), j.State
	gaveUp := abandon && giveUp(j)
	repeated := j.CancelRequestedAt != nil
	ask := func() {
		if !repeated {
			j.CancelRequestedAt, j.CancelActor = at(t.now()), t.head.Actor
		}
		if cur != nil && cur.AcceptedAt != nil && cur.State != fleet.AttemptFinished {
			cur.Stop = "cancelled"
		}
	}
	switch was {
	case fleet.Queued, fleet.Assigned, fleet.Preparing, fleet.Blocked:
		ask()
		withdraw(tu, "cancelled")
		t.become(j, fleet.Cancelled, "cancelled", "cancelled while %s", was)
	case fleet.Running, fleet.Lost:
		ask()
		switch {
		case gaveUp:
			t.become(j, fleet.Cancelled, "abandoned", "cancelled (processes unconfirmed)")
		case cur.Gone:
			t.become(j, fleet.Cancelled, "cancelled", "%s", because("cancelled; its processes are gone", j.CancelWhy))
		case repeated:
			return Result{ID: string(j.ID), Repeated: true, Job: j}
		case was == fleet.Lost:
			j.Reason = fleet.Reason{Code: "cancelling", Since: t.now(), Detail: because("lost on "+cur.RunnerName+"; it is told to stop if it comes back", j.CancelWhy)}
		default:
			j.Reason = fleet.Reason{Code: "cancelling", Since: t.now(), Detail: because("on "+cur.RunnerName, j.CancelWhy)}
		}
	case fleet.Verifying:
		if !abandon {
			return refuse(fleet.Conflict, "job %s had already finished when the cancel came; its evidence is being checked", j.ID)
		}
		ask()
		t.become(j, fleet.Cancelled, "abandoned", "cancelled while its evidence was being checked")
	default:
		switch {
		case gaveUp: // the job stands; what an attempt of it may still hold is free
		case was == fleet.Cancelled:
			return Result{ID: string(j.ID), Repeated: true, Job: j}
		default:
			return refuse(fleet.Conflict, "job %s has ended: it is %s", j.ID, was)
		}
		return t.put(j)
	}
	if j.State.Ended() {
		t.ended(j)
	}
	return t.put(j)
}

// because adds to what happened to a job that is cancelled why it is, where that is to
// be told.
func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// giveUp ends every accepted attempt whose processes are not known to be gone, and
// says whether there was one.
func giveUp(j *fleet.Job) bool {
	found := false
	for _, tu := range j.Turns {
		for _, a := range tu.Attempts {
			if (a.State == fleet.AttemptRunning || a.State == fleet.AttemptLost) && !a.Gone {
				a.State, found = fleet.AttemptAbandoned, true
			}
		}
	}
	return found
}

// SettleJob is a person's verdict on a job that needs review.
type SettleJob struct {
	Job    fleet.JobID `json:"job"`
	Accept bool        `json:"accept"`
	Reason string      `json:"reason,omitempty"`
}

func (*SettleJob) kind() Kind { return 17 }

func (c *SettleJob) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	if j.State != fleet.NeedsReview {
		return refuse(fleet.Conflict, "job %s is %s; only a job that needs review is accepted or rejected", j.ID, j.State)
	}
	v := fleet.Verdict{Decision: fleet.Reject, By: t.head.Actor, Reasons: []string{orElse(c.Reason, "rejected by a person")}}
	if c.Accept {
		v.Decision, v.Reasons = fleet.Accept, []string{orElse(c.Reason, "accepted by a person")}
	}
	if was := j.Turn().Verdict; was != nil {
		v.Reasons = append(v.Reasons, was.Reasons...)
	}
	t.judge(j, v)
	return t.put(j)
}

// RetryJob queues an ended turn again. Grant allows an attempt beyond the budget;
// under Rules it gives a whole new budget.
type RetryJob struct {
	Job   fleet.JobID `json:"job"`
	Grant bool        `json:"grant,omitempty"`
	Rules int         `json:"rules,omitempty"`
}

func (*RetryJob) kind() Kind { return 18 }

func (c *RetryJob) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	tu := j.Turn()
	switch {
	case j.State == fleet.Succeeded && j.Spec.Kind == fleet.KindExec:
		return refuse(fleet.Conflict, "job %s succeeded; to run its command again submit it as a new job", j.ID)
	case j.State == fleet.Succeeded:
		return refuse(fleet.Conflict, "job %s succeeded; use a follow-up to go on from it", j.ID)
	case !j.State.Ended():
		return refuse(fleet.Conflict, "job %s is %s and has not ended; cancel it first", j.ID, j.State)
	}
	if c.Rules > 0 {
		if bad := t.anew(c, j, tu); bad.Code != "" {
			return bad
		}
	} else if c.Grant {
		tu.Granted++
	}
	if n := accepted(tu); c.Rules == 0 && n >= fleet.AttemptBudget+tu.Granted {
		return refuse(fleet.Conflict, "job %s has used its %d attempts; an admin can allow one more with --grant", j.ID, n)
	}
	if cur := j.Current(); cur == nil || cur.State != fleet.AttemptLost || cur.Stop != "" {
		tu.Current = 0
	}
	j.CancelRequestedAt, j.CancelActor, j.CancelWhy, j.Excluded, j.Paused, tu.Verdict = nil, "", "", nil, "", nil
	t.queue(j, "retry", "queued again by a person")
	return t.put(j)
}

// BlockJob takes a job that cannot start out of the queue until a person acts.
type BlockJob struct {
	Job    fleet.JobID `json:"job"`
	Turn   int         `json:"turn"`
	Code   string      `json:"code"`
	Detail string      `json:"detail"`
}

func (*BlockJob) kind() Kind { return 19 }

func (c *BlockJob) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	if j.State != fleet.Queued || j.Turn().N != c.Turn {
		return refuse(fleet.Conflict, "job %s is not waiting in turn %d", c.Job, c.Turn)
	}
	t.become(j, fleet.Blocked, c.Code, "%s", c.Detail)
	t.ended(j)
	return t.put(j)
}

// FollowUp adds a turn. While a turn is going on it waits, in order.
type FollowUp struct {
	Job    fleet.JobID  `json:"job"`
	Prompt fleet.Digest `json:"prompt"`
	Model  string       `json:"model,omitempty"`
	Fresh  bool         `json:"fresh,omitempty"`
	On     string       `json:"on,omitempty"`
}

func (*FollowUp) kind() Kind { return 20 }

func (c *FollowUp) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	switch {
	case j.Spec.Kind != fleet.KindAgent:
		return refuse(fleet.BadRequest, "job %s runs a command; only an agent's job has follow-ups", j.ID)
	case len(j.FollowUps) >= fleet.MaxFollowUps:
		return refuse(fleet.QueueFull, "job %s has %d queued follow-ups, the bound", j.ID, len(j.FollowUps))
	case c.On != "" && !c.Fresh:
		return refuse(fleet.BadRequest, "a follow-up resumes its session on its own runner; to move it to %s give it a fresh session (--fresh --on %s)", c.On, c.On)
	}
	if c.On != "" {
		if _, ok := (View{t.Txn}).FindRunner(c.On); !ok {
			return refuse(fleet.NotFound, "there is no runner %q", c.On)
		}
	}
	j.FollowUps = append(j.FollowUps[:len(j.FollowUps):len(j.FollowUps)], fleet.FollowUp{
		Prompt: c.Prompt, Model: c.Model, Fresh: c.Fresh, On: c.On, Actor: t.head.Actor, At: t.now()})
	switch {
	case !j.State.Ended():
	case j.State == fleet.Lost || j.State == fleet.Blocked && !c.Fresh:
		t.ended(j)
	default:
		t.nextTurn(j) // asked for after the end by somebody who could see it
	}
	return t.put(j)
}

// ended goes on with the next follow-up, or says why it waits.
func (t *txn) ended(j *fleet.Job) {
	if len(j.FollowUps) == 0 {
		return
	}
	switch j.State {
	case fleet.Succeeded, fleet.Failed, fleet.NeedsReview:
		if j.CancelRequestedAt == nil {
			t.nextTurn(j)
			return
		}
		j.Paused = "follow-ups wait: a cancel was asked for before the turn ended"
	default:
		j.Paused = "follow-ups wait: the turn is " + string(j.State)
	}
}

// nextTurn makes the oldest follow-up the newest turn. It is bound to the runner
// that holds the session, unless it starts a fresh one elsewhere.
func (t *txn) nextTurn(j *fleet.Job) {
	f := j.FollowUps[0]
	j.FollowUps = append([]fleet.FollowUp(nil), j.FollowUps[1:]...)
	tu := &fleet.Turn{N: j.Turn().N + 1, Prompt: f.Prompt, Model: f.Model, Fresh: f.Fresh, CreatedAt: t.now(), Choice: j.Turn().Choice}
	gone := ""
	if f.On != "" {
		if r, ok := (View{t.Txn}).FindRunner(f.On); ok {
			tu.On = r.ID
		} else {
			gone = "the runner " + f.On + " that it asks for was removed"
		}
	} else if a := lastAccepted(j); a != nil && !f.Fresh {
		tu.On = a.Runner
		if r := t.runner(a.Runner); r == nil || r.Removed {
			gone = "the runner " + a.RunnerName + " that holds its session was removed"
		}
	}
	j.Turns = append(j.Turns[:len(j.Turns):len(j.Turns)], tu)
	j.CancelRequestedAt, j.CancelActor, j.CancelWhy, j.Excluded, j.Paused = nil, "", "", nil, ""
	t.queue(j, "follow_up", "turn %d waits for a runner", tu.N)
	if gone != "" {
		t.become(j, fleet.Blocked, string(fleet.SessionGone), "%s; ask again with --fresh", gone)
		t.ended(j)
	}
}

func lastAccepted(j *fleet.Job) *fleet.Attempt {
	for i := len(j.Turns) - 1; i >= 0; i-- {
		for k := len(j.Turns[i].Attempts) - 1; k >= 0; k-- {
			if a := j.Turns[i].Attempts[k]; a.AcceptedAt != nil {
				return a
			}
		}
	}
	return nil
}

// MarkPulled records that a job's commits are known to be elsewhere too, or that a
// person gave them up; only then may its bundle be deleted.
type MarkPulled struct {
	Job fleet.JobID `json:"job"`
}

func (*MarkPulled) kind() Kind { return 21 }

func (c *MarkPulled) apply(t *txn) Result {
	j, bad := t.edit(c.Job)
	if j == nil {
		return bad
	}
	j.Pulled = true
	return t.put(j)
}
