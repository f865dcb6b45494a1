package mesh

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	nic       = 1
	tunBatch  = 128  // packets handed to WireGuard at once
	linkQueue = 1024 // packets that wait for WireGuard; a full queue slows the sender down
)

// item is a packet on its way out: one of the stack, a probe, or a mark.
type item struct {
	pkt   *stack.PacketBuffer
	done  chan struct{} // neither: closed when all before it has gone
	to    [16]byte
	kind  byte
	stamp uint64
}

// linkEndpoint is the stack's network card.
type linkEndpoint struct {
	mtu    uint32
	queue  chan item
	closed chan struct{}
	up     atomic.Pointer[stack.NetworkDispatcher]
}

// WritePackets blocks while the queue is full: a sender that waits loses nothing,
// and one whose packet is dropped here would take it for a loss on the path.
func (e *linkEndpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for i, p := range pkts.AsSlice() {
		it := item{pkt: p.IncRef()}
		select {
		case e.queue <- it:
			continue
		default:
		}
		select {
		case e.queue <- it:
		case <-e.closed:
			p.DecRef()
			return i, &tcpip.ErrClosedForSend{}
		}
	}
	return pkts.Len(), nil
}

func (e *linkEndpoint) deliver(p *stack.PacketBuffer) {
	if d := e.up.Load(); d != nil && *d != nil {
		(*d).DeliverNetworkPacket(header.IPv6ProtocolNumber, p)
	}
}

func (e *linkEndpoint) Attach(d stack.NetworkDispatcher) { e.up.Store(&d) }
func (e *linkEndpoint) IsAttached() bool                 { d := e.up.Load(); return d != nil && *d != nil }
func (e *linkEndpoint) MTU() uint32                      { return e.mtu }

// Capabilities: WireGuard authenticates every packet, so the checksums inside would
// only cost time.
func (e *linkEndpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload
}

func (e *linkEndpoint) SetMTU(uint32)                           {}
func (e *linkEndpoint) MaxHeaderLength() uint16                 { return 0 }
func (e *linkEndpoint) LinkAddress() tcpip.LinkAddress          { return "" }
func (e *linkEndpoint) SetLinkAddress(tcpip.LinkAddress)        {}
func (e *linkEndpoint) Wait()                                   {}
func (e *linkEndpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (e *linkEndpoint) AddHeader(*stack.PacketBuffer)           {}
func (e *linkEndpoint) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (e *linkEndpoint) Close()                                  {}
func (e *linkEndpoint) SetOnCloseAction(func())                 {}

// TCP inside the tunnel. The stack's own defaults are made for a general host; this
// one carries a few long streams between machines that know each other.
const (
	minRTO       = 100 * time.Millisecond // the stack's 200 ms is a long time for a commit
	maxRTO       = 2 * time.Second        // a path that comes back is used within this
	maxRetries   = 7                      // of one segment; the connection ends some 9 s after the first
	keepIdle     = 3 * time.Second        // a silent one between nodes is asked after this,
	keepInterval = 1500 * time.Millisecond
	keepCount    = 3 // so it ends 7.5 s after the peer's last word;
	keepOthers   = 5 // five times as long for runners and guests, who may be many
	timeWait     = 2 * time.Second
	sendBuffer   = 1 << 20 // per connection, as a start; grows to maxBuffer
	maxBuffer    = 4 << 20
)

// newStack makes a host with one address that speaks TCP and UDP over the link.
func newStack(link *linkEndpoint, self netip.Addr) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
		HandleLocal:        true,
	})
	set := func(o tcpip.SettableTransportProtocolOption) error {
		if e := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); e != nil {
			return fmt.Errorf("set %T of the tunnel's TCP: %s", o, e)
		}
		return nil
	}
	sack, nagle, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPDelayEnabled(false), tcpip.TCPModerateReceiveBufferOption(true)
	// The stack's RACK loses its timers now and then when a burst is lost, and the
	// stream stands still for ever; without it, losses are found by SACK.
	recovery := tcpip.TCPRecovery(0)
	least, most := tcpip.TCPMinRTOOption(minRTO), tcpip.TCPMaxRTOOption(maxRTO)
	wait, retries := tcpip.TCPTimeWaitTimeoutOption(timeWait), tcpip.TCPMaxRetriesOption(maxRetries)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &recovery, &nagle, &moderate, &least, &most, &wait, &retries,
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: sendBuffer, Max: maxBuffer},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: sendBuffer, Max: maxBuffer},
	} {
		if err := set(o); err != nil {
			s.Destroy()
			return nil, err
		}
	}
	if e := s.CreateNIC(nic, link); e != nil {
		s.Destroy()
		return nil, fmt.Errorf("create the tunnel's network card: %s", e)
	}
	addr := tcpip.ProtocolAddress{Protocol: ipv6.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom16(self.As16()).WithPrefix()}
	if e := s.AddProtocolAddress(nic, addr, stack.AddressProperties{}); e != nil {
		s.Destroy()
		return nil, fmt.Errorf("give the tunnel its address %s: %s", self, e)
	}
	s.AddRoute(tcpip.Route{Destination: header.IPv6EmptySubnet, NIC: nic})
	return s, nil
}
