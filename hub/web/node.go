package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// nodeRoutes serve what concerns the node and the cluster as a whole.
func (s *Server) nodeRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/status", "get-status", "The hub at a glance", fleet.RoleViewer), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.Status }, error) {
		st := s.cfg.Status()
		v := s.cfg.Log.View()
		m := v.Meta()
		st.Cluster, st.Epoch, st.Index, st.StateTime, st.Settings = m.Cluster, m.Epoch, m.Index, m.Time.UTC(), shownSettings(m.Settings)
		st.Seen = s.seen()
		st.Version, st.Queued, st.Jobs = s.cfg.Version, v.Count("queued"), map[string]int{}
		n := 0
		v.Jobs("", func(j *fleet.Job) bool {
			st.Jobs[string(j.State)]++
			n++
			return n < 10_000
		})
		present := s.present()
		for _, r := range v.Runners() {
			st.Runners++
			if present[r.ID].Connected {
				st.Online++
			}
			if s.holdOf(v, r) != nil {
				st.Held++
			}
		}
		for _, c := range v.Circuits() {
			if circuit.At(c, s.time(v)) != fleet.CircuitClosed {
				st.Circuits++
			}
		}
		return &struct{ Body api.Status }{st}, nil
	}))
	set := op(http.MethodPut, "/v1/settings/{name}", "set-setting", "Change a setting", fleet.RoleAdmin)
	set.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, set, wrap(s, func(ctx context.Context, in *struct {
		Name string `path:"name" enum:"default_harness,floor_select,floor_start,retry_pause,model_priority,alert_webhook,release_key,auto_provision,provisioning"`
		Body struct {
			Value string `json:"value" doc:"empty removes it"`
		}
	}) (*struct{}, error) {
		check := settings[in.Name]
		if check == nil {
			return nil, wrong(fleet.NotFound, "there is no setting %q", in.Name)
		}
		if in.Body.Value != "" {
			if err := check(s, in.Body.Value); err != nil {
				return nil, err
			}
		}
		return &struct{}{}, s.do(ctx, &state.Set{Name: in.Name, Value: in.Body.Value})
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/time/accept", "accept-clock", "Believe the hub's clock as it stands", fleet.RoleAdmin), wrap(s, func(ctx context.Context, _ *struct{}) (*struct{ Body api.Clock }, error) {
		c, err := s.cfg.AcceptClock(ctx, asker(ctx))
		if err != nil {
			return nil, err
		}
		return &struct{ Body api.Clock }{c}, nil
	}))
	huma.Register(s.api, op(http.MethodGet, "/v1/audit", "list-audit", "Who did what, newest first", fleet.RoleAdmin), wrap(s, s.audit))
	huma.Register(s.api, op(http.MethodGet, "/v1/repos/tips", "list-tips", "Commits of a repository that a runner has", fleet.RoleOperator), wrap(s, func(_ context.Context, in *struct {
		Key    string `query:"key" required:"true" doc:"the repository's root commit"`
		Runner string `query:"runner" required:"true" doc:"the only runner the job may go to"`
	}) (*struct{ Body api.Tips }, error) {
		v := s.cfg.Log.View()
		r, err := findRunner(v, in.Runner)
		if err != nil {
			return nil, err
		}
		return &struct{ Body api.Tips }{api.Tips{Tips: tips(v, in.Key, r.ID)}}, nil
	}))
}

// tips lists commits that a runner's cache of a handed-over repository has: the
// bases that it has accepted work on. At most 32, the newest first.
func tips(v state.View, key string, r fleet.RunnerID) []string {
	out := []string{}
	n := 0
	v.Jobs("", func(j *fleet.Job) bool {
		if n++; n > 10_000 || len(out) >= 32 {
			return false
		}
		if j.Spec.Repo == nil || j.Spec.Repo.CacheKey != key {
			return true
		}
		for _, tu := range j.Turns {
			for _, a := range tu.Attempts {
				if a.Runner == r && a.AcceptedAt != nil && a.BaseCommit != "" && !slices.Contains(out, a.BaseCommit) {
					out = append(out, a.BaseCommit)
				}
			}
		}
		return true
	})
	return out
}
