package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

type runnerOut struct{ Body api.Runner }

type RunnerIn struct {
	ID string `path:"id" doc:"a runner's id or name"`
}

// runnerRoutes show runners, and settle who they are.
func (s *Server) runnerRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/runners", "list-runners", "Runners: slots, health, and whether they are connected", fleet.RoleViewer), wrap(s, s.listRunners))
	huma.Register(s.api, op(http.MethodGet, "/v1/runners/{id}", "get-runner", "One runner", fleet.RoleViewer), wrap(s, func(_ context.Context, in *RunnerIn) (*runnerOut, error) {
		v := s.cfg.Log.View()
		r, err := findRunner(v, in.ID)
		if err != nil {
			return nil, err
		}
		return &runnerOut{s.showRunner(v, r, s.present()[r.ID])}, nil
	}))
	huma.Register(s.api, byLeader(op(http.MethodGet, "/v1/runners/{id}/health", "get-health", "The samples of a runner's machine, as the leader heard them", fleet.RoleViewer)), wrap(s, s.health))
	none := ""
	for _, a := range []struct {
		verb, summary string
		cmd           func(fleet.RunnerID) state.Command
	}{
		{"trust", "Settle a conflict of identity: the next to connect is the runner", func(id fleet.RunnerID) state.Command { return &state.FlagRunner{ID: id, Conflict: &none} }},
		{"revoke", "Refuse the runner's present key; it must enrol anew", func(id fleet.RunnerID) state.Command { return &state.RevokeRunner{ID: id} }},
	} {
		huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/"+a.verb, a.verb+"-runner", a.summary, fleet.RoleAdmin), wrap(s, func(ctx context.Context, in *RunnerIn) (*runnerOut, error) {
			return s.changeRunner(ctx, in.ID, func(r *fleet.Runner) (state.Command, error) { return a.cmd(r.ID), nil })
		}))
	}
	remove := op(http.MethodDelete, "/v1/runners/{id}", "remove-runner", "End a runner's enrolment", fleet.RoleAdmin)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Abandon bool `query:"abandon_jobs" doc:"end its accepted jobs although their processes are unconfirmed"`
	}) (*struct{}, error) {
		r, err := findRunner(s.cfg.Log.View(), in.ID)
		if err != nil {
			return nil, err
		}
		return &struct{}{}, s.do(ctx, &state.RemoveRunner{ID: r.ID, AbandonJobs: in.Abandon})
	}))
}

// changeRunner commits what make says and shows what the runner is then.
func (s *Server) changeRunner(ctx context.Context, id string, make func(*fleet.Runner) (state.Command, error)) (*runnerOut, error) {
	r, err := findRunner(s.cfg.Log.View(), id)
	if err != nil {
		return nil, err
	}
	cmd, err := make(r)
	if err != nil {
		return nil, err
	}
	if err := s.do(ctx, cmd); err != nil {
		return nil, err
	}
	v := s.cfg.Log.View()
	r, _ = v.Runner(r.ID)
	return &runnerOut{s.showRunner(v, r, s.present()[r.ID])}, nil
}

func findRunner(v state.View, id string) (*fleet.Runner, error) {
	if r, ok := v.FindRunner(id); ok {
		return r, nil
	}
	return nil, wrong(fleet.NotFound, "there is no runner %s; `tugline runner list` shows the runners", quote(id))
}

func (s *Server) showRunner(v state.View, r *fleet.Runner, p fleet.Presence) api.Runner {
	out := api.Runner{
		ID: r.ID, Name: r.Name, State: "offline", Conflict: r.Conflict, Hold: s.holdOf(v, r),
		Declining: p.Declining, Labels: r.Labels, Version: r.Facts.Version, OS: r.Facts.OS, Arch: r.Facts.Arch,
		Ring: r.InRing(), Wanted: r.Wanted, Update: r.Facts.Update, Permissions: r.Facts.Permissions, Harnesses: r.Facts.Harnesses, Alerts: r.Facts.Alerts, Transport: p.Transport, Address: hostOf(p.Address),
		EnrolledAt: r.EnrolledAt.UTC(), Jobs: []fleet.JobID{}, Health: healthOf(r, p, now()), Seen: s.seen(),
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if out.Harnesses == nil {
		out.Harnesses = []fleet.HarnessInfo{}
	}
	if !p.LastBeat.IsZero() {
		t := p.LastBeat.UTC()
		out.LastBeat = &t
	}
	switch {
	case r.Generation < r.Floor:
		out.State = "revoked"
	case r.Conflict != "":
		out.State = "refused"
	case !s.known() || p.Awaited:
		out.State = "unknown"
	case p.Connected && p.Interval > 0 && now().Sub(p.LastBeat) > fleet.StaleHeartbeats*p.Interval:
		out.State = "stale"
	case p.Connected:
		out.State = "online"
	}
	out.Slots = slotsOf(r, p)
	out.Provisioning = provisioned(v, r.ID)
	for _, o := range v.OpenOf(r.ID) {
		out.Jobs = append(out.Jobs, o.Job.ID)
		if o.Attempt.HoldsSlot() {
			out.Slots.Used++
			if o.Job.Spec.Automated() {
				out.Slots.UsedAutomation++
			}
		}
	}
	return out
}

// slotsOf gives a runner's slots without what occupies them.
func slotsOf(r *fleet.Runner, p fleet.Presence) api.Slots {
	out := api.Slots{Base: r.Facts.Slots, Automation: r.AutomationSlots(), LimitedBy: []string{}}
	for part := range strings.SplitSeq(p.LimitedBy, "; ") {
		if part != "" {
			out.LimitedBy = append(out.LimitedBy, part)
		}
	}
	if !p.Connected {
		return out
	}
	out.Offered, out.Effective = p.Slots, out.Automation
	if p.Automation != nil {
		out.Effective = min(out.Effective, *p.Automation)
	}
	if p.Declining != "" && !slices.Contains(out.LimitedBy, p.Declining) {
		out.LimitedBy = append(out.LimitedBy, p.Declining)
	}
	return out
}

// healthOf tells how a runner's machine is. A sample grows old by the hub's clock from
// its receipt on, whatever the clock of the machine says.
func healthOf(r *fleet.Runner, p fleet.Presence, now time.Time) api.RunnerHealth {
	out := api.RunnerHealth{Class: api.HealthUnknown, Faults: []fleet.Fault{}}
	if h := p.Health; h != nil && !p.HealthAt.IsZero() {
		age := max(0, now.Sub(p.HealthAt)) + h.Age
		ms := age.Milliseconds()
		sample := *h
		out.AgeMS, out.Sample, out.Fresh = &ms, &sample, age <= fleet.HealthFresh
	}
	if h := r.Health; h != nil {
		for _, f := range h.Faults {
			if f.Over == nil {
				f.Since, f.Alerted = f.Since.UTC(), utc(f.Alerted)
				out.Faults = append(out.Faults, f)
			}
		}
		out.Record = &api.HealthRecord{At: h.At.UTC(), Changes: append([]fleet.ClassChange{}, h.Changes...)}
		for i := range out.Record.Changes {
			out.Record.Changes[i].At = out.Record.Changes[i].At.UTC()
		}
	}
	switch {
	case !out.Fresh:
	case len(out.Faults) > 0:
		out.Class = api.HealthFaulty
	default:
		out.Class = api.HealthOK
	}
	return out
}

// healthWindows are how far back the history of a machine may be asked for.
var healthWindows = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour}

func (s *Server) health(_ context.Context, in *struct {
	RunnerIn
	Window string `query:"window" doc:"1h, every ten seconds at most, or 24h, every minute at most; default 1h"`
}) (*struct{ Body api.HealthHistory }, error) {
	if in.Window == "" {
		in.Window = "1h"
	}
	d, ok := healthWindows[in.Window]
	if !ok {
		return nil, wrong(fleet.BadRequest, "window %s is neither 1h nor 24h: that is how long samples are kept", quote(in.Window))
	}
	r, err := findRunner(s.cfg.Log.View(), in.ID)
	if err != nil {
		return nil, err
	}
	out := api.HealthHistory{Runner: r.ID, Name: r.Name, Window: in.Window, Points: []api.HealthPoint{}, Changes: []fleet.ClassChange{}, Seen: s.seen()}
	if s.cfg.HealthHistory != nil {
		out.Points = append(out.Points, s.cfg.HealthHistory(r.ID, d)...)
	}
	for i := range out.Points {
		out.Points[i].At = out.Points[i].At.UTC()
	}
	if r.Health != nil {
		from := s.time(s.cfg.Log.View()).Add(-d)
		for _, c := range r.Health.Changes {
			if c.At = c.At.UTC(); c.At.After(from) {
				out.Changes = append(out.Changes, c)
			}
		}
	}
	return &struct{ Body api.HealthHistory }{out}, nil
}

// knownRunner gives a runner that is enrolled, or was: its jobs are on record.
func knownRunner(v state.View, id string) (*fleet.Runner, error) {
	if r, ok := v.Runner(fleet.RunnerID(id)); ok {
		return r, nil
	}
	return findRunner(v, id)
}
