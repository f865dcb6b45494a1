package meshtest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

// Node is one machine of the network.
type Node struct {
	net *Network
	id  string

	// Guarded by Network.mu.
	listeners map[int]*listener
	packets   map[int]*packets
	ends      map[*conn]struct{}
	closed    bool
	serial    uint64
}

var _ mesh.Carrier = (*Node)(nil)

// ID is the node's id.
func (d *Node) ID() string { return d.id }

// Addr is how a node's port is called.
type Addr struct {
	ID   string
	Port int
}

func (a Addr) Network() string { return "meshtest" }
func (a Addr) String() string  { return net.JoinHostPort(a.ID, strconv.Itoa(a.Port)) }

// Listen opens a port.
func (d *Node) Listen(port int) (net.Listener, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.listeners[port] != nil {
		return nil, fmt.Errorf("listen on port %d of %s: it is in use: %w", port, d.id, fleet.Conflict)
	}
	l := &listener{node: d, port: port, got: make(chan *conn, backlog), done: make(chan struct{})}
	d.listeners[port] = l
	return l, nil
}

// Dial connects to a port of another node, or of this one. Over a cut link it waits
// until the link is whole, ctx ends or GiveUp is over.
func (d *Node) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, GiveUp)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if d.reaches(id) {
			c, err := d.connect(ctx, id, port)
			if err != nil {
				return nil, fmt.Errorf("dial %s port %d: %w", id, port, err)
			}
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s port %d: %w: %w", id, port, fleet.Unavailable, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// reaches says whether packets go both ways.
func (d *Node) reaches(id string) bool {
	return !d.net.cut(d.id, id) && !d.net.cut(id, d.id)
}

func (d *Node) connect(ctx context.Context, id string, port int) (net.Conn, error) {
	n := d.net
	n.mu.Lock()
	out, back := [2]string{d.id, id}, [2]string{id, d.id}
	chance, _ := n.chance(out)
	trip := n.drawDelay(out, chance) + n.drawDelay(back, chance)
	n.mu.Unlock()
	if trip > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(trip):
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.nodes[id]
	if d.closed {
		return nil, net.ErrClosed
	}
	if to == nil || to.closed || to.listeners[port] == nil {
		return nil, fmt.Errorf("connection refused: %w", fleet.Unavailable)
	}
	l := to.listeners[port]
	there, here := n.pair(d, to, port)
	select {
	case l.got <- there:
		return here, nil
	default:
		n.forget(here)
		n.forget(there)
		here.in.fail(errReset, errReset)
		here.out.fail(errReset, errReset)
		return nil, fmt.Errorf("connection refused, %d wait already: %w", backlog, fleet.Unavailable)
	}
}

// Close ends the node: its ports, and its connections by reset.
func (d *Node) Close() error {
	d.net.mu.Lock()
	if d.closed {
		d.net.mu.Unlock()
		return nil
	}
	d.closed = true
	if d.net.nodes[d.id] == d {
		delete(d.net.nodes, d.id)
	}
	var ends []*conn
	for c := range d.ends {
		ends = append(ends, c)
	}
	listeners, packets := d.listeners, d.packets
	d.listeners, d.packets = nil, nil
	d.net.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	for _, p := range packets {
		p.Close()
	}
	for _, c := range ends {
		c.crash()
	}
	return nil
}

type listener struct {
	node *Node
	port int
	got  chan *conn
	done chan struct{}
	once sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, l.gone()
	default:
	}
	select {
	case c := <-l.got:
		return c, nil
	case <-l.done:
		return nil, l.gone()
	}
}

func (l *listener) gone() error {
	return &net.OpError{Op: "accept", Net: "meshtest", Addr: l.Addr(), Err: net.ErrClosed}
}

// Close frees the port; who waited for Accept is reset.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		n := l.node.net
		n.mu.Lock()
		if l.node.listeners[l.port] == l {
			delete(l.node.listeners, l.port)
		}
		var waiting []*conn
		for len(l.got) > 0 {
			waiting = append(waiting, <-l.got)
		}
		n.mu.Unlock()
		for _, c := range waiting {
			c.fail(errReset)
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return Addr{l.node.id, l.port} }
