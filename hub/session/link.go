package session

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Link is GET /v1/runners/{id}/link: a runner's WebSocket connection. The handler
// returns once the connection is taken over; the session then has one goroutine
// that reads, and others only while there is something to do.
func (s *Server) Link(w http.ResponseWriter, r *http.Request) {
	if !s.here(w, r, false) {
		return
	}
	if !s.admitted(w, r) {
		return
	}
	select {
	case s.shaking <- struct{}{}:
	default:
		s.busy(w, time.Second)
		return
	}
	runner := fleet.RunnerID(r.PathValue("id"))
	conn, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil { // it has answered
		<-s.shaking
		return
	}
	conn.SetReadLimit(wire.MaxFrame)
	address := r.RemoteAddr
	if !s.spawn(func() { s.serve(conn, runner, address) }) {
		<-s.shaking
		conn.Close()
	}
}

// serve shakes hands and reads frames until the connection or the session ends.
func (s *Server) serve(conn *websocket.Conn, runner fleet.RunnerID, address string) {
	x, err := s.shake(conn, runner, address)
	<-s.shaking
	if err != nil {
		s.cfg.Logger.Info("handshake failed", "runner", runner, "err", err)
		conn.Close()
		return
	}
	s.cfg.Logger.Info("session began", "runner", runner, "transport", transportLink)
	err = x.out.(*link).read()
	code := codeOf(err)
	if code == fleet.Internal { // the network, not the runner
		code = fleet.SessionEnded
	}
	x.end(wire.Goodbye{Code: code, Detail: sentence(err)})
}

// shake does the handshake of a link.
func (s *Server) shake(conn *websocket.Conn, runner fleet.RunnerID, address string) (*session, error) {
	challenge, nonce, err := s.challenge()
	if err != nil {
		return nil, err
	}
	deadline := s.now().Add(wire.HandshakeTime)
	stop := s.closeWith(conn)
	defer stop()
	if err := write(conn, challenge, deadline); err != nil {
		return nil, fmt.Errorf("send challenge: %w", err)
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	kind, hello, err := conn.ReadMessage()
	if err != nil {
		return nil, fmt.Errorf("read hello: %w", err)
	}
	if kind != websocket.BinaryMessage {
		return nil, fmt.Errorf("a text message where a hello was due: %w", fleet.BadRequest)
	}
	x, no := s.admit(s.life, runner, challenge, nonce, hello)
	if no != nil {
		err := write(conn, no.frame(wire.LinkDown), s.now().Add(writeTime))
		return nil, errors.Join(fmt.Errorf("%s: %w", no.bye.Detail, no.bye.Code), err)
	}
	l := &link{x: x, conn: conn, seal: wire.NewSealer(x.key, wire.LinkDown), open: wire.NewOpener(x.key, wire.LinkUp)}
	x.transport, x.address, x.out = transportLink, address, l
	welcome, err := s.welcome(x)
	if err != nil {
		return nil, err
	}
	if err := s.enter(x); err != nil {
		return nil, err
	}
	l.push(wire.TypeWelcome, welcome)
	l.flush()
	return x, nil
}

// closeWith closes a connection when the server ends before stop is called.
func (s *Server) closeWith(conn *websocket.Conn) (stop func()) {
	done := make(chan struct{})
	var once sync.Once
	if !s.spawn(func() {
		select {
		case <-done:
		case <-s.life.Done():
			conn.Close()
		}
	}) {
		conn.Close()
	}
	return func() { once.Do(func() { close(done) }) }
}

// Bounds of what waits to be written to a link. A runner that reads so slowly that
// they are reached loses its session and comes back.
const (
	maxQueued      = 256
	maxQueuedBytes = 4 << 20
)

// link is the WebSocket transport of a session. Frames are sealed in the order in
// which they are queued and written by whoever finds nobody writing.
type link struct {
	x    *session
	conn *websocket.Conn
	open *wire.Opener

	mu      sync.Mutex
	seal    *wire.Sealer
	queue   [][]byte
	bytes   int
	writing bool
	last    bool // nothing may be queued any more; the connection closes after the queue
}

// send queues a frame and sees that somebody writes it; it never waits.
func (l *link) send(typ wire.Type, body []byte) {
	if l.push(typ, body) {
		l.x.srv.spawn(l.flush)
	}
}

func (l *link) nudge() { l.send(wire.TypeNudge, nil) }

// close queues the last frame. What a dead network does not take in byeTime is lost.
func (l *link) close(bye wire.Goodbye) {
	body, err := wire.Encode(bye)
	if err == nil {
		l.push(wire.TypeGoodbye, body)
	}
	l.mu.Lock()
	l.last = true
	l.mu.Unlock()
	l.conn.NetConn().SetWriteDeadline(l.x.srv.now().Add(byeTime)) // cuts a write that hangs
	if !l.x.srv.spawn(l.flush) {
		l.flush()
	}
}

// push queues a frame and says whether there is something for flush to do.
func (l *link) push(typ wire.Type, body []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last {
		return false
	}
	if len(l.queue) >= maxQueued || l.bytes+len(body) > maxQueuedBytes {
		l.last, l.queue = true, nil
		l.conn.Close() // the reader sees it and ends the session
		return false
	}
	f := l.seal.Seal(typ, body)
	l.queue = append(l.queue, f)
	l.bytes += len(f)
	return true
}

// flush writes what is queued, unless somebody else does.
func (l *link) flush() {
	l.mu.Lock()
	if l.writing {
		l.mu.Unlock()
		return
	}
	l.writing = true
	for len(l.queue) > 0 {
		f := l.queue[0]
		l.queue = l.queue[1:]
		l.bytes -= len(f)
		patience := writeTime
		if l.last {
			patience = byeTime
		}
		l.mu.Unlock()
		err := write(l.conn, f, l.x.srv.now().Add(patience))
		l.mu.Lock()
		if err != nil {
			l.last, l.queue = true, nil
		}
	}
	l.queue, l.writing = nil, false
	if l.last {
		l.conn.Close()
	}
	l.mu.Unlock()
}

// read takes frames in until one is bad or the connection ends. Heartbeats are
// answered here, so that nothing slow delays them; the rest goes to the lanes.
func (l *link) read() error {
	for {
		// A silent connection ends a little after the runner has become stale.
		quiet := l.x.staleAfter()
		if err := l.conn.SetReadDeadline(l.x.srv.now().Add(quiet + quiet/5 + time.Second)); err != nil {
			return err
		}
		kind, r, err := l.conn.NextReader()
		if err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		if kind != websocket.BinaryMessage {
			return fmt.Errorf("a text message where a frame was due: %w", fleet.BadRequest)
		}
		buf := buffers.Get().(*bytes.Buffer)
		buf.Reset()
		if _, err := buf.ReadFrom(r); err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		f, err := l.open.Open(buf.Bytes())
		if err == nil {
			err = l.take(f, func() { recycle(buf) })
		}
		if err != nil {
			return err
		}
	}
}

// take handles one frame; free gives its bytes back once nobody needs them.
func (l *link) take(f wire.Frame, free func()) error {
	x := l.x
	lane, work := x.work, func() ([]byte, error) { return nil, nil }
	var answer wire.Type
	switch f.Type {
	case wire.TypeHeartbeat:
		defer free()
		rep, err := x.heartbeat(f.Body)
		if err != nil {
			return err
		}
		if rep != nil && l.push(wire.TypeHeartbeatReply, rep) {
			l.flush()
		}
		return nil
	case wire.TypeLive:
		defer free()
		return x.live(f.Body)
	case wire.TypeReport:
		answer, work = wire.TypeReportAck, func() ([]byte, error) { return x.report(x.srv.life, f.Body) }
	case wire.TypePermit:
		answer, work = wire.TypePermitReply, func() ([]byte, error) { return x.permit(x.srv.life, f.Body) }
	case wire.TypeOutput:
		lane = x.bytes
		answer, work = wire.TypeOutputAck, func() ([]byte, error) { return x.output(x.srv.life, f.Body) }
	default:
		free() // of a newer version: not for this hub
		return nil
	}
	lane.do(x.done, func() {
		defer free()
		body, err := work()
		if err != nil {
			x.end(wire.Goodbye{Code: codeOf(err), Detail: sentence(err)})
			return
		}
		if l.push(answer, body) {
			l.flush()
		}
	})
	return nil
}

func write(conn *websocket.Conn, frame []byte, deadline time.Time) error {
	if err := conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	return conn.WriteMessage(websocket.BinaryMessage, frame)
}

// buffers lends the space in which a message is taken in, so that an idle
// connection holds none.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// recycle keeps a buffer for the next message unless it has grown large.
func recycle(b *bytes.Buffer) {
	if b.Cap() <= 64<<10 {
		buffers.Put(b)
	}
}
