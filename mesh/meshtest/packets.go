package meshtest

import (
	"fmt"
	"net"
	"sync"
	"time"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

// packets is one port for datagrams.
type packets struct {
	node *Node
	port int
	got  chan datagram
	done chan struct{}
	once sync.Once
}

type datagram struct {
	from string
	b    []byte
}

// Packets opens a port for datagrams.
func (d *Node) Packets(port int) (mesh.Packets, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.packets[port] != nil {
		return nil, fmt.Errorf("open packets on port %d of %s: it is in use: %w", port, d.id, fleet.Conflict)
	}
	p := &packets{node: d, port: port, got: make(chan datagram, queue), done: make(chan struct{})}
	d.packets[port] = p
	return p, nil
}

func (p *packets) ReadFrom(b []byte) (int, string, error) {
	select {
	case g := <-p.got:
		return copy(b, g.b), g.from, nil
	case <-p.done:
		return 0, "", net.ErrClosed
	}
}

// WriteTo sends a datagram that may get lost, or arrive after a later one.
func (p *packets) WriteTo(b []byte, id string) error {
	n := p.node.net
	way := [2]string{p.node.id, id}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.node.closed {
		return net.ErrClosed
	}
	if n.down[way] || n.packets.Float64() < n.lossOf(way) {
		return nil
	}
	g := datagram{p.node.id, append([]byte(nil), b...)}
	if late := n.drawDelay(way, n.packets); late > 0 {
		time.AfterFunc(late, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if !n.down[way] {
				n.arrive(id, p.port, g)
			}
		})
		return nil
	}
	n.arrive(id, p.port, g)
	return nil
}

// arrive hands a datagram over, if somebody is there. The caller holds mu.
func (n *Network) arrive(id string, port int, g datagram) {
	to := n.nodes[id]
	if to == nil || to.packets[port] == nil {
		return
	}
	select {
	case to.packets[port].got <- g:
	default:
	}
}

func (p *packets) Close() error {
	p.once.Do(func() {
		close(p.done)
		n := p.node.net
		n.mu.Lock()
		defer n.mu.Unlock()
		if p.node.packets[p.port] == p {
			delete(p.node.packets, p.port)
		}
	})
	return nil
}
