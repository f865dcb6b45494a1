package web

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

type provisionOut struct{ Body api.Provision }

// provisionRoutes ask for installations on runners. They are the leader's: it alone has
// the credentials that go with them.
func (s *Server) provisionRoutes() {
	const path = "/v1/runners/{id}/provisioning"
	huma.Register(s.api, byLeader(op(http.MethodGet, path, "list-provisioning", "What was asked to be installed on a runner, newest first", fleet.RoleViewer)), wrap(s, func(_ context.Context, in *RunnerIn) (*struct{ Body api.Provisions }, error) {
		v := s.cfg.Log.View()
		r, err := findRunner(v, in.ID)
		if err != nil {
			return nil, err
		}
		out := api.Provisions{Runner: r.ID, Name: r.Name, Off: fleet.ProvisioningOff(v.Meta().Settings), Provisioning: []api.Provision{}}
		for _, p := range v.ProvisionsOf(r.ID) {
			out.Provisioning = append(out.Provisioning, s.standing(p))
		}
		return &struct{ Body api.Provisions }{out}, nil
	}))
	ask := byLeader(op(http.MethodPost, path, "provision-runner", "Ask for a program to be installed on a runner, which does it as its owner's rules allow", fleet.RoleOperator))
	ask.DefaultStatus = http.StatusCreated
	huma.Register(s.api, ask, wrap(s, s.provision))
	cancel := byLeader(op(http.MethodDelete, path+"/{pid}", "cancel-provisioning", "Take an asking back that the runner has not taken on", fleet.RoleOperator))
	cancel.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, cancel, wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Provision string `path:"pid" doc:"the installation's id"`
	}) (*struct{}, error) {
		r, err := findRunner(s.cfg.Log.View(), in.ID)
		if err != nil {
			return nil, err
		}
		return &struct{}{}, s.do(ctx, &state.CancelProvision{Runner: r.ID, ID: in.Provision})
	}))
}

// provision records an asking, and seals its credentials for the runner. Whoever repeats
// it while it waits gives them anew; under the key of one that has ended nothing begins.
func (s *Server) provision(ctx context.Context, in *struct {
	Keyed
	RunnerIn
	Body api.AskProvision
}) (*provisionOut, error) {
	b := in.Body
	size := 0
	for _, value := range b.Credentials {
		if size += len(value); value == "" || strings.ContainsAny(value, "\x00\r\n") {
			return nil, wrong(fleet.BadRequest, "a credential is one line, and not empty")
		}
	}
	if size > fleet.MaxCredential {
		return nil, wrong(fleet.TooLarge, "the credentials have %d bytes, at most %d", size, fleet.MaxCredential)
	}
	r, err := findRunner(s.cfg.Log.View(), in.ID)
	if err != nil {
		return nil, err
	}
	cmd := &state.QueueProvision{
		ID: asking(), Runner: r.ID, What: b.What, Version: b.Version, PreserveAuth: b.PreserveAuth, Credentials: slices.Sorted(maps.Keys(b.Credentials)),
	}
	// What is kept of the body beside the key is its digest, and that has no value in it.
	kept := *cmd
	kept.ID = ""
	h, err := head(ctx, "/v1/runners/"+string(r.ID)+"/provisioning", in.Key, kept)
	if err != nil {
		return nil, err
	}
	res, err := s.cfg.Log.ProposeAs(ctx, h, cmd)
	if err == nil {
		err = refused(res)
	}
	if err != nil {
		return nil, err
	}
	p, ok := s.cfg.Log.View().Provision(res.ID)
	if !ok {
		return nil, wrong(fleet.NotFound, "there is no record of this installation any more: %s was removed, or was given many others since", r.Name)
	}
	if len(b.Credentials) > 0 && p.State == fleet.ProvisionQueued {
		if err := s.cfg.GiveCredentials(r, p.ID, b.Credentials); err != nil {
			return nil, err
		}
	}
	s.cfg.Nudge(r.ID)
	return &provisionOut{s.standing(p)}, nil
}

// standing shows an installation with what only the leader knows of it.
func (s *Server) standing(p *fleet.Provision) api.Provision {
	out := showProvision(p)
	if p.Open() {
		out.Waits, out.CredentialsGone = s.cfg.ProvisionStanding(p)
		if !slices.ContainsFunc(s.cfg.Presence(), func(o fleet.Presence) bool { return o.Runner == p.Runner && o.Connected }) {
			out.Waits = "waits until the runner is connected"
		}
	}
	return out
}

func showProvision(p *fleet.Provision) api.Provision {
	return api.Provision{
		ID: p.ID, What: p.What, Version: p.Version, Credentials: p.Credentials, PreserveAuth: p.PreserveAuth, State: p.State,
		AskedBy: p.AskedBy, AskedAt: p.AskedAt.UTC(), DeliveredAt: utc(p.DeliveredAt), EndedAt: utc(p.EndedAt),
		Installed: p.Installed, Class: p.Class, Detail: p.Detail,
	}
}

// provisioned shows of each program the last installation that was asked for.
func provisioned(v state.View, r fleet.RunnerID) []api.Provision {
	var out []api.Provision
	for _, p := range v.ProvisionsOf(r) {
		if !slices.ContainsFunc(out, func(o api.Provision) bool { return o.What == p.What }) {
			out = append(out, showProvision(p))
		}
	}
	return out
}
