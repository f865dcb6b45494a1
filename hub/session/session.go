// Package session serves the connections of runners: enrolment, the handshake, the
// frames of a session over a WebSocket link or plain HTTP, the blobs that an
// attempt names, and who is connected right now.
//
// It guarantees that nothing is acknowledged before it is committed or on disk,
// that nothing is believed that a runner did not say about its own attempts, that
// a runner has at most one session, and that a slow or hung runner holds up
// nobody else. A heartbeat alone never becomes an entry in the log. Everything is
// harmless when repeated.
//
// Which attempt goes where, when a silent runner's attempts are lost, and what the
// evidence is worth are decided by others; this package only carries it.
package session

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Server holds the sessions of one hub node. All methods may be called from many
// goroutines.
type Server struct {
	cfg       Config
	upgrader  websocket.Upgrader
	shaking   chan struct{} // one token a handshake in progress
	admission admission
	parts     chan struct{} // one token a part of an upload in memory
	sightings chan sighting // news of machines, for Run to pass on

	life context.Context // of everything that outlives a request; ends with Close
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closing bool                        // no new session
	closed  bool                        // no new goroutine
	live    map[fleet.RunnerID]*session // the one session of each connected runner
	byID    map[string]*session         // live ones, and ended ones of the HTTP transport for a while
	opening map[string]*opening         // handshakes over HTTP
	seen    map[fleet.RunnerID]*seen    // what outlives a session
}

// seen is what the server remembers of a runner between sessions.
type seen struct {
	presence fleet.Presence
	journal  string
	count    uint64 // the greatest journal counter it showed
}

// Register puts the server's routes on a mux.
func (s *Server) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+wire.EnrolPath, s.Enrol)
	mux.HandleFunc("GET /v1/runners/{id}/link", s.Link)
	mux.HandleFunc("POST /v1/runners/{id}/exchange", s.Exchange)
	mux.HandleFunc("GET /v1/runners/{id}/blobs/{sha256}", s.FetchBlob) // and HEAD
	mux.HandleFunc("PUT /v1/runners/{id}/blobs/{sha256}", s.StoreBlob)
}

// New checks the configuration and makes a server. It starts nothing.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("session server: %w", err)
	}
	life, stop := context.WithCancelCause(context.Background())
	return &Server{
		cfg: c,
		upgrader: websocket.Upgrader{
			HandshakeTimeout: wire.HandshakeTime,
			ReadBufferSize:   1 << 10,
			WriteBufferSize:  4 << 10,
			WriteBufferPool:  &sync.Pool{},
			Subprotocols:     []string{wire.Subprotocol},
		},
		shaking:   make(chan struct{}, maxHandshakes),
		parts:     make(chan struct{}, maxParts),
		sightings: make(chan sighting, maxSightings),
		life:      life,
		stop:      stop,
		live:      map[fleet.RunnerID]*session{},
		byID:      map[string]*session{},
		opening:   map[string]*opening{},
		seen:      map[fleet.RunnerID]*seen{},
	}, nil
}

// Run ends what has gone silent, and passes on what is heard of machines, until ctx
// ends, then closes the server.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.tellSightings(ctx) })
	tick := time.NewTicker(s.cfg.ActiveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.Close()
			return nil
		case <-s.life.Done():
			return nil
		case <-tick.C:
			s.sweep(s.now())
		}
	}
}

// Close ends all sessions, tells the runners to come back, and waits for
// everything that the server runs. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.EndAll(fleet.Restarting, "the hub is stopping")
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(fleet.Restarting)
	s.wg.Wait()
}

// EndAll ends every session with a code that lets runners come back: the hub calls
// it when this node no longer leads.
func (s *Server) EndAll(code fleet.Code, detail string) {
	for _, x := range s.sessions() {
		x.end(wire.Goodbye{Code: code, Detail: detail})
	}
	s.mu.Lock()
	s.opening = map[string]*opening{}
	s.mu.Unlock()
}

// RunnerChanged ends the live session of a runner that was removed, revoked or put in
// conflict, and lets one beat at once that is to be told other limits; the hub calls
// it for every change of a runner.
func (s *Server) RunnerChanged(r *fleet.Runner) {
	s.mu.Lock()
	x := s.live[r.ID]
	s.mu.Unlock()
	if x == nil {
		return
	}
	if bye := barred(r, x.generation); bye != nil {
		x.end(*bye)
	} else if x.limitsChanged(r) {
		x.out.nudge()
	}
}

// Nudge makes a runner beat at once. One that is not connected is no error.
func (s *Server) Nudge(r fleet.RunnerID) {
	s.mu.Lock()
	x := s.live[r]
	s.mu.Unlock()
	if x != nil {
		x.out.nudge()
	}
}

// Restarting tells every runner that the hub stops after a while, for how long, and
// which hubs serve it meanwhile.
func (s *Server) Restarting(after, length time.Duration, successors []string) {
	body, err := wire.Encode(wire.Restarting{After: after, For: length, Successors: successors})
	if err != nil {
		s.cfg.Logger.Error("encode restarting", "err", err)
		return
	}
	for _, x := range s.sessions() {
		x.out.send(wire.TypeRestarting, body)
	}
}

// now is the one place where the package reads the clock, for what lasts how long.
func (s *Server) now() time.Time { return time.Now() }

func (s *Server) sessions() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(s.live))
	for _, x := range s.live {
		all = append(all, x)
	}
	return all
}

// sweep ends sessions without life and forgets handshakes and ended sessions whose
// time has passed. Links have a read deadline beside it.
func (s *Server) sweep(now time.Time) {
	for _, x := range s.sessions() {
		if now.Sub(x.lastBeat()) > 2*x.staleAfter() {
			x.end(wire.Goodbye{Code: fleet.SessionEnded, Detail: "no heartbeat came"})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.opening {
		if now.Sub(o.at) > wire.HandshakeTime {
			delete(s.opening, id)
		}
	}
	for id, x := range s.byID {
		if at, ended := x.endedAt(); ended && now.Sub(at) > keepEnded {
			delete(s.byID, id)
		}
	}
}

// enter makes x the session of its runner and ends the one before it.
func (s *Server) enter(x *session) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return fmt.Errorf("the hub is stopping: %w", fleet.Restarting)
	}
	old := s.live[x.runner]
	s.live[x.runner], s.byID[x.id] = x, x
	s.mu.Unlock()
	if old != nil {
		old.end(wire.Goodbye{Code: fleet.Superseded, Detail: "the newer one is at " + x.address, Final: true})
	}
	s.note(x)
	return nil
}

// leave takes an ended session out. One over HTTP is kept by id for a while, so
// that the runner's next request is told why.
func (s *Server) leave(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[x.runner] == x {
		delete(s.live, x.runner)
		if k := s.seen[x.runner]; k != nil {
			k.presence.Connected = false
		}
	}
	if x.transport == transportLink {
		delete(s.byID, x.id)
	}
}

// spawn runs f in a goroutine that Close waits for, unless the server is closed.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}
