package mesh

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"tugline.dev/tugline/shared/fleet"
)

// carrier is memberlist's transport over the tunnel. It goes by the names of nodes;
// addresses are there because memberlist wants them.
type carrier struct {
	over    Carrier
	cluster string
	packets Packets
	streams net.Listener
	got     chan *memberlist.Packet
	conns   chan net.Conn
	poked   chan struct{}
	ctx     context.Context // ends with Shutdown
	cancel  context.CancelFunc
	once    sync.Once
	wg      sync.WaitGroup

	mu   sync.Mutex
	live map[*gossipConn]struct{} // nil after Shutdown
}

// gossipConn is a stream that Shutdown ends: memberlist would wait for its deadline.
type gossipConn struct {
	net.Conn
	of *carrier
}

func (c *gossipConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.live, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// keep remembers a stream, or closes it when it is too late.
func (c *carrier) keep(conn net.Conn) (net.Conn, error) {
	k := &gossipConn{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.live[k] = struct{}{}
	return k, nil
}

func newCarrier(over Carrier, cluster string) (*carrier, error) {
	c := &carrier{
		over: over, cluster: cluster,
		got: make(chan *memberlist.Packet, 256), conns: make(chan net.Conn, 8),
		poked: make(chan struct{}, 1), live: map[*gossipConn]struct{}{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var err error
	if c.packets, err = over.Packets(PortGossip); err != nil {
		return nil, err
	}
	if c.streams, err = over.Listen(PortGossip); err != nil {
		c.packets.Close()
		return nil, err
	}
	c.wg.Go(c.receive)
	c.wg.Go(c.accept)
	return c, nil
}

func joinAddr(cluster, id string) string {
	return netip.AddrPortFrom(Addr(cluster, id), PortGossip).String()
}

// poke has the missing nodes called now.
func (c *carrier) poke() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

// receive drops what memberlist is too slow for: it is gossip.
func (c *carrier) receive() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := c.packets.ReadFrom(buf)
		if err != nil {
			return
		}
		at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(Addr(c.cluster, from), PortGossip))
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: at, Timestamp: time.Now()}
		select {
		case c.got <- p:
		default:
		}
	}
}

func (c *carrier) accept() {
	for {
		conn, err := c.streams.Accept()
		if err == nil {
			conn, err = c.keep(conn)
		}
		if err != nil {
			return
		}
		select {
		case c.conns <- conn:
		case <-c.ctx.Done():
			conn.Close()
			return
		}
	}
}

func (c *carrier) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IP(Addr(c.cluster, c.over.ID()).AsSlice()), PortGossip, nil
}

// WriteToAddress never fails: a packet that can't be sent is a lost one, and it is
// for the probes to notice that a node is gone.
func (c *carrier) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	_ = c.packets.WriteTo(b, to.Name)
	return time.Now(), nil
}

func (c *carrier) DialAddressTimeout(to memberlist.Address, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	conn, err := c.over.Dial(ctx, to.Name, PortGossip)
	if err != nil {
		// The kind of error by which memberlist knows that the far end is to blame.
		return nil, &net.OpError{Op: "dial", Net: "mesh", Err: err}
	}
	return c.keep(conn)
}

// WriteTo and DialTimeout would go by address: names are required, so they are not used.
func (c *carrier) WriteTo(b []byte, addr string) (time.Time, error) {
	return time.Time{}, fmt.Errorf("send gossip to %s: it has no name: %w", addr, fleet.BadRequest)
}

func (c *carrier) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	return nil, fmt.Errorf("dial %s for gossip: it has no name: %w", addr, fleet.BadRequest)
}

func (c *carrier) PacketCh() <-chan *memberlist.Packet { return c.got }
func (c *carrier) StreamCh() <-chan net.Conn           { return c.conns }

func (c *carrier) Shutdown() error {
	c.once.Do(func() {
		c.cancel()
		c.packets.Close()
		c.streams.Close()
		c.mu.Lock()
		live := c.live
		c.live = nil
		c.mu.Unlock()
		for conn := range live {
			conn.Close()
		}
	})
	c.wg.Wait()
	return nil
}
