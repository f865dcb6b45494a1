package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"tugline.dev/tugline/shared/fleet"
)

// Conn is a TCP connection inside the tunnel.
type Conn struct {
	tcp  *gonet.TCPConn
	ep   tcpip.Endpoint
	mesh *Mesh
	peer *member
	once sync.Once
	end  atomic.Pointer[error] // why it ended on this side
}

// Peer is the id of the node or runner at the far end, proven by its key; "" for a
// guest.
func (c *Conn) Peer() string { return c.peer.id }

// Class says what the far end is.
func (c *Conn) Class() Class { return c.peer.class }

// connsMax bounds what one peer may open here; nodes trust each other.
var connsMax = [...]int{ClassNode: 0, ClassGuest: 16, ClassRunner: 64}

// adopt makes a connection of an endpoint, if its peer still belongs to the set.
func (m *Mesh) adopt(p *member, wq *waiter.Queue, ep tcpip.Endpoint) (*Conn, error) {
	tune(ep, p.class)
	c := &Conn{tcp: gonet.NewTCPConn(wq, ep), ep: ep, mesh: m, peer: p}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.gone {
		ep.Abort()
		return nil, errRemoved
	}
	if limit := connsMax[p.class]; limit > 0 && len(p.conns) >= limit {
		ep.Abort()
		return nil, fmt.Errorf("a %s has %d connections, as many as it may: %w", p.class, limit, fleet.TooLarge)
	}
	p.conns[c] = struct{}{}
	return c, nil
}

// tune makes small messages leave at once and dead peers be noticed. A user timeout
// is not set: the stack counts it from the first loss until everything is answered,
// so that it ends a busy stream which goes on well.
func tune(ep tcpip.Endpoint, class Class) {
	o := ep.SocketOptions()
	o.SetDelayOption(false)
	o.SetKeepAlive(true)
	idle, every := tcpip.KeepaliveIdleOption(keepIdle), tcpip.KeepaliveIntervalOption(keepInterval)
	if class != ClassNode {
		idle, every = keepOthers*idle, keepOthers*every
	}
	ep.SetSockOpt(&idle)
	ep.SetSockOpt(&every)
	ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepCount)
}

// cut ends the connection now: the far end gets a reset if it can be reached, and
// calls that wait here return err.
func (c *Conn) cut(err error) { c.finish(err, true) }

func (c *Conn) finish(err error, abort bool) {
	c.once.Do(func() {
		c.end.Store(&err)
		c.tcp.SetDeadline(past) // wakes who waits
		if abort {
			c.ep.Abort()
		} else {
			c.ep.Close()
		}
		c.mesh.mu.Lock()
		delete(c.peer.conns, c)
		c.mesh.mu.Unlock()
	})
}

// Close ends the connection; what was written is still delivered.
func (c *Conn) Close() error {
	c.finish(net.ErrClosed, false)
	return nil
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.tcp.Read(b)
	return n, c.explain(err)
}

func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.tcp.Write(b)
	return n, c.explain(err)
}

// explain puts the reason that this side knows, and the errors that callers test
// for, in the place of the stack's own.
func (c *Conn) explain(err error) error {
	if err == nil {
		return nil
	}
	op, ok := errors.AsType[*net.OpError](err)
	if why := c.end.Load(); why != nil {
		if ok {
			op.Err = *why
			return op
		}
		return *why
	}
	if ok && op.Timeout() {
		op.Err = os.ErrDeadlineExceeded
	}
	return err
}

// CloseWrite tells the far end that no more comes, and goes on reading.
func (c *Conn) CloseWrite() error { return c.tcp.CloseWrite() }

func (c *Conn) LocalAddr() net.Addr                { return c.addr(c.mesh.cfg.addr, c.tcp.LocalAddr()) }
func (c *Conn) RemoteAddr() net.Addr               { return c.addr(c.peer.addr, c.tcp.RemoteAddr()) }
func (c *Conn) SetDeadline(t time.Time) error      { return c.deadline(c.tcp.SetDeadline, t) }
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.deadline(c.tcp.SetReadDeadline, t) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.deadline(c.tcp.SetWriteDeadline, t) }

// addr is never nil: the stack forgets the addresses of a connection that ended.
func (c *Conn) addr(ip netip.Addr, a net.Addr) net.Addr {
	if t, ok := a.(*net.TCPAddr); ok && t != nil {
		return t
	}
	return &net.TCPAddr{IP: ip.AsSlice()}
}

func (c *Conn) deadline(set func(time.Time) error, t time.Time) error {
	if c.end.Load() != nil {
		return net.ErrClosed
	}
	err := set(t)
	if c.end.Load() != nil { // it ended meanwhile: whoever waits must still wake
		c.tcp.SetDeadline(past)
	}
	return err
}

// Dial connects to a port of a node of the set. It gives up when ctx ends, and at
// the latest after dialMax; a node that was never heard is waited for as long.
func (m *Mesh) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	p := m.node(id)
	if p == nil {
		return nil, fmt.Errorf("dial %s: it is not a member of the mesh: %w", id, fleet.NotFound)
	}
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("dial %s: %d is no port: %w", id, port, fleet.BadRequest)
	}
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	c, err := m.dial(ctx, p, port)
	if err != nil {
		return nil, fmt.Errorf("dial %s port %d: %w", id, port, err)
	}
	return c, nil
}

// dialMax bounds a dial whose context has no end of its own.
const dialMax = 30 * time.Second

func (m *Mesh) dial(ctx context.Context, p *member, port int) (*Conn, error) {
	if p != m.myself {
		p.wake()
		select {
		case <-p.ready:
		case <-ctx.Done():
			return nil, errors.Join(errUnreachable, ctx.Err())
		case <-p.left:
			return nil, errRemoved
		}
	}
	wq := new(waiter.Queue)
	ep, terr := m.stack.NewEndpoint(tcp.ProtocolNumber, ipv6.ProtocolNumber, wq)
	if terr != nil {
		return nil, errors.New(terr.String())
	}
	c, err := m.adopt(p, wq, ep)
	if err != nil {
		return nil, err
	}
	entry, done := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	terr = ep.Connect(tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom16(p.addr.As16()), Port: uint16(port)})
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-done:
			terr = ep.LastError()
		case <-ctx.Done():
			c.cut(net.ErrClosed)
			return nil, errors.Join(errUnreachable, ctx.Err())
		case <-p.left:
			c.cut(errRemoved)
			return nil, errRemoved
		}
	}
	if why := c.end.Load(); why != nil {
		return nil, *why
	}
	if terr != nil {
		c.cut(net.ErrClosed)
		return nil, fmt.Errorf("%s: %w", terr, fleet.Unavailable)
	}
	return c, nil
}

var errUnreachable = fmt.Errorf("the node does not answer: %w", fleet.Unavailable)

// Listener takes connections of peers.
type Listener struct {
	mesh   *Mesh
	ep     tcpip.Endpoint
	wq     *waiter.Queue
	port   int
	class  Class // whom the port was opened for
	got    chan *Conn
	closed chan struct{}
	once   sync.Once
}

// backlog is how many connections may wait for Accept.
const backlog = 128

// Listen opens a port inside the tunnel to the other nodes; PortJoin to guests too.
// The connections are *Conn.
func (m *Mesh) Listen(port int) (net.Listener, error) { return m.listenFor(port, ClassNode) }

// ListenRunners opens a port to runners, and to nodes, until it is closed.
func (m *Mesh) ListenRunners(port int) (net.Listener, error) {
	if port == PortJoin {
		return nil, fmt.Errorf("listen on mesh port %d for runners: it is the guests': %w", port, fleet.BadRequest)
	}
	return m.listenFor(port, ClassRunner)
}

func (m *Mesh) listenFor(port int, class Class) (net.Listener, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("listen in the mesh: %d is no port: %w", port, fleet.BadRequest)
	}
	l := &Listener{mesh: m, wq: new(waiter.Queue), port: port, class: class, got: make(chan *Conn), closed: make(chan struct{})}
	if m.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	ep, terr := m.stack.NewEndpoint(tcp.ProtocolNumber, ipv6.ProtocolNumber, l.wq)
	if terr != nil {
		return nil, fmt.Errorf("listen on mesh port %d: %s", port, terr)
	}
	l.ep = ep
	if terr = ep.Bind(tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom16(m.tun.self), Port: uint16(port)}); terr == nil {
		terr = ep.Listen(backlog)
	}
	if terr != nil {
		ep.Close()
		return nil, fmt.Errorf("listen on mesh port %d: %s: %w", port, terr, fleet.Conflict)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		ep.Close()
		return nil, net.ErrClosed
	}
	m.listeners[l] = struct{}{}
	if class == ClassRunner {
		m.open[ClassRunner][uint16(port)] = true
		m.publishPorts()
	}
	m.wg.Go(l.run)
	return l, nil
}

// publishPorts gives the data path a copy. The caller holds mu, or nobody else knows m.
func (m *Mesh) publishPorts() {
	var p ports
	for class, open := range m.open {
		p[class] = map[uint16]bool{}
		for port := range open {
			p[class][port] = true
		}
	}
	m.tun.opened.Store(&p)
}

// run takes connections as they come, so that each has its peer before anybody uses
// it, and is cut with it.
func (l *Listener) run() {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents)
	l.wq.EventRegister(&entry)
	defer l.wq.EventUnregister(&entry)
	for {
		ep, wq, terr := l.ep.Accept(nil)
		if _, wait := terr.(*tcpip.ErrWouldBlock); wait {
			select {
			case <-ready:
				continue
			case <-l.closed:
				return
			}
		}
		if terr != nil {
			l.Close()
			return
		}
		c := l.admit(wq, ep)
		if c == nil {
			continue
		}
		select {
		case l.got <- c:
		case <-l.closed:
			c.cut(net.ErrClosed)
			return
		}
	}
}

func (l *Listener) admit(wq *waiter.Queue, ep tcpip.Endpoint) *Conn {
	from, terr := ep.GetRemoteAddress()
	if terr != nil {
		ep.Abort()
		return nil
	}
	p := l.mesh.tun.table.Load().byAddr[from.Addr.As16()]
	if from.Addr.As16() == l.mesh.tun.self {
		p = l.mesh.myself
	}
	if p == nil {
		ep.Abort()
		return nil
	}
	c, err := l.mesh.adopt(p, wq, ep)
	if err != nil {
		return nil
	}
	return c
}

// Accept gives the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.got:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close frees the port; connections that were accepted go on.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.ep.Close()
		l.mesh.mu.Lock()
		defer l.mesh.mu.Unlock()
		delete(l.mesh.listeners, l)
		if l.class == ClassRunner {
			delete(l.mesh.open[ClassRunner], uint16(l.port))
			l.mesh.publishPorts()
		}
	})
	return nil
}

// Addr is the port's address inside the tunnel.
func (l *Listener) Addr() net.Addr {
	return &net.TCPAddr{IP: l.mesh.cfg.addr.AsSlice(), Port: l.port}
}

// past is a deadline that has been.
var past = time.Unix(1, 0)
