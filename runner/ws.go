package runner

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const writeTime = 10 * time.Second // for one frame to go out

// wsLink is the WebSocket transport.
type wsLink struct {
	conn *websocket.Conn
	open *wire.Opener

	mu   sync.Mutex
	seal *wire.Sealer
}

// dialWS opens a session over a WebSocket. The error wraps errUpgrade where the
// network or the hub made none of the connection; where points to the leader.
func (g greeting) dialWS(ctx context.Context, n *network, base string) (s *session, w wire.Welcome, where pointer, err error) {
	d := websocket.Dialer{
		Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: dialTime, TLSClientConfig: n.tls, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
	}
	if n.dial != nil {
		d.NetDialContext = n.dial
	} else {
		d.Proxy = http.ProxyFromEnvironment
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime+wire.HandshakeTime)
	defer cancel()
	url := "ws" + strings.TrimPrefix(strings.TrimSuffix(base, "/"), "http") + wire.LinkPath(g.id.Runner)
	conn, res, err := d.DialContext(ctx, url, nil)
	if res != nil {
		body, readErr := io.ReadAll(io.LimitReader(res.Body, wire.MaxEnrol))
		_ = res.Body.Close()
		if err != nil && readErr == nil {
			err = problemOf(res.StatusCode, body)
			if where = pointed(res, body); !where.alive && n.answers(ctx, base) {
				err = fmt.Errorf("%w: %w", errUpgrade, err)
			}
		}
	}
	if err != nil {
		return nil, w, where, fmt.Errorf("connect to %s: %w", base, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	conn.SetReadLimit(wire.MaxFrame)
	l := &wsLink{conn: conn}
	s, w, err = l.greet(ctx, g, base)
	if err != nil {
		_ = conn.Close()
		return nil, w, where, fmt.Errorf("connect to %s: %w", base, err)
	}
	return s, w, where, nil
}

// answers says whether a plain request gets through to a hub. Where it does not, no
// proxy that stops WebSockets is to blame: the hub is away, and what stands before it
// says so.
func (n *network) answers(ctx context.Context, base string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/healthz", nil)
	if err != nil {
		return false
	}
	res, err := n.client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode < http.StatusInternalServerError
}

func (l *wsLink) greet(ctx context.Context, g greeting, base string) (_ *session, w wire.Welcome, err error) {
	l.expect(wire.HandshakeTime)
	challenge, err := l.message()
	if err != nil {
		// A middlebox that lets the upgrade through and then no frame is no WebSocket either.
		return nil, w, fmt.Errorf("%w: read challenge: %w", errUpgrade, err)
	}
	if err := g.turn.take(ctx); err != nil {
		return nil, w, err
	}
	defer func() {
		if err != nil {
			g.turn.give()
		}
	}()
	hello, s, err := g.answer(challenge)
	if err != nil {
		return nil, w, err
	}
	if err := l.write(hello); err != nil {
		return nil, w, err
	}
	l.seal, l.open = wire.NewSealer(s.key, wire.LinkUp), wire.NewOpener(s.key, wire.LinkDown)
	b, err := l.message()
	if err != nil {
		return nil, w, fmt.Errorf("read welcome: %w", err)
	}
	f, err := wire.OpenPlain(b)
	if err != nil {
		f, err = l.open.Open(b)
	}
	if err != nil {
		return nil, w, err
	}
	if w, err = s.welcomed(f); err != nil {
		return nil, w, err
	}
	s.transport, s.kind, s.base = l, "ws", base
	return s, w, nil
}

func (l *wsLink) message() ([]byte, error) {
	kind, b, err := l.conn.ReadMessage()
	if err != nil {
		return nil, err
	}
	if kind != websocket.BinaryMessage {
		return nil, fmt.Errorf("a text message where a frame was due: %w", fleet.BadRequest)
	}
	return b, nil
}

func (l *wsLink) read() (wire.Frame, error) {
	b, err := l.message()
	if err != nil {
		return wire.Frame{}, fmt.Errorf("read from hub: %w", err)
	}
	return l.open.Open(b)
}

// send seals and writes under one lock, so that frames leave in the order of their
// numbers.
func (l *wsLink) send(typ wire.Type, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(l.seal.Seal(typ, body)); err != nil {
		return fmt.Errorf("write to hub: %w", err)
	}
	return nil
}

func (l *wsLink) write(frame []byte) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	return l.conn.WriteMessage(websocket.BinaryMessage, frame)
}

func (l *wsLink) expect(within time.Duration) { _ = l.conn.SetReadDeadline(time.Now().Add(within)) }

func (l *wsLink) close() { _ = l.conn.Close() }
