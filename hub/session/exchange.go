package session

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const maxOpening = 1024 // handshakes over HTTP that wait for their hello

// opening is a handshake over HTTP between its two requests.
type opening struct {
	at        time.Time
	runner    fleet.RunnerID
	challenge []byte
	nonce     []byte

	mu    sync.Mutex // held while the hello is answered
	hello [sha256.Size]byte
	reply []byte
}

// Exchange is POST /v1/runners/{id}/exchange: the frames of a session over plain
// HTTP. The query names the channel, a header the session.
func (s *Server) Exchange(w http.ResponseWriter, r *http.Request) {
	if !s.here(w, r, true) {
		return
	}
	runner, id, channel := fleet.RunnerID(r.PathValue("id")), r.Header.Get(wire.SessionHeader), r.URL.Query().Get("channel")
	limit := int64(wire.MaxExchange)
	var x *session
	switch channel {
	case wire.ChannelOpen:
		limit = maxFollow + wire.MaxEnrol
	case wire.ChannelPush, wire.ChannelPoll:
		// A stranger's request is refused before its body takes memory.
		if x = s.overHTTP(id, runner); x == nil {
			s.problem(w, http.StatusUnauthorized, fmt.Errorf("there is no such session; begin again: %w", fleet.SessionEnded))
			return
		}
	default:
		s.problem(w, http.StatusBadRequest, fmt.Errorf("channel %q is none of open, push and poll: %w", channel, fleet.BadRequest))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			s.problem(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the exchange has over %d bytes: %w", limit, fleet.TooLarge))
		}
		return // else nobody is there to be told
	}
	if channel == wire.ChannelOpen && len(body) == 0 && !s.admitted(w, r) {
		return
	}
	var reply []byte
	switch {
	case x != nil:
		reply, err = x.out.(*exchanger).answer(r.Context(), channel, body)
	case len(body) == 0:
		id, reply, err = s.openExchange(runner)
		w.Header().Set(wire.SessionHeader, id)
	default:
		reply, err = s.greet(runner, id, body, r.RemoteAddr)
	}
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := w.Write(reply); err != nil {
		s.cfg.Logger.Debug("answer exchange", "runner", runner, "err", err)
	}
}

// openExchange begins a handshake and gives its challenge.
func (s *Server) openExchange(runner fleet.RunnerID) (id string, frame []byte, err error) {
	id, err = s.newID()
	if err != nil {
		return "", nil, err
	}
	frame, nonce, err := s.challenge()
	if err != nil {
		return "", nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.opening) >= maxOpening || s.closing {
		return "", nil, fmt.Errorf("too many runners connect at this moment; try again: %w", fleet.Unavailable)
	}
	s.opening[id] = &opening{at: s.now(), runner: runner, challenge: frame, nonce: nonce}
	return id, frame, nil
}

// greet answers a hello with a welcome or a goodbye. The same hello again gets the
// same answer, so that a lost one costs nothing.
func (s *Server) greet(runner fleet.RunnerID, id string, hello []byte, address string) ([]byte, error) {
	s.mu.Lock()
	o := s.opening[id]
	s.mu.Unlock()
	if o == nil || o.runner != runner {
		return nil, fmt.Errorf("no handshake of this runner is open under that id; begin again: %w", fleet.SessionEnded)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	sum := sha256.Sum256(hello)
	if o.reply != nil {
		if sum != o.hello {
			return nil, fmt.Errorf("another hello was answered under that id; begin again: %w", fleet.BadSequence)
		}
		return o.reply, nil
	}
	x, no := s.admit(s.life, runner, o.challenge, o.nonce, hello)
	if no != nil {
		o.hello, o.reply = sum, no.frame(wire.PushDown)
		return o.reply, nil
	}
	t := newExchanger(x)
	x.transport, x.address, x.out = transportHTTP, address, t
	welcome, err := s.welcome(x)
	if err != nil {
		return nil, err
	}
	if err := s.enter(x); err != nil {
		return nil, err
	}
	s.cfg.Logger.Info("session began", "runner", runner, "transport", transportHTTP)
	o.hello, o.reply = sum, t.push.seal.Seal(wire.TypeWelcome, welcome)
	return o.reply, nil
}

// overHTTP finds a runner's session over HTTP, one that has ended a while ago too.
func (s *Server) overHTTP(id string, runner fleet.RunnerID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.byID[id]; x != nil && x.runner == runner && x.transport == transportHTTP {
		return x
	}
	return nil
}
