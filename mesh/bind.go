package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.zx2c4.com/wireguard/conn"
)

// fanBind is a bind whose endpoints may be several addresses at once: what is sent
// to such an endpoint goes to each. The first authenticated answer makes WireGuard
// learn the one that works, so candidates race instead of waiting for each other's
// timeouts. The far end drops the duplicates as replays.
type fanBind struct{ conn.Bind }

// fan is an endpoint of several candidates, in order of preference.
type fan []conn.Endpoint

func (b fanBind) ParseEndpoint(s string) (conn.Endpoint, error) {
	var all fan
	for one := range strings.SplitSeq(s, ",") {
		e, err := b.Bind.ParseEndpoint(one)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// Send succeeds when one of the candidates took the packets: an address family
// that this machine lacks is no failure while another works.
func (b fanBind) Send(bufs [][]byte, to conn.Endpoint) error {
	all, ok := to.(fan)
	if !ok {
		return b.Bind.Send(bufs, to)
	}
	var errs []error
	for _, e := range all {
		if err := b.Bind.Send(bufs, e); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == len(all) {
		return errors.Join(errs...)
	}
	return nil
}

func (f fan) ClearSrc() {
	for _, e := range f {
		e.ClearSrc()
	}
}

func (f fan) DstToString() string {
	var s []string
	for _, e := range f {
		s = append(s, e.DstToString())
	}
	return strings.Join(s, ",")
}

func (f fan) SrcToString() string { return f[0].SrcToString() }
func (f fan) DstToBytes() []byte  { return f[0].DstToBytes() }
func (f fan) DstIP() netip.Addr   { return f[0].DstIP() }
func (f fan) SrcIP() netip.Addr   { return f[0].SrcIP() }

// hostBind listens on one address only: WireGuard's own bind always takes all of a
// machine's. It reads and writes in batches where the system can.
type hostBind struct {
	host netip.Addr

	mu   sync.RWMutex
	sock *net.UDPConn
	pc   batcher
	msgs sync.Pool
}

// batcher is what ipv4.PacketConn and ipv6.PacketConn have in common.
type batcher interface {
	ReadBatch(ms []ipv6.Message, flags int) (int, error)
	WriteBatch(ms []ipv6.Message, flags int) (int, error)
}

// socketBuffer is asked for in both directions: a burst of a whole TCP window must
// fit while the process is not scheduled. The kernel caps it silently.
const socketBuffer = 4 << 20

func (b *hostBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sock != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	sock, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.host, port)))
	if err != nil {
		return nil, 0, err
	}
	sock.SetReadBuffer(socketBuffer)
	sock.SetWriteBuffer(socketBuffer)
	b.sock = sock
	if b.host.Is4() {
		b.pc = ipv4.NewPacketConn(sock)
	} else {
		b.pc = ipv6.NewPacketConn(sock)
	}
	b.msgs.New = func() any {
		ms := make([]ipv6.Message, conn.IdealBatchSize)
		for i := range ms {
			ms[i].Buffers = make([][]byte, 1)
		}
		return &ms
	}
	actual := sock.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	return []conn.ReceiveFunc{b.receiver(b.pc)}, actual, nil
}

func (b *hostBind) receiver(pc batcher) conn.ReceiveFunc {
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		ms := b.msgs.Get().(*[]ipv6.Message)
		defer b.msgs.Put(ms)
		n := min(len(packets), len(*ms))
		for i := range n {
			(*ms)[i].Buffers[0] = packets[i]
		}
		got, err := pc.ReadBatch((*ms)[:n], 0)
		if err != nil {
			return 0, err
		}
		for i, m := range (*ms)[:got] {
			sizes[i] = m.N
			if m.N > 0 {
				from := m.Addr.(*net.UDPAddr).AddrPort()
				eps[i] = &conn.StdNetEndpoint{AddrPort: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
			}
		}
		return got, nil
	}
}

func (b *hostBind) Send(bufs [][]byte, to conn.Endpoint) error {
	e, ok := to.(*conn.StdNetEndpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	b.mu.RLock()
	pc := b.pc
	b.mu.RUnlock()
	if pc == nil {
		return net.ErrClosed
	}
	if e.Addr().Is4() != b.host.Is4() {
		return fmt.Errorf("send to %s: this node listens on %s, of another address family", e.AddrPort, b.host)
	}
	ms := b.msgs.Get().(*[]ipv6.Message)
	defer b.msgs.Put(ms)
	addr := net.UDPAddrFromAddrPort(e.AddrPort)
	for i, p := range bufs {
		(*ms)[i].Buffers[0], (*ms)[i].Addr = p, addr
	}
	for rest := (*ms)[:len(bufs)]; len(rest) > 0; {
		n, err := pc.WriteBatch(rest, 0)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (b *hostBind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sock == nil {
		return nil
	}
	err := b.sock.Close()
	b.sock, b.pc = nil, nil
	return err
}

func (b *hostBind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	return &conn.StdNetEndpoint{AddrPort: a}, err
}

func (b *hostBind) SetMark(uint32) error { return nil }
func (b *hostBind) BatchSize() int       { return conn.IdealBatchSize }
