package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// OriginIn is the path of a budget; exported so that the library sees it.
type OriginIn struct {
	Origin string `path:"origin" doc:"manual, automation, or automation:NAME"`
}

// budgetRoutes bound what origins of jobs may spend.
func (s *Server) budgetRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/budgets", "list-budgets", "What origins of jobs may spend, and have spent", fleet.RoleViewer), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.Budgets }, error) {
		v := s.cfg.Log.View()
		out := api.Budgets{Budgets: []api.Budget{}}
		for _, b := range v.Budgets() {
			out.Budgets = append(out.Budgets, showBudget(b.At(s.time(v))))
		}
		return &struct{ Body api.Budgets }{out}, nil
	}))
	set := op(http.MethodPut, "/v1/budgets/{origin}", "set-budget", "Bound what an origin may spend; what it has spent stays counted", fleet.RoleAdmin)
	huma.Register(s.api, set, wrap(s, func(ctx context.Context, in *struct {
		OriginIn
		Body api.SetBudget
	}) (*struct{ Body api.Budget }, error) {
		b, err := budgetOf(in.Origin, in.Body)
		if err != nil {
			return nil, err
		}
		if err := s.do(ctx, &state.SetBudget{Budget: b}); err != nil {
			return nil, err
		}
		v := s.cfg.Log.View()
		is, ok := v.Budget(in.Origin)
		if !ok {
			return nil, wrong(fleet.NotFound, "the budget of %s was removed again in the meantime", quote(in.Origin))
		}
		return &struct{ Body api.Budget }{showBudget(is.At(s.time(v)))}, nil
	}))
	remove := op(http.MethodDelete, "/v1/budgets/{origin}", "remove-budget", "Let an origin spend what it likes", fleet.RoleAdmin)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, wrap(s, func(ctx context.Context, in *OriginIn) (*struct{}, error) {
		if _, ok := s.cfg.Log.View().Budget(in.Origin); !ok {
			return nil, wrong(fleet.NotFound, "%s has no budget; `tugline budget list` shows those there are", quote(in.Origin))
		}
		return &struct{}{}, s.do(ctx, &state.SetBudget{Budget: fleet.Budget{Origin: in.Origin}, Remove: true})
	}))
}

// budgetOf checks the bounds that an origin is to get.
func budgetOf(origin string, in api.SetBudget) (fleet.Budget, error) {
	b := fleet.Budget{Origin: origin, Runs: in.MaxRuns, Tokens: in.MaxTokens}
	name, automation := strings.CutPrefix(origin, fleet.Automation+":")
	if origin != fleet.Manual && origin != fleet.Automation && !(automation && word().MatchString(name)) {
		return b, wrong(fleet.BadRequest, "origin %s is none of manual, automation and automation:NAME", quote(origin))
	}
	switch {
	case b.Runs < 0 || b.Runs > 1e9:
		return b, wrong(fleet.BadRequest, "max_runs %d is not from 1 to %d; leave it out for no bound", b.Runs, int64(1e9))
	case b.Tokens < 0 || b.Tokens > maxTokens:
		return b, wrong(fleet.BadRequest, "max_tokens %d is not from 1 to %d; leave it out for no bound", b.Tokens, int64(maxTokens))
	}
	var err error
	if b.Wall, err = within("max_wall", in.MaxWall, time.Minute, 87600*time.Hour); err != nil {
		return b, err
	}
	if b.Window, err = within("window", in.Window, time.Minute, 8760*time.Hour); err != nil {
		return b, err
	}
	if b.Runs == 0 && b.Tokens == 0 && b.Wall == 0 {
		return b, wrong(fleet.BadRequest, "a budget bounds something: give max_runs, max_tokens or max_wall; DELETE takes it away")
	}
	return b, nil
}

func showBudget(b *fleet.Budget) api.Budget {
	out := api.Budget{Origin: b.Origin, MaxRuns: b.Runs, MaxTokens: b.Tokens, SetBy: b.SetBy, SetAt: b.SetAt.UTC(), Spent: spending(b.Spent)}
	if b.Wall > 0 {
		out.MaxWall = b.Wall.String()
	}
	if b.Window > 0 {
		out.Window = b.Window.String()
	}
	if !b.Begun.IsZero() {
		out.Begun = utc(&b.Begun)
		if b.Window > 0 {
			end := b.Begun.Add(b.Window).UTC()
			out.Ends = &end
		}
	}
	held := fleet.Spending{Runs: int64(len(b.Held))}
	for _, r := range b.Held {
		held.Tokens, held.Wall = held.Tokens+r.Tokens, held.Wall+r.Wall
	}
	out.Held = spending(held)
	return out
}

func spending(s fleet.Spending) api.Spending {
	return api.Spending{Runs: s.Runs, Tokens: s.Tokens, Wall: s.Wall.String()}
}
