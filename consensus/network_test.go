package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

var errUnreachable = errors.New("host unreachable")

// network connects nodes in memory and can cut one off.
type network struct {
	mu    sync.Mutex
	ports map[string]*port
	off   map[string]bool
	conns []*cable
	// silent makes a dial to a node that is off hang until its timeout.
	silent bool
}

func newNetwork() *network {
	return &network{ports: map[string]*port{}, off: map[string]bool{}}
}

// listen returns the transport of a node; its address is its name.
func (w *network) listen(name string) *port {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &port{net: w, name: name, in: make(chan net.Conn), closed: make(chan struct{})}
	w.ports[name] = p
	return p
}

// cut takes the named nodes off the network and puts all others back. Open
// connections of a node that is off are broken.
func (w *network) cut(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.off)
	for _, n := range names {
		w.off[n] = true
	}
	live := w.conns[:0]
	for _, c := range w.conns {
		if w.off[c.from] || w.off[c.to] {
			c.Conn.Close()
		} else {
			live = append(live, c)
		}
	}
	w.conns = live
}

// close breaks every connection, also those that raft accepted and left open.
func (w *network) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Conn.Close()
	}
}

type port struct {
	net    *network
	name   string
	in     chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *port) Addr() net.Addr { return address(p.name) }

func (p *port) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	p.net.mu.Lock()
	to := p.net.ports[addr]
	if to == nil || p.net.off[p.name] || p.net.off[addr] {
		silent := p.net.silent
		p.net.mu.Unlock()
		if silent {
			<-time.After(timeout)
		}
		return nil, errUnreachable
	}
	p.net.conns = append(p.net.conns, &cable{near, p.name, addr}, &cable{far, addr, p.name})
	p.net.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	select {
	case to.in <- far:
		return near, nil
	case <-to.closed:
		return nil, errUnreachable
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type cable struct {
	net.Conn
	from, to string
}

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
