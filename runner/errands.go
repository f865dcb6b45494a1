package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/inventory"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	errandTime  = 8 * time.Second // for one; a folder that hangs is not waited for
	errandAgain = 2 * time.Second // a repeated question that soon after its answer has crossed it
)

// errands are what the hub asks for, and the answers that wait for a heartbeat. Asking
// and answering never wait; the work has a goroutine of its own, and is done one by one.
type errands struct {
	asked chan wire.Errand

	mu   sync.Mutex
	busy map[string]bool      // asked for, and not answered yet
	done []wire.ErrandDone    // to be told
	told map[string]time.Time // when an answer went out
}

func newErrands() *errands {
	return &errands{asked: make(chan wire.Errand, wire.MaxErrands), busy: map[string]bool{}, told: map[string]time.Time{}}
}

// take notes what the hub asks for. What finds no room is asked for again.
func (e *errands) take(es []wire.Errand, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.told, func(_ string, at time.Time) bool { return elapsed(at, now) >= errandAgain })
	for _, x := range es[:min(len(es), wire.MaxErrands)] {
		if _, just := e.told[x.ID]; just || e.busy[x.ID] || len(x.Body) > wire.MaxErrandBody {
			continue
		}
		select {
		case e.asked <- x:
			e.busy[x.ID] = true
		default:
		}
	}
}

// answer keeps an answer for the next heartbeat.
func (e *errands) answer(d wire.ErrandDone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = append(e.done, d)
}

// ride gives the answers that go with a heartbeat.
func (e *errands) ride(now time.Time) []wire.ErrandDone {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.done), wire.MaxAnswers)
	out := slices.Clone(e.done[:n])
	e.done = e.done[n:]
	for _, d := range out {
		delete(e.busy, d.ID)
		e.told[d.ID] = now
	}
	return out
}

// missed takes answers back whose heartbeat did not go out: the next session is asked anew.
func (e *errands) missed(ds []wire.ErrandDone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range ds {
		delete(e.told, d.ID)
	}
}

// waits says whether answers are left for another heartbeat.
func (e *errands) waits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.done) > 0
}

// runErrands does what is asked for, one after the other.
func (r *Runner) runErrands(ctx context.Context) {
	for {
		select {
		case x := <-r.errands.asked:
			d := r.errand(ctx, x)
			if ctx.Err() != nil {
				return
			}
			r.errands.answer(d)
			r.link.beat(true)
		case <-ctx.Done():
			return
		}
	}
}

// errand does one. Whatever becomes of it is an answer.
func (r *Runner) errand(ctx context.Context, x wire.Errand) wire.ErrandDone {
	ctx, cancel := context.WithTimeout(ctx, errandTime)
	defer cancel()
	body, err := r.doErrand(ctx, x)
	d := wire.ErrandDone{ID: x.ID, Body: body}
	if err == nil {
		return d
	}
	d.Code, d.Detail = fleet.Internal, fleet.CutText(err.Error(), fleet.MaxDetail)
	switch {
	case errors.As(err, &d.Code):
		d.Detail = strings.TrimSuffix(d.Detail, ": "+string(d.Code))
	case errors.Is(err, probe.ErrUnknown), ctx.Err() != nil:
		d.Code, d.Detail = fleet.Unavailable, fmt.Sprintf("the folders of the agents did not answer within %s", errandTime)
	}
	return d
}

func (r *Runner) doErrand(ctx context.Context, x wire.Errand) (json.RawMessage, error) {
	r.mu.Lock()
	tells := r.owner.Sessions
	r.mu.Unlock()
	switch x.Kind {
	case wire.ErrandSessions, wire.ErrandSession:
		if tells == fleet.SessionsOff {
			return nil, fleet.Say(fleet.OwnerPolicy, "the owner of this runner keeps its sessions to himself (sessions: off)")
		}
	default:
		return nil, fleet.Say(fleet.UnknownCritical, "this runner does not know errands of the kind %q", fleet.CutText(x.Kind, 40))
	}
	cfg, err := r.sessionsAt()
	if err != nil {
		return nil, err
	}
	if x.Kind == wire.ErrandSessions {
		all, err := probe.Within(ctx, r.sampler, "sessions", func(ctx context.Context) (fleet.CLISessions, error) { return inventory.List(ctx, cfg) })
		if err != nil {
			return nil, err
		}
		return fitting(all, func(s *fleet.CLISessions) bool {
			s.More = true
			s.Sessions = s.Sessions[:max(len(s.Sessions)*9/10, 0)]
			return len(s.Sessions) > 0
		})
	}
	if tells != fleet.SessionsFull {
		return nil, fleet.Say(fleet.OwnerPolicy, "the owner of this runner tells which sessions there are, and not what was said in them (sessions: list)")
	}
	var ask wire.AskSession
	if err := wire.Decode(x.Body, &ask); err != nil {
		return nil, err
	}
	if ask.Messages <= 0 {
		ask.Messages = fleet.SessionShown
	}
	one, err := probe.Within(ctx, r.sampler, "session "+fleet.CutText(ask.ID, fleet.MaxSessionID), func(ctx context.Context) (fleet.CLITranscript, error) {
		return inventory.Show(ctx, cfg, ask.ID, ask.Messages)
	})
	if err != nil {
		return nil, err
	}
	return fitting(one, func(t *fleet.CLITranscript) bool {
		t.Earlier = true
		t.Messages = t.Messages[min(len(t.Messages), 1+len(t.Messages)/10):]
		return len(t.Messages) > 0
	})
}

// fitting encodes an answer, made less until it is no longer than one may be.
func fitting[T any](v T, less func(*T) bool) (json.RawMessage, error) {
	for {
		b, err := json.Marshal(v)
		if err != nil || len(b) <= fleet.MaxSessionAnswer {
			return b, err
		}
		if !less(&v) {
			return nil, fmt.Errorf("an answer of %d bytes can't be told: %w", len(b), fleet.TooLarge)
		}
	}
}

// sessionsAt says where the agents keep their sessions, and what of them is to be masked.
func (r *Runner) sessionsAt() (inventory.Config, error) {
	secrets, err := r.secrets()
	if err != nil {
		return inventory.Config{}, err // what it holds could not be masked
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	env := os.Environ()
	return inventory.Config{Env: env, Homes: r.owner.SessionHomes, Hide: attempt.Hider(env, secrets), Skip: r.cfg.Dir}, nil
}

// findSession finds one for a job that is to go on with it.
func (r *Runner) findSession(ctx context.Context, harness, id string) (fleet.CLISession, error) {
	cfg, err := r.sessionsAt()
	if err != nil {
		return fleet.CLISession{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, errandTime)
	defer cancel()
	return probe.Within(ctx, r.sampler, "session "+harness+" "+id, func(ctx context.Context) (fleet.CLISession, error) {
		return inventory.Find(ctx, cfg, harness, id)
	})
}

// checkSessions looks at what the owner says of sessions.
func (o Owner) checkSessions() *ownerError {
	for _, agent := range slices.Sorted(maps.Keys(o.SessionHomes)) {
		home := o.SessionHomes[agent]
		if !slices.Contains(inventory.Agents(), agent) {
			return &ownerError{"session_homes", agent, fmt.Sprintf("%q: want codex, claude or opencode", agent)}
		}
		if !filepath.IsAbs(home) {
			return &ownerError{"session_homes", home, fmt.Sprintf("%q is not absolute", home)}
		}
		if _, ok := inventory.HomeEnv(agent, home); !ok {
			return &ownerError{"session_homes", home, fmt.Sprintf("%q: the folder of opencode has that name, too", home)}
		}
	}
	for _, dir := range o.SessionDirs {
		if !filepath.IsAbs(dir) {
			return &ownerError{"session_dirs", dir, fmt.Sprintf("%q is not absolute", dir)}
		}
	}
	return nil
}

// sessionEnv gives, by agent, the variables by which it finds the folder that its owner named.
func (o Owner) sessionEnv() map[string][]string {
	out := map[string][]string{}
	for agent, home := range o.SessionHomes {
		out[agent], _ = inventory.HomeEnv(agent, home)
	}
	return out
}
