package session

import (
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// The transports, as presence names them.
const (
	transportLink = "ws"
	transportHTTP = "http"
)

// outlet is how a session's transport takes what the hub says by itself. No method
// waits for the network.
type outlet interface {
	send(typ wire.Type, body []byte)
	nudge()
	close(bye wire.Goodbye) // the last word; then the transport ends
}

// session is one runner's connection, whatever carries it.
type session struct {
	srv        *Server
	id         string
	runner     fleet.RunnerID
	generation uint64
	master     uint64 // generation of the cluster's HMAC key that the hello was made under
	signing    string // id of the order-signing key at the handshake
	key        wire.SessionKey
	transport  string
	address    string
	out        outlet
	work       *lane         // reports, permits and facts: what goes to the log
	bytes      *lane         // output: what goes to the spool
	done       chan struct{} // closed when the session has ended

	mu         sync.Mutex
	ended      *wire.Goodbye
	endAt      time.Time
	beatAt     time.Time // hub's clock with its monotonic reading
	interval   time.Duration
	slots      int
	full       bool
	declining  string
	journalID  string
	count      uint64
	views      []wire.AttemptView   // of the last heartbeat
	strays     string               // the same; see findStrays
	automation *int                 // see fleet.Presence
	limitedBy  string               // likewise
	sessions   string               // likewise
	machine    machine              // of it, what this session has told last
	limited    *fleet.Limits        // as told last
	held       *wire.KeysHeld       // as last shown; nil: it does not know of replaced keys
	told       []wire.HubAddress    // the hubs' tunnels, as told last
	hubs       []string             // their URLs, likewise
	proposed   map[fleet.Fence]bool // phase or revival proposed and not yet answered
}

func (s *Server) newSession(id string, h wire.Hello, key wire.SessionKey) *session {
	return &session{
		srv: s, id: id, runner: h.Runner, generation: h.Generation, key: key,
		work:     newLane(s.spawn, wire.ReportInFlight+2),
		bytes:    newLane(s.spawn, wire.OutputInFlight),
		done:     make(chan struct{}),
		beatAt:   s.now(),
		interval: s.cfg.ActiveInterval,
		slots:    0, journalID: h.JournalID, count: h.JournalCount,
	}
}

// end closes the session for good and tells the runner why. Only the first call
// counts.
func (x *session) end(bye wire.Goodbye) {
	x.mu.Lock()
	if x.ended != nil {
		x.mu.Unlock()
		return
	}
	x.ended, x.endAt, x.views = &bye, x.srv.now(), nil
	x.mu.Unlock()
	close(x.done)
	x.srv.leave(x)
	x.out.close(bye)
	x.srv.cfg.Logger.Info("session ended", "runner", x.runner, "code", string(bye.Code), "final", bye.Final)
	x.srv.cfg.OnBeat(x.runner)
}

// goodbye gives why the session has ended, or nil.
func (x *session) goodbye() *wire.Goodbye {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

func (x *session) endedAt() (time.Time, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.endAt, x.ended != nil
}

func (x *session) lastBeat() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.beatAt
}

// heard notes life of the runner other than a heartbeat.
func (x *session) heard() {
	x.mu.Lock()
	x.beatAt = x.srv.now()
	x.mu.Unlock()
	x.srv.note(x)
}

// staleAfter is the silence after which the runner counts as stale.
func (x *session) staleAfter() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return fleet.StaleHeartbeats * x.interval
}

func (x *session) journal() (id string, count uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.journalID, x.count
}

// caches gives what this session has told of them; nil: nothing.
func (x *session) caches() *string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.machine.caches
}

func (x *session) presence() fleet.Presence {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := fleet.Presence{
		Runner: x.runner, Connected: x.ended == nil, Session: x.id, Transport: x.transport,
		LastBeat: x.beatAt, Interval: x.interval, Slots: x.slots, Full: x.full,
		Declining: x.declining, Address: x.address, Strays: x.strays,
		Automation: x.automation, LimitedBy: x.limitedBy, Sessions: x.sessions,
	}
	if p.Health = x.machine.health; p.Health != nil {
		p.HealthAt = x.machine.at
	}
	return p
}
