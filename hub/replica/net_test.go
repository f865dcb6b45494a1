package replica

import (
	"context"
	"errors"
	"net"
	"sync"
)

// network joins the nodes of a test in memory.
type network struct {
	mu    sync.Mutex
	doors map[string]*door
	cut   map[[2]string]bool
	conns map[net.Conn][2]string
}

func newNetwork() *network {
	return &network{doors: map[string]*door{}, cut: map[[2]string]bool{}, conns: map[net.Conn][2]string{}}
}

var errNoRoute = errors.New("no route")

func pair(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// listen opens a node's door.
func (n *network) listen(id string) net.Listener {
	d := &door{net: n, id: id, conns: make(chan net.Conn, 16), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doors[id] = d
	return d
}

// dial reaches another node's door.
func (n *network) dial(from string) func(ctx context.Context, id string) (net.Conn, error) {
	return func(ctx context.Context, id string) (net.Conn, error) {
		n.mu.Lock()
		d, cut := n.doors[id], n.cut[pair(from, id)]
		n.mu.Unlock()
		if d == nil || cut {
			return nil, errNoRoute
		}
		a, b := net.Pipe()
		n.mu.Lock()
		n.conns[a], n.conns[b] = pair(from, id), pair(from, id)
		n.mu.Unlock()
		select {
		case d.conns <- proven{b, from}:
			return a, nil
		case <-d.closed:
			return nil, errNoRoute
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// part cuts two nodes off from one another, or joins them again.
func (n *network) part(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[pair(a, b)] = cut
	if cut {
		for c, p := range n.conns {
			if p == pair(a, b) {
				c.Close()
				delete(n.conns, c)
			}
		}
	}
}

// proven is a connection whose other side is known, as in the mesh.
type proven struct {
	net.Conn
	peer string
}

func (p proven) Peer() string { return p.peer }

type door struct {
	net    *network
	id     string
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() {
		close(d.closed)
		d.net.mu.Lock()
		if d.net.doors[d.id] == d {
			delete(d.net.doors, d.id)
		}
		d.net.mu.Unlock()
		for {
			select {
			case c := <-d.conns:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (d *door) Addr() net.Addr { return addr(d.id) }

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }
