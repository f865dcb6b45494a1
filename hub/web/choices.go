package web

import (
	"cmp"

	"tugline.dev/tugline/hub/retry"
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
	out.Budget = api.Executions{Used: retry.Executions(tu), Of: retry.Whole(&j.Spec) + tu.Granted}
	out.Attempts = make([]api.Attempt, 0, len(tu.Attempts))
	for _, a := range tu.Attempts {
		out.Attempts = append(out.Attempts, showAttempt(out.Requested, a))
	}
}

func showAttempt(asked fleet.Choice, a *fleet.Attempt) api.Attempt {
	out := api.Attempt{
		N: a.N, Fence: a.Fence.String(), State: a.State, Runner: a.RunnerName, RunnerID: a.Runner,
		Harness: cmp.Or(a.Harness, asked.Harness), Provider: a.Provider, Requested: asked.Model, Effective: a.Requested, Reported: a.Model,
		Class: a.Failure, Code: a.Code, Detail: a.Detail, RetryAfter: utc(a.RetryAfter), AssignedAt: a.AssignedAt.UTC(),
		StartedAt: utc(a.StartedAt), FinishedAt: utc(a.FinishedAt), Counts: retry.Costs(a),
	}
	if out.Harness == asked.Harness && out.Effective == "" && a.Harness == "" {
		out.Effective = asked.Model // of an attempt that kept no choice of its own
	}
	if out.RetryAfter == nil {
		out.RetryAfter = utc(a.ResetAt)
	}
	return out
}
