package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// alertRoutes show what people were told of faults.
func (s *Server) alertRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/alerts", "list-alerts", "Alerts about runners, newest first", fleet.RoleViewer), wrap(s, func(_ context.Context, in *struct {
		Runner string `query:"runner" doc:"only alerts about this runner, by id or name"`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
	}) (*struct{ Body api.Alerts }, error) {
		v := s.cfg.Log.View()
		var only fleet.RunnerID
		if in.Runner != "" {
			r, err := findRunner(v, in.Runner)
			if err != nil {
				return nil, err
			}
			only = r.ID
		}
		out := api.Alerts{Alerts: []fleet.Alert{}}
		for _, a := range v.Alerts(fleet.MaxAlerts) {
			if len(out.Alerts) >= in.Limit {
				break
			}
			if only == "" || a.Runner == only {
				out.Alerts = append(out.Alerts, showAlert(a))
			}
		}
		return &struct{ Body api.Alerts }{out}, nil
	}))
}

func showAlert(a *fleet.Alert) fleet.Alert {
	out := *a
	out.At, out.Delivered = out.At.UTC(), utc(out.Delivered)
	return out
}
