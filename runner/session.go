package runner

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// transport carries the frames of one session.
type transport interface {
	// send queues or writes one frame; an error means that the session is over.
	send(typ wire.Type, body []byte) error
	// read gives the next frame. Its body is valid until the call after it.
	read() (wire.Frame, error)
	// expect sets by when the next frame must have come; later, read fails.
	expect(within time.Duration)
	close()
}

// session is one connection to a hub after the handshake.
type session struct {
	transport
	kind     string // ws | http
	id       string
	key      wire.SessionKey
	base     string // URL of the hub
	interval time.Duration
	keys     map[string]ed25519.PublicKey // of orders, by id; of the reconciler once the session runs
	chain    []wire.SigningKey            // of the challenge
	held     *wire.KeysHeld               // as told last; of the heartbeats
	rekeyed  chan struct{}                // a value: a key that this session was not opened with is there
	facts    fleet.RunnerFacts            // as told in the hello
	began    time.Time
	answered atomic.Bool // a heartbeat was: the hub is there and takes this runner

	clockMu  sync.Mutex
	hubTime  time.Time // as the hub said, at
	hubSince time.Time // this moment here
	owes     time.Time // since when the hub owes a word; zero: it does not

	endOnce sync.Once
	done    chan struct{}
	err     error // set before done is closed
}

// end ends the session; the first reason counts.
func (s *session) end(err error) {
	s.endOnce.Do(func() {
		s.err = err
		close(s.done)
		s.transport.close()
	})
}

func (s *session) heard(hub time.Time) {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	s.hubTime, s.hubSince = hub, time.Now()
}

// now is the hub's time, by which orders expire.
func (s *session) now() time.Time {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	return s.hubTime.Add(time.Since(s.hubSince))
}

// goodbyeError is a session that the hub ended with a word. Proven is one whose
// words were authenticated.
type goodbyeError struct {
	wire.Goodbye
	proven bool
}

func (g *goodbyeError) Error() string { return fmt.Sprintf("the hub ended the session: %s", g.Detail) }
func (g *goodbyeError) Unwrap() error { return g.Code }

func goodbyeOf(f wire.Frame) error {
	var g goodbyeError
	if err := wire.Decode(f.Body, &g.Goodbye); err != nil {
		return fmt.Errorf("decode goodbye: %w", err)
	}
	g.proven = f.Seq > 0
	return &g
}

// greeting is what both transports need to answer a challenge.
type greeting struct {
	r      *Runner
	id     *identity
	key    []byte            // of this runner
	pinned ed25519.PublicKey // signs orders, or announces what does
	turn   turn              // taken before the hello, given back where it led to nothing
}

// answer checks a challenge and gives the hello with the key of the session.
func (g greeting) answer(frame []byte) (hello []byte, s *session, err error) {
	f, err := wire.OpenPlain(frame)
	if err != nil {
		return nil, nil, err
	}
	if f.Type == wire.TypeGoodbye {
		return nil, nil, goodbyeOf(f)
	}
	var c wire.Challenge
	if err := wire.Decode(f.Body, &c); err != nil {
		return nil, nil, fmt.Errorf("decode challenge: %w", err)
	}
	seen := g.r.journal.Desired()
	switch {
	case c.Cluster != g.id.Cluster:
		return nil, nil, fmt.Errorf("the hub is of cluster %s, this runner of %s: %w", c.Cluster, g.id.Cluster, fleet.ClusterMismatch)
	case c.Epoch < seen.Epoch:
		return nil, nil, fmt.Errorf("the hub is in epoch %d, this runner has seen %d: %w", c.Epoch, seen.Epoch, fleet.ClusterMismatch)
	}
	version, ok := wire.Negotiate(c.Versions)
	if !ok {
		return nil, nil, fmt.Errorf("the hub speaks protocol versions %v, this runner %v; update the older of the two: %w", c.Versions, wire.Versions, fleet.ProtocolVersion)
	}
	keys, err := wire.VerifyChain(g.pinned, c.Signing)
	if err != nil {
		return nil, nil, err
	}
	nonce, err := wire.NewNonce(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	// What the hub is told must be durable: a count that went back over a power cut
	// would look like a copied identity.
	if err := g.r.journal.Sync(); err != nil {
		g.r.trouble(err) // the count stays that of what is durable
	}
	facts := g.r.facts()
	hello, err = wire.SealHello(g.key, frame, wire.Hello{
		Version: version, Runner: g.id.Runner, Generation: g.id.Generation, Nonce: nonce, Cluster: g.id.Cluster, Epoch: seen.Epoch,
		MachineID: g.r.machine, JournalID: g.r.journal.ID(), JournalCount: g.r.journal.Count(),
		Name: g.r.cfg.Name, Labels: g.r.cfg.Labels, Facts: facts, Time: time.Now().UTC(),
	})
	if err != nil {
		return nil, nil, err
	}
	s = &session{keys: keys, chain: c.Signing, facts: facts, began: time.Now(), rekeyed: make(chan struct{}, 1), done: make(chan struct{})}
	if s.key, err = wire.DeriveSession(g.key, c.Nonce, nonce, g.id.Cluster, g.id.Runner); err != nil {
		return nil, nil, err
	}
	s.heard(c.Time)
	if skew := time.Since(c.Time); skew.Abs() > maxSkew {
		g.r.log.Warn("this machine's clock differs from the hub's; the hub's is used", "hub_time", c.Time.UTC(), "runner_time", time.Now().UTC())
		g.r.alert("clock", fmt.Sprintf("this machine's clock differs from the hub's by %s", skew.Round(time.Second)))
	} else {
		g.r.alert("clock", "")
	}
	return hello, s, nil
}

// maxSkew between the clocks is told and otherwise harmless.
const maxSkew = 30 * time.Second

// welcomed takes the answer to the hello.
func (s *session) welcomed(f wire.Frame) (wire.Welcome, error) {
	var w wire.Welcome
	switch f.Type {
	case wire.TypeGoodbye:
		return w, goodbyeOf(f)
	case wire.TypeWelcome:
	default:
		return w, fmt.Errorf("frame of type %d where a welcome was due: %w", f.Type, fleet.BadRequest)
	}
	if err := wire.Decode(f.Body, &w); err != nil {
		return w, fmt.Errorf("decode welcome: %w", err)
	}
	s.id, s.interval = w.Session, bounded(w.Interval)
	return w, nil
}

// bounded keeps an interval that the hub names within reason.
func bounded(d time.Duration) time.Duration {
	if d <= 0 {
		return 5 * time.Second
	}
	return min(max(d, 100*time.Millisecond), time.Minute)
}

// dead is after how long without any frame a session is given up.
func dead(interval time.Duration) time.Duration { return max(3*interval, 15*time.Second) }

var errUpgrade = errors.New("the connection could not be made a WebSocket")

// ended waits for the end of a session, or of ctx.
func (s *session) ended(ctx context.Context) error {
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
