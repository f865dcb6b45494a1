package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Cluster is what the hub nodes are to those who operate them. Errors carry codes.
type Cluster interface {
	// Members tells of all nodes, as the leader sees them where there is one.
	Members(context.Context) (api.Members, error)
	// Remove takes a node out for good, in the name of an actor.
	Remove(ctx context.Context, actor state.Head, id, why string, force bool) error
	// Transfer gives leadership to a node, or with "" to any that can take it.
	Transfer(ctx context.Context, to string) error
	// Drain has a node give leadership away and take none, or ends that; "" is the
	// node that leads.
	Drain(ctx context.Context, id string, on bool) error
}

// MemberIn names a hub node in a path.
type MemberIn struct {
	ID string `path:"id" doc:"a hub node's id"`
}

// memberRoutes serve the hub nodes themselves.
func (s *Server) memberRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/members", "list-members", "The hub nodes, as the leader sees them", fleet.RoleViewer), wrap(s, func(ctx context.Context, _ *struct{}) (*struct{ Body api.Members }, error) {
		m, err := s.cfg.Cluster.Members(ctx)
		if err != nil {
			return nil, err
		}
		return &struct{ Body api.Members }{m}, nil
	}))
	remove := op(http.MethodDelete, "/v1/members/{id}", "remove-member", "Take a hub node out of the cluster for good", fleet.RoleAdmin)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, wrap(s, func(ctx context.Context, in *struct {
		MemberIn
		Force bool   `query:"force" doc:"even if too few voters that answer are left"`
		Why   string `query:"why" maxLength:"200" doc:"told to the node when it comes back"`
	}) (*struct{}, error) {
		return &struct{}{}, s.cfg.Cluster.Remove(ctx, asker(ctx), in.ID, in.Why, in.Force)
	}))
	transfer := op(http.MethodPost, "/v1/members/transfer", "transfer-leader", "Have another hub node lead", fleet.RoleAdmin)
	huma.Register(s.api, transfer, wrap(s, func(ctx context.Context, in *struct {
		Body *api.Transfer `required:"false"`
	}) (*struct{ Body api.Members }, error) {
		to := ""
		if in.Body != nil {
			to = in.Body.To
		}
		if err := s.cfg.Cluster.Transfer(ctx, to); err != nil {
			return nil, err
		}
		m, err := s.cfg.Cluster.Members(ctx)
		return &struct{ Body api.Members }{m}, err
	}))
	rotate := op(http.MethodPost, "/v1/members/{id}/rotate", "rotate-member", "Have a hub node replace its own key of the mesh", fleet.RoleAdmin)
	huma.Register(s.api, rotate, wrap(s, func(ctx context.Context, in *MemberIn) (*struct{ Body api.Members }, error) {
		if err := s.cfg.RotateMesh(ctx, in.ID); err != nil {
			return nil, err
		}
		m, err := s.cfg.Cluster.Members(ctx)
		return &struct{ Body api.Members }{m}, err
	}))
	for verb, on := range map[string]bool{"drain": true, "undrain": false} {
		summary := "Prepare a hub node for a planned stop: it leads no more"
		if !on {
			summary = "Let a drained hub node lead again"
		}
		huma.Register(s.api, op(http.MethodPost, "/v1/members/{id}/"+verb, verb+"-member", summary, fleet.RoleAdmin), wrap(s, func(ctx context.Context, in *MemberIn) (*struct{ Body api.Members }, error) {
			id := in.ID
			if id == "leader" {
				id = ""
			}
			if err := s.cfg.Cluster.Drain(ctx, id, on); err != nil {
				return nil, err
			}
			m, err := s.cfg.Cluster.Members(ctx)
			return &struct{ Body api.Members }{m}, err
		}))
	}
}
