package mesh

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// sink counts what reaches the stack.
type sink struct {
	stack.NetworkDispatcher
	got int
	src [16]byte
}

func (s *sink) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, p *stack.PacketBuffer) {
	s.got++
	copy(s.src[:], p.ToView().AsSlice()[8:24])
}

// filter is a tunnel with a node, a guest and a runner behind it, and no stack.
func filter() (*tunnel, *sink, map[Class]*member) {
	s := &sink{}
	own := NewKey().Public()
	t := &tunnel{
		cluster: "c-1", mtu: DefaultMTU, self: Addr("c-1", "n-1").As16(), began: time.Now().Add(-time.Second),
		link:   &linkEndpoint{mtu: DefaultMTU, queue: make(chan item, 8), closed: make(chan struct{})},
		events: make(chan tun.Event, 1),
	}
	t.link.Attach(s)
	at := keyAddr("c-1", own).As16()
	t.keys.Store(&ownKeys{now: at, before: at})
	t.opened.Store(&ports{ClassGuest: {PortJoin: true}, ClassRunner: {PortRunner: true}})
	all := map[Class]*member{}
	var list []*member
	for class, addr := range map[Class]string{ClassNode: "n-2", ClassGuest: "g", ClassRunner: "r-1"} {
		m := newMember(addr, class, address("c-1", uint16(class), []byte(addr)))
		m.relink("c-1", []PublicKey{NewKey().Public()})
		all[class] = m
		list = append(list, m)
	}
	t.table.Store(newTable(list))
	return t, s, all
}

// packet is one inside the tunnel, with room in front as WireGuard leaves it.
func packet(from *member, to [16]byte, proto byte, port uint16, extra int) []byte {
	p := make([]byte, 16+ipv6Header+20+extra)
	h := p[16:]
	h[0] = 6 << 4
	binary.BigEndian.PutUint16(h[4:], uint16(20+extra))
	h[6], h[7] = proto, 64
	src := from.links[0].addr.As16()
	copy(h[8:], src[:])
	copy(h[24:], to[:])
	binary.BigEndian.PutUint16(h[ipv6Header:], 40000)
	binary.BigEndian.PutUint16(h[ipv6Header+2:], port)
	return p
}

func TestFirewall(t *testing.T) {
	const tcp, udp, icmp, fragment = 6, 17, 58, 44
	tests := []struct {
		from  Class
		proto byte
		port  uint16
		pass  bool
	}{
		{ClassNode, tcp, PortRaft, true},
		{ClassNode, tcp, PortJoin, true},
		{ClassNode, udp, PortGossip, true},
		{ClassNode, icmp, 0, false},
		{ClassNode, fragment, 0, false},
		{ClassNode, 0, 0, false}, // hop-by-hop options
		{ClassGuest, tcp, PortJoin, true},
		{ClassGuest, tcp, PortRaft, false},
		{ClassGuest, tcp, PortRunner, false},
		{ClassGuest, udp, PortJoin, false},
		{ClassGuest, udp, PortGossip, false},
		{ClassGuest, fragment, PortJoin, false},
		{ClassRunner, tcp, PortRunner, true},
		{ClassRunner, tcp, PortJoin, false},
		{ClassRunner, tcp, PortPeer, false},
		{ClassRunner, udp, PortRunner, false},
	}
	tunnel, got, members := filter()
	own := tunnel.keys.Load().now
	for _, tt := range tests {
		got.got = 0
		if _, err := tunnel.Write([][]byte{packet(members[tt.from], own, tt.proto, tt.port, 0)}, 16); err != nil {
			t.Fatal(err)
		}
		if pass := got.got == 1; pass != tt.pass {
			t.Errorf("a %s's protocol %d to port %d: passed %v, want %v", tt.from, tt.proto, tt.port, pass, tt.pass)
		}
		if tt.pass && got.src != members[tt.from].addr.As16() {
			t.Errorf("the source of a %s is seen as %x", tt.from, got.src)
		}
	}
	// Nothing goes through this node to another, and no stranger's packet comes in.
	got.got = 0
	stranger := newMember("n-9", ClassNode, Addr("c-1", "n-9"))
	stranger.relink("c-1", []PublicKey{NewKey().Public()})
	tunnel.Write([][]byte{
		packet(members[ClassNode], members[ClassGuest].addr.As16(), tcp, PortRaft, 0),
		packet(members[ClassNode], tunnel.self, tcp, PortRaft, 0),
		packet(stranger, own, tcp, PortRaft, 0),
		packet(members[ClassNode], own, tcp, PortRaft, 0)[:16+ipv6Header+2],
		make([]byte, 16), make([]byte, 17), make([]byte, 16+ipv6Header),
	}, 16)
	if got.got != 0 {
		t.Errorf("%d packets came in that should not", got.got)
	}
}

func TestProbe(t *testing.T) {
	tunnel, got, members := filter()
	l := members[ClassNode].links[0]
	p := make([]byte, 16+probeSize)
	writeProbe(p[16:], l.addr.As16(), tunnel.keys.Load().now, probeAsk, 77)
	tunnel.Write([][]byte{p}, 16)
	if got.got != 0 || l.heard.Load() == 0 {
		t.Error("a probe went to the stack, or was not heard")
	}
	select {
	case it := <-tunnel.link.queue:
		if it.kind != probeAnswer || it.stamp != 77 || it.to != l.addr.As16() {
			t.Errorf("the answer is %+v", it)
		}
	default:
		t.Fatal("no answer")
	}
	writeProbe(p[16:], l.addr.As16(), tunnel.keys.Load().now, probeAnswer, uint64(tunnel.now()-1000))
	tunnel.Write([][]byte{p}, 16)
	if members[ClassNode].rtt.Load() < 1000 {
		t.Error("the answer was not measured")
	}
	if len(tunnel.link.queue) != 0 {
		t.Error("an answer was answered")
	}
}

// FuzzTunnel: whatever a peer sends, nothing of a guest's gets to the stack but TCP to
// the join port.
func FuzzTunnel(f *testing.F) {
	tunnel, got, members := filter()
	guest := members[ClassGuest]
	own := tunnel.keys.Load().now
	f.Add(packet(guest, own, 6, PortJoin, 10)[16:])
	f.Add(packet(guest, own, 6, PortRaft, 0)[16:])
	f.Add(packet(guest, own, 44, PortJoin, 0)[16:])
	f.Add(make([]byte, ipv6Header))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= ipv6Header { // WireGuard has seen to the source
			src := guest.links[0].addr.As16()
			copy(b[8:], src[:])
			if rand.IntN(4) > 0 {
				copy(b[24:], own[:])
			}
		}
		got.got = 0
		want := len(b) >= ipv6Header+4 && b[0]>>4 == 6 && [16]byte(b[24:40]) == own && b[6] == 6 && binary.BigEndian.Uint16(b[42:]) == PortJoin
		tunnel.Write([][]byte{append(make([]byte, 16), b...)}, 16)
		if (got.got == 1) != want {
			t.Errorf("%x: passed %v, want %v", b, got.got == 1, want)
		}
		for len(tunnel.link.queue) > 0 {
			<-tunnel.link.queue
		}
	})
}

func TestConfig(t *testing.T) {
	good := Config{Cluster: "c-1", ID: "n-1", Key: NewKey(), Listen: "127.0.0.1:0"}
	m, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if at := m.ListenAddr(); at.Port() == 0 || !at.Addr().IsLoopback() {
		t.Errorf("it listens on %s", at)
	}
	for name, c := range map[string]func(*Config){
		"no cluster": func(c *Config) { c.Cluster = "" },
		"no id":      func(c *Config) { c.ID = "" },
		"no key":     func(c *Config) { c.Key = PrivateKey{} },
		"small MTU":  func(c *Config) { c.MTU = 1279 },
		"big MTU":    func(c *Config) { c.MTU = 65536 },
		"no port":    func(c *Config) { c.Listen = "127.0.0.1" },
		"bad port":   func(c *Config) { c.Listen = "127.0.0.1:99999" },
		"bad host":   func(c *Config) { c.Listen = "no.such.host.invalid:1" },
		"taken":      func(c *Config) { c.Listen = m.ListenAddr().String() },
	} {
		bad := good
		c(&bad)
		if m, err := New(bad); err == nil {
			m.Close()
			t.Errorf("%s: it started", name)
		}
	}
	any6, err := New(Config{Cluster: "c-1", ID: "n-2", Key: NewKey()})
	if err != nil {
		t.Fatal(err)
	}
	defer any6.Close()
	if at := any6.ListenAddr(); at.Port() == 0 || !at.Addr().IsUnspecified() {
		t.Errorf("without an address it listens on %s", at)
	}
}
