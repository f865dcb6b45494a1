package mesh

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"tugline.dev/tugline/shared/fleet"
)

// Carrier is what gossip runs over: a Mesh, or meshtest's.
type Carrier interface {
	Network
	ID() string
	Packets(port int) (Packets, error)
}

// GossipConfig describes this node to the others.
type GossipConfig struct {
	Carrier Carrier
	Cluster string // packets of another cluster are refused
	Meta    Meta
	Logger  *slog.Logger // nil: nothing is logged
}

// GossipMember is a node as gossip sees it.
type GossipMember struct {
	ID    string
	Alive bool // false: it left, or does not answer
	Meta  Meta // its last word; zero when it has not been heard, or can't be read
}

// Gossip spreads what nodes tell of themselves and notices who does not answer. It
// sees a dead node after about three seconds; one that is only slow is asked through
// others, and has two seconds to object, before it is called dead.
type Gossip struct {
	cfg     GossipConfig
	log     *slog.Logger
	list    *memberlist.Memberlist
	carrier *carrier
	nudge   chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once

	mu   sync.Mutex
	meta []byte
	want []string
	seen map[string]GossipMember
	left bool
}

// Timings of the gossip. Detection takes a probe's turn (half a second for each other
// node), the probe (one interval) and the suspicion (four intervals); a machine that
// is busy for a second loses a probe by it, and refutes.
const (
	probeInterval = 500 * time.Millisecond
	probeTimeout  = 250 * time.Millisecond
	suspicionMult = 4
	gossipEvery   = 200 * time.Millisecond
	syncEvery     = 15 * time.Second // whole state with one other node
	rejoinEvery   = 2 * time.Second  // nodes that should be there and are not
	streamTimeout = 3 * time.Second
	leaveTimeout  = time.Second
	goneAfter     = 30 * time.Second // for so long a dead node is still told things
	// A packet fits the tunnel's smallest MTU, whatever it is set to.
	gossipPacket = DefaultMTU - udpHeaders
)

// StartGossip opens the gossip's port. The node is alone until Join.
func StartGossip(c GossipConfig) (*Gossip, error) {
	if c.Carrier == nil || c.Cluster == "" || len(c.Cluster) > memberlist.LabelMaxSize {
		return nil, fmt.Errorf("start the gossip: it needs a carrier, and a cluster id of 1 to %d bytes: %w", memberlist.LabelMaxSize, fleet.BadRequest)
	}
	meta, err := c.Meta.encode()
	if err != nil {
		return nil, err
	}
	g := &Gossip{cfg: c, log: c.Logger, meta: meta, nudge: make(chan struct{}, 1), seen: map[string]GossipMember{}}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.carrier, err = newCarrier(c.Carrier, c.Cluster); err != nil {
		g.cancel()
		return nil, fmt.Errorf("start the gossip: %w", err)
	}
	mc := memberlist.DefaultLANConfig()
	mc.Name = c.Carrier.ID()
	mc.Label = c.Cluster
	mc.Transport = g.carrier
	mc.RequireNodeNames = true
	mc.BindAddr, mc.BindPort = Addr(c.Cluster, mc.Name).String(), PortGossip
	mc.AdvertiseAddr, mc.AdvertisePort = mc.BindAddr, mc.BindPort
	mc.ProbeInterval, mc.ProbeTimeout = probeInterval, probeTimeout
	mc.SuspicionMult, mc.SuspicionMaxTimeoutMult = suspicionMult, 2
	mc.GossipInterval, mc.PushPullInterval = gossipEvery, syncEvery
	mc.GossipToTheDeadTime = goneAfter
	mc.TCPTimeout = streamTimeout
	mc.UDPBufferSize = gossipPacket
	mc.EnableCompression = false // a few hundred bytes: not worth the processor
	mc.DeadNodeReclaimTime = time.Second
	mc.Delegate, mc.Events = delegate{g}, delegate{g}
	mc.Logger = log.New(lineLogger{g.log}, "", 0)
	if g.list, err = memberlist.Create(mc); err != nil {
		g.carrier.Shutdown()
		g.cancel()
		return nil, fmt.Errorf("start the gossip: %w", err)
	}
	g.wg.Go(g.rejoin)
	return g, nil
}

// Join gives the ids of the nodes that should be there. Those that gossip does not see
// alive are called, now and every two seconds, until they are: after a cut of any
// length the two sides find each other. It replaces what an earlier call said.
func (g *Gossip) Join(ids ...string) {
	g.mu.Lock()
	g.want = slices.Clone(ids)
	for id, m := range g.seen {
		if !m.Alive && !slices.Contains(ids, id) {
			delete(g.seen, id)
		}
	}
	g.mu.Unlock()
	g.carrier.poke()
}

// rejoin calls nodes that are missing.
func (g *Gossip) rejoin() {
	for {
		for _, id := range g.missing() {
			if g.ctx.Err() != nil {
				return
			}
			at := id + "/" + joinAddr(g.cfg.Cluster, id)
			if _, err := g.list.Join([]string{at}); err != nil {
				g.log.Debug("gossip with a missing node", "node", id, "err", err)
			}
		}
		select {
		case <-g.ctx.Done():
			return
		case <-g.carrier.poked:
		case <-time.After(jitter(rejoinEvery)):
		}
	}
}

func (g *Gossip) missing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(g.want), func(id string) bool {
		return id == g.cfg.Carrier.ID() || g.seen[id].Alive
	})
}

// Members are the nodes that should be there, this one, and whoever else was seen
// since Join was last called; by id.
func (g *Gossip) Members() []GossipMember {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []GossipMember
	for _, m := range g.seen {
		all = append(all, m)
	}
	for _, id := range g.want {
		if _, ok := g.seen[id]; !ok {
			all = append(all, GossipMember{ID: id})
		}
	}
	slices.SortFunc(all, func(a, b GossipMember) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Events has a value after any change of Members. Changes that come while nobody
// reads are one event.
func (g *Gossip) Events() <-chan struct{} { return g.nudge }

// SetMeta tells the others something new of this node.
func (g *Gossip) SetMeta(m Meta) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	g.mu.Lock()
	same := string(b) == string(g.meta)
	g.meta = b
	g.mu.Unlock()
	if same {
		return nil
	}
	// Its only error is that the word is not out within this time, and it need not be.
	_ = g.list.UpdateNode(time.Nanosecond)
	return nil
}

// Leave says goodbye, so that the others need not wonder; Close follows.
func (g *Gossip) Leave() error {
	if g.ctx.Err() != nil {
		return fmt.Errorf("leave the gossip: %w", net.ErrClosed)
	}
	g.mu.Lock()
	g.left = true
	g.mu.Unlock()
	if err := g.list.Leave(leaveTimeout); err != nil {
		return fmt.Errorf("leave the gossip: %w", err)
	}
	return nil
}

// Close ends the gossip without a word. With others about it takes a second, in which
// a probe that is under way ends, more while this machine is slow. It may be called
// again.
func (g *Gossip) Close() error {
	var err error
	g.once.Do(func() {
		g.cancel()
		others := g.list.NumMembers() > 1
		err = g.list.Shutdown()
		if others { // memberlist does not wait for its probe, nor says when it ends
			<-time.After(probeInterval * time.Duration(g.list.GetHealthScore()+2))
		}
	})
	g.wg.Wait()
	return err
}

// note keeps what memberlist says of a node.
func (g *Gossip) note(n *memberlist.Node, alive bool) {
	m := GossipMember{ID: n.Name, Alive: alive}
	meta, err := decodeMeta(n.Meta)
	if err != nil {
		g.log.Debug("gossip of a node can't be read", "node", n.Name, "err", err)
	}
	m.Meta = meta
	g.mu.Lock()
	g.seen[n.Name] = m
	g.mu.Unlock()
	select {
	case g.nudge <- struct{}{}:
	default:
	}
}

// delegate is what memberlist calls; it never waits.
type delegate struct{ g *Gossip }

func (d delegate) NodeMeta(int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return d.g.meta
}
func (d delegate) NotifyJoin(n *memberlist.Node)   { d.g.note(n, true) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.g.note(n, true) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.g.note(n, false) }
func (d delegate) NotifyMsg([]byte)                {}
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (d delegate) LocalState(bool) []byte          { return nil }
func (d delegate) MergeRemoteState([]byte, bool)   {}

// lineLogger hands memberlist's lines on at the debug level.
type lineLogger struct{ log *slog.Logger }

func (l lineLogger) Write(b []byte) (int, error) {
	l.log.Debug("memberlist", "detail", strings.TrimSpace(string(b)))
	return len(b), nil
}
