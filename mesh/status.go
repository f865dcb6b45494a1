package mesh

import (
	"bufio"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Status is what this node knows of its tunnel to a peer.
type Status struct {
	ID        string
	Class     Class
	Key       PublicKey      // the one it was last heard with, or the newest
	Endpoint  netip.AddrPort // where it is, or is looked for; zero when unknown
	Heard     time.Time      // its last packet; zero when never
	Handshake time.Time      // WireGuard's last; zero when never
	RTT       time.Duration  // of the last answered probe; 0 when unknown. Busy tunnels are seldom probed
	Sent      uint64         // bytes outside, since the key is known
	Received  uint64
	Conns     int // open connections inside
}

// Status describes the tunnel to a node; false when it is not in the set.
func (m *Mesh) Status(id string) (Status, bool) {
	p := m.node(id)
	if p == nil || p == m.myself {
		return Status{}, false
	}
	state, err := m.describe()
	if err != nil {
		return Status{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := p.out.Load()
	s := Status{ID: p.id, Class: p.class, Key: l.key, RTT: time.Duration(p.rtt.Load()), Conns: len(p.conns)}
	if heard := p.heard.Load(); heard != 0 {
		s.Heard = m.tun.began.Add(time.Duration(heard))
	}
	for _, l := range p.links {
		at := state.peers[l.key]
		s.Sent += at.sent
		s.Received += at.received
		if at.handshake.After(s.Handshake) {
			s.Handshake = at.handshake
		}
	}
	if e := state.peers[l.key].endpoints; len(e) > 0 {
		s.Endpoint, _ = netip.ParseAddrPort(e[0])
	}
	return s, true
}

// Endpoint is where a node is, or is looked for; the zero value when that is unknown.
func (m *Mesh) Endpoint(id string) netip.AddrPort {
	s, _ := m.Status(id)
	return s.Endpoint
}

// Dropped counts packets that came or went through a tunnel and were not let pass.
func (m *Mesh) Dropped() uint64 { return m.tun.dropped.Load() }

// state is WireGuard's own description of itself.
type state struct {
	port  uint16
	peers map[PublicKey]peerState
}

type peerState struct {
	endpoints      []string
	handshake      time.Time
	sent, received uint64
}

// describe reads what the device says of itself, which is text.
func (m *Mesh) describe() (state, error) {
	s := state{peers: map[PublicKey]peerState{}}
	text, err := m.dev.IpcGet()
	if err != nil {
		return s, fmt.Errorf("ask the tunnel for its state: %w", err)
	}
	var key PublicKey
	var sec, nsec int64
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		p := s.peers[key]
		switch name {
		case "listen_port":
			s.port = uint16(n)
			continue
		case "public_key":
			key, err = parseHex(value)
			if err != nil {
				return s, err
			}
			continue
		case "endpoint":
			p.endpoints = strings.Split(value, ",")
		case "last_handshake_time_sec":
			sec = n
		case "last_handshake_time_nsec":
			if nsec = n; sec != 0 || nsec != 0 {
				p.handshake = time.Unix(sec, nsec)
			}
		case "tx_bytes":
			p.sent = uint64(n)
		case "rx_bytes":
			p.received = uint64(n)
		default:
			continue
		}
		s.peers[key] = p
	}
	return s, nil
}
