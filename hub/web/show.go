package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// unseen is said in the place of what only the runners' connections tell.
const unseen = "which runners are connected is unknown: the hub node that leads has not been heard lately"

// show gives one job as the interface shows it.
func (s *Server) show(v state.View, j *fleet.Job) api.Job { return s.sight(v).show(j) }

// show gives a job, perhaps one of many.
func (x *sight) show(j *fleet.Job) api.Job {
	s := x.Server
	j = inUTC(j)
	tu := j.Turn()
	out := api.Job{
		ID: j.ID, Kind: j.Spec.Kind, Title: titleOf(j), State: j.State, CreatedAt: j.CreatedAt, Turn: tu.N,
		Permissions: j.Spec.Permissions,
		FollowUps:   len(j.FollowUps), Paused: j.Paused, Spec: j.Spec,
		Reason: j.Reason, Verdict: tu.Verdict, Turns: j.Turns, CancelAt: j.CancelRequestedAt,
		Actor: j.Actor, ActorName: x.v.ActorName(j.Actor), Revision: j.Revision, FinishedAt: tu.EndedAt,
	}
	s.choices(&out, j, tu)
	if tu.Verdict != nil {
		out.VerdictByName = x.v.ActorName(tu.Verdict.By)
	}
	if r := j.Spec.Repo; r != nil {
		out.Repo, out.BaseCommit, out.Branch = r.URL, r.BaseCommit, branchOf(j)
		if out.Repo == "" {
			out.Repo = "bundle:" + r.CacheKey
		}
	}
	if j.State == fleet.Queued {
		if out.Why = unseen; s.known() {
			out.Why = x.look().Why(j).Detail
		}
	}
	a := latest(tu)
	if a == nil {
		return out
	}
	if j.CancelRequestedAt != nil && j.State == fleet.Running {
		out.Why = "cancelling (" + x.where(a) + ")"
	}
	out.Runner, out.RunnerID, out.Attempt, out.Fence = a.RunnerName, a.Runner, a.N, a.Fence.String()
	out.StartedAt, out.ReportedModel, out.SessionID, out.Notes = a.StartedAt, a.Model, a.SessionID, a.Notes
	out.FailureClass, out.ResetAt, out.Evidence, out.Log = a.Failure, a.ResetAt, a.Evidence, a.Log
	if out.FinishedAt != nil && a.State == fleet.AttemptFinished && a.FinishedAt != nil {
		out.FinishedAt = utc(a.FinishedAt) // when it ended, not when that was heard
	}
	if a.Permissions != "" {
		out.Permissions = a.Permissions
	}
	if a.BaseCommit != "" {
		out.BaseCommit = a.BaseCommit
	}
	if e := a.Evidence; e != nil {
		out.HeadCommit = e.Tip
		if out.BaseCommit == "" {
			out.BaseCommit = e.Base
		}
		if e.Branch != "" {
			out.Branch = e.Branch
		}
	}
	if a.Exit != nil {
		out.Exit, out.ExitCode = a.Exit, &a.Exit.Code
	}
	if a.Usage != nil {
		out.Usage = api.Usage{Input: a.Usage.InputTokens, Output: a.Usage.OutputTokens}
	}
	if !a.Log.Sealed {
		k := spool.Key{Job: j.ID, Fence: a.Fence, Name: spool.Output}
		out.Log.Durable = s.cfg.Spool.Acked(k)
		size, _ := s.cfg.Spool.Size(k)
		out.Log.Bytes = max(out.Log.Bytes, size)
	}
	return out
}

// titleOf gives the line by which people know a job.
func titleOf(j *fleet.Job) string {
	if j.Title != "" {
		return j.Title
	}
	return fleet.CutText(strings.Join(j.Spec.Argv, " "), fleet.MaxTitle)
}

// firstLine gives the first line of a prompt that says something. One that looks like a
// credential is kept out of lists.
func firstLine(prompt string) string {
	for line := range strings.Lines(prompt) {
		if line = strings.TrimSpace(line); line != "" {
			if secretText().MatchString(line) {
				return ""
			}
			return fleet.CutText(line, fleet.MaxTitle)
		}
	}
	return ""
}

// where says on which runner an attempt is, and since when nothing was heard of it.
func (x *sight) where(a *fleet.Attempt) string {
	p := x.present()[a.Runner]
	switch {
	case !x.known():
		return "on " + a.RunnerName + "; " + unseen
	case p.Connected:
		return "on " + a.RunnerName
	case p.LastBeat.IsZero():
		return "runner offline"
	}
	since := max(now().Sub(p.LastBeat), 0)
	text := fmt.Sprintf("%d s", since/time.Second)
	switch {
	case since >= time.Hour:
		text = fmt.Sprintf("%d h", since/time.Hour)
	case since >= time.Minute:
		text = fmt.Sprintf("%d m", since/time.Minute)
	}
	return "runner offline " + text
}

// latest gives the attempt that a person means by "the" attempt of a turn: the one
// with the authority, else the newest.
func latest(tu *fleet.Turn) *fleet.Attempt {
	if tu.Current > 0 && tu.Current <= len(tu.Attempts) {
		return tu.Attempts[tu.Current-1]
	}
	if n := len(tu.Attempts); n > 0 {
		return tu.Attempts[n-1]
	}
	return nil
}

func branchOf(j *fleet.Job) string {
	if j.Spec.Repo.Branch != "" {
		return j.Spec.Repo.Branch
	}
	return "tugline/" + string(j.ID)
}

// inUTC copies a job with every time in UTC, whatever zone a runner told it in, and
// with a list where a list is promised.
func inUTC(j *fleet.Job) *fleet.Job {
	c := j.Clone()
	c.CreatedAt, c.UpdatedAt, c.Reason.Since = c.CreatedAt.UTC(), c.UpdatedAt.UTC(), c.Reason.Since.UTC()
	c.CancelRequestedAt = utc(c.CancelRequestedAt)
	for _, tu := range c.Turns {
		tu.CreatedAt, tu.QueuedAt, tu.EndedAt = tu.CreatedAt.UTC(), tu.QueuedAt.UTC(), utc(tu.EndedAt)
		tu.NotBefore = utc(tu.NotBefore)
		if v := tu.Verdict; v != nil && v.Reasons == nil {
			tu.Verdict = &fleet.Verdict{Decision: v.Decision, Reasons: []string{}, By: v.By}
		}
		for _, a := range tu.Attempts {
			a.PhaseAt, a.AssignedAt, a.AcceptedAt = a.PhaseAt.UTC(), a.AssignedAt.UTC(), utc(a.AcceptedAt)
			a.StartedAt, a.FinishedAt, a.ResetAt = utc(a.StartedAt), utc(a.FinishedAt), utc(a.ResetAt)
			a.RetryAfter = utc(a.RetryAfter)
			a.Pushes = slices.Clone(a.Pushes)
			for i := range a.Pushes {
				a.Pushes[i].At = a.Pushes[i].At.UTC()
			}
		}
	}
	return c
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
