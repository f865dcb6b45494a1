// Package meshtest is a network in memory, for tests: nodes that listen, dial and
// send packets as in a mesh, over links that can be cut, slowed, made lossy, and
// healed. It does no input or output and waits on channels and timers only, so that
// it lives inside a testing/synctest bubble. Chance comes from a seed: the same calls
// in the same order meet the same faults.
package meshtest

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// How streams behave, after TCP in the real mesh.
const (
	// Buffer is how many bytes one direction of a connection holds; more block.
	Buffer = 256 << 10
	// GiveUp is how long bytes may lie unanswered on a cut link before the connection
	// is reset, and for how long a dial over one waits.
	GiveUp = 10 * time.Second
	// Resend is what one loss costs a stream; losses in a row double it.
	Resend = 200 * time.Millisecond
	// backlog is how many connections wait for Accept; more are refused.
	backlog = 128
	// queue is how many packets wait to be read; more are lost.
	queue = 1024
)

// Network is the whole of it.
type Network struct {
	seed uint64

	mu      sync.Mutex
	nodes   map[string]*Node
	down    map[[2]string]bool // from, to: nothing goes this way
	delay   map[[2]string]span // "" stands for any
	loss    map[[2]string]float64
	count   map[[2]string]uint64 // connections so far, for their chance
	known   map[string]bool      // ids, of crashed nodes too
	streams map[*half]struct{}   // that somebody still holds
	news    map[*conn]func()     // of dead ends, that can't be told yet
	packets *rand.Rand
}

// span is a delay chosen anew for each write.
type span struct{ min, max time.Duration }

// New makes a network without nodes.
func New(seed uint64) *Network {
	return &Network{
		seed: seed, nodes: map[string]*Node{}, down: map[[2]string]bool{}, delay: map[[2]string]span{},
		loss: map[[2]string]float64{}, count: map[[2]string]uint64{}, known: map[string]bool{}, streams: map[*half]struct{}{}, news: map[*conn]func(){},
		packets: rand.New(rand.NewPCG(seed, 0)),
	}
}

// Node gives the node with this id: a new one at first and after Crash or Close.
func (n *Network) Node(id string) *Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[id] = true
	if n.nodes[id] == nil {
		n.nodes[id] = &Node{net: n, id: id, listeners: map[int]*listener{}, packets: map[int]*packets{}, ends: map[*conn]struct{}{}}
	}
	return n.nodes[id]
}

// Partition cuts the network into groups: nodes reach those of their group and no
// other. Who is in no group is alone. It replaces all cuts made before.
func (n *Network) Partition(groups ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.down)
	for a := range n.known {
		for b := range n.known {
			if a != b && !slices.ContainsFunc(groups, func(g []string) bool { return slices.Contains(g, a) && slices.Contains(g, b) }) {
				n.down[[2]string{a, b}] = true
			}
		}
	}
	n.changed()
}

// Cut stops what goes from one node to another, in that direction only.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[[2]string{from, to}] = true
	n.changed()
}

// Isolate stops everything from and to a node.
func (n *Network) Isolate(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.known {
		if other != id {
			n.down[[2]string{id, other}], n.down[[2]string{other, id}] = true, true
		}
	}
	n.changed()
}

// Restore lets one direction through again.
func (n *Network) Restore(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.down, [2]string{from, to})
	n.changed()
}

// Heal ends all cuts, delays and losses. What waited on a cut link goes on.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.down)
	clear(n.delay)
	clear(n.loss)
	n.changed()
}

// Delay makes everything take between min and max from now on.
func (n *Network) Delay(min, max time.Duration) { n.DelayLink("", "", min, max) }

// DelayLink does so in one direction between two nodes; "" stands for any node.
func (n *Network) DelayLink(from, to string, min, max time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[[2]string{from, to}] = span{min, max}
}

// Loss gives the chance, 0 to 1, that a packet is lost. A stream loses nothing: it is
// late by Resend, twice that if the second try is lost too, and reset after the sixth.
func (n *Network) Loss(p float64) { n.LossLink("", "", p) }

// LossLink does so in one direction between two nodes; "" stands for any node.
func (n *Network) LossLink(from, to string, p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss[[2]string{from, to}] = p
}

// Reset breaks every connection between two nodes; both ends see it.
func (n *Network) Reset(a, b string) {
	for _, c := range n.ends(func(c *conn) bool { return c.from.id == a && c.to.id == b || c.from.id == b && c.to.id == a }) {
		c.fail(errReset)
	}
}

// Crash ends a node as kill -9 does: its listeners and connections are gone, and
// nothing of it is sent any more. Peers that can be reached see a reset. Node(id) then
// gives its successor.
func (n *Network) Crash(id string) {
	n.mu.Lock()
	d := n.nodes[id]
	n.mu.Unlock()
	if d != nil {
		d.Close()
	}
}

// ends lists the connections' ends that fit, in a fixed order.
func (n *Network) ends(fit func(*conn) bool) []*conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*conn
	for _, d := range n.nodes {
		for c := range d.ends {
			if fit(c) {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return int(a.serial) - int(b.serial) })
	return all
}

// changed lets every stream look at its link again. The caller holds mu.
func (n *Network) changed() {
	for h := range n.streams {
		h.link(n.down[h.way])
	}
	for c, tell := range n.news {
		if !n.down[c.in.way] && !n.down[c.out.way] {
			delete(n.news, c)
			tell()
		}
	}
}

// cut says whether nothing goes this way.
func (n *Network) cut(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down[[2]string{from, to}]
}

// ways are the keys under which a link's faults may lie, the most special first.
func ways(way [2]string) [4][2]string {
	return [4][2]string{way, {way[0], ""}, {"", way[1]}, {"", ""}}
}

// latency draws how long one write takes; reset when it was lost too often.
func (n *Network) latency(way [2]string, chance *rand.Rand) (d time.Duration, reset bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d = n.drawDelay(way, chance)
	p := n.lossOf(way)
	for again := Resend; p > 0 && chance.Float64() < p; again *= 2 {
		if again > 32*Resend {
			return 0, true
		}
		d += again
	}
	return d, false
}

func (n *Network) drawDelay(way [2]string, chance *rand.Rand) time.Duration {
	for _, w := range ways(way) {
		if s, ok := n.delay[w]; ok {
			if s.max > s.min {
				return s.min + time.Duration(chance.Int64N(int64(s.max-s.min)))
			}
			return s.min
		}
	}
	return 0
}

func (n *Network) lossOf(way [2]string) float64 {
	for _, w := range ways(way) {
		if p, ok := n.loss[w]; ok {
			return p
		}
	}
	return 0
}

// chance is a connection's own source, so that one link's traffic does not change
// another's fate.
func (n *Network) chance(way [2]string) (*rand.Rand, uint64) {
	n.count[way]++
	h := fnv.New64a()
	h.Write([]byte(way[0] + "\x00" + way[1]))
	return rand.New(rand.NewPCG(n.seed, h.Sum64()+n.count[way])), n.count[way]
}
