package state

import (
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func (t *txn) runner(id fleet.RunnerID) *fleet.Runner {
	return first[fleet.Runner](t.Txn, tableRunners, "id", string(id))
}

// edit gives a copy of the job that the command may change and must put.
func (t *txn) edit(id fleet.JobID) (*fleet.Job, Result) {
	j := t.job(id)
	if j == nil {
		return nil, refuse(fleet.NotFound, "there is no job %s", id)
	}
	return j.Clone(), Result{}
}

// put stores a changed job and keeps the rows derived from it in step.
func (t *txn) put(j *fleet.Job) Result {
	if t.bad.Code != "" {
		return t.bad
	}
	old := t.job(j.ID)
	j.UpdatedAt, j.Revision = t.now(), t.index
	if old == nil {
		t.add("jobs", 1)
	}
	t.derive(old, j)
	t.freeProbes(j)
	t.draw(old, j)
	t.insert(tableJobs, j)
	t.changed(Change{What: "job", Job: j})
	return Result{ID: string(j.ID), Job: j}
}

// drop deletes a job and all rows derived from it.
func (t *txn) drop(j *fleet.Job) {
	t.derive(j, nil)
	t.draw(j, nil)
	t.delete(tableJobs, j)
	t.add("jobs", -1)
	t.changed(Change{What: "job", Job: j, Removed: true})
}

// derive brings the rows derived from a job from its old record to its new one;
// either may be nil.
func (t *txn) derive(old, j *fleet.Job) {
	was, is := old != nil && old.State == fleet.Queued, j != nil && j.State == fleet.Queued
	switch {
	case is:
		t.insert(tableQueue, waiting(j))
		if !was {
			t.add("queued", 1)
			t.add("queued:"+j.Actor, 1)
		}
	case was:
		t.delete(tableQueue, waiting(old))
		t.add("queued", -1)
		t.add("queued:"+old.Actor, -1)
	}
	var room [2][4]open
	before, after := appendOpens(room[0][:0], old), appendOpens(room[1][:0], j)
	for _, o := range before {
		if !slices.ContainsFunc(after, func(n open) bool { return n.Fence == o.Fence }) {
			t.delete(tableOpen, o.row())
			t.hold(o, -1)
		}
	}
	for _, o := range after {
		if !slices.Contains(before, o) {
			if i := slices.IndexFunc(before, func(b open) bool { return b.Fence == o.Fence }); i >= 0 {
				t.hold(before[i], -1)
			}
			t.insert(tableOpen, o.row())
			t.hold(o, 1)
		}
	}
	if was, is := holdsKey(old), holdsKey(j); was && !is {
		t.delete(tableHolds, &hold{old.Spec.ConcurrencyKey, old.ID})
	} else if is && !was {
		t.insert(tableHolds, &hold{j.Spec.ConcurrencyKey, j.ID})
	}
}

// opens gives the attempts of a job that still concern their runners. Attempts of
// earlier turns are included: their log may be unsealed, their processes alive.
func opens(j *fleet.Job) []open { return appendOpens(nil, j) }

func appendOpens(out []open, j *fleet.Job) []open {
	if j == nil {
		return out
	}
	for _, tu := range j.Turns {
		for _, a := range tu.Attempts {
			if isOpen(j, tu, a) {
				out = append(out, open{j.ID, a.Fence, a.Runner, a.HoldsSlot(), slotOf(j, a)})
			}
		}
	}
	return out
}

func isOpen(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) bool {
	switch a.State {
	case fleet.AttemptAssigned, fleet.AttemptRunning:
		return true
	case fleet.AttemptLost:
		return !a.Gone
	case fleet.AttemptFinished:
		return !a.Log.Sealed || j.State == fleet.Verifying && tu == j.Turn() && tu.Current == a.N
	}
	return false
}

// holdsKey says whether the job keeps others with its concurrency key waiting.
func holdsKey(j *fleet.Job) bool {
	if j == nil || j.Spec.ConcurrencyKey == "" {
		return false
	}
	if j.State.Active() {
		return true
	}
	for _, tu := range j.Turns {
		for _, a := range tu.Attempts {
			if a.HoldsSlot() {
				return true
			}
		}
	}
	return false
}

// Want says what the hub wants of an attempt that its runner shows or that is
// open: "run", "stop" with a reason, or "forget"; empty where it has no opinion,
// which leaves the attempt alone.
func Want(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) (intent, reason string) {
	if a.Stop != "" && !a.Gone && a.State != fleet.AttemptFinished {
		return "stop", a.Stop
	}
	switch a.State {
	case fleet.AttemptLost:
		if a.Gone {
			return "forget", ""
		}
		return "run", ""
	case fleet.AttemptAssigned, fleet.AttemptRunning:
		return "run", ""
	case fleet.AttemptFinished:
		if a.Log.Sealed && !isOpen(j, tu, a) {
			return "forget", ""
		}
		return "run", ""
	case fleet.AttemptDeclined:
		return "forget", ""
	case fleet.AttemptReturned, fleet.AttemptWithdrawn, fleet.AttemptAbandoned:
		if a.Gone {
			return "forget", ""
		}
		return "stop", orElse(a.Stop, string(a.State))
	}
	return "", ""
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// become moves the job and its newest turn, and says why. A move that the table of
// moves does not have makes the whole command a refusal.
func (t *txn) become(j *fleet.Job, s fleet.State, code, format string, args ...any) {
	if j.State != "" && j.State != s {
		if _, ok := fleet.Legal(j.State, s); !ok {
			t.bad = refuse(fleet.Conflict, "job %s is %s and cannot become %s", j.ID, j.State, s)
			return
		}
	}
	tu := j.Turn()
	j.State, tu.State = s, s
	j.Reason = fleet.Reason{Code: code, Detail: fmt.Sprintf(format, args...), Since: t.now()}
	tu.EndedAt = nil
	if s.Ended() {
		tu.EndedAt = at(t.now())
	} else {
		j.Paused = ""
	}
}

// queue puts the newest turn in the queue.
func (t *txn) queue(j *fleet.Job, code, format string, args ...any) {
	t.become(j, fleet.Queued, code, format, args...)
	j.Turn().QueuedAt = t.now()
}

// requeue puts the newest turn back after an assignment that came to nothing. It
// keeps its place and goes on waiting since it was queued first; a turn that was
// given back too often waits for a person, so that its record stays small.
func (t *txn) requeue(j *fleet.Job, code, format string, args ...any) {
	if n := len(j.Turn().Attempts); n >= MaxAttempts {
		t.become(j, fleet.Blocked, "attempts", "%d assignments came to nothing, the bound of a turn; the last: %s", n, fmt.Sprintf(format, args...))
		t.ended(j)
		return
	}
	t.become(j, fleet.Queued, code, format, args...)
}

// accepted counts the attempts of a turn that cost its budget.
func accepted(tu *fleet.Turn) int {
	n := 0
	for _, a := range tu.Attempts {
		if a.AcceptedAt != nil {
			n++
		}
	}
	return n
}

// pending gives the newest attempt if it was assigned and not yet accepted.
func pending(tu *fleet.Turn) *fleet.Attempt {
	if n := len(tu.Attempts); n > 0 && tu.Attempts[n-1].State == fleet.AttemptAssigned {
		return tu.Attempts[n-1]
	}
	return nil
}

// withdraw ends an unaccepted attempt because something else settled the turn.
func withdraw(tu *fleet.Turn, why string) {
	if a := pending(tu); a != nil {
		a.State, a.Stop = fleet.AttemptWithdrawn, why
	}
}

func at(t time.Time) *time.Time { return &t }
