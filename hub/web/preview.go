package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// previewRoutes say what would become of a job, and record nothing.
func (s *Server) previewRoutes() {
	o := op(http.MethodPost, "/v1/jobs:preview", "preview-job", "Which runners could take a job, and why others cannot, without queueing anything", fleet.RoleOperator)
	o.Description = "A prompt or a command may be missing: nothing runs. " + o.Description
	huma.Register(s.api, o, wrap(s, s.preview))
}

func (s *Server) preview(ctx context.Context, in *struct{ Body api.Submit }) (*struct{ Body api.Preview }, error) {
	b := in.Body
	switch {
	case b.Kind == fleet.KindAgent && b.Prompt == "":
		b.Prompt = "to come"
	case b.Kind == fleet.KindExec && len(b.Argv) == 0:
		b.Argv = []string{"to-come"}
	}
	v := s.cfg.Log.View()
	spec, err := specOf(b, v.Meta().Settings, s.eligible, s.knownHarness)
	if err != nil {
		return nil, err
	}
	at := s.time(v)
	j := &fleet.Job{
		ID: "preview", Seq: v.Meta().Index + 1, Spec: spec, Actor: string(caller(ctx).ID), State: fleet.Queued, CreatedAt: at,
		Turns: []*fleet.Turn{{N: 1, Model: spec.Model, State: fleet.Queued, CreatedAt: at, QueuedAt: at}},
	}
	choice := j.ChoiceOf(j.Turn())
	out := api.Preview{Harness: choice.Harness, Model: choice.Model, Eligible: s.eligible(), Explanation: s.explanation(v, j)}
	out.Explanation.Job = ""
	return &struct{ Body api.Preview }{out}, nil
}
