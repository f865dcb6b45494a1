package consensus

import (
	"sync"

	"github.com/hashicorp/raft"
)

// gatherer hands commands over to raft. One that comes while little is under way goes at
// once, by itself. What comes while raft has not stored what it was given is gathered, and
// goes as one entry when raft takes the next: in raft's queue it would have waited as long,
// and cost each node an entry of its own. Where much is under way, packs grow with it: else
// many small ones would be, each at the cost of a large one.
type gatherer struct {
	hand func(*pack) // gives a pack to raft, and does not wait

	mu      sync.Mutex
	open    []*pack // which raft was not given, the oldest first
	busy    *pack   // the newest that raft was given, until it has stored or answered it
	waiting int     // commands in open, those given up among them
	away    int     // commands that raft was given and has not answered
	held    bool    // nothing is handed over
}

// pack is what goes to raft as one entry: one command or several.
type pack struct {
	all    []*proposal
	size   int  // of the commands in it
	alone  bool // takes no other
	handed bool

	entry  []byte           // what raft was given
	sent   []*proposal      // those of all that are in it
	future raft.ApplyFuture // raft's answer to it
	done   chan struct{}    // closed once the proposals have their answers
}

// proposal is one command of a pack.
type proposal struct {
	pack    *pack
	command []byte
	given   bool    // up, before raft was given it
	answer  outcome // once the pack is done
}

// add takes a command in. With alone it shares no entry, and does not wait for one.
func (g *gatherer) add(command []byte, alone bool) *proposal {
	c := &proposal{command: command}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.room(packed(command), alone || len(command) > packable)
	c.pack = p
	p.all = append(p.all, c)
	if g.waiting++; alone {
		g.flush()
	}
	g.turn()
	return c
}

// turn hands over what is open if it is time: raft has stored all that it was given, and
// what is open is no less than half of what has no answer yet.
func (g *gatherer) turn() {
	if g.busy == nil && 2*g.waiting >= g.away {
		g.flush()
	}
}

// room gives the pack that a command of a size goes into.
func (g *gatherer) room(size int, alone bool) *pack {
	if n := len(g.open); n > 0 && !alone {
		if p := g.open[n-1]; !p.alone && len(p.all) < maxPack && packHead+p.size+size <= MaxEntry {
			p.size += size
			return p
		}
	}
	p := &pack{size: size, alone: alone, done: make(chan struct{})}
	g.open = append(g.open, p)
	return p
}

// flush hands over all that is open.
func (g *gatherer) flush() {
	if g.held {
		return
	}
	for i, p := range g.open {
		g.open[i] = nil
		if p.seal() {
			g.busy = p
			g.away += len(p.sent)
			g.hand(p)
		}
	}
	g.open, g.waiting = g.open[:0], 0
}

// seal makes the entry of what was not given up; false: nothing is left.
func (p *pack) seal() bool {
	p.handed = true
	p.sent = p.all
	for _, c := range p.all {
		if c.given {
			p.sent = left(p.all)
			break
		}
	}
	switch len(p.sent) {
	case 0:
		return false
	case 1:
		p.entry = p.sent[0].command
		return true
	}
	commands := make([][]byte, len(p.sent))
	size := packHead
	for i, c := range p.sent {
		commands[i] = c.command
		size += packed(c.command)
	}
	p.entry = appendPack(make([]byte, 0, size), commands)
	return true
}

func left(all []*proposal) (out []*proposal) {
	for _, c := range all {
		if !c.given {
			out = append(out, c)
		}
	}
	return out
}

// giveUp takes a command back, and says whether raft was not given it yet.
func (g *gatherer) giveUp(c *proposal) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.pack.handed {
		return false
	}
	c.given = true
	return true
}

// stored hears what raft has stored: it will take the next from its queue now.
func (g *gatherer) stored(logs []*raft.Log) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy == nil {
		return
	}
	for _, l := range logs {
		if b := g.busy.entry; len(b) > 0 && len(b) == len(l.Data) && &b[0] == &l.Data[0] {
			g.busy = nil
			g.turn()
			return
		}
	}
}

// answered hears that raft has answered a pack, which it may have done without storing
// it.
func (g *gatherer) answered(p *pack) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away -= len(p.sent)
	if g.busy == p {
		g.busy = nil
	}
	g.turn()
}

// hold keeps commands from raft, or lets them go again.
func (g *gatherer) hold(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = on
	if !on {
		g.turn()
	}
}

// settle gives the proposals of a pack their answers.
func (p *pack) settle() {
	err := p.future.Error()
	if err == nil {
		switch r := p.future.Response().(type) {
		case outcome:
			p.sent[0].answer = r
		case []outcome:
			for i, o := range r {
				p.sent[i].answer = o
			}
		}
		return
	}
	err = classify(err, p.future.Index())
	for _, c := range p.sent {
		c.answer = outcome{err: err}
	}
}
