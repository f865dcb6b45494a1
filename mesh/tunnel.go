package mesh

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// The tunnel is the device between WireGuard and the network stack. A connection
// sees the addresses of nodes; under way a packet carries those of the two keys,
// which is what WireGuard's allowed_ip checks. So a node may hold two keys at once
// and change from one to the other without any connection noticing, and the source
// that a connection sees is one that the key was entitled to. Checksums don't mind:
// inside the tunnel nobody computes them.
type tunnel struct {
	cluster string
	mtu     int
	self    [16]byte
	began   time.Time
	link    *linkEndpoint
	events  chan tun.Event
	once    sync.Once

	table   atomic.Pointer[table]
	opened  atomic.Pointer[ports] // by class, what may be reached
	keys    atomic.Pointer[ownKeys]
	rotate  sync.RWMutex // held for writing while this node's key changes
	dropped atomic.Uint64
}

// ports are the TCP ports that a class other than nodes may reach.
type ports [3]map[uint16]bool

// ownKeys are the addresses of this node's keys; the last is the one in use.
type ownKeys struct{ now, before [16]byte }

const (
	ipv6Header = 40
	// A probe is a packet without a transport: WireGuard authenticates it like any
	// other, and the stack never sees it. It shows that a key and a path work.
	probeProtocol = 59 // IPv6: no next header
	probeSize     = ipv6Header + 9
	probeAsk      = 1
	probeAnswer   = 2
)

func (t *tunnel) now() int64 { return int64(time.Since(t.began)) }

// Read hands packets of this node to WireGuard: it blocks for the first, and takes
// what else is waiting.
func (t *tunnel) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	var it item
	select {
	case it = <-t.link.queue:
	case <-t.link.closed:
		return 0, os.ErrClosed
	}
	t.rotate.RLock()
	defer t.rotate.RUnlock()
	n := 0
	for {
		if size := t.outbound(it, bufs[n][offset:]); size > 0 {
			sizes[n] = size
			n++
		}
		if n == len(bufs) {
			return n, nil
		}
		select {
		case it = <-t.link.queue:
		default:
			return n, nil
		}
	}
}

// outbound writes one packet with the addresses of keys; 0 when it has nowhere to go.
func (t *tunnel) outbound(it item, to []byte) int {
	own := t.keys.Load()
	if it.done != nil {
		close(it.done)
		return 0
	}
	if it.pkt == nil {
		if len(to) < probeSize {
			return 0
		}
		writeProbe(to, own.now, it.to, it.kind, it.stamp)
		return probeSize
	}
	defer it.pkt.DecRef()
	size := 0
	for _, s := range it.pkt.AsSlices() {
		if len(s) > len(to)-size {
			return 0
		}
		size += copy(to[size:], s)
	}
	if size < ipv6Header {
		return 0
	}
	m := t.table.Load().byAddr[[16]byte(to[24:40])]
	if m == nil {
		t.dropped.Add(1)
		return 0
	}
	copy(to[8:24], own.now[:])
	dst := m.out.Load().addr.As16()
	copy(to[24:40], dst[:])
	return size
}

// Write takes packets that WireGuard has authenticated: the source belongs to the
// key. Whatever is not meant for this node, or not allowed to its sender, ends here.
func (t *tunnel) Write(bufs [][]byte, offset int) (int, error) {
	tab, own, now := t.table.Load(), t.keys.Load(), t.now()
	for _, b := range bufs {
		p := b[offset:]
		if len(p) < ipv6Header || p[0]>>4 != 6 {
			t.dropped.Add(1)
			continue
		}
		l := tab.byKey[[16]byte(p[8:24])]
		dst := [16]byte(p[24:40])
		if l == nil || dst != own.now && dst != own.before {
			t.dropped.Add(1)
			continue
		}
		// What still comes to the key of before is welcome, and shows nothing of
		// whether the peer can be reached with the new one.
		if dst == own.now {
			l.hear(now)
		}
		if p[6] == probeProtocol {
			t.probed(l, p)
			continue
		}
		if !t.allowed(l.of.class, p) {
			t.dropped.Add(1)
			continue
		}
		src := l.of.addr.As16()
		copy(p[8:24], src[:])
		copy(p[24:40], t.self[:])
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
		t.link.deliver(pkt)
		pkt.DecRef()
	}
	return len(bufs), nil
}

// allowed is the whole firewall. Extension headers, fragments and ICMP have no use
// here, so nothing has to be parsed behind them.
func (t *tunnel) allowed(from Class, p []byte) bool {
	proto := p[6]
	if len(p) < ipv6Header+4 || proto != uint8(header.TCPProtocolNumber) && proto != uint8(header.UDPProtocolNumber) {
		return false
	}
	if from == ClassNode {
		return true
	}
	to := binary.BigEndian.Uint16(p[ipv6Header+2:])
	return proto == uint8(header.TCPProtocolNumber) && t.opened.Load()[from][to]
}

// probed answers a question and measures an answer.
func (t *tunnel) probed(l *link, p []byte) {
	if len(p) < probeSize {
		return
	}
	stamp := binary.BigEndian.Uint64(p[ipv6Header+1:])
	switch p[ipv6Header] {
	case probeAsk:
		t.probe(l, probeAnswer, stamp)
	case probeAnswer:
		if took := t.now() - int64(stamp); took > 0 && took < int64(time.Minute) {
			l.of.rtt.Store(took)
		}
	}
}

// probe queues a probe to one key of a peer; it is dropped when the queue is full,
// since then there is traffic enough.
func (t *tunnel) probe(l *link, kind byte, stamp uint64) {
	select {
	case t.link.queue <- item{to: l.addr.As16(), kind: kind, stamp: stamp}:
	default:
	}
}

func writeProbe(p []byte, from, to [16]byte, kind byte, stamp uint64) {
	clear(p[:probeSize])
	p[0] = 6 << 4
	binary.BigEndian.PutUint16(p[4:], probeSize-ipv6Header)
	p[6], p[7] = probeProtocol, 64
	copy(p[8:], from[:])
	copy(p[24:], to[:])
	p[ipv6Header] = kind
	binary.BigEndian.PutUint64(p[ipv6Header+1:], stamp)
}

// flush lets what is queued leave, within a tenth of a second: the resets by which
// peers learn that this node's connections are no more.
func (t *tunnel) flush() {
	limit := time.After(100 * time.Millisecond)
	for range 2 { // the second mark is seen when WireGuard has the batch of the first,
		mark := item{done: make(chan struct{})}
		select {
		case t.link.queue <- mark:
		case <-limit:
			return
		}
		select {
		case <-mark.done:
		case <-limit:
			return
		}
	}
	<-time.After(10 * time.Millisecond) // which it seals and sends on its own time
}

func (t *tunnel) Close() error {
	t.once.Do(func() {
		close(t.link.closed)
		close(t.events)
	})
	return nil
}

func (t *tunnel) File() *os.File           { return nil }
func (t *tunnel) Name() (string, error)    { return "mesh", nil }
func (t *tunnel) MTU() (int, error)        { return t.mtu, nil }
func (t *tunnel) Events() <-chan tun.Event { return t.events }
func (t *tunnel) BatchSize() int           { return tunBatch }
