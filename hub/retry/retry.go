// Package retry decides what follows an attempt that did not end well: whether its
// turn has ended, is tried again after a pause, goes forward along the job's choices,
// or waits for a person because its budget is used up. It is a function of the record
// alone. When and where the next attempt goes is the scheduler's to say; what waits for
// a circuit or a slot spends nothing.
package retry

import (
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Do is what follows.
type Do string

// What may follow.
const (
	End     Do = "end"     // the turn is judged by what there is
	Again   Do = "again"   // the same choice, after a pause
	Forward Do = "forward" // another choice, at once
	Blocked Do = "blocked" // the budget is used up, and a person may give a new one
)

// Step is what follows an attempt.
type Step struct {
	Do      Do
	Pause   time.Duration  // before the next attempt
	Choice  int            // Forward: the new place among the job's choices
	Skipped []fleet.Choice // Forward: what was passed over
	Bound   bool           // what was done can only be gone on with on the attempt's runner
	Why     string         // for people
}

// Case is an attempt that has ended, and what has to be known about it.
type Case struct {
	Job     *fleet.Job
	Turn    *fleet.Turn
	Attempt *fleet.Attempt
	Now     time.Time                 // of the end
	Pause   time.Duration             // before a first retry; 0: fleet.RetryPause
	Account func(fleet.Choice) string // mark of the account that a choice draws on at the attempt's runner; empty: not known
}

// Next gives what follows.
func Next(c Case) Step {
	a := c.Attempt
	switch {
	case c.Job.Spec.Kind != fleet.KindAgent || c.Job.CancelRequestedAt != nil || !Costs(a):
		return Step{Do: End}
	case !Passing(a):
		return Step{Do: End}
	case a.Acted && a.SessionID == "":
		return Step{Do: End, Why: "something was done already, and there is no session to go on with"}
	}
	n, whole := Executions(c.Turn), Whole(&c.Job.Spec)
	if n >= whole+c.Turn.Granted {
		if whole <= 1 {
			return Step{Do: End} // the job wants no retries
		}
		return Step{Do: Blocked, Bound: a.Acted, Why: fmt.Sprintf("%d executions, the budget of a turn; `tugline job retry --grant` gives a new one", n)}
	}
	if to, skipped, ok := c.forward(); ok {
		return Step{Do: Forward, Choice: to, Skipped: skipped, Bound: a.Acted}
	}
	return Step{Do: Again, Pause: Pause(n-c.Turn.Granted, c.Pause), Bound: a.Acted}
}

// Lost gives what follows a lost attempt of a job that asks to be run again: Again, or
// Blocked where the budget is used up.
func Lost(c Case) Step {
	n := Executions(c.Turn)
	if n >= Whole(&c.Job.Spec)+c.Turn.Granted {
		return Step{Do: Blocked, Why: fmt.Sprintf("lost %d times, the budget of a turn; `tugline job retry --grant` gives a new one", n)}
	}
	return Step{Do: Again, Pause: Pause(n-c.Turn.Granted, c.Pause)}
}

// Passing says whether an end may come out otherwise next time, or elsewhere: the work
// itself is not to blame, and nobody wanted it.
func Passing(a *fleet.Attempt) bool {
	switch a.Failure {
	case fleet.ClassCrashed, fleet.ClassDocker:
		return true
	}
	return refused(a)
}

// refused says whether the provider, or the agent before it asked one, refused the
// attempt: another choice may do better.
func refused(a *fleet.Attempt) bool {
	return a.Failure.Provider() || a.Failure == fleet.ClassHarnessStartup && (a.Exit == nil || a.Exit.Reason != "start_failed")
}

// forward gives the next place among the choices that may take over.
func (c Case) forward() (to int, skipped []fleet.Choice, ok bool) {
	a := c.Attempt
	if !refused(a) {
		return 0, nil, false
	}
	from := c.Job.ChoiceOf(c.Turn)
	for n := c.Turn.Choice + 1; n <= len(c.Job.Spec.Fallbacks); n++ {
		next := c.Job.Spec.Fallbacks[n-1]
		switch {
		case next == from, next.Harness != from.Harness && (a.Acted || c.goesOn()), c.exhausted(next):
			skipped = append(skipped, next)
		default:
			return n, skipped, true
		}
	}
	return 0, nil, false
}

// goesOn says whether the turn goes on with what was said in an earlier one, which no
// other harness knows of.
func (c Case) goesOn() bool { return c.Turn.N > 1 && !c.Turn.Fresh }

// exhausted says whether a choice would draw on an account whose quota an attempt of
// the turn has found used up, and which is not known to be back.
func (c Case) exhausted(next fleet.Choice) bool {
	account := ""
	if c.Account != nil {
		account = c.Account(next)
	}
	for _, a := range c.Turn.Attempts {
		if a.Failure != fleet.ClassQuotaExhausted || a.ResetAt != nil && !a.ResetAt.After(c.Now) {
			continue
		}
		harness, provider := a.Harness, a.Provider
		if harness == "" {
			harness, provider = c.Job.Spec.Harness, fleet.ProviderOf(c.Job.Spec.Harness, c.Job.Spec.Model)
		}
		// The job may bring an account of its own, of which the runner knows nothing: the
		// same harness has the same one.
		if provider == next.Provider() && (harness == next.Harness || account == "" || a.Account == "" || account == a.Account) {
			return true
		}
	}
	return false
}

// GoesOn says whether the next attempt at a turn works on in the worktree of an earlier
// one, if it is made on the same runner.
func GoesOn(earlier *fleet.Attempt) bool {
	return earlier.State == fleet.AttemptFinished && Passing(earlier)
}

// Resumes says whether it also takes up the session of the earlier one, if its harness
// is the same: only where something is in it. A CLI that was refused at once may have
// named a session and kept none.
func Resumes(earlier *fleet.Attempt) bool {
	return GoesOn(earlier) && earlier.SessionID != "" && (earlier.Acted || earlier.Responded)
}

// Pause gives how long a turn waits after its n-th execution before the next: first a
// pause, then twice as long, then twice that, and never longer.
func Pause(n int, first time.Duration) time.Duration {
	if first <= 0 {
		first = fleet.RetryPause
	}
	return first << (min(max(n, 1), fleet.MaxRetries) - 1)
}

// Whole gives the executions of a whole budget.
func Whole(s *fleet.Spec) int {
	n := fleet.MaxRetries
	if s.Retries != nil {
		n = min(max(*s.Retries, 0), fleet.MaxRetries)
	}
	return 1 + n
}

// Executions counts the attempts of a turn that its budget is spent on.
func Executions(tu *fleet.Turn) int {
	n := 0
	for _, a := range tu.Attempts {
		if Costs(a) {
			n++
		}
	}
	return n
}

// Costs says whether an attempt costs its turn's budget anything: one that never
// began, or that somebody stopped, does not.
func Costs(a *fleet.Attempt) bool {
	return a.AcceptedAt != nil && !a.Free && a.Stop != "cancelled"
}
