package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	maxLists   = 64 << 20               // bytes of answers that are remembered
	leaderLook = 250 * time.Millisecond // after which a node that leads no more lets go of who waits
)

// errands are what people want to know of runners' machines, and the last lists that
// came. All of it is the leader's memory: another one is asked again by whoever waits.
// Its methods may be called from many goroutines, and those for heartbeats never wait.
type errands struct {
	leading func() bool
	nudge   func(fleet.RunnerID) // to beat at once

	mu    sync.Mutex
	open  map[fleet.RunnerID][]*errand
	lists map[fleet.RunnerID]*heardList
	size  int // bytes of them
}

// errand is one question that somebody waits for.
type errand struct {
	wire.Errand
	waiting int           // people
	done    chan struct{} // closed once there is an answer
	answer  wire.ErrandDone
}

// heardList is the last list of a runner's sessions, as it came.
type heardList struct {
	raw json.RawMessage
	at  time.Time
}

func newErrands(leading func() bool, nudge func(fleet.RunnerID)) *errands {
	return &errands{leading: leading, nudge: nudge, open: map[fleet.RunnerID][]*errand{}, lists: map[fleet.RunnerID]*heardList{}}
}

// asked gives what a runner is to be asked for with the next reply.
func (e *errands) asked(r fleet.RunnerID) []wire.Errand {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []wire.Errand
	for _, x := range e.open[r] {
		out = append(out, x.Errand)
	}
	return out
}

// answered takes an answer. One that nobody waits for any more is of no use.
func (e *errands) answered(r fleet.RunnerID, d wire.ErrandDone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.open[r] {
		if x.ID != d.ID {
			continue
		}
		x.answer = d
		e.drop(r, x)
		close(x.done)
		if x.Kind == wire.ErrandSessions && d.Code == "" {
			e.keep(r, d.Body)
		}
		return
	}
}

// drop takes a question out; the caller holds the lock.
func (e *errands) drop(r fleet.RunnerID, x *errand) {
	for i, y := range e.open[r] {
		if x == y {
			e.open[r] = append(e.open[r][:i:i], e.open[r][i+1:]...)
		}
	}
	if len(e.open[r]) == 0 {
		delete(e.open, r)
	}
}

// keep remembers a list. Where there are too many the oldest goes; the caller holds the lock.
func (e *errands) keep(r fleet.RunnerID, raw json.RawMessage) {
	e.forget(r)
	e.lists[r] = &heardList{raw, time.Now()}
	for e.size += len(raw); e.size > maxLists; {
		var oldest fleet.RunnerID
		for id, l := range e.lists {
			if oldest == "" || l.at.Before(e.lists[oldest].at) {
				oldest = id
			}
		}
		e.forget(oldest)
	}
}

func (e *errands) forget(r fleet.RunnerID) {
	if l := e.lists[r]; l != nil {
		e.size -= len(l.raw)
		delete(e.lists, r)
	}
}

// ask has a runner asked and waits for its answer. Who asks the same waits for the same.
func (e *errands) ask(ctx context.Context, r fleet.RunnerID, kind string, body any) (json.RawMessage, error) {
	var raw json.RawMessage
	if body != nil {
		b, err := wire.Encode(body)
		if err != nil {
			return nil, err
		}
		raw = b
	}
	x, err := e.join(r, kind, raw)
	if err != nil {
		return nil, err
	}
	defer e.leave(r, x)
	e.nudge(r)
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	for {
		select {
		case <-x.done:
			if d := x.answer; d.Code != "" {
				return nil, fleet.Say(d.Code, "%s", d.Detail)
			}
			return x.answer.Body, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
			if !e.leading() {
				return nil, fleet.Say(fleet.Unavailable, "this hub node leads no more, and the runner answers another one; ask again")
			}
		}
	}
}

func (e *errands) join(r fleet.RunnerID, kind string, body json.RawMessage) (*errand, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.open[r] {
		if x.Kind == kind && bytes.Equal(x.Body, body) {
			x.waiting++
			return x, nil
		}
	}
	if len(e.open[r]) >= wire.MaxErrands {
		return nil, fleet.Say(fleet.QueueFull, "%d questions to this runner are open, their bound; ask again in a moment", wire.MaxErrands)
	}
	x := &errand{Errand: wire.Errand{ID: strings.ToLower(ulid.Make().String()), Kind: kind, Body: body}, waiting: 1, done: make(chan struct{})}
	e.open[r] = append(e.open[r], x)
	return x, nil
}

// leave takes back a question that nobody waits for any more.
func (e *errands) leave(r fleet.RunnerID, x *errand) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.waiting--; x.waiting == 0 {
		e.drop(r, x)
	}
}

// sessions asks a runner which sessions of agent CLIs are on its machine.
func (e *errands) sessions(ctx context.Context, r fleet.RunnerID) (fleet.CLISessions, error) {
	raw, err := e.ask(ctx, r, wire.ErrandSessions, nil)
	if err != nil {
		return fleet.CLISessions{}, err
	}
	return readSessions(raw)
}

// last gives the last list that a runner told this node, and its age.
func (e *errands) last(r fleet.RunnerID) (all fleet.CLISessions, age time.Duration, ok bool) {
	e.mu.Lock()
	l := e.lists[r]
	e.mu.Unlock()
	if l == nil {
		return all, 0, false
	}
	all, err := readSessions(l.raw)
	return all, time.Since(l.at), err == nil
}

// session asks a runner for one session with its last messages.
func (e *errands) session(ctx context.Context, r fleet.RunnerID, id string, messages int) (fleet.CLITranscript, error) {
	if len(id) > fleet.MaxSessionID {
		return fleet.CLITranscript{}, fleet.Say(fleet.NotFound, "no session has an id of %d bytes", len(id))
	}
	raw, err := e.ask(ctx, r, wire.ErrandSession, wire.AskSession{ID: id, Messages: messages})
	if err != nil {
		return fleet.CLITranscript{}, err
	}
	t := fleet.CLITranscript{Messages: []fleet.CLIMessage{}}
	if err := wire.Decode(raw, &t); err != nil {
		return t, fmt.Errorf("read the answer of runner %s: %w", r, err)
	}
	if n := len(t.Messages); n > fleet.MaxSessionShown {
		t.Messages, t.Earlier = t.Messages[n-fleet.MaxSessionShown:], true
	}
	return t, nil
}

// readSessions takes in no more of a list than there may be.
func readSessions(raw json.RawMessage) (fleet.CLISessions, error) {
	all := fleet.CLISessions{Sessions: []fleet.CLISession{}}
	if err := wire.Decode(raw, &all); err != nil {
		return all, fmt.Errorf("read a runner's list of sessions: %w", err)
	}
	if len(all.Sessions) > fleet.MaxSessions {
		all.Sessions, all.More = all.Sessions[:fleet.MaxSessions], true
	}
	return all, nil
}
