// Package mesh joins the nodes of a cluster by WireGuard in user space: no root, no
// network device, one UDP port. Inside the tunnel runs a TCP/IP stack of its own,
// with one address for each node, computed from the node's id. A connection's source
// proves its peer, since WireGuard takes packets with that source from that peer's
// key alone. Guests (who hold a ticket) reach the join port and nothing else,
// runners what was opened for them.
//
// It guarantees that a peer which leaves the set is refused and cut at once, that a
// key may change at both ends without any connection ending, and that a peer is
// found again within seconds when its address changes. Who belongs to the set, and
// where keys are kept, is the caller's business. The gossip on top (Gossip) tells
// who is alive; it decides nothing.
package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"tugline.dev/tugline/shared/fleet"
)

// Network is what runs on top of the mesh needs of it; meshtest.Node is another.
type Network interface {
	Listen(port int) (net.Listener, error)
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
}

// The packets inside the tunnel have this size unless the configuration says
// another. The smallest that IPv6 allows, it leaves 60 bytes (over IPv4) or 80 (over
// IPv6) for WireGuard below 1,360, which every usual path carries.
const (
	DefaultMTU = 1280
	MaxMTU     = 65535 - 80
)

// Config describes this node.
type Config struct {
	Cluster string       // the cluster's id
	ID      string       // this node's id
	Key     PrivateKey   // this node's key
	Listen  string       // UDP host:port; empty host: all addresses; port 0 or empty: any port
	MTU     int          // bytes inside the tunnel, 1280 to 65455; 0 = DefaultMTU
	Logger  *slog.Logger // nil: nothing is logged

	class Class
	addr  netip.Addr
}

// Mesh is this node's end of all tunnels. Its methods may be called at any time from
// any goroutine.
type Mesh struct {
	cfg    Config
	log    *slog.Logger
	tun    *tunnel
	dev    *device.Device
	stack  *stack.Stack
	host   netip.Addr
	port   uint16
	myself *member

	rekeyed atomic.Int64 // when this node's key changed, in ns since the mesh began

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	key       PrivateKey
	members   map[string]*member // by class and id, see name
	listeners map[*Listener]struct{}
	packets   map[*PacketConn]struct{}
	open      ports
	closed    bool
}

// New opens the UDP port and brings the tunnel up, with no peers yet.
func New(c Config) (*Mesh, error) {
	if c.Cluster == "" || c.ID == "" {
		return nil, fmt.Errorf("start the mesh: it needs the cluster's id and the node's: %w", fleet.BadRequest)
	}
	c.class, c.addr = ClassNode, Addr(c.Cluster, c.ID)
	return start(c)
}

// start is New for every class of participant.
func start(c Config) (*Mesh, error) {
	if c.Key.IsZero() {
		return nil, fmt.Errorf("start the mesh: it has no key: %w", fleet.BadRequest)
	}
	c.MTU = cmp.Or(c.MTU, DefaultMTU)
	if c.MTU < DefaultMTU || c.MTU > MaxMTU {
		return nil, fmt.Errorf("start the mesh: MTU %d is not within %d and %d: %w", c.MTU, DefaultMTU, MaxMTU, fleet.BadRequest)
	}
	host, port, err := parseListen(c.Listen)
	if err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var bind conn.Bind = &hostBind{host: host}
	if host.IsUnspecified() {
		bind = conn.NewDefaultBind()
	}

	m := &Mesh{
		cfg: c, log: c.Logger, host: host, key: c.Key,
		members: map[string]*member{}, listeners: map[*Listener]struct{}{}, packets: map[*PacketConn]struct{}{},
	}
	m.open = ports{ClassGuest: {PortJoin: true}, ClassRunner: {}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.myself = newMember(c.ID, c.class, c.addr)
	m.tun = &tunnel{
		cluster: c.Cluster, mtu: c.MTU, self: c.addr.As16(), began: time.Now().Add(-time.Nanosecond),
		link:   &linkEndpoint{mtu: uint32(c.MTU), queue: make(chan item, linkQueue), closed: make(chan struct{})},
		events: make(chan tun.Event, 1),
	}
	m.tun.table.Store(newTable(nil))
	m.publishPorts()
	own := keyAddr(c.Cluster, c.Key.Public()).As16()
	m.tun.keys.Store(&ownKeys{now: own, before: own})
	if m.stack, err = newStack(m.tun.link, c.addr); err != nil {
		return nil, err
	}
	m.dev = device.NewDevice(m.tun, fanBind{bind}, deviceLogger(c.Logger))
	if err := m.listen(port); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// listen opens the UDP port. The device keeps its key to itself, and asks for an
// address in vain: the port is read back from its own description.
func (m *Mesh) listen(port uint16) error {
	if err := m.dev.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\n", m.key.hex(), port)); err != nil {
		return fmt.Errorf("set up the mesh: %w", err)
	}
	if err := m.dev.Up(); err != nil {
		return fmt.Errorf("listen on UDP %s for the mesh: %w", m.cfg.Listen, err)
	}
	state, err := m.describe()
	if err != nil {
		return err
	}
	m.port = state.port
	return nil
}

func parseListen(listen string) (netip.Addr, uint16, error) {
	if listen == "" {
		return netip.IPv6Unspecified(), 0, nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("listen on UDP %q for the mesh: want host:port, as in 10.0.0.5:7441 or :7441: %w", listen, errors.Join(err, fleet.BadRequest))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("listen on UDP %q for the mesh: %q is no port: %w", listen, port, fleet.BadRequest)
	}
	if host == "" {
		return netip.IPv6Unspecified(), uint16(n), nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil { // a name: this machine's own, so it resolves at once or not at all
		ips, err := net.LookupIP(host)
		if err != nil || len(ips) == 0 {
			return netip.Addr{}, 0, fmt.Errorf("listen on UDP %q for the mesh: the host does not resolve: %w", listen, errors.Join(err, fleet.BadRequest))
		}
		addr, _ = netip.AddrFromSlice(ips[0])
	}
	return addr.Unmap(), uint16(n), nil
}

// ListenAddr is where the UDP port is open; the address is unspecified when it is
// open on all of them.
func (m *Mesh) ListenAddr() netip.AddrPort { return netip.AddrPortFrom(m.host, m.port) }

// ID is this node's id.
func (m *Mesh) ID() string { return m.cfg.ID }

// PublicKey is the key that this node uses now.
func (m *Mesh) PublicKey() PublicKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key.Public()
}

// Close cuts everything and frees the port. It may be called again.
func (m *Mesh) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		m.wg.Wait()
		return nil
	}
	m.closed = true
	m.cancel()
	var cut []*Conn
	for _, p := range m.everybody() {
		cut = append(cut, m.retire(p)...)
	}
	cut = append(cut, m.retire(m.myself)...)
	listeners, packets := m.listeners, m.packets
	m.listeners, m.packets = nil, nil
	m.mu.Unlock()

	for l := range listeners {
		l.Close()
	}
	for p := range packets {
		p.Close()
	}
	for _, c := range cut {
		c.cut(net.ErrClosed)
	}
	m.wg.Wait()
	m.tun.flush()
	m.tun.Close()
	m.dev.Close()
	m.stack.Destroy()
	return nil
}

// deviceLogger hands WireGuard's own lines to slog at the debug level: a handshake
// that fails is ordinary while a peer is away.
func deviceLogger(log *slog.Logger) *device.Logger {
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return &device.Logger{Verbosef: device.DiscardLogf, Errorf: device.DiscardLogf}
	}
	line := func(format string, args ...any) {
		log.Debug("wireguard", "detail", fmt.Sprintf(format, args...))
	}
	return &device.Logger{Verbosef: line, Errorf: line}
}
