package web

import (
	"cmp"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// choices tells with what a job runs, what it was asked to run with, and how it came
// from one to the other.
func (s *Server) choices(out *api.Job, j *fleet.Job, tu *fleet.Turn) {
	out.Requested = fleet.Choice{Harness: j.Spec.Harness, Model: cmp.Or(tu.Model, j.Spec.Model)}
	out.Effective = j.ChoiceOf(tu)
	out.Harness, out.Model = out.Effective.Harness, out.Effective.Model
	out.Choice, out.Learned, out.NotBefore = tu.Choice, j.Learned, utc(tu.NotBefore)
	out.Transitions = append([]fleet.Transition{}, tu.Moves...)
	for i := range out.Transitions {
		out.Transitions[i].At = out.Transitions[i].At.UTC()
	}
	out.Budget.Of = executions(j, tu)
	out.Attempts = make([]api.Attempt, 0, len(tu.Attempts))
	for _, a := range tu.Attempts {
		if counts(a) {
			out.Budget.Used++
		}
		out.Attempts = append(out.Attempts, showAttempt(out.Requested, a))
	}
}

// executions gives how many times a turn may be run, what was granted included.
func executions(j *fleet.Job, tu *fleet.Turn) int {
	n := fleet.AttemptBudget
	if r := j.Spec.Retries; r != nil {
		n = 1 + *r
	}
	return n + tu.Granted
}

// counts says whether an attempt costs its turn's budget something.
func counts(a *fleet.Attempt) bool { return a.AcceptedAt != nil && !a.Free }

func showAttempt(asked fleet.Choice, a *fleet.Attempt) api.Attempt {
	out := api.Attempt{
		N: a.N, Fence: a.Fence.String(), State: a.State, Runner: a.RunnerName, RunnerID: a.Runner,
		Harness: cmp.Or(a.Harness, asked.Harness), Provider: a.Provider, Requested: asked.Model, Effective: a.Requested, Reported: a.Model,
		Class: a.Failure, Code: a.Code, Detail: a.Detail, RetryAfter: utc(a.RetryAfter), AssignedAt: a.AssignedAt.UTC(),
		StartedAt: utc(a.StartedAt), FinishedAt: utc(a.FinishedAt), Counts: counts(a),
	}
	if out.Harness == asked.Harness && out.Effective == "" && a.Harness == "" {
		out.Effective = asked.Model // of an attempt that kept no choice of its own
	}
	if out.RetryAfter == nil {
		out.RetryAfter = utc(a.ResetAt)
	}
	return out
}
