package web

import (
	"context"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

type listIn struct {
	State   string     `query:"state" doc:"only jobs in this state, or in one of several with commas between"`
	Active  bool       `query:"active" doc:"only jobs that have not ended"`
	Runner  string     `query:"runner" doc:"only jobs on this runner, by id or name"`
	Kind    fleet.Kind `query:"kind" enum:"agent,exec"`
	Harness string     `query:"harness" doc:"only jobs that run with this, or will"`
	Model   string     `query:"model" doc:"the same of the model"`
	Actor   string     `query:"actor" doc:"only jobs of this token, by id or name"`
	Origin  string     `query:"origin" doc:"only jobs of this automation by name, or manual"`
	Q       string     `query:"q" maxLength:"200" doc:"only jobs with this text, in either case, in their id, title, repository, branch, harness, model, runner, command, labels or origin"`
	Limit   int        `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Order   string     `query:"order" enum:"newest,oldest" default:"newest" doc:"which come first"`
	Before  string     `query:"before" doc:"the next of the page before; newest first"`
	After   string     `query:"after" doc:"the next of the page before; oldest first"`

	states []string
}

var aJob = lazily(`^[0-9a-hjkmnp-tv-z]{26}$`)

// check refuses what cannot be meant.
func (in *listIn) check(s *Server) error {
	if in.State != "" {
		in.states = strings.Split(in.State, ",")
	}
	for _, st := range in.states {
		if !known(fleet.State(st)) {
			return wrong(fleet.BadRequest, "there is no state %s; the states are %s", quote(st), stateList())
		}
	}
	for name, id := range map[string]string{"before": in.Before, "after": in.After} {
		if id != "" && !aJob().MatchString(id) {
			return wrong(fleet.BadRequest, "%s %s is not a job's id of 26 characters; give the one that the page before named", name, quote(id))
		}
	}
	if in.Order == "oldest" && in.Before != "" || in.Order != "oldest" && in.After != "" {
		return wrong(fleet.BadRequest, "before is for the newest first, after for the oldest first")
	}
	if in.Runner != "" {
		if _, err := knownRunner(s.cfg.Log.View(), in.Runner); err != nil {
			return err
		}
	}
	in.Q = strings.ToLower(in.Q)
	return nil
}

// list gives a page of jobs. A page may have fewer than were asked for, or none, and yet
// be followed by another.
func (s *Server) list(_ context.Context, in *listIn) (*struct{ Body api.Jobs }, error) {
	if err := in.check(s); err != nil {
		return nil, err
	}
	v := s.cfg.Log.View()
	out, x := api.Jobs{Jobs: []api.Job{}}, s.sight(v)
	n := 0
	visit := func(j *fleet.Job) bool {
		if n++; len(out.Jobs) >= in.Limit || n > maxWalk {
			return false
		}
		if x.wanted(in, j) {
			out.Jobs = append(out.Jobs, x.row(j))
		}
		out.Next = j.ID
		return true
	}
	if in.Order == "oldest" {
		v.JobsAfter(fleet.JobID(in.After), visit)
	} else {
		v.Jobs(fleet.JobID(in.Before), visit)
	}
	if len(out.Jobs) < in.Limit && n <= maxWalk {
		out.Next = ""
	}
	return &struct{ Body api.Jobs }{out}, nil
}

// wanted says whether a job is among those that are asked for.
func (x *sight) wanted(in *listIn, j *fleet.Job) bool {
	switch {
	case in.states != nil && !slices.Contains(in.states, string(j.State)),
		in.Active && j.State.Ended(),
		in.Runner != "" && !onRunner(j, in.Runner),
		in.Kind != "" && j.Spec.Kind != in.Kind,
		in.Origin != "" && j.Spec.Origin.Kind != in.Origin && j.Spec.Origin.Name != in.Origin,
		in.Actor != "" && j.Actor != in.Actor && x.v.ActorName(j.Actor) != in.Actor:
		return false
	}
	if in.Harness == "" && in.Model == "" && in.Q == "" {
		return true
	}
	c := j.ChoiceOf(j.Turn())
	if in.Harness != "" && c.Harness != in.Harness || in.Model != "" && c.Model != in.Model {
		return false
	}
	return in.Q == "" || mentions(j, c, in.Q)
}

// mentions says whether a job has a text, which is in lower case.
func mentions(j *fleet.Job, c fleet.Choice, text string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	sp := &j.Spec
	if has(string(j.ID)) || has(j.Title) || has(c.Harness) || has(c.Model) || has(sp.Origin.Name) || has(sp.On) || has(sp.ConcurrencyKey) || has(strings.Join(sp.Argv, " ")) {
		return true
	}
	if r := sp.Repo; r != nil && (has(r.URL) || has(r.Ref) || has(branchOf(j))) {
		return true
	}
	for k, v := range sp.Require {
		if has(k + "=" + v) {
			return true
		}
	}
	a := j.Current()
	return a != nil && has(a.RunnerName)
}

func onRunner(j *fleet.Job, want string) bool {
	a := j.Current()
	return a != nil && (string(a.Runner) == want || a.RunnerName == want)
}
