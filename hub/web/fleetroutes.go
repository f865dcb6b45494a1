package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// fleetRoutes serve all that is no job: runners, circuits, budgets, credentials, nodes.
func (s *Server) fleetRoutes() {
	s.runnerRoutes()
	s.holdRoutes()
	s.circuitRoutes()
	s.budgetRoutes()
	s.alertRoutes()
	s.tokenRoutes()
	s.nodeRoutes()
	s.memberRoutes()
	s.backupRoutes()
	s.orphanRoutes()
	s.releaseRoutes()
}

// do commits a command that is no creation.
func (s *Server) do(ctx context.Context, cmd state.Command) error {
	res, err := s.cfg.Log.ProposeAs(ctx, asker(ctx), cmd)
	if err != nil {
		return err
	}
	return refused(res)
}

// tokenRoutes make and end credentials. A secret is in the answer to its creation
// and nowhere else.
func (s *Server) tokenRoutes() {
	ticket := op(http.MethodPost, "/v1/tickets", "create-ticket", "Make a join ticket for runners, or for a hub node", fleet.RoleAdmin)
	ticket.DefaultStatus = http.StatusCreated
	huma.Register(s.api, ticket, wrap(s, s.createTicket))
	token := op(http.MethodPost, "/v1/tokens", "create-token", "Make an operator token", fleet.RoleAdmin)
	token.DefaultStatus = http.StatusCreated
	huma.Register(s.api, token, wrap(s, s.createToken))
	huma.Register(s.api, op(http.MethodGet, "/v1/tokens", "list-tokens", "Operator tokens, without their secrets", fleet.RoleAdmin), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.Tokens }, error) {
		out := api.Tokens{Tokens: []api.Token{}}
		for _, k := range s.cfg.Log.View().Tokens() {
			out.Tokens = append(out.Tokens, showToken(k))
		}
		return &struct{ Body api.Tokens }{out}, nil
	}))
	revoke := op(http.MethodDelete, "/v1/tokens/{id}", "revoke-token", "End a token at once", fleet.RoleAdmin)
	revoke.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, revoke, wrap(s, func(ctx context.Context, in *struct {
		ID string `path:"id"`
	}) (*struct{}, error) {
		return &struct{}{}, s.do(ctx, &state.RevokeToken{ID: fleet.TokenID(in.ID)})
	}))
}

func showToken(k *fleet.Token) api.Token {
	return api.Token{ID: k.ID, Name: k.Name, Role: k.Role, CreatedAt: k.CreatedAt.UTC(), CreatedBy: k.CreatedBy, ExpiresAt: utc(k.ExpiresAt), Revoked: k.Revoked}
}

func (s *Server) createTicket(ctx context.Context, in *struct {
	Keyed
	Body *api.TicketRequest `required:"false"`
}) (*struct{ Body api.Ticket }, error) {
	b := api.TicketRequest{}
	if in.Body != nil {
		b = *in.Body
	}
	ttl := 15 * time.Minute
	if b.TTL != "" {
		d, err := time.ParseDuration(b.TTL)
		if err != nil || d < time.Minute || d > 24*time.Hour {
			return nil, wrong(fleet.BadRequest, "ttl %q is not a duration from 1m to 24h", b.TTL)
		}
		ttl = d
	}
	if b.Uses == 0 {
		b.Uses = 1
	}
	if b.Uses < 1 || b.Uses > 1000 {
		return nil, wrong(fleet.BadRequest, "uses %d is not from 1 to 1000", b.Uses)
	}
	if b.For != "" && b.Uses != 1 {
		return nil, wrong(fleet.BadRequest, "uses %d: a ticket for a runner that enrols anew is used once", b.Uses)
	}
	if err := checkLabels(b.Labels); err != nil {
		return nil, err
	}
	cmd := &state.CreateTicket{TTL: ttl, Uses: b.Uses, Labels: b.Labels}
	hub := b.Role == fleet.TicketHub
	if err := s.checkHubTicket(b); err != nil {
		return nil, err
	}
	if b.For != "" {
		r, err := findRunner(s.cfg.Log.View(), b.For)
		if err != nil {
			return nil, err
		}
		cmd.For = r.ID
	}
	secret, err := s.creation(ctx, "", "/v1/tickets", in.Key, b, func(secret string, h fleet.Digest) state.Command {
		cmd.Hash = h
		if hub {
			cmd.Role, cmd.Replace, cmd.Guest = fleet.TicketHub, b.Replace, s.cfg.Guest(secret)
		}
		if b.ViaMesh {
			cmd.Guest = s.cfg.Guest(secret)
		}
		return cmd
	}, func(v state.View, h fleet.Digest, id string) bool {
		_, ok := v.Ticket(h)
		return ok && strings.HasPrefix(string(h), id)
	})
	if err != nil {
		return nil, err
	}
	k, ok := s.cfg.Log.View().Ticket(HashSecret(secret))
	if !ok {
		return nil, fmt.Errorf("the ticket is not there after its creation: %w", fleet.Internal)
	}
	until := k.ExpiresAt.UTC()
	text, command := "", ""
	switch {
	case hub:
		text, command, err = s.cfg.HubTicket(secret, until)
	case b.ViaMesh:
		text, command, err = s.cfg.MeshTicket(secret, until)
	default:
		text, command = s.cfg.Ticket(secret, until)
	}
	if err != nil {
		return nil, err
	}
	out := api.Ticket{Ticket: text, Command: command, ExpiresAt: until, Uses: b.Uses}
	if !hub && !b.ViaMesh && s.cfg.InstallLine != nil {
		out.Install = s.cfg.InstallLine(text)
	}
	return &struct{ Body api.Ticket }{out}, nil
}

// checkHubTicket refuses what a ticket of its role cannot have.
func (s *Server) checkHubTicket(b api.TicketRequest) error {
	switch {
	case b.Role != fleet.TicketHub && b.Replace != "":
		return wrong(fleet.BadRequest, "replace: only a ticket with the role hub replaces a node")
	case b.Role == fleet.TicketHub && b.ViaMesh:
		return wrong(fleet.BadRequest, "via_mesh: hub nodes come by the mesh anyway; it is for runners")
	case b.ViaMesh:
		_, _, err := s.cfg.MeshTicket("", time.Time{}) // before anything is recorded
		return err
	case b.Role != fleet.TicketHub:
		return nil
	case b.For != "" || len(b.Labels) > 0:
		return wrong(fleet.BadRequest, "a ticket for a hub node has no labels and is for no runner")
	case b.Replace != "" && b.Uses != 1:
		return wrong(fleet.BadRequest, "uses %d: a ticket that replaces a node is used once", b.Uses)
	}
	if b.Replace != "" {
		if _, ok := s.cfg.Log.View().Node(b.Replace); !ok {
			return wrong(fleet.NotFound, "there is no hub node %s to replace; `tugline hub members` lists them", quote(b.Replace))
		}
	}
	_, _, err := s.cfg.HubTicket("", time.Time{}) // before anything is recorded
	return err
}

func checkLabels(m map[string]string) error {
	if len(m) > 32 {
		return wrong(fleet.TooLarge, "%d labels; at most 32", len(m))
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !word().MatchString(k) || len(m[k]) > 200 || strings.ContainsAny(m[k], "\x00\n\r") {
			return wrong(fleet.BadRequest, "the label %s is not of the form k=v, or its value is over 200 bytes", quote(k))
		}
	}
	return nil
}

func (s *Server) createToken(ctx context.Context, in *struct {
	Keyed
	Body api.TokenRequest
}) (*struct{ Body api.Token }, error) {
	b := in.Body
	if b.Role.Rank() == 0 {
		return nil, wrong(fleet.BadRequest, "role %q is none of viewer, operator, admin", b.Role)
	}
	if len(b.Name) > 100 || strings.ContainsAny(b.Name, "\x00\n\r") {
		return nil, wrong(fleet.BadRequest, "the name is over 100 characters or has a line break")
	}
	cmd := &state.CreateToken{Token: fleet.Token{ID: fleet.TokenID("t-" + strings.ToLower(ulid.Make().String())), Name: b.Name, Role: b.Role}}
	if b.TTL != "" {
		d, err := time.ParseDuration(b.TTL)
		if err != nil || d < time.Minute {
			return nil, wrong(fleet.BadRequest, "ttl %q is not a duration of at least 1m, such as 720h", b.TTL)
		}
		cmd.TTL = d
	}
	secret, err := s.creation(ctx, "tgl_", "/v1/tokens", in.Key, b, func(_ string, h fleet.Digest) state.Command {
		cmd.Token.Hash = h
		return cmd
	}, func(v state.View, h fleet.Digest, id string) bool {
		k, ok := v.TokenByHash(h)
		return ok && string(k.ID) == id
	})
	if err != nil {
		return nil, err
	}
	k, ok := s.cfg.Log.View().TokenByHash(HashSecret(secret))
	if !ok {
		return nil, fmt.Errorf("the token is not there after its creation: %w", fleet.Internal)
	}
	out := showToken(k)
	out.Secret = secret
	return &struct{ Body api.Token }{out}, nil
}
