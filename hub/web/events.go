package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (s *Server) eventRoutes() {
	all := op(http.MethodGet, "/v1/events", "stream-events", "Every change, as server-sent events", fleet.RoleViewer)
	all.Description = "Each event's id is EPOCH-INDEX; come back with it as Last-Event-ID. Where changes are missing the stream says reset: load a snapshot and go on. " + all.Description
	huma.Register(s.api, all, wrap(s, func(ctx context.Context, in *struct {
		Last  string `header:"Last-Event-ID"`
		After string `query:"after" doc:"as Last-Event-ID, for the first connection"`
	}) (*huma.StreamResponse, error) {
		last := in.Last
		if last == "" {
			last = in.After
		}
		if err := s.reachEvent(ctx, last); err != nil {
			return nil, err
		}
		// Who sees that the stream is open must miss nothing from then on.
		m := s.cfg.Log.View().Meta()
		return s.streaming(func(st *stream, ctx context.Context) { s.multiplex(st, ctx, m, last) })
	}))
	one := op(http.MethodGet, "/v1/jobs/{id}/events", "stream-job", "A job's changes, output and agent events, as server-sent events", fleet.RoleViewer)
	one.Description = "Resumes with Last-Event-ID at the exact byte. " + one.Description
	huma.Register(s.api, one, wrap(s, func(ctx context.Context, in *struct {
		ID    string `path:"id"`
		Last  string `header:"Last-Event-ID"`
		Turn  int    `query:"turn" minimum:"0" doc:"begin at this turn; default: the newest"`
		Until bool   `query:"until_ended" doc:"end the stream when that turn has ended and its log is complete"`
	}) (*huma.StreamResponse, error) {
		if err := s.reachEvent(ctx, in.Last); err != nil {
			return nil, err
		}
		j, err := find(s.cfg.Log.View(), in.ID)
		if err != nil {
			return nil, err
		}
		f := &follow{server: s, job: j.ID, turn: in.Turn, until: in.Until}
		if f.turn == 0 {
			f.turn = j.Turn().N
		}
		if in.Last != "" {
			if err := f.resume(in.Last); err != nil {
				return nil, err
			}
		}
		if f.turn < 1 || f.turn > len(j.Turns)+len(j.FollowUps) {
			return nil, wrong(fleet.NotFound, "job %s has %d turns, not %d", j.ID, len(j.Turns), f.turn)
		}
		if s.lacksEither(ctx, j.ID, f.attempt(j)) {
			return s.leaders(), nil
		}
		return s.streaming(f.run)
	}))
}

func (s *Server) streaming(run func(*stream, context.Context)) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		st, ctx, done, err := s.open(hctx)
		if err != nil {
			s.streamFail(hctx, err)
			return
		}
		defer done()
		run(st, ctx)
	}}, nil
}

// cursor is a place in the feed.
type cursor struct{ epoch, index uint64 }

func (c cursor) String() string { return fmt.Sprintf("%d-%d", c.epoch, c.index) }

func parseCursor(s string) (cursor, bool) {
	e, i, ok := strings.Cut(s, "-")
	epoch, err1 := strconv.ParseUint(e, 10, 64)
	index, err2 := strconv.ParseUint(i, 10, 64)
	return cursor{epoch, index}, ok && err1 == nil && err2 == nil
}

// reachEvent waits for the change that an event id names, where another node that
// was faster gave it. Which kind of stream it belongs to makes no difference.
func (s *Server) reachEvent(ctx context.Context, id string) error {
	parts := strings.SplitN(id, "-", 3)
	if len(parts) < 2 {
		return nil // it is none: whoever reads it says so
	}
	c, ok := parseCursor(parts[0] + "-" + parts[1])
	if !ok {
		return nil
	}
	return s.reach(ctx, c.index, reachTime)
}

// multiplex streams every change after a place, or after the one that m names.
func (s *Server) multiplex(st *stream, ctx context.Context, m state.Meta, last string) {
	at := cursor{m.Epoch, m.Index}
	if last != "" {
		c, ok := parseCursor(last)
		switch {
		case !ok:
			st.send(at.String(), api.Event{Type: "reset", Detail: "the event id given is not EPOCH-INDEX"})
		case c.epoch != m.Epoch:
			st.send(at.String(), api.Event{Type: "reset", Detail: "the event id given is of another epoch"})
		case c.index > m.Index:
			st.send(at.String(), api.Event{Type: "reset", Detail: "the event id given is of a change that this hub has not seen"})
		default:
			at.index = c.index
		}
	}
	sub, err := s.cfg.Feed.Subscribe(at.index)
	if err != nil {
		at.index = s.cfg.Log.View().Meta().Index
		st.send(at.String(), api.Event{Type: "reset", Detail: "changes since the event id given are no longer held"})
		if sub, err = s.cfg.Feed.Subscribe(at.index); err != nil {
			return // it moved on within a moment: the reader comes back
		}
	}
	defer sub.Close()
	type got struct {
		index  uint64
		last   bool
		change state.Change
		err    error
	}
	changes := make(chan got)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for {
			i, last, c, err := sub.Next(ctx)
			select {
			case changes <- got{i, last, c, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for st.fail == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			st.comment("still here")
		case g := <-changes:
			if g.err != nil {
				st.send("", api.Event{Type: "reset", Detail: "the reader was too slow and missed changes"})
				return
			}
			id := ""
			if g.last {
				id = cursor{m.Epoch, g.index}.String()
			}
			st.send(id, s.event(g.change))
		}
	}
}

// event gives a change as the interface shows it.
func (s *Server) event(c state.Change) api.Event {
	e := api.Event{Type: c.What}
	switch {
	case c.Job != nil && c.Removed:
		e.ID = string(c.Job.ID)
	case c.Job != nil:
		j := s.show(s.cfg.Log.View(), c.Job)
		j.Turns, j.Attempts = nil, nil
		e.Job = &j
	case c.Runner != nil && c.Runner.Removed:
		e.ID = string(c.Runner.ID)
	case c.Runner != nil:
		r := s.showRunner(s.cfg.Log.View(), c.Runner, s.present()[c.Runner.ID])
		e.Runner = &r
	case c.Circuit != nil && c.Removed:
		e.ID = c.Circuit.ID
	case c.Circuit != nil:
		sh := s.showCircuit(s.cfg.Log.View(), c.Circuit)
		e.Circuit = &sh
	case c.Alert != nil:
		a := showAlert(c.Alert)
		e.Alert = &a
	}
	return e
}
