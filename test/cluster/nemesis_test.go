package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// nemesis makes faults by chance, one after the other and several at once.
type nemesis struct {
	w    *world
	rand *rand.Rand
	wg   sync.WaitGroup

	mu   sync.Mutex
	cuts map[[2]string]int // ways that are cut, by how many faults
	busy map[string]bool   // hubs that are being stopped or started
	made map[string]int    // faults by kind
}

func newNemesis(w *world) *nemesis {
	return &nemesis{w: w, rand: w.rand(7), cuts: map[[2]string]int{}, busy: map[string]bool{}, made: map[string]int{}}
}

// fault is one kind of it: it begins, and gives what ends it.
type fault struct {
	name   string
	weight int
	make   func(*nemesis) (end func())
	long   time.Duration // it lasts at most
}

var faults = []fault{
	{"a hub is cut off", 10, (*nemesis).cutHub, 20 * time.Second},
	{"the leader is cut off from the hubs", 10, (*nemesis).cutLeader, 20 * time.Second},
	{"hubs lose one way", 8, (*nemesis).halfCut, 15 * time.Second},
	{"runners are cut off", 10, (*nemesis).cutRunners, 40 * time.Second},
	{"the network is slow", 8, (*nemesis).slow, 10 * time.Second},
	{"the network loses", 8, (*nemesis).lose, 10 * time.Second},
	{"connections are reset", 8, (*nemesis).reset, time.Second},
	{"a hub is killed", 12, (*nemesis).killHub, 15 * time.Second},
	{"a hub is restarted", 5, (*nemesis).restartHub, 3 * time.Second},
	{"two hubs are down", 2, (*nemesis).killTwo, 10 * time.Second},
	{"leadership moves", 4, (*nemesis).transfer, time.Second},
	{"runners are killed", 14, (*nemesis).killRunners, 10 * time.Second},
	{"a machine goes down", 6, (*nemesis).killMachine, 20 * time.Second},
	{"a clock goes wrong", 3, (*nemesis).skew, 30 * time.Second},
}

// run makes faults until ctx ends, and then ends them all.
func (n *nemesis) run(ctx context.Context) {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	for {
		select {
		case <-time.After(between(n.rand, 500*time.Millisecond, 6*time.Second)):
		case <-ctx.Done():
			n.wg.Wait()
			return
		}
		k := n.rand.IntN(sum)
		for _, f := range faults {
			if k -= f.weight; k >= 0 {
				continue
			}
			n.w.debug("fault: %s", f.name)
			n.made[f.name]++
			end := f.make(n)
			if end == nil {
				break
			}
			lasts := between(n.rand, 100*time.Millisecond, f.long)
			n.wg.Go(func() {
				select {
				case <-time.After(lasts):
				case <-ctx.Done():
				}
				n.w.debug("over: %s", f.name)
				end()
			})
			break
		}
	}
}

// cut stops ways until the returned function is called.
func (n *nemesis) cut(ways ...[2]string) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range ways {
		if n.cuts[w]++; n.cuts[w] == 1 {
			n.w.net.Cut(w[0], w[1])
		}
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range ways {
			if n.cuts[w]--; n.cuts[w] == 0 {
				n.w.net.Restore(w[0], w[1])
			}
		}
	}
}

// both gives the two ways between one machine and others.
func both(id string, others []string) (ways [][2]string) {
	for _, o := range others {
		if o != id {
			ways = append(ways, [2]string{id, o}, [2]string{o, id})
		}
	}
	return ways
}

func (n *nemesis) cutHub() func() {
	h := n.w.hubs.pick(n.rand)
	return n.cut(both(h.id, n.w.everybody())...)
}

func (n *nemesis) cutLeader() func() {
	h := n.w.hubs.leader()
	if h == nil {
		return nil
	}
	return n.cut(both(h.id, n.w.hubs.ids())...)
}

func (n *nemesis) halfCut() func() {
	a, b := n.w.hubs.pick(n.rand), n.w.hubs.pick(n.rand)
	if a == b {
		return nil
	}
	return n.cut([2]string{a.id, b.id})
}

func (n *nemesis) cutRunners() func() {
	var ways [][2]string
	for range 1 + n.rand.IntN(20) {
		ways = append(ways, both(n.machine().id, n.w.hubs.ids())...)
	}
	return n.cut(ways...)
}

// machine gives a machine by chance, a busy one rather.
func (n *nemesis) machine() *machine {
	if n.rand.IntN(4) == 0 {
		return n.w.fleet[n.rand.IntN(hotCount)]
	}
	return n.w.fleet[n.rand.IntN(len(n.w.fleet))]
}

func (n *nemesis) slow() func() {
	if n.rand.IntN(2) == 0 {
		n.w.net.Delay(5*time.Millisecond, between(n.rand, 6*time.Millisecond, 150*time.Millisecond))
		return func() { n.w.net.Delay(minDelay, maxDelay) }
	}
	h := n.w.hubs.pick(n.rand)
	late := between(n.rand, 50*time.Millisecond, time.Second)
	n.w.net.DelayLink(h.id, "", late/2, late)
	return func() { n.w.net.DelayLink(h.id, "", minDelay, maxDelay) }
}

func (n *nemesis) lose() func() {
	p := n.rand.Float64() * 0.3
	n.w.net.Loss(p)
	return func() { n.w.net.Loss(0) }
}

func (n *nemesis) reset() func() {
	a := n.w.hubs.pick(n.rand)
	for _, o := range n.w.everybody() {
		if n.rand.IntN(3) == 0 && o != a.id {
			n.w.net.Reset(a.id, o)
		}
	}
	return nil
}

// claim reserves a hub for stopping; false: somebody else is at it.
func (n *nemesis) claim(h *hubNode) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy[h.id] {
		return false
	}
	n.busy[h.id] = true
	return true
}

// down stops a hub and gives what starts it again.
func (n *nemesis) down(h *hubNode, planned bool) func() {
	if h == nil || !n.claim(h) {
		return nil
	}
	stopped := make(chan struct{})
	n.wg.Go(func() {
		h.stop(planned)
		if n.w.opt.Broken == thinDisks && !planned {
			h.thin()
		}
		close(stopped)
	})
	return func() {
		<-stopped
		if err := h.start(""); err != nil {
			n.w.wrong("%v", err)
		}
		n.mu.Lock()
		n.busy[h.id] = false
		n.mu.Unlock()
	}
}

func (n *nemesis) killHub() func() {
	if l := n.w.hubs.leader(); l != nil && n.rand.IntN(2) == 0 {
		return n.down(l, false)
	}
	return n.down(n.w.hubs.pick(n.rand), false)
}

func (n *nemesis) restartHub() func() { return n.down(n.w.hubs.pick(n.rand), true) }

func (n *nemesis) killTwo() func() {
	i := n.rand.IntN(hubCount)
	a, b := n.down(n.w.hubs.nodes[i], false), n.down(n.w.hubs.nodes[(i+1)%hubCount], false)
	return func() {
		for _, end := range []func(){a, b} {
			if end != nil {
				end()
			}
		}
	}
}

func (n *nemesis) transfer() func() {
	p := newPerson(n.w, fmt.Sprintf("p-%02d", n.rand.IntN(2)))
	p.at = n.rand.IntN(hubCount)
	n.wg.Go(func() {
		_, err := p.ask(context.Background(), http.MethodPost, "/v1/members/transfer", "", nil)
		n.w.debug("transfer: %v %v", p.last, err)
	})
	return nil
}

func (n *nemesis) killRunners() func() {
	var down []*machine
	for range 1 + n.rand.IntN(5) {
		down = append(down, n.machine())
	}
	return n.crash(down, false, false)
}

func (n *nemesis) killMachine() func() {
	return n.crash([]*machine{n.machine()}, true, n.rand.IntN(5) == 0)
}

// crash kills runners and gives what starts them again.
func (n *nemesis) crash(all []*machine, whole, forgets bool) func() {
	var down []*machine
	for _, m := range all {
		n.mu.Lock()
		ok := !n.busy[m.id]
		n.busy[m.id] = true
		n.mu.Unlock()
		if !ok {
			continue
		}
		forgetful := n.w.opt.Broken == forgetful
		m.crash(whole && !forgetful)
		if forgets || forgetful {
			m.forget()
		}
		down = append(down, m)
	}
	return func() {
		for _, m := range down {
			m.boot()
			n.mu.Lock()
			n.busy[m.id] = false
			n.mu.Unlock()
		}
	}
}

func (n *nemesis) skew() func() {
	h := n.w.hubs.pick(n.rand)
	by := between(n.rand, -20*time.Second, 20*time.Second)
	h.skew.Store(int64(by))
	return func() { h.skew.Store(0) }
}
