package cluster

import (
	"bytes"
	"hash/fnv"
	"io"
	"sync"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// court hears every command that is applied, once, in the order of the log, and judges
// whether it might have come to pass as things stood. It has a state of its own, to
// which commands are applied one by one, whatever the nodes do with many of them.
type court struct {
	w     *world
	wrong func(format string, args ...any)

	mu    sync.Mutex
	state *state.Machine
	last  uint64            // number of the newest command
	heard map[uint64]uint64 // sum of each command by its number
	bent  map[uint64][]byte // commands that are not what was proposed, where something is wrong on purpose
	cases map[string]int    // what was judged, by kind
}

func newCourt(w *world, wrong func(string, ...any)) *court {
	return &court{w: w, wrong: wrong, state: state.New(), heard: map[uint64]uint64{}, bent: map[uint64][]byte{}, cases: map[string]int{}}
}

// hear takes in that a node applies a command, and gives the one that it is to apply.
func (c *court) hear(node string, number uint64, entry []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := fnv.New64a()
	h.Write(entry)
	if sum, ok := c.heard[number]; ok && sum != h.Sum64() {
		c.wrong("%s applies another command as number %d than was applied before", node, number)
	}
	c.heard[number] = h.Sum64()
	if number > c.last {
		c.last = number
		if other := c.bend(entry); other != nil {
			c.bent[number] = other
		}
		c.judge(number, c.as(number, entry))
	}
	return c.as(number, entry)
}

func (c *court) as(number uint64, entry []byte) []byte {
	if b := c.bent[number]; b != nil {
		return b
	}
	return entry
}

// judge applies a command to the court's own state and looks at what it did.
func (c *court) judge(number uint64, entry []byte) {
	head, cmd, err := state.Decode(entry)
	if err != nil {
		c.wrong("command %d cannot be read: %v", number, err)
		return
	}
	before := c.state.View()
	res, changes, err := c.state.Apply(number, entry)
	if err != nil {
		c.wrong("command %d cannot be applied: %v", number, err)
		return
	}
	if res.Code == "" && !res.Repeated {
		m := matter{c, head, cmd, before, c.state.View(), res, changes}
		m.judge()
	}
}

// sum is what a node's whole state comes to.
func sum(s interface {
	Snapshot() (func(io.Writer) error, error)
}) (uint64, error) {
	write, err := s.Snapshot()
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	err = write(h)
	return h.Sum64(), err
}

// Snapshot is that of the court's own state.
func (c *court) Snapshot() (func(io.Writer) error, error) { return c.state.Snapshot(), nil }

// witness is the state machine of a node, with the court listening.
type witness struct {
	consensus.FSM
	c    *court
	node string
}

func (x witness) Apply(number uint64, command []byte) (any, error) {
	return x.FSM.Apply(number, x.c.hear(x.node, number, bytes.Clone(command)))
}

func (x witness) Begin()                  { x.FSM.(consensus.Batcher).Begin() }
func (x witness) End()                    { x.FSM.(consensus.Batcher).End() }
func (x witness) Check(r io.Reader) error { return x.FSM.(consensus.Checker).Check(r) }

// owner gives the machine of a runner.
func (w *world) owner(r fleet.RunnerID) *machine {
	for _, m := range w.fleet {
		if m.who.Runner == r {
			return m
		}
	}
	return nil
}
