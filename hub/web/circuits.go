package web

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

type circuitOut struct{ Body api.Circuit }

// circuitRoutes show what keeps work away from runners, providers and models, and let
// people decide about it.
func (s *Server) circuitRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/circuits", "list-circuits", "What keeps work away from runners, providers and models", fleet.RoleViewer), wrap(s, func(_ context.Context, in *struct {
		All bool `query:"all" doc:"closed ones that are still remembered too"`
	}) (*struct{ Body api.Circuits }, error) {
		v := s.cfg.Log.View()
		out := api.Circuits{Circuits: []api.Circuit{}}
		for _, c := range v.Circuits() {
			if sh := s.showCircuit(v, c); in.All || sh.State != fleet.CircuitClosed {
				out.Circuits = append(out.Circuits, sh)
			}
		}
		slices.SortStableFunc(out.Circuits, func(a, b api.Circuit) int { return b.ChangedAt.Compare(a.ChangedAt) })
		return &struct{ Body api.Circuits }{out}, nil
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/circuits/{id}/reset", "reset-circuit", "Close a circuit", fleet.RoleOperator), wrap(s, func(ctx context.Context, in *struct {
		ID   string            `path:"id" doc:"a circuit's id, or its key"`
		Body *api.ResetCircuit `required:"false"`
	}) (*circuitOut, error) {
		b := api.ResetCircuit{}
		if in.Body != nil {
			b = *in.Body
		}
		c, err := findCircuit(s.cfg.Log.View(), in.ID)
		if err != nil {
			return nil, err
		}
		if err := cmp.Or(checkWhy("reason", b.Reason), checkWhy("repaired", b.Repaired)); err != nil {
			return nil, err
		}
		if c.State == fleet.CircuitBlocked && b.Repaired == "" {
			key := fleet.CircuitKey(c.ID)
			return nil, wrong(fleet.BadRequest, "circuit %s is blocked; name what was repaired: `tugline circuit reset %s --repaired TEXT`", key, key)
		}
		if b.Generation == nil {
			b.Generation = &c.Generation
		}
		return s.changeCircuit(ctx, *c, &state.ResetCircuit{ID: c.ID, Reason: b.Reason, Repaired: b.Repaired, Generation: b.Generation})
	}))
	open := op(http.MethodPost, "/v1/circuits/open", "open-circuit", "Keep work away from a runner, a provider or a model", fleet.RoleOperator)
	huma.Register(s.api, open, wrap(s, func(ctx context.Context, in *struct{ Body api.OpenCircuit }) (*circuitOut, error) {
		cmd, err := s.opening(in.Body)
		if err != nil {
			return nil, err
		}
		return s.changeCircuit(ctx, fleet.Circuit{}, cmd)
	}))
}

// changeCircuit commits what a person decides about a circuit and shows what it is then.
func (s *Server) changeCircuit(ctx context.Context, was fleet.Circuit, cmd state.Command) (*circuitOut, error) {
	res, err := s.cfg.Log.ProposeAs(ctx, asker(ctx), cmd)
	if err != nil {
		return nil, err
	}
	if err := refused(res); err != nil {
		return nil, err
	}
	v := s.cfg.Log.View()
	if is, ok := v.Circuit(res.ID); ok {
		return &circuitOut{s.showCircuit(v, is)}, nil
	}
	was.ID, was.State, was.Until, was.Probe = res.ID, fleet.CircuitClosed, nil, nil // closed, and not worth remembering
	return &circuitOut{s.showCircuit(v, &was)}, nil
}

// opening checks what a person wants work to be kept away from.
func (s *Server) opening(b api.OpenCircuit) (*state.OpenCircuit, error) {
	cmd := &state.OpenCircuit{Scope: b.Scope, Provider: b.Provider, Model: b.Model, Reason: b.Reason}
	var err error
	if cmd.For, err = within("for", b.For, time.Minute, 720*time.Hour); err != nil {
		return nil, err
	}
	if b.Reason == "" {
		return nil, wrong(fleet.BadRequest, "the reason is missing: who finds work waiting wants to know why")
	}
	if err := checkWhy("reason", b.Reason); err != nil {
		return nil, err
	}
	for name, w := range map[string]string{"provider": b.Provider, "model": b.Model} {
		if w != "" && !word().MatchString(w) {
			return nil, wrong(fleet.BadRequest, "%s %s may have letters, digits and . _ / : @ + - only, at most 200", name, quote(w))
		}
	}
	switch b.Scope {
	case fleet.ScopeHost:
		if b.Runner == "" || b.Provider != "" || b.Model != "" {
			return nil, wrong(fleet.BadRequest, "scope host needs runner, and takes neither provider nor model")
		}
	case fleet.ScopeProvider:
		if b.Provider == "" || b.Model != "" {
			return nil, wrong(fleet.BadRequest, "scope provider needs provider, such as openai or anthropic, and takes no model; runner makes it that one's alone")
		}
	case fleet.ScopeModel:
		if b.Provider == "" || b.Model == "" {
			return nil, wrong(fleet.BadRequest, "scope model needs provider and model; runner makes it that one's alone")
		}
	default:
		return nil, wrong(fleet.BadRequest, "scope %s is none of provider, model, host", quote(string(b.Scope)))
	}
	if b.Provider != "" {
		if err := s.knownProvider(b.Provider); err != nil {
			return nil, err
		}
	}
	if b.Runner != "" {
		r, err := findRunner(s.cfg.Log.View(), b.Runner)
		if err != nil {
			return nil, err
		}
		cmd.Runner = r.ID
	}
	return cmd, nil
}

// knownProvider refuses the name of a provider that neither this release, nor any runner,
// circuit or job at hand has: its circuit would keep nothing away.
func (s *Server) knownProvider(name string) error {
	found := map[string]bool{}
	v := s.cfg.Log.View()
	for _, r := range v.Runners() {
		for _, h := range r.Facts.Harnesses {
			for _, p := range h.Providers() {
				found[p] = true
			}
		}
	}
	for _, c := range v.Circuits() {
		found[c.Provider] = true
	}
	asked := func(j *fleet.Job) bool {
		found[fleet.ProviderOf(j.Spec.Harness, j.Spec.Model)] = true
		for _, c := range j.Spec.Fallbacks {
			found[c.Provider()] = true
		}
		return true
	}
	v.Queue(asked)
	v.Open(func(o state.Open) bool { return asked(o.Job) })
	if found[name] || slices.Contains(fleet.Providers, name) {
		return nil
	}
	known := slices.Clone(fleet.Providers)
	for _, p := range slices.Sorted(maps.Keys(found)) {
		if p != "" && !slices.Contains(known, p) {
			known = append(known, p)
		}
	}
	return wrong(fleet.BadRequest, "nothing here asks a provider %s; known are %s", quote(name), strings.Join(known, ", "))
}

// findCircuit gives the circuit with an id, or with the key of one.
func findCircuit(v state.View, id string) (*fleet.Circuit, error) {
	if c, ok := v.Circuit(id); ok {
		return c, nil
	}
	var found *fleet.Circuit
	for _, c := range v.Circuits() {
		if fleet.CircuitKey(c.ID) == id {
			if found != nil {
				return nil, wrong(fleet.NotFound, "two circuits have the key %s; give the whole id, as GET /v1/circuits shows it", quote(id))
			}
			found = c
		}
	}
	if found == nil {
		return nil, wrong(fleet.NotFound, "there is no circuit %s; `tugline circuit list` shows them", quote(id))
	}
	return found, nil
}

func (s *Server) showCircuit(v state.View, c *fleet.Circuit) api.Circuit {
	out := api.Circuit{Circuit: *c, Key: fleet.CircuitKey(c.ID), ActorName: v.ActorName(c.Actor)}
	out.State = circuit.At(c, s.time(v))
	out.OpenedAt, out.Until, out.SuccessAt, out.ChangedAt = c.OpenedAt.UTC(), utc(c.Until), utc(c.SuccessAt), c.ChangedAt.UTC()
	if r, ok := v.Runner(c.Runner); ok {
		out.RunnerName = r.Name
	}
	on := cmp.Or(out.RunnerName, string(c.Runner))
	if c.Class == fleet.CircuitModel && out.State != fleet.CircuitBlocked {
		on = refusedOn(v, c) // until a second one was refused it, it is over them alone
	}
	switch c.Scope {
	case fleet.ScopeHost:
		out.Over = on
	case fleet.ScopeModel:
		out.Over = cmp.Or(c.Model, "the default model") + " of " + c.Provider
		if on != "" {
			out.Over += " on " + on
		}
	default:
		out.Over = cmp.Or(c.Provider, "every provider")
		if c.Account != "" {
			out.Over += " (account " + c.Account + ")"
		}
		if on != "" {
			out.Over += " on " + on
		}
	}
	return out
}

// refusedOn names the runners that were refused a model.
func refusedOn(v state.View, c *fleet.Circuit) string {
	var names []string
	for _, id := range c.Runners {
		name := string(id)
		if r, ok := v.Runner(id); ok {
			name = r.Name
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
