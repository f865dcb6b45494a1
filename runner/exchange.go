package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	exchangeTries = 4 // of one request, byte by byte the same, before the session is given up
	maxUnsent     = 64
	exchangeTime  = 20 * time.Second // of one push, or of a poll beyond its hold
)

// exchange is the HTTP transport: a push channel for what the runner says and a poll
// channel that the hub holds until it has something to say. Each has one request in
// flight; a request that got no answer is repeated byte by byte.
type exchange struct {
	client  *http.Client
	url     string
	session string
	ctx     context.Context // of the requests; ends with close
	cancel  context.CancelFunc
	work    sync.WaitGroup

	trouble func() // a request got no answer; set before the first one of the session

	frames chan []wire.Frame // of answers, to read
	rest   []wire.Frame

	mu      sync.Mutex
	unsent  []unsent
	ready   chan struct{} // a value: something is unsent
	room    chan struct{} // a value: something was sent
	err     error
	expects time.Time
}

type unsent struct {
	typ  wire.Type
	body []byte
}

// dialHTTP opens a session over plain requests.
func (g greeting) dialHTTP(ctx context.Context, n *network, base string) (s *session, w wire.Welcome, where pointer, err error) {
	e := &exchange{
		client: n.client, url: strings.TrimSuffix(base, "/") + wire.ExchangePath(g.id.Runner),
		frames: make(chan []wire.Frame), ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	// The session outlives the handshake; its end is close.
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, e.cancel)
	defer stop()
	challenge, header, err := e.post(wire.ChannelOpen, nil, wire.HandshakeTime)
	if err != nil {
		e.cancel()
		var r *refusedError
		if errors.As(err, &r) {
			where = r.pointer
		}
		return nil, w, where, fmt.Errorf("connect to %s: %w", base, err)
	}
	e.session = header.Get(wire.SessionHeader)
	if err := g.turn.take(e.ctx); err != nil {
		e.cancel()
		return nil, w, where, err
	}
	s, w, err = e.greet(g, base, challenge)
	if err != nil {
		g.turn.give()
		e.cancel()
		return nil, w, where, fmt.Errorf("connect to %s: %w", base, err)
	}
	return s, w, where, nil
}

// refusedError is a request that was answered, but not as asked.
type refusedError struct {
	error
	pointer pointer
}

func (r *refusedError) Unwrap() error { return r.error }

func (e *exchange) greet(g greeting, base string, challenge []byte) (*session, wire.Welcome, error) {
	var w wire.Welcome
	hello, s, err := g.answer(challenge)
	if err != nil {
		return nil, w, err
	}
	reply, err := e.repeat(wire.ChannelOpen, hello, wire.HandshakeTime)
	if err != nil {
		return nil, w, err
	}
	push := &channel{name: wire.ChannelPush, seal: wire.NewSealer(s.key, wire.PushUp), open: wire.NewOpener(s.key, wire.PushDown)}
	poll := &channel{name: wire.ChannelPoll, seal: wire.NewSealer(s.key, wire.PollUp), open: wire.NewOpener(s.key, wire.PollDown)}
	f, err := wire.OpenPlain(reply)
	if err != nil {
		f, err = push.open.Open(reply)
	}
	if err != nil {
		return nil, w, err
	}
	if w, err = s.welcomed(f); err != nil {
		return nil, w, err
	}
	s.transport, s.kind, s.base = e, "http", base
	e.session = w.Session
	e.trouble = s.wait
	e.work.Go(func() { e.pushes(push) })
	e.work.Go(func() { e.polls(poll) })
	return s, w, nil
}

// channel is one row of requests and answers.
type channel struct {
	name string
	seal *wire.Sealer
	open *wire.Opener
}

// pushes sends what is queued, as much as fits into one request at a time.
func (e *exchange) pushes(c *channel) {
	for {
		select {
		case <-e.ready:
		case <-e.ctx.Done():
			return
		}
		for {
			body := e.take(c)
			if len(body) == 0 {
				break
			}
			reply, err := e.repeat(c.name, body, exchangeTime)
			if err != nil {
				e.fail(err)
				return
			}
			if !e.deliver(c, reply) {
				return
			}
		}
	}
}

func (e *exchange) take(c *channel) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	var body []byte
	for len(e.unsent) > 0 {
		u := e.unsent[0]
		if len(body) > 0 && len(body)+wire.HeaderSize+len(u.body)+wire.MACSize > wire.MaxExchange {
			break
		}
		body = append(body, c.seal.Seal(u.typ, u.body)...)
		e.unsent = e.unsent[1:]
	}
	select {
	case e.room <- struct{}{}:
	default:
	}
	return body
}

// polls waits for what the hub says by itself.
func (e *exchange) polls(c *channel) {
	for {
		reply, err := e.repeat(c.name, c.seal.Seal(wire.TypePoll, nil), wire.PollHold+exchangeTime)
		if err != nil {
			e.fail(err)
			return
		}
		if !e.deliver(c, reply) {
			return
		}
	}
}

// deliver verifies an answer and hands its frames to read.
func (e *exchange) deliver(c *channel, reply []byte) bool {
	frames, err := c.open.OpenAll(reply)
	if err != nil {
		e.fail(err)
		return false
	}
	select {
	case e.frames <- frames:
		return true
	case <-e.ctx.Done():
		return false
	}
}

func (e *exchange) fail(err error) {
	e.mu.Lock()
	if e.err == nil {
		e.err = err
	}
	e.mu.Unlock()
	e.cancel()
}

// repeat sends a request until it is answered. A refusal with a code of the hub's is
// an answer, unless it may pass.
func (e *exchange) repeat(channel string, body []byte, within time.Duration) ([]byte, error) {
	var last error
	for try, wait := 0, minBackoff; try < exchangeTries; try, wait = try+1, 2*wait {
		reply, _, err := e.post(channel, body, within)
		if err == nil {
			return reply, nil
		}
		var code fleet.Code
		if errors.As(err, &code) && code != fleet.Unavailable && code != fleet.OutcomeUnknown {
			return nil, err
		}
		last = err
		if try == exchangeTries-1 {
			break
		}
		select {
		case <-time.After(jitter(wait)):
		case <-e.ctx.Done():
			return nil, e.ctx.Err()
		}
	}
	return nil, last
}

func (e *exchange) post(channel string, body []byte, within time.Duration) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(e.ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"?channel="+channel, bytes.NewReader(body))
	if err != nil {
		return nil, http.Header{}, fmt.Errorf("exchange: %w", err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if e.session != "" {
		req.Header.Set(wire.SessionHeader, e.session)
	}
	res, err := e.client.Do(req)
	if err != nil {
		if e.trouble != nil {
			e.trouble()
		}
		return nil, http.Header{}, fmt.Errorf("exchange: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxExchange+1))
	if err != nil {
		return nil, res.Header, fmt.Errorf("exchange: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, res.Header, &refusedError{problemOf(res.StatusCode, b), pointed(res, b)}
	}
	return b, res.Header, nil
}

func (e *exchange) send(typ wire.Type, body []byte) error {
	for {
		e.mu.Lock()
		if len(e.unsent) < maxUnsent {
			e.unsent = append(e.unsent, unsent{typ, body})
			e.mu.Unlock()
			select {
			case e.ready <- struct{}{}:
			default:
			}
			return nil
		}
		e.mu.Unlock()
		select {
		case <-e.room:
		case <-e.ctx.Done():
			return e.why()
		}
	}
}

func (e *exchange) why() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return fmt.Errorf("exchange with hub: %w", e.err)
	}
	return fmt.Errorf("exchange with hub: %w", fleet.SessionEnded)
}

func (e *exchange) read() (wire.Frame, error) {
	for len(e.rest) == 0 {
		e.mu.Lock()
		wait := time.Until(e.expects)
		e.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case e.rest = <-e.frames:
			timer.Stop()
		case <-timer.C:
			return wire.Frame{}, fmt.Errorf("the hub has not answered for too long: %w", context.DeadlineExceeded)
		case <-e.ctx.Done():
			timer.Stop()
			return wire.Frame{}, e.why()
		}
	}
	f := e.rest[0]
	e.rest = e.rest[1:]
	return f, nil
}

func (e *exchange) expect(within time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expects = time.Now().Add(within)
}

func (e *exchange) close() {
	e.cancel()
	e.work.Wait()
}
