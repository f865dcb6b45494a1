package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

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
		x.end(wire.Goodbye{Code: fleet.BadSequence, Detail: sentence(err)})
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
			x.end(wire.Goodbye{Code: codeOf(err), Detail: sentence(err)})
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

// answer handles one request of a channel.
func (t *exchanger) answer(ctx context.Context, channel string, body []byte) ([]byte, error) {
	if channel == wire.ChannelPush {
		return t.push.answer(ctx, t.x, body, t.pushed)
	}
	return t.poll.answer(ctx, t.x, body, t.polled)
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
	// Commits may take a while, and the heartbeat may stand behind them.
	x.heard()
	defer x.heard()
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
