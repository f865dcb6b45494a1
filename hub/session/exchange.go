package session

import (
	"bytes"
	"context"
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
	if !s.here(w, r) {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxExchange))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			s.problem(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the exchange has over %d bytes: %w", wire.MaxExchange, fleet.TooLarge))
		}
		return // else nobody is there to be told
	}
	runner, id := fleet.RunnerID(r.PathValue("id")), r.Header.Get(wire.SessionHeader)
	var reply []byte
	switch channel := r.URL.Query().Get("channel"); channel {
	case wire.ChannelOpen:
		if len(body) == 0 {
			id, reply, err = s.openExchange(runner)
			w.Header().Set(wire.SessionHeader, id)
		} else {
			reply, err = s.greet(runner, id, body, r.RemoteAddr)
		}
	case wire.ChannelPush, wire.ChannelPoll:
		reply, err = s.exchange(r.Context(), runner, id, channel, body)
	default:
		err = fmt.Errorf("channel %q is none of open, push and poll: %w", channel, fleet.BadRequest)
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

// exchange handles one request of a channel.
func (s *Server) exchange(ctx context.Context, runner fleet.RunnerID, id, channel string, body []byte) ([]byte, error) {
	s.mu.Lock()
	x := s.byID[id]
	s.mu.Unlock()
	if x == nil || x.runner != runner || x.transport != transportHTTP {
		return nil, fmt.Errorf("there is no such session; begin again: %w", fleet.SessionEnded)
	}
	t := x.out.(*exchanger)
	if channel == wire.ChannelPush {
		return t.push.answer(ctx, x, body, t.pushed)
	}
	return t.poll.answer(ctx, x, body, t.polled)
}

// channel is one of the two request rows of a session over HTTP. At most one
// request is in flight; the last answer is kept for a repeat of its request.
type channel struct {
	turn  chan struct{} // holds a token while no request is being answered
	open  *wire.Opener
	seal  *wire.Sealer
	asked [sha256.Size]byte
	reply []byte
}

func newChannel(key wire.SessionKey, up, down wire.Direction) *channel {
	c := &channel{turn: make(chan struct{}, 1), open: wire.NewOpener(key, up), seal: wire.NewSealer(key, down)}
	c.turn <- struct{}{}
	return c
}

// outgoing is a frame before it is sealed.
type outgoing struct {
	typ  wire.Type
	body []byte
}

// answer verifies a request and seals what handle makes of it. A byte-equal repeat
// gets the very same answer. What does not verify is refused and changes nothing,
// since anybody could have sent it; what verifies but is out of its row ends the
// session.
func (c *channel) answer(ctx context.Context, x *session, body []byte, handle func(context.Context, []wire.Frame) ([]outgoing, error)) ([]byte, error) {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("the request was given up: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	sum := sha256.Sum256(body)
	if c.reply != nil && sum == c.asked {
		return c.reply, nil
	}
	row := *c.open
	frames, err := row.OpenAll(body)
	if errors.Is(err, fleet.BadSequence) {
		x.end(wire.Goodbye{Code: fleet.BadSequence, Detail: err.Error()})
	}
	if err == nil && len(frames) == 0 {
		err = fmt.Errorf("the exchange has no frame: %w", fleet.BadRequest)
	}
	if err != nil {
		return nil, err
	}
	*c.open = row
	var out []outgoing
	if x.goodbye() == nil {
		out, err = handle(ctx, frames)
		if err != nil {
			x.end(wire.Goodbye{Code: codeOf(err), Detail: err.Error()})
		}
	}
	if bye := x.goodbye(); bye != nil {
		b, err := wire.Encode(*bye)
		if err != nil {
			return nil, err
		}
		out = append(out, outgoing{wire.TypeGoodbye, b})
	}
	if len(out) == 0 {
		out = []outgoing{{typ: wire.TypePoll}}
	}
	var reply bytes.Buffer
	for _, o := range out {
		reply.Write(c.seal.Seal(o.typ, o.body))
	}
	c.asked, c.reply = sum, reply.Bytes()
	return c.reply, nil
}

// exchanger is the HTTP transport of a session.
type exchanger struct {
	x          *session
	push, poll *channel
	wake       chan struct{}

	mu      sync.Mutex
	nudged  bool
	waiting []outgoing // for the next answer of either channel
}

func newExchanger(x *session) *exchanger {
	return &exchanger{x: x, wake: make(chan struct{}, 1),
		push: newChannel(x.key, wire.PushUp, wire.PushDown),
		poll: newChannel(x.key, wire.PollUp, wire.PollDown)}
}

// send leaves a frame for the next answer. One that finds no room is dropped: what
// goes this way is said again by the next desired set or acknowledgement.
func (t *exchanger) send(typ wire.Type, body []byte) {
	t.mu.Lock()
	if len(t.waiting) < 64 {
		t.waiting = append(t.waiting, outgoing{typ, body})
	}
	t.mu.Unlock()
	t.rouse()
}

func (t *exchanger) nudge() {
	t.mu.Lock()
	t.nudged = true
	t.mu.Unlock()
	t.rouse()
}

func (t *exchanger) close(wire.Goodbye) { t.rouse() }

func (t *exchanger) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take gives what waits to be sent.
func (t *exchanger) take() (out []outgoing, nudged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, t.waiting = t.waiting, nil
	nudged, t.nudged = t.nudged, false
	return out, nudged
}

// pushed handles what the runner says, frame by frame. The work goes on when the
// request is given up: its answer is kept for the repeat.
func (t *exchanger) pushed(_ context.Context, frames []wire.Frame) ([]outgoing, error) {
	x, ctx := t.x, t.x.srv.life
	var out []outgoing
	for _, f := range frames {
		var typ wire.Type
		var body []byte
		var err error
		switch f.Type {
		case wire.TypeHeartbeat:
			typ = wire.TypeHeartbeatReply
			body, err = x.heartbeat(f.Body)
		case wire.TypeReport:
			typ = wire.TypeReportAck
			body, err = x.report(ctx, f.Body)
		case wire.TypeOutput:
			typ = wire.TypeOutputAck
			body, err = x.output(ctx, f.Body)
		case wire.TypePermit:
			typ = wire.TypePermitReply
			body, err = x.permit(ctx, f.Body)
		case wire.TypeLive:
			err = x.live(f.Body)
		}
		if err != nil {
			return out, err
		}
		if body != nil {
			out = append(out, outgoing{typ, body})
		}
	}
	more, nudged := t.take()
	if nudged {
		more = append(more, outgoing{typ: wire.TypeNudge})
	}
	return append(out, more...), nil
}

// polled holds the request until there is something to say. A nudge brings the
// desired set with it, as of what the runner showed last.
func (t *exchanger) polled(ctx context.Context, _ []wire.Frame) ([]outgoing, error) {
	x := t.x
	hold := time.NewTimer(wire.PollHold)
	defer hold.Stop()
	for {
		out, nudged := t.take()
		if nudged {
			out = append(out, outgoing{typ: wire.TypeNudge})
			if set, err := x.desiredNow(); err == nil {
				out = append(out, outgoing{wire.TypeHeartbeatReply, set})
			}
		}
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-t.wake:
			if x.goodbye() != nil {
				return nil, nil
			}
		case <-hold.C:
			return nil, nil
		case <-ctx.Done(): // the answer is kept: the runner asks the same again
			return nil, nil
		case <-x.done:
			return nil, nil
		}
	}
}

// desiredNow gives a desired set without a heartbeat.
func (x *session) desiredNow() ([]byte, error) {
	v := x.srv.cfg.Proposer.View()
	x.mu.Lock()
	views, interval := x.views, x.interval
	x.mu.Unlock()
	return x.reply(v, v.OpenOf(x.runner), views, interval)
}
