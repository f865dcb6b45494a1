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

// maxWhy bounds what a person gives as a reason, in characters.
const maxWhy = 200

// holdRoutes say how much work a runner is given, and whether it is given any.
func (s *Server) holdRoutes() {
	huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/slots", "set-slots", "Set how many jobs of automations a runner may have at a time", fleet.RoleAdmin), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Body api.SetSlots
	}) (*runnerOut, error) {
		return s.changeRunner(ctx, in.ID, func(r *fleet.Runner) (state.Command, error) {
			n := in.Body.Automation
			if n < 0 || n > fleet.MaxAutomation {
				return nil, wrong(fleet.BadRequest, "automation %d is not from 0 to %d; 0 turns automation off on the runner", n, fleet.MaxAutomation)
			}
			return &state.SetSlots{ID: r.ID, Automation: &n}, nil
		})
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/cordon", "cordon-runner", "Give the runner no new work", fleet.RoleOperator), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Body *api.Cordon `required:"false"`
	}) (*runnerOut, error) {
		b := api.Cordon{}
		if in.Body != nil {
			b = *in.Body
		}
		return s.hold(ctx, in.ID, fleet.Hold{Reason: b.Reason}, b.For, "")
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/drain", "drain-runner", "Give the runner no new work and wait for what it has", fleet.RoleOperator), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Body *api.Drain `required:"false"`
	}) (*runnerOut, error) {
		b := api.Drain{}
		if in.Body != nil {
			b = *in.Body
		}
		if b.Then != "" && b.Deadline == "" {
			return nil, wrong(fleet.BadRequest, "then %s is what happens at the deadline, and none is given; add deadline, such as 30m", quote(b.Then))
		}
		return s.hold(ctx, in.ID, fleet.Hold{Drain: true, Reason: b.Reason, Cancel: b.Then == "cancel"}, b.For, b.Deadline)
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/resume", "resume-runner", "Give a runner that was cordoned or drained work again", fleet.RoleOperator), wrap(s, func(ctx context.Context, in *RunnerIn) (*runnerOut, error) {
		return s.changeRunner(ctx, in.ID, func(r *fleet.Runner) (state.Command, error) { return &state.HoldRunner{ID: r.ID}, nil })
	}))
}

// hold keeps new work from a runner.
func (s *Server) hold(ctx context.Context, id string, h fleet.Hold, length, deadline string) (*runnerOut, error) {
	if err := checkWhy("reason", h.Reason); err != nil {
		return nil, err
	}
	at := s.time(s.cfg.Log.View())
	for _, t := range []struct {
		name, text  string
		least, most time.Duration
		to          **time.Time
	}{{"for", length, time.Minute, 8760 * time.Hour, &h.Until}, {"deadline", deadline, time.Second, 720 * time.Hour, &h.Deadline}} {
		d, err := within(t.name, t.text, t.least, t.most)
		if err != nil {
			return nil, err
		}
		if d > 0 {
			end := at.Add(d).UTC()
			*t.to = &end
		}
	}
	if h.Until != nil && h.Deadline != nil && h.Until.Before(*h.Deadline) {
		return nil, wrong(fleet.BadRequest, "for %s ends the drain before its deadline of %s; make it longer, or leave it out", length, deadline)
	}
	return s.changeRunner(ctx, id, func(r *fleet.Runner) (state.Command, error) { return &state.HoldRunner{ID: r.ID, Hold: &h}, nil })
}

// holdOf gives the hold that keeps new work from a runner now, if there is one.
func (s *Server) holdOf(v state.View, r *fleet.Runner) *api.Hold {
	switch {
	case !r.HeldAt(s.time(v)):
		return nil
	case r.Hold == nil || r.Cordoned:
		return &api.Hold{}
	}
	h := api.Hold{Hold: *r.Hold, ActorName: v.ActorName(r.Hold.Actor)}
	h.Since, h.Until, h.Deadline = h.Since.UTC(), utc(h.Until), utc(h.Deadline)
	return &h
}

// within reads a duration that must lie between two others; without a text it is 0.
func within(name, text string, least, most time.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, wrong(fleet.BadRequest, "%s %s is not a duration from %s to %s, such as 90m or 2h", name, quote(text), whole(least), whole(most))
	}
	return d, nil
}

// whole writes a duration of whole hours, minutes or seconds.
func whole(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(s, "m0s")]
	return strings.TrimSuffix(s, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(s, "h0m")]
}

// checkWhy looks at what a person gives as a reason.
func checkWhy(name, text string) error {
	if n := len([]rune(text)); n > maxWhy {
		return wrong(fleet.TooLarge, "the %s has %d characters; at most %d", name, n, maxWhy)
	}
	if strings.ContainsAny(text, "\x00\r\n") {
		return wrong(fleet.BadRequest, "the %s has a line break or a NUL character; make it one line", name)
	}
	return nil
}
