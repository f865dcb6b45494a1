package mesh

import (
	"fmt"
	"net"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"

	"tugline.dev/tugline/shared/fleet"
)

// Packets are datagrams between nodes, named by their ids.
type Packets interface {
	// ReadFrom waits for a datagram and says which node sent it. It returns
	// net.ErrClosed after Close.
	ReadFrom(b []byte) (n int, from string, err error)
	// WriteTo sends one, which may be lost.
	WriteTo(b []byte, id string) error
	Close() error
}

// PacketConn carries UDP inside the tunnel.
type PacketConn struct {
	mesh   *Mesh
	udp    *gonet.UDPConn
	port   uint16
	once   sync.Once
	closed chan struct{}
}

// udpHeaders is what IPv6 and UDP take of a packet.
const udpHeaders = ipv6Header + 8

// Packets opens a UDP port to the other nodes. A datagram may have as many bytes as
// fit one packet: the MTU less 48.
func (m *Mesh) Packets(port int) (Packets, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("open packets in the mesh: %d is no port: %w", port, fleet.BadRequest)
	}
	if m.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	udp, err := gonet.DialUDP(m.stack, &tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom16(m.tun.self), Port: uint16(port)}, nil, ipv6.ProtocolNumber)
	if err != nil {
		return nil, fmt.Errorf("open packets on mesh port %d: %w: %w", port, err, fleet.Conflict)
	}
	p := &PacketConn{mesh: m, udp: udp, port: uint16(port), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		udp.Close()
		return nil, net.ErrClosed
	}
	m.packets[p] = struct{}{}
	return p, nil
}

func (p *PacketConn) ReadFrom(b []byte) (int, string, error) {
	for {
		n, addr, err := p.udp.ReadFrom(b)
		select {
		case <-p.closed:
			return 0, "", net.ErrClosed
		default:
		}
		if err != nil {
			return 0, "", err
		}
		from := [16]byte(addr.(*net.UDPAddr).IP.To16())
		if from == p.mesh.tun.self {
			return n, p.mesh.cfg.ID, nil
		}
		if m := p.mesh.tun.table.Load().byAddr[from]; m != nil && m.class == ClassNode {
			return n, m.id, nil
		}
	}
}

func (p *PacketConn) WriteTo(b []byte, id string) error {
	if max := p.mesh.cfg.MTU - udpHeaders; len(b) > max {
		return fmt.Errorf("send a packet to %s: %d bytes, at most %d fit: %w", id, len(b), max, fleet.TooLarge)
	}
	to := p.mesh.node(id)
	if to == nil {
		return fmt.Errorf("send a packet to %s: it is not a member of the mesh: %w", id, fleet.NotFound)
	}
	_, err := p.udp.WriteTo(b, &net.UDPAddr{IP: to.addr.AsSlice(), Port: int(p.port)})
	if err != nil {
		return fmt.Errorf("send a packet to %s: %w", id, err)
	}
	return nil
}

// Close ends the port and whoever waits in ReadFrom.
func (p *PacketConn) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.udp.SetDeadline(past)
		p.udp.Close()
		p.mesh.mu.Lock()
		delete(p.mesh.packets, p)
		p.mesh.mu.Unlock()
	})
	return nil
}
