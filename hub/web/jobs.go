package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// now is the only clock of this package.
func now() time.Time { return time.Now() }

// time gives what time it is for all that expires.
func (s *Server) time(v state.View) time.Time {
	if s.cfg.Now != nil {
		return s.cfg.Now()
	}
	return later(v.Meta().Time, now())
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// op describes an operation.
func op(method, path, id, summary string, role fleet.Role) huma.Operation {
	o := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody,
		BodyReadTimeout: bodyTime, Errors: []int{400, 401, 403, 404, 503},
		Security:   []map[string][]string{{"token": {}}, {"session": {}}},
		Extensions: map[string]any{"x-role": string(role)},
		Metadata:   map[string]any{"role": role}, Description: "Needs the role " + string(role) + ".",
	}
	if method == http.MethodGet {
		o.Parameters = []*huma.Param{{Name: "consistent", In: "query", Description: "answer from a state that no earlier write is missing from; without it any node answers from what it has, and X-Tugline-Index says how new that is", Schema: &huma.Schema{Type: huma.TypeBoolean}}}
	}
	if method == http.MethodPost {
		o.DefaultStatus = http.StatusOK
		o.Errors = append(o.Errors, 409, 413, 415, 429)
	}
	return o
}

type jobOut struct{ Body api.Job }

// Keyed is the header of every POST that creates; exported so that the library sees it.
type Keyed struct {
	Key string `header:"Idempotency-Key" doc:"the same key and body give the first result; another body is refused"`
}

func (s *Server) jobRoutes() {
	submit := op(http.MethodPost, "/v1/jobs", "submit-job", "Queue a job", fleet.RoleOperator)
	submit.DefaultStatus = http.StatusCreated
	huma.Register(s.api, submit, wrap(s, func(ctx context.Context, in *struct {
		Keyed
		Body api.Submit
	}) (*jobOut, error) {
		return s.submit(ctx, in.Key, in.Body)
	}))

	huma.Register(s.api, op(http.MethodGet, "/v1/jobs", "list-jobs", "Jobs, newest first", fleet.RoleViewer), wrap(s, s.list))

	huma.Register(s.api, op(http.MethodGet, "/v1/jobs/{id}", "get-job", "One job with its history", fleet.RoleViewer), wrap(s, func(_ context.Context, in *struct {
		ID string `path:"id" doc:"a job's id, or a prefix of it that fits no other"`
	}) (*jobOut, error) {
		v := s.cfg.Log.View()
		j, err := find(v, in.ID)
		if err != nil {
			return nil, err
		}
		return &jobOut{s.show(v, j)}, nil
	}))

	huma.Register(s.api, op(http.MethodGet, "/v1/jobs/{id}/prompt", "get-prompt", "The prompt of a turn, as text", fleet.RoleViewer), wrap(s, s.prompt))

	huma.Register(s.api, byLeader(op(http.MethodGet, "/v1/jobs/{id}/explain", "explain-job", "Why the job is not running", fleet.RoleViewer)), wrap(s, s.explain))

	act(s, "cancel", "Cancel a job", func(ctx context.Context, j *fleet.Job, b api.Cancel) (state.Command, error) {
		if b.Abandon {
			if err := admin(ctx, "to abandon a job"); err != nil {
				return nil, err
			}
		}
		return &state.CancelJob{Job: j.ID, Abandon: b.Abandon}, nil
	})
	act(s, "retry", "Queue an ended turn again", func(_ context.Context, j *fleet.Job, b api.Retry) (state.Command, error) {
		return &state.RetryJob{Job: j.ID, Grant: b.Grant}, nil
	})
	act(s, "accept", "Accept a job that needs review", func(_ context.Context, j *fleet.Job, b api.Settle) (state.Command, error) {
		return &state.SettleJob{Job: j.ID, Accept: true, Reason: b.Reason}, nil
	})
	act(s, "reject", "Reject a job that needs review", func(_ context.Context, j *fleet.Job, b api.Settle) (state.Command, error) {
		return &state.SettleJob{Job: j.ID, Reason: b.Reason}, nil
	})
	act(s, "pulled", "Say that the job's commits are elsewhere too, or may be lost", func(_ context.Context, j *fleet.Job, _ struct{}) (state.Command, error) {
		return &state.MarkPulled{Job: j.ID}, nil
	})
	act(s, "follow-ups", "Add a prompt that goes on from the job", func(ctx context.Context, j *fleet.Job, b api.FollowUp) (state.Command, error) {
		if err := checkPrompt(b.Prompt); err != nil {
			return nil, err
		}
		if b.Model != "" && !word().MatchString(b.Model) {
			return nil, wrong(fleet.BadRequest, "model %s may have letters, digits and . _ / : @ + - only, at most 200", quote(b.Model))
		}
		d, err := s.keep(ctx, []byte(b.Prompt))
		if err != nil {
			return nil, err
		}
		return &state.FollowUp{Job: j.ID, Prompt: d, Model: b.Model, Fresh: b.Fresh, On: b.On}, nil
	})
}

// wrap turns any error of a handler into a problem.
func wrap[I, O any](s *Server, f func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, s.problemOf(err)
		}
		return out, nil
	}
}

// act registers a POST on a job that becomes one command.
func act[B any](s *Server, verb, summary string, make func(context.Context, *fleet.Job, B) (state.Command, error)) {
	path := "/v1/jobs/{id}/" + verb
	huma.Register(s.api, op(http.MethodPost, path, verb+"-job", summary, fleet.RoleOperator), wrap(s, func(ctx context.Context, in *struct {
		Keyed
		ID   string `path:"id"`
		Body *B     `required:"false"`
	}) (*jobOut, error) {
		j, err := find(s.cfg.Log.View(), in.ID)
		if err != nil {
			return nil, err
		}
		var body B
		if in.Body != nil {
			body = *in.Body
		}
		cmd, err := make(ctx, j, body)
		if err != nil {
			return nil, err
		}
		h, err := head(ctx, "/v1/jobs/"+string(j.ID)+"/"+verb, in.Key, body)
		if err != nil {
			return nil, err
		}
		res, err := s.cfg.Log.ProposeAs(ctx, h, cmd)
		if err != nil {
			return nil, fmt.Errorf("%s job %s: %w", verb, j.ID, err)
		}
		if res.Code == fleet.QueueFull {
			res.Code = fleet.Conflict // of the job's own queue, which waiting alone does not empty
		}
		if err := refused(res); err != nil {
			return nil, err
		}
		v := s.cfg.Log.View()
		if res.Job == nil {
			res.Job, _ = v.Job(j.ID)
		}
		return &jobOut{s.show(v, res.Job)}, nil
	}))
}

// prompt gives what a turn was asked.
func (s *Server) prompt(ctx context.Context, in *struct {
	ID   string `path:"id"`
	Turn int    `query:"turn" minimum:"0" doc:"default: the newest"`
}) (*huma.StreamResponse, error) {
	j, err := find(s.cfg.Log.View(), in.ID)
	if err != nil {
		return nil, err
	}
	tu := j.Turn()
	if in.Turn > 0 {
		if in.Turn > len(j.Turns) {
			return nil, wrong(fleet.NotFound, "job %s has turns 1 to %d, not %d", j.ID, len(j.Turns), in.Turn)
		}
		tu = j.Turns[in.Turn-1]
	}
	if tu.Prompt == "" {
		return nil, wrong(fleet.NotFound, "turn %d of job %s has no prompt: it runs a command", tu.N, j.ID)
	}
	return s.blob(ctx, tu.Prompt, "text/plain; charset=utf-8")
}

// find gives the job with an id or a prefix of it that fits no other.
func find(v state.View, id string) (*fleet.Job, error) {
	id = strings.ToLower(id)
	if j, ok := v.Job(fleet.JobID(id)); ok {
		return j, nil
	}
	if len(id) < 4 {
		return nil, wrong(fleet.NotFound, "there is no job %s; `tugline job list` shows the jobs", quote(id))
	}
	switch js := v.JobsByPrefix(id, 2); len(js) {
	case 0:
		return nil, wrong(fleet.NotFound, "there is no job %s; `tugline job list` shows the jobs", quote(id))
	case 1:
		return js[0], nil
	}
	return nil, wrong(fleet.NotFound, "several jobs start with %s; give more of the id", quote(id))
}

func (s *Server) submit(ctx context.Context, key string, in api.Submit) (*jobOut, error) {
	spec, err := specOf(in, s.cfg.Log.View().Meta().Settings, s.eligible, s.knownHarness)
	if err != nil {
		return nil, err
	}
	h, err := head(ctx, "/v1/jobs", key, in)
	if err != nil {
		return nil, err
	}
	cmd := &state.SubmitJob{ID: fleet.JobID(strings.ToLower(ulid.Make().String())), Spec: spec, Title: firstLine(in.Prompt)}
	if in.Prompt != "" {
		if cmd.Prompt, err = s.keep(ctx, []byte(in.Prompt)); err != nil {
			return nil, err
		}
	}
	if argvBytes(in.Argv) > fleet.InlineArgv {
		if cmd.Spec.ArgvBlob, err = s.keepArgv(ctx, in.Argv); err != nil {
			return nil, err
		}
		cmd.Spec.Argv = nil
	}
	if spec.Repo != nil && spec.Repo.Bundle != "" {
		if _, err := s.cfg.Blobs.Renew(ctx, spec.Repo.Bundle); err != nil {
			return nil, wrong(fleet.BlobMissing, "the bundle %s has not been uploaded; put it to /v1/blobs first", spec.Repo.Bundle)
		}
	}
	res, err := s.cfg.Log.ProposeAs(ctx, h, cmd)
	if err != nil {
		return nil, fmt.Errorf("submit job: %w", err)
	}
	if err := refused(res); err != nil {
		return nil, err
	}
	v := s.cfg.Log.View()
	if res.Job == nil {
		return nil, wrong(fleet.NotFound, "job %s was created under this key and has been deleted since", res.ID)
	}
	s.metrics.submitted.Inc()
	return &jobOut{s.show(v, res.Job)}, nil
}

func known(st fleet.State) bool {
	for _, k := range fleet.States {
		if k == st {
			return true
		}
	}
	return false
}

func stateList() string {
	var b []string
	for _, k := range fleet.States {
		b = append(b, string(k))
	}
	return strings.Join(b, ", ")
}

func (s *Server) explain(_ context.Context, in *struct {
	ID string `path:"id"`
}) (*struct{ Body api.Explanation }, error) {
	v := s.cfg.Log.View()
	j, err := find(v, in.ID)
	if err != nil {
		return nil, err
	}
	return &struct{ Body api.Explanation }{s.explanation(v, j)}, nil
}

// explanation says why a job stands where it stands, or would.
func (s *Server) explanation(v state.View, j *fleet.Job) api.Explanation {
	e := s.sight(v).look().Explain(j)
	seen := s.seen()
	out := api.Explanation{
		Job: j.ID, State: j.State, Summary: e.Summary, Code: e.Code, Until: utc(e.Until), Change: e.Change, Ahead: e.Ahead, More: e.More, Notes: e.Notes,
		Index: v.Meta().Index, Seen: seen, At: now().Add(-time.Duration(seen.Age) * time.Millisecond).UTC(),
	}
	for _, r := range e.Runners {
		out.Runners = append(out.Runners, api.RunnerReason{Runner: r.Runner, Code: r.Code, Detail: r.Detail, Until: utc(r.Until), Change: r.Change})
	}
	return out
}
