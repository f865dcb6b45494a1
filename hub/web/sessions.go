package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	maxSessionWait = 20 * time.Second       // for a runner's answer
	connectLook    = 100 * time.Millisecond // for whether it has come
)

// Waits is the query of what waits for a runner; exported so that the library sees it.
type Waits struct {
	Wait string `query:"wait" doc:"how long to wait for the runner, at most 20s; default 8s"`
}

func (w Waits) time() (time.Duration, error) {
	if w.Wait == "" {
		return api.SessionWait, nil
	}
	d, err := time.ParseDuration(w.Wait)
	if err != nil || d <= 0 || d > maxSessionWait {
		return 0, wrong(fleet.BadRequest, "wait %s is not a duration above 0 and up to %s, such as 5s", quote(w.Wait), maxSessionWait)
	}
	return d, nil
}

// sessionRoutes show the sessions of agent CLIs on runners' machines.
func (s *Server) sessionRoutes() {
	huma.Register(s.api, byLeader(op(http.MethodGet, "/v1/runners/{id}/sessions", "list-sessions", "The sessions of agent CLIs on a runner's machine", fleet.RoleOperator)), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Waits
	}) (*struct{ Body api.Sessions }, error) {
		r, wait, err := s.askable(in.ID, in.Waits)
		if err != nil {
			return nil, err
		}
		out := api.Sessions{Runner: r.ID, Name: r.Name}
		bound, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err = s.reachable(bound, r); err == nil {
			if out.CLISessions, err = s.cfg.Sessions(bound, r.ID); err == nil {
				return &struct{ Body api.Sessions }{out}, nil
			}
			err = unanswered(ctx, r, wait, err)
		}
		// Somebody who is away may still be told of; who does not want to be is not.
		if p := (*problem)(nil); errors.As(err, &p) && (p.Code == fleet.Offline || p.Code == fleet.Unavailable) {
			if all, age, ok := s.cfg.LastSessions(r.ID); ok {
				out.CLISessions, out.AgeMS, out.Waiting = all, age.Milliseconds(), p.Detail
				return &struct{ Body api.Sessions }{out}, nil
			}
		}
		return nil, err
	}))
	huma.Register(s.api, byLeader(op(http.MethodGet, "/v1/runners/{id}/sessions/{sid}", "get-session", "One of them with its last messages", fleet.RoleOperator)), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Waits
		Session  string `path:"sid" doc:"the session's id"`
		Messages int    `query:"messages" minimum:"1" maximum:"50" default:"20"`
	}) (*struct{ Body api.Session }, error) {
		r, wait, err := s.askable(in.ID, in.Waits)
		if err != nil {
			return nil, err
		}
		bound, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := s.reachable(bound, r); err != nil {
			return nil, err
		}
		one, err := s.cfg.Session(bound, r.ID, in.Session, in.Messages)
		if err != nil {
			return nil, unanswered(ctx, r, wait, err)
		}
		return &struct{ Body api.Session }{api.Session{Runner: r.ID, Name: r.Name, CLITranscript: one}}, nil
	}))
}

func (s *Server) askable(id string, w Waits) (*fleet.Runner, time.Duration, error) {
	wait, err := w.time()
	if err != nil {
		return nil, 0, err
	}
	if s.cfg.Sessions == nil {
		return nil, 0, wrong(fleet.Unavailable, "this hub asks no runner for sessions")
	}
	r, err := findRunner(s.cfg.Log.View(), id)
	return r, wait, err
}

// reachable says why a runner can't be asked now. One that has not come to a node that
// has just begun to lead, and was not silent before, is waited for.
func (s *Server) reachable(ctx context.Context, r *fleet.Runner) error {
	p := s.present()[r.ID]
	if !p.Connected && p.LastBeat.IsZero() && r.SilentSince == nil {
		tick := time.NewTicker(connectLook)
		defer tick.Stop()
		for !p.Connected && ctx.Err() == nil {
			select {
			case <-tick.C:
				p = s.present()[r.ID]
			case <-ctx.Done():
			}
		}
	}
	switch {
	case !p.Connected && p.LastBeat.IsZero():
		return wrong(fleet.Offline, "runner %s is not connected, and this hub has not heard it since it leads; what is on its machine can be asked for when it is back", r.Name)
	case !p.Connected:
		return wrong(fleet.Offline, "runner %s is not connected; it was last heard %s ago, and what is on its machine can be asked for when it is back", r.Name, now().Sub(p.LastBeat).Round(time.Second))
	case p.Sessions == fleet.SessionsOff:
		return wrong(fleet.OwnerPolicy, "the owner of runner %s keeps its sessions to himself (sessions: off in runner.yaml)", r.Name)
	case p.Full && p.Sessions == "":
		return wrong(fleet.UnknownCritical, "runner %s is of a version that does not tell of sessions; update it", r.Name)
	}
	return nil
}

// unanswered words what became of a question.
func unanswered(ctx context.Context, r *fleet.Runner, wait time.Duration, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // nobody waits any more
	case errors.Is(err, context.DeadlineExceeded):
		return wrong(fleet.Unavailable, "runner %s is connected and has not answered within %s: its heartbeat, or its disk, is slow; ask again", r.Name, wait)
	}
	return err
}

// session checks a job that goes on with a session of a machine's own.
func session(s *fleet.Spec, in *api.Submit) error {
	if in.Session == nil {
		return nil
	}
	id := in.Session.ID
	switch {
	case s.Kind != fleet.KindAgent:
		return wrong(fleet.BadRequest, "session belongs to kind agent; a command has none")
	case id == "" || len(id) > fleet.MaxSessionID || !word().MatchString(id):
		return wrong(fleet.BadRequest, "session id %s is not one; `tugline session list` shows them", quote(id))
	case s.On == "":
		return wrong(fleet.BadRequest, "a session is on one machine: name its runner with on")
	case in.Harness == "":
		return wrong(fleet.BadRequest, "name the harness that the session is of")
	case s.Repo != nil:
		return wrong(fleet.BadRequest, "a job that goes on with a session works in that session's directory; leave repo out")
	case len(in.Fallbacks) > 0:
		return wrong(fleet.BadRequest, "no other harness can go on with the session; leave fallbacks out")
	}
	s.Session = &fleet.SessionRef{ID: id}
	in.NoFallback = true
	orSet(&s.ConcurrencyKey, "session/"+id)
	return nil
}
