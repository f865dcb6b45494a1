package meshtest

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

var (
	errReset    = errors.New("connection reset by peer")
	errTimedOut = errors.New("connection timed out")
)

// conn is one end of a connection.
type conn struct {
	net      *Network
	from, to *Node // this end's node, the other's
	local    Addr
	remote   Addr
	serial   uint64
	in, out  *half
	rd, wd   deadline
	other    *conn
}

// pair makes a connection. The caller holds the network's mu.
func (n *Network) pair(dialler, listener *Node, port int) (there, here *conn) {
	out, back := [2]string{dialler.id, listener.id}, [2]string{listener.id, dialler.id}
	chance, serial := n.chance(out)
	reply, _ := n.chance(back)
	a := newHalf(n, out, chance, n.down[out])
	b := newHalf(n, back, reply, n.down[back])
	dialler.serial++
	from := Addr{dialler.id, int(32768 + dialler.serial%28000)}
	here = &conn{net: n, from: dialler, to: listener, local: from, remote: Addr{listener.id, port}, serial: serial, in: b, out: a}
	there = &conn{net: n, from: listener, to: dialler, local: Addr{listener.id, port}, remote: from, serial: serial, in: a, out: b}
	here.other, there.other = there, here
	a.of, b.of = here, here
	for _, c := range []*conn{here, there} {
		c.rd.change, c.wd.change = make(chan struct{}), make(chan struct{})
		c.from.ends[c] = struct{}{}
	}
	n.streams[a], n.streams[b] = struct{}{}, struct{}{}
	a.watch()
	b.watch()
	return there, here
}

// forget lets a finished end go. The caller holds the network's mu.
func (n *Network) forget(c *conn) {
	delete(c.from.ends, c)
	if _, still := c.to.ends[c.other]; !still {
		delete(n.streams, c.in)
		delete(n.streams, c.out)
	}
}

// Peer is the id of the node at the other end.
func (c *conn) Peer() string { return c.remote.ID }

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p, &c.rd)
	return n, c.wrap("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p, &c.wd)
	return n, c.wrap("write", err)
}

func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "meshtest", Source: c.local, Addr: c.remote, Err: err}
}

// Close ends this end: what was written still arrives, then the other end reads EOF,
// and its writes fail.
func (c *conn) Close() error {
	c.out.finish(net.ErrClosed)
	c.in.fail(net.ErrClosed, nil)
	c.tell(func() { c.in.fail(nil, errReset) })
	return nil
}

// CloseWrite tells the other end that no more comes.
func (c *conn) CloseWrite() error {
	c.out.finish(net.ErrClosed)
	return nil
}

// fail breaks the connection for both ends.
func (c *conn) fail(err error) {
	c.in.fail(err, err)
	c.out.fail(err, err)
	c.net.mu.Lock()
	c.net.forget(c)
	c.net.forget(c.other)
	c.net.mu.Unlock()
}

// crash ends this end without a word, and what has not arrived is lost.
func (c *conn) crash() {
	c.in.fail(net.ErrClosed, nil)
	c.out.fail(nil, net.ErrClosed)
	c.tell(func() {
		c.out.fail(errReset, nil)
		c.in.fail(nil, errReset)
	})
}

// tell brings the other end the news of this end's death: at once, or when the link
// between them is whole again.
func (c *conn) tell(news func()) {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(c)
	if n.down[c.in.way] || n.down[c.out.way] {
		n.news[c] = news
		return
	}
	news()
}

func (c *conn) SetDeadline(t time.Time) error {
	c.rd.set(t)
	c.wd.set(t)
	return nil
}
func (c *conn) SetReadDeadline(t time.Time) error  { c.rd.set(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.wd.set(t); return nil }

// deadline is a time that may move while somebody waits for it.
type deadline struct {
	mu     sync.Mutex
	at     time.Time
	change chan struct{}
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	close(d.change)
	d.change = make(chan struct{})
}

func (d *deadline) now() (at time.Time, change <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.change
}

// piece is what one write sent.
type piece struct {
	at time.Time // when it arrives
	b  []byte
}

// half is one direction of a connection.
type half struct {
	net    *Network
	of     *conn // one of its ends
	way    [2]string
	chance *rand.Rand // guarded by the network's mu

	mu      sync.Mutex
	pieces  []piece
	size    int
	last    time.Time // when the newest piece arrives: bytes don't overtake
	down    bool
	stuck   *time.Timer // resets the stream when it has been cut for too long
	writing bool        // somebody is in write
	over    bool        // the writer is done
	rerr    error       // why reading fails, after what has arrived when over
	werr    error       // why writing fails
	changed chan struct{}
}

func newHalf(n *Network, way [2]string, chance *rand.Rand, down bool) *half {
	return &half{net: n, way: way, chance: chance, down: down, changed: make(chan struct{})}
}

// watch starts the clock of a stream that begins on a cut link.
func (h *half) watch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arm()
}

// wake lets everybody who waits look again. The caller holds mu.
func (h *half) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// wait blocks until something changes, the timer ends or the deadline is over.
func wait(changed <-chan struct{}, d *deadline, until time.Time) {
	at, moved := d.now()
	next := until
	if !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	var timer <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-moved:
	case <-timer:
	}
}

func (d *deadline) over() bool {
	at, _ := d.now()
	return !at.IsZero() && !time.Now().Before(at)
}

func (h *half) read(p []byte, d *deadline) (int, error) {
	for {
		if d.over() {
			return 0, os.ErrDeadlineExceeded
		}
		h.mu.Lock()
		if h.rerr != nil {
			defer h.mu.Unlock()
			return 0, h.rerr
		}
		var until time.Time
		if !h.down && len(h.pieces) > 0 {
			if until = h.pieces[0].at; !until.After(time.Now()) {
				n := h.take(p)
				h.mu.Unlock()
				return n, nil
			}
		}
		if !h.down && h.over && len(h.pieces) == 0 {
			if until = h.last; !until.After(time.Now()) {
				h.mu.Unlock()
				return 0, io.EOF
			}
		}
		changed := h.changed
		h.mu.Unlock()
		if len(p) == 0 {
			return 0, nil
		}
		wait(changed, d, until)
	}
}

// take copies what has arrived. The caller holds mu.
func (h *half) take(p []byte) (n int) {
	now := time.Now()
	for n < len(p) && len(h.pieces) > 0 && !h.pieces[0].at.After(now) {
		k := copy(p[n:], h.pieces[0].b)
		n += k
		if h.pieces[0].b = h.pieces[0].b[k:]; len(h.pieces[0].b) == 0 {
			h.pieces = h.pieces[1:]
		}
	}
	h.size -= n
	h.wake()
	return n
}

// write queues p as there is room. One writer at a time: what two write does not mix.
func (h *half) write(p []byte, d *deadline) (n int, err error) {
	mine := false
	defer func() {
		if mine {
			h.mu.Lock()
			h.writing = false
			h.wake()
			h.mu.Unlock()
		}
	}()
	for {
		if d.over() {
			return n, os.ErrDeadlineExceeded
		}
		h.mu.Lock()
		if h.werr != nil {
			defer h.mu.Unlock()
			return n, h.werr
		}
		if !h.writing {
			h.writing, mine = true, true
		}
		room, changed := Buffer-h.size, h.changed
		h.mu.Unlock()
		switch {
		case !mine || room <= 0 && len(p) > 0:
			wait(changed, d, time.Time{})
			continue
		case len(p) == 0:
			return n, nil
		}
		// The network's lock comes before the stream's, so not inside it.
		late, reset := h.net.latency(h.way, h.chance)
		if reset {
			h.of.fail(errReset)
			return n, errReset
		}
		k := min(room, len(p))
		h.mu.Lock()
		if h.werr != nil {
			defer h.mu.Unlock()
			return n, h.werr
		}
		h.push(p[:k], late)
		h.mu.Unlock()
		n, p = n+k, p[k:]
	}
}

// push queues a copy. The caller holds mu.
func (h *half) push(b []byte, late time.Duration) {
	at := time.Now().Add(late)
	if at.Before(h.last) {
		at = h.last
	}
	h.last = at
	h.pieces = append(h.pieces, piece{at, append([]byte(nil), b...)})
	h.size += len(b)
	h.arm()
	h.wake()
}

// link tells the stream whether its link is cut.
func (h *half) link(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down == down {
		return
	}
	h.down = down
	if !down {
		h.quiet()
	}
	h.arm()
	h.wake()
}

// arm starts the clock of a stream on a cut link: keepalive, which a real connection
// has, finds that out even when there is nothing to send. The caller holds mu.
func (h *half) arm() {
	if h.down && h.stuck == nil && (h.rerr == nil || h.werr == nil) {
		h.stuck = time.AfterFunc(GiveUp, func() { h.of.fail(errTimedOut) })
	}
}

// finish ends writing; what was written still arrives.
func (h *half) finish(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.werr == nil {
		h.werr = err
	}
	h.wake()
}

// fail breaks the direction; a nil error leaves that side as it is.
func (h *half) fail(reader, writer error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// What an end that closed would have read, or a dead one sent, is gone.
	if reader != nil || h.werr == nil && writer != nil {
		h.pieces, h.size = nil, 0
	}
	if h.rerr == nil {
		h.rerr = reader
	}
	if h.werr == nil {
		h.werr = writer
	}
	if h.rerr != nil && h.werr != nil {
		h.quiet()
	}
	h.wake()
}

// quiet stops the clock. The caller holds mu.
func (h *half) quiet() {
	if h.stuck != nil {
		h.stuck.Stop()
		h.stuck = nil
	}
}
