package state

import (
	"tugline.dev/tugline/hub/retry"
	"tugline.dev/tugline/shared/fleet"
)

// learn takes in, under the rules, all that the end of an attempt tells beyond its job.
func (t *txn) learn(c *FinishAttempt, j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) {
	told := fleet.HarnessInfo{Name: a.Harness, Account: c.Account}
	a.Acted = c.Acted || hasActed(c, a)
	a.Account, a.StatedEnd = orElse(told.AccountOf(a.Provider), a.Account), fleet.CutText(c.StatedEnd, fleet.MaxDetail)
	if c.RetryAfter > 0 {
		a.RetryAfter = at(t.now().Add(c.RetryAfter))
	}
	a.Free = (c.Exit.Reason == "stopped" || c.Class == fleet.ClassCancelled) && a.Stop != string(fleet.Superseded)
	t.tread(j.Spec.Repo, c.Footprint)
	t.observe(j, tu, a)
	if c.Class == fleet.ClassDocker {
		j.Learned = &fleet.Learned{Docker: true}
	}
}

// hasActed says whether an end shows by itself that the agent did something. An older
// runner does not say so, and neither does it say when a provider responded.
func hasActed(c *FinishAttempt, a *fleet.Attempt) bool {
	return c.Evidence != nil && c.Evidence.CommitCount > 0 || c.Usage != nil && c.Usage.OutputTokens > 0 && !a.Responded
}

// goOn leads the newest turn on after an attempt that did not end well, where its job
// has another way; else it changes nothing and says so.
func (t *txn) goOn(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) bool {
	step := retry.Next(t.attempted(j, tu, a))
	if step.Do == retry.End {
		return false
	}
	if step.Bound {
		tu.On = a.Runner
	}
	tu.Current, tu.NotBefore = 0, nil
	last := string(a.Failure)
	if a.Detail != "" {
		last += ": " + a.Detail
	}
	switch step.Do {
	case retry.Forward:
		from, to := j.ChoiceOf(tu), j.Spec.Fallbacks[step.Choice-1]
		tu.Choice = step.Choice
		m := fleet.Transition{At: t.now(), Attempt: a.N, From: from, To: to, Class: a.Failure, Skipped: step.Skipped, Detail: fleet.CutText(a.Detail, maxMoveText)}
		tu.Moves = append(tu.Moves[:len(tu.Moves):len(tu.Moves)], m)
		t.queue(j, "fallback", "goes on with %s: attempt %d with %s ended %s", to, a.N, from, last)
	case retry.Again:
		t.pause(j, tu, step)
		t.queue(j, "retry_waits", "is tried again in %s: attempt %d ended %s", step.Pause, a.N, last)
	default:
		t.become(j, fleet.Blocked, "budget", "%s; the last ended %s", step.Why, last)
		t.ended(j)
	}
	return true
}

// maxMoveText bounds the text of a transition, in bytes.
const maxMoveText = 1 << 10

// rerun queues a job whose attempt was lost, by the job's own rule.
func (t *txn) rerun(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt, detail string) {
	step := retry.Lost(t.attempted(j, tu, a))
	if step.Do == retry.Blocked {
		t.become(j, fleet.Lost, "budget", "%s: %s", step.Why, detail)
		t.ended(j)
		return
	}
	t.pause(j, tu, step)
	t.queue(j, "rerun", "attempt %d was lost (%s); runs again in %s because the job says so", a.N, detail, step.Pause)
}

func (t *txn) pause(j *fleet.Job, tu *fleet.Turn, step retry.Step) {
	tu.NotBefore = at(t.now().Add(step.Pause))
}

// attempted gives an attempt that has ended as it is judged whether to go on.
func (t *txn) attempted(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) retry.Case {
	r := t.runner(a.Runner)
	return retry.Case{
		Job: j, Turn: tu, Attempt: a, Now: t.now(), Pause: fleet.RetryPauseOf(t.meta.Settings),
		Account: func(c fleet.Choice) string { return accountOf(r, c) },
	}
}

// anew makes ready for a person's retry under the rules, or refuses it: a turn that has
// used its budget up needs a whole new one.
func (t *txn) anew(c *RetryJob, j *fleet.Job, tu *fleet.Turn) Result {
	n := retry.Executions(tu)
	if c.Grant {
		tu.Granted = max(tu.Granted, n)
	}
	most := retry.Whole(&j.Spec)
	if most == 1 {
		most = fleet.AttemptBudget // the job wants no retries of itself; a person still may
	}
	if n >= most+tu.Granted {
		return refuse(fleet.Conflict, "job %s has used its %d executions, the budget of a turn; an operator can give it a whole new one with --grant", j.ID, n)
	}
	tu.NotBefore = nil
	return Result{}
}

// accountOf gives the mark of the account that a choice draws on at a runner, empty
// where it is not known.
func accountOf(r *fleet.Runner, c fleet.Choice) string {
	if r == nil {
		return ""
	}
	h, _ := r.Facts.Harness(c.Harness)
	return h.AccountOf(c.Provider())
}
