package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

type orphanOut struct{ Body api.Orphan }

// orphanRoutes show finished attempts whose record was lost, and settle them.
func (s *Server) orphanRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/orphans", "list-orphans", "Finished attempts whose record was lost with an earlier epoch", fleet.RoleViewer), wrap(s, func(_ context.Context, in *struct {
		All bool `query:"all" doc:"settled ones too"`
	}) (*struct{ Body api.Orphans }, error) {
		v := s.cfg.Log.View()
		out := api.Orphans{Orphans: []api.Orphan{}, Epochs: append([]fleet.Epoch{}, v.Meta().Epochs...)}
		for _, o := range v.Orphans() {
			if in.All || o.Settled == "" {
				out.Orphans = append(out.Orphans, showOrphan(v, o))
			}
		}
		return &struct{ Body api.Orphans }{out}, nil
	}))
	for _, a := range []struct {
		verb, summary string
		adopt         bool
	}{
		{"adopt", "Make an orphan an attempt of its job; its evidence then decides", true},
		{"discard", "Say that an orphan's result is not wanted", false},
	} {
		huma.Register(s.api, op(http.MethodPost, "/v1/orphans/{id}/"+a.verb, a.verb+"-orphan", a.summary, fleet.RoleOperator), wrap(s, func(ctx context.Context, in *struct {
			Keyed
			ID string `path:"id" doc:"an orphan's id: the fence of the attempt"`
		}) (*orphanOut, error) {
			v := s.cfg.Log.View()
			if _, ok := v.Orphan(in.ID); !ok {
				return nil, wrong(fleet.NotFound, "there is no orphan %s; `tugline job orphans` shows those that wait", quote(in.ID))
			}
			h, err := head(ctx, "/v1/orphans/"+in.ID+"/"+a.verb, in.Key, struct{}{})
			if err != nil {
				return nil, err
			}
			res, err := s.cfg.Log.ProposeAs(ctx, h, &state.SettleOrphan{ID: in.ID, Adopt: a.adopt})
			if err != nil {
				return nil, err
			}
			if err := refused(res); err != nil {
				return nil, err
			}
			v = s.cfg.Log.View()
			o, ok := v.Orphan(in.ID)
			if !ok {
				return nil, wrong(fleet.NotFound, "orphan %s was settled long ago and is forgotten", quote(in.ID))
			}
			return &orphanOut{showOrphan(v, o)}, nil
		}))
	}
}

func showOrphan(v state.View, o *fleet.Orphan) api.Orphan {
	out := api.Orphan{
		ID: o.ID, State: "waiting", Job: o.Job, Turn: o.Turn, Runner: o.Runner, RunnerName: o.RunnerName,
		Kind: o.Spec.Kind, Harness: o.Spec.Harness, Argv: append([]string{}, o.Spec.Argv...), Exit: o.Exit, Failure: o.Failure, Detail: o.Detail,
		StartedAt: o.StartedAt, FinishedAt: o.FinishedAt, ReportedAt: o.ReportedAt, LogBytes: o.Log.Bytes, LogSealed: o.Log.Sealed,
		SettledAt: o.SettledAt, SettledBy: o.SettledBy,
	}
	if o.Settled != "" {
		out.State = o.Settled
	}
	if r := o.Spec.Repo; r != nil {
		out.Repo = r.URL
		if out.Repo == "" {
			out.Repo = "bundle:" + string(r.Bundle)
		}
	}
	if e := o.Evidence; e != nil {
		out.Commits, out.Tip, out.Branch, out.RescueRef, out.Bundle, out.Patch = e.CommitCount, e.Tip, e.Branch, e.RescueRef, e.Bundle, e.Patch
	}
	_, out.OnRecord = v.Job(o.Job)
	return out
}
