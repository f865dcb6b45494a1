package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/shared/fleet"
)

const (
	cluster  = "c-simulated"
	hubCount = 3
	firstWeb = 8001 // the first hub's port for people and runners

	snapshotEvery = 300 // entries: often enough that a hub which was away needs one
)

// hubNode is a machine that runs a hub: what is on its disk, and its process if one
// runs.
type hubNode struct {
	w    *world
	id   string
	url  string
	port int
	dir  string
	log  *consensus.Memory // nil: a file in dir
	skew atomic.Int64      // nanoseconds that its wall clock is ahead

	mu     sync.Mutex
	inside *hub.Insides // nil while no process runs
	err    error        // why the process ended by itself
	kill   func(planned bool)
	fsm    consensus.FSM // of the process
	gone   chan struct{} // closed when the process has ended
}

func newHubNode(w *world, i int) *hubNode {
	n := &hubNode{w: w, id: fmt.Sprintf("n-%d", i+1), port: firstWeb + i}
	n.url = fmt.Sprintf("http://127.0.0.1:%d", n.port)
	n.dir = filepath.Join(w.dir, n.id)
	if !w.opt.Disk {
		n.log = consensus.NewMemory(w.t)
	}
	return n
}

// settle puts the node's identity on its disk before its first start, so that names
// are the same in every run.
func (n *hubNode) settle(founder bool) {
	name, id := "joining.json", map[string]any{"version": 1, "cluster": cluster, "node": n.id, "joined": !founder}
	if founder {
		name = "node.json"
	}
	b, err := json.Marshal(id)
	if err == nil {
		err = os.MkdirAll(n.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(n.dir, name), b, 0o600)
	}
	if err != nil {
		n.w.t.Fatal(err)
	}
}

// start runs a hub process on the node's disk. ticket is for its first start.
func (n *hubNode) start(ticket string) error {
	net := n.w.net.Node(n.id)
	l, err := net.Listen(n.port)
	if err != nil {
		return err
	}
	var inside hub.Insides
	var fsm consensus.FSM
	h, err := hub.New(hub.Config{
		Dir: n.dir, Listen: fmt.Sprintf("127.0.0.1:%d", n.port), Version: "simulated", Ticket: ticket, MinFree: 1,
		MeshListen: "127.0.0.1:1", MeshAdvertise: []string{"127.0.0.1:1"}, Network: net, Listener: l,
		Wall:    func() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) },
		Inspect: func(i hub.Insides) { inside = i },
		Log: func(c *consensus.Config) {
			if c.SnapshotEvery = snapshotEvery; n.log != nil {
				c.Dir, c.Memory = "", n.log
			}
			fsm = witness{c.FSM, n.w.court, n.id}
			c.FSM = fsm
		},
		Logger: n.w.logger(n.id),
	})
	if err != nil {
		l.Close()
		return fmt.Errorf("start hub %s: %w", n.id, err)
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "raft"), 0o700); err != nil { // a log in memory leaves none
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inside, n.gone, n.err, n.fsm = &inside, gone, nil, fsm
	var killed atomic.Bool
	n.kill = func(planned bool) {
		killed.Store(true)
		if !planned {
			n.w.net.Crash(n.id)
		}
		cancel()
		<-gone
		n.w.net.Crash(n.id)
	}
	n.w.hubs.wg.Go(func() {
		err := h.Run(ctx)
		n.mu.Lock()
		n.inside = nil
		if !killed.Load() {
			n.err = err
		}
		n.mu.Unlock()
		close(gone)
	})
	return nil
}

// stop ends the process: as kill -9 does, or as planned. What kill -9 would still do
// to the disk it does too, but nothing of it leaves the machine.
func (n *hubNode) stop(planned bool) {
	n.mu.Lock()
	kill := n.kill
	n.kill = nil
	n.mu.Unlock()
	if kill != nil {
		kill(planned)
	}
}

func (n *hubNode) live() (hub.Insides, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inside == nil {
		return hub.Insides{}, false
	}
	return *n.inside, true
}

// failed says why the process ended although nobody ended it.
func (n *hubNode) failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// hubSet is all hub nodes.
type hubSet struct {
	w     *world
	nodes []*hubNode
	wg    sync.WaitGroup
}

// found starts the first hub and has the others join it by tickets, until all vote.
func (s *hubSet) found(ctx context.Context) error {
	first := s.nodes[0]
	for i, n := range s.nodes {
		n.settle(i == 0)
	}
	if err := first.start(""); err != nil {
		return err
	}
	token := filepath.Join(first.dir, "operator.token")
	if err := s.w.within(ctx, 30*time.Second, "the first hub leads", func() bool { b, err := os.ReadFile(token); return err == nil && len(b) > 0 }); err != nil {
		return err
	}
	b, err := os.ReadFile(token)
	if err != nil {
		return err
	}
	s.w.token = strings.TrimSpace(string(b))
	p := newPerson(s.w, "p-founder")
	for _, n := range s.nodes[1:] {
		var ticket string
		err := s.w.within(ctx, 30*time.Second, "a hub's ticket", func() bool {
			ticket, err = p.ticket(ctx, fleet.TicketHub, 1)
			return err == nil
		})
		if err != nil {
			return fmt.Errorf("%w: %v", err, p.last)
		}
		if err := n.start(ticket); err != nil {
			return err
		}
	}
	return s.w.within(ctx, time.Minute, "all hubs vote", func() bool {
		m, err := p.members(ctx)
		voters := 0
		for _, one := range m.Members {
			if one.Role == "voter" {
				voters++
			}
		}
		return err == nil && voters == hubCount
	})
}

// pick gives a node by chance.
func (s *hubSet) pick(r *rand.Rand) *hubNode { return s.nodes[r.IntN(len(s.nodes))] }

// leader gives the node that leads as far as one can see, or nil.
func (s *hubSet) leader() *hubNode {
	for _, n := range s.nodes {
		if in, ok := n.live(); ok && in.Leading() {
			return n
		}
	}
	return nil
}

func (s *hubSet) ids() []string {
	var out []string
	for _, n := range s.nodes {
		out = append(out, n.id)
	}
	return out
}

// byAddress gives the node that serves at an address.
func (s *hubSet) byAddress(address string) *hubNode {
	_, port, _ := net.SplitHostPort(address)
	for _, n := range s.nodes {
		if fmt.Sprint(n.port) == port {
			return n
		}
	}
	return nil
}
