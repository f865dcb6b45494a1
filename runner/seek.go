package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	maxHubs = 32 // that are known at a time
	// headStart is what the likeliest hub gets before the others are asked too.
	headStart = 200 * time.Millisecond
	// huntWait bounds the pause between two rounds while a hub answers that none leads
	// yet, where the hub does not ask for more: an election is over within seconds.
	huntWait = time.Second
	// restartJitter spreads runners whose hub said that it restarts.
	restartJitter = time.Second
)

// pointer is what a hub that takes no session says about who may.
type pointer struct {
	hubs  []string      // the leader first
	after time.Duration // before it is worth asking again; 0: not said
	alive bool          // a hub of ours spoke
}

// pointed reads it from a refusal.
func pointed(res *http.Response, body []byte) pointer {
	var p wire.Problem
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return pointer{}
	}
	out := pointer{alive: p.Code == fleet.Unavailable || p.Code == fleet.Restarting}
	for _, h := range append([]string{res.Header.Get(wire.LeaderHeader), p.Leader}, p.Hubs...) {
		if h != "" && !contains(out.hubs, h) && len(out.hubs) < maxHubs {
			out.hubs = append(out.hubs, h)
		}
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		out.after = min(time.Duration(s)*time.Second, maxBackoff)
	}
	return out
}

// unledError is a search in which a hub answered and none took the session.
type unledError struct {
	after time.Duration
	err   error
}

func (u *unledError) Error() string { return u.err.Error() }
func (u *unledError) Unwrap() error { return u.err }

// turn lets one handshake at a time go on to its hello: two sessions of one runner
// would end each other. Whoever was welcomed keeps it.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t <- struct{}{}
	return t
}

func (t turn) take(ctx context.Context) error {
	select {
	case <-t:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { t <- struct{}{} }

// search looks for the hub that takes this runner: the likeliest first, soon the others
// beside it. While one of them is slow to answer, the rest are asked again.
type search struct {
	l       *link
	useHTTP bool
	turn    turn
	results chan found
	waiting []string        // to be asked, in order
	asked   []string        // and not being asked now
	running map[string]bool // being asked
	after   time.Duration
	alive   bool
	last    error
}

type found struct {
	base    string
	session *session
	welcome wire.Welcome
	pointer pointer
	err     error
}

// connect opens a session with whichever of the known hubs takes it. It gives up when
// each was asked and none is left that might still answer.
func (l *link) connect(ctx context.Context, useHTTP bool) (*session, error) {
	k := &search{l: l, useHTTP: useHTTP, turn: newTurn(), results: make(chan found), waiting: l.known(), running: map[string]bool{}}
	inner, cancel := context.WithCancel(ctx)
	s, err := k.run(inner)
	cancel()
	for len(k.running) > 0 {
		f := <-k.results
		delete(k.running, f.base)
		if f.session != nil {
			f.session.end(errors.New("another hub was faster"))
		}
	}
	return s, err
}

func (k *search) run(ctx context.Context) (*session, error) {
	var ladder backoff
	k.ask(ctx, 1)
	soon := time.NewTimer(headStart)
	defer soon.Stop()
	for {
		if len(k.running) == 0 && len(k.waiting) == 0 {
			if k.alive {
				return nil, &unledError{after: k.after, err: k.last}
			}
			return nil, k.last
		}
		select {
		case <-soon.C:
			k.waiting, k.asked = append(k.waiting, k.asked...), nil
			soon.Reset(ladder.hunt(k.after))
		case f := <-k.results:
			delete(k.running, f.base)
			k.l.pulse.beat()
			if f.err == nil {
				k.l.learn(f.base, f.welcome)
				return f.session, nil
			}
			if ctx.Err() != nil || k.l.sentAway(f.err) != nil {
				return nil, f.err
			}
			k.refused(f)
		}
		k.ask(ctx, maxHubs)
	}
}

// ask asks up to n of those that wait.
func (k *search) ask(ctx context.Context, n int) {
	for ; n > 0 && len(k.waiting) > 0; n-- {
		base := k.waiting[0]
		k.waiting = k.waiting[1:]
		if k.running[base] {
			continue
		}
		k.running[base] = true
		go func() {
			f := found{base: base}
			f.session, f.welcome, f.pointer, f.err = k.l.greet(ctx, base, k.useHTTP, k.turn)
			k.results <- f
		}()
	}
}

// refused takes in what a hub said that takes no session.
func (k *search) refused(f found) {
	k.l.r.log.Debug("this hub takes no session", "hub", f.base, "alive", f.pointer.alive, "points_to", f.pointer.hubs, "ask_after", f.pointer.after.String(), "err", f.err)
	k.asked = append(k.asked, f.base)
	k.alive = k.alive || f.pointer.alive
	k.after = max(k.after, f.pointer.after)
	for _, h := range f.pointer.hubs {
		h = strings.TrimSuffix(h, "/")
		if !k.running[h] && !slices.Contains(k.asked, h) && !slices.Contains(k.waiting, h) && len(k.asked)+len(k.waiting)+len(k.running) < maxHubs {
			k.waiting = append(k.waiting, h)
		}
	}
	// What made the upgrade fail matters more than an address that does not answer.
	if k.last == nil || errors.Is(f.err, errUpgrade) {
		k.last = f.err
	}
}

// known gives the hubs in the order in which they are worth asking. Those of a new ticket
// come last: where none of the others is left, it is by them that the runner comes back.
func (l *link) known() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return joined(l.successors, l.hubs, l.keys.knownHubs(), l.r.ticketHubs(l.id))
}

// joined gives the URLs of several lists, each once.
func joined(lists ...[]string) []string {
	var out []string
	for _, h := range slices.Concat(lists...) {
		if h = strings.TrimSuffix(h, "/"); h != "" && !slices.Contains(out, h) && len(out) < maxHubs {
			out = append(out, h)
		}
	}
	return out
}

// learn keeps the addresses of a welcome: the one that answered first, and no longer
// those that the cluster does not name any more, unless the ticket does.
func (l *link) learn(base string, w wire.Welcome) {
	hubs := joined([]string{base, w.Leader}, w.Hubs)
	l.mu.Lock()
	l.hubs, l.successors = hubs, nil
	l.mu.Unlock()
	if len(w.Mesh) > 0 {
		l.r.cfg.OnTunnels(w.Mesh)
	}
	if err := l.keys.learnHubs(hubs); err != nil {
		l.r.trouble(err) // it is told again at the next handshake
	}
}

// knows takes in that the cluster has other hubs than it had at the handshake.
func (l *link) knows(base string, urls []string) {
	if len(urls) == 0 {
		return
	}
	l.mu.Lock()
	hubs := joined([]string{base}, l.hubs[:min(len(l.hubs), 1)], urls)
	l.hubs = hubs
	l.mu.Unlock()
	if err := l.keys.learnHubs(hubs); err != nil {
		l.r.trouble(err) // it is told again at the next handshake
	}
}

// leads takes in who leads, as the hub says with a desired set.
func (l *link) leads(url string) {
	if url == "" {
		return
	}
	l.mu.Lock()
	l.hubs = joined([]string{url}, l.hubs)
	l.mu.Unlock()
}

// restarts takes in that the hub will be away.
func (l *link) restarts(re wire.Restarting) {
	l.mu.Lock()
	l.restarting = time.Now().Add(re.After + re.For)
	l.successors = joined(re.Successors)
	l.mu.Unlock()
	l.r.log.Info("the hub is about to restart", "after", re.After.String(), "for", re.For.String(), "successors", len(re.Successors))
}

// pause gives how long to wait after a search that failed or a session that ended.
func (l *link) pause(ladder *backoff, ended bool, err error) time.Duration {
	l.mu.Lock()
	announced := time.Now().Before(l.restarting)
	l.mu.Unlock()
	var none *unledError
	switch {
	case announced && ended:
		return rand.N(restartJitter)
	case announced:
		return ladder.wait(huntWait)
	case errors.As(err, &none):
		return ladder.hunt(none.after)
	}
	return ladder.wait(maxBackoff)
}

// hunt gives the pause before hubs that answered, and did not lead, are asked again. One
// that has many runners asks for more time than an election takes.
func (b *backoff) hunt(asked time.Duration) time.Duration {
	if asked > huntWait {
		return jitter(asked)
	}
	return b.wait(huntWait)
}

// away says to the log that there is no connection. An absence that was announced is
// no reason for alarm while it is not over.
func (l *link) away(wait time.Duration, err error) {
	l.mu.Lock()
	announced, overdue := time.Now().Before(l.restarting), !l.restarting.IsZero()
	if !announced {
		l.restarting = time.Time{}
	}
	l.mu.Unlock()
	wait = wait.Round(time.Millisecond)
	switch {
	case announced:
		l.r.log.Debug("not connected, as announced", "retry_in", wait.String(), "err", err)
	case overdue:
		l.r.log.Warn("the hub is away for longer than it said", "retry_in", wait.String(), "err", err)
	default:
		l.r.log.Info("not connected", "retry_in", wait.String(), "err", err)
	}
}

// knownHubs are those of the last welcome, then those of the ticket.
func (k *keyring) knownHubs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return joined(k.id.Known, k.id.Hubs)
}

// learnHubs keeps the addresses of a welcome over restarts.
func (k *keyring) learnHubs(hubs []string) error {
	k.mu.Lock()
	same := slices.Equal(k.id.Known, hubs)
	k.mu.Unlock()
	if same {
		return nil
	}
	if err := k.change(func(id *identity) { id.Known = hubs }); err != nil {
		return fmt.Errorf("keep the hubs' addresses: %w", err)
	}
	return nil
}
