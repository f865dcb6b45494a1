package consensus

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// wordEvery is how often a node asks each other one what it has heard of it.
	wordEvery = 2 * time.Second

	// askAgain is the pause until then while it may not vote.
	askAgain = 100 * time.Millisecond

	// keepEvery is the shortest pause between two writes of what was heard, where no
	// append takes it along.
	keepEvery = 10 * time.Second

	// askBefore bounds how long entries of a leader wait until it has been asked.
	askBefore = 2 * time.Second

	// lastWords is how often another node is told that this one stops.
	lastWords = maxIdle + 1
)

// remember reads what was heard before this process.
func (n *Node) remember() error {
	v, err := n.variable(keyHeard)
	if err == nil {
		n.known.marks, err = parseHeard([]byte(v))
	}
	return err
}

// acquaint asks the other nodes, again and again, what they have heard of this one, and keeps
// what it hears of them.
func (n *Node) acquaint() {
	if n.cfg.Transport == nil {
		return
	}
	look := time.NewTimer(0)
	defer look.Stop()
	kept := time.Now()
	for {
		select {
		case <-look.C:
		case <-n.known.wake:
		case <-n.stopping:
			return
		}
		n.fold()
		for _, id := range n.toAsk() {
			n.asks.Go(func() { n.ask(id) })
		}
		n.clear()
		if heard := n.known.keep.Load(); heard != nil && time.Since(kept) >= keepEvery {
			if n.store.Set(keyHeard, *heard) == nil {
				n.known.keep.CompareAndSwap(heard, nil)
			}
			kept = time.Now()
		}
		if n.known.cleared.Load() {
			look.Reset(wordEvery)
		} else {
			look.Reset(askAgain)
		}
	}
}

// fellows are the other members, and those of them who have a vote.
func (n *Node) fellows() (all, voters []string) {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if id := string(s.ID); id != n.cfg.NodeID {
			if all = append(all, id); s.Suffrage == raft.Voter {
				voters = append(voters, id)
			}
		}
	}
	return all, voters
}

// toAsk are those who are not being asked right now.
func (n *Node) toAsk() []string {
	ids, _ := n.fellows()
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.spoke {
		if !slices.Contains(ids, id) && !k.answered[id] {
			ids = append(ids, id)
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return k.asking[id] })
	for _, id := range ids {
		k.asking[id] = true
	}
	return ids
}

// clear lets this node vote once enough of the others have answered.
func (n *Node) clear() {
	k := &n.known
	if k.cleared.Load() || k.refused.Load() {
		return
	}
	_, voters := n.fellows()
	answered := 0
	k.mu.Lock()
	for _, id := range voters {
		if k.answered[id] {
			answered++
		}
	}
	k.mu.Unlock()
	if enough(len(voters), answered, time.Since(n.opened), n.cfg.Heartbeat/2) {
		k.cleared.Store(true)
		n.log.Debug("this node may vote", "answered", answered, "of", len(voters))
	}
}

// ask asks one node.
func (n *Node) ask(id string) {
	k := &n.known
	defer func() {
		k.mu.Lock()
		delete(k.asking, id)
		k.mu.Unlock()
	}()
	w := n.trans.(*wire)
	var a answer
	q := n.question("")
	err := w.ask(id, q, &a)
	k.mu.Lock()
	first := !k.answered[id]
	k.mu.Unlock()
	if err != nil && first && n.knowsNoQuestions(w, id, err) {
		err = nil
	}
	if err != nil {
		n.log.Debug("node does not say what it has heard", "from", id, "err", err)
		return
	}
	if err := n.hearBack(id, q, &a); err != nil {
		n.standDown(err)
		return
	}
	if !first {
		return
	}
	k.mu.Lock()
	k.answered[id] = true
	close(k.more)
	k.more = make(chan struct{})
	k.mu.Unlock()
	n.clear()
}

// knowsNoQuestions says whether a node that ended the connection at a question is of an older
// version: it answers other messages, and ends the connection at a question again.
func (n *Node) knowsNoQuestions(w *wire, id string, err error) bool {
	ended := func(err error) bool {
		var remote errRemote
		var slow net.Error
		return err != nil && !errors.As(err, &remote) && !(errors.As(err, &slow) && slow.Timeout())
	}
	if !ended(err) {
		return false
	}
	// Nobody gives anything for a pre-vote of a term that is over.
	if w.link(id).call(false, w.quick, &raft.RequestPreVoteRequest{RPCHeader: n.header()}, new(raft.RequestPreVoteResponse), nil) != nil {
		return false
	}
	return ended(w.ask(id, n.question(""), new(answer)))
}

// question is what this node tells of itself.
func (n *Node) question(refused string) *question {
	q := &question{
		RPCHeader: n.header(), Run: n.known.run, Up: time.Since(n.opened),
		Cleared: n.known.cleared.Load() && !n.known.refused.Load(), Refused: refused,
	}
	q.Held.Term, q.Held.Index = n.held()
	q.Held.Vote = n.raft.CurrentTerm()
	q.Last = n.last()
	n.known.mu.Lock()
	q.Heard = maps.Clone(n.known.marks)
	n.known.mu.Unlock()
	return q
}

// hearBack takes an answer in. An error says that this process must not go on.
func (n *Node) hearBack(from string, q *question, a *answer) error {
	n.hearAll(a.Heard)
	if a.Superseded && n.last() == q.Last { // else it has more now than the other was known to have
		return fmt.Errorf("node %s hears it: %w", from, ErrTwin)
	}
	if n.joining.Load() {
		return nil // it has no vote to have forgotten, or is found to have lost its disk
	}
	return judge(n.last(), from, a.You)
}

// standDown stops this node, and tells the others why.
func (n *Node) standDown(err error) {
	if !n.known.refused.CompareAndSwap(false, true) {
		return
	}
	var tell sync.WaitGroup
	w := n.trans.(*wire)
	q := n.question(err.Error())
	ids, _ := n.fellows()
	for _, id := range ids {
		tell.Go(func() {
			// The first connections may be old ones.
			for range lastWords {
				err := w.ask(id, q, new(answer))
				if err == nil {
					return
				}
				n.log.Debug("node was not told that this one stops", "to", id, "err", err)
			}
		})
	}
	tell.Wait()
	n.fail(&FatalError{Op: "rejoin", Err: err})
}

// answer answers another node's question.
func (n *Node) answer(q *question) (*answer, error) {
	select {
	case <-n.begun:
	default:
		return nil, errors.New("this node is starting")
	}
	if n.raft == nil {
		return nil, errors.New("this node did not start")
	}
	from := string(q.ID)
	n.fold()
	n.hearAll(map[string]mark{from: q.Held})
	n.hearAll(q.Heard)
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.runs[from]
	if r == nil && len(k.runs) < maxMarks {
		r = new(runs)
		k.runs[from] = r
	}
	a := &answer{RPCHeader: n.header(), You: k.marks[from], Heard: maps.Clone(k.marks)}
	switch {
	case r == nil:
	case q.Refused != "":
		k.refusals[from] = refusal{q.Run, q.Refused}
		r.drop(q.Run)
	default:
		if a.Superseded = r.hear(q.Run, q.Up, q.Cleared, q.Last, k.marks[from], time.Now()); !a.Superseded && k.refusals[from].run != q.Run {
			delete(k.refusals, from)
		}
	}
	if !k.answered[from] {
		select { // it can be asked now
		case k.wake <- struct{}{}:
		default:
		}
	}
	return a, nil
}

// askFirst has what a leader sends wait until it has been asked what it knows of this node:
// with its entries an old copy would look as if it had never lacked them. One that does
// not answer is not waited for long.
func (n *Node) askFirst(leader []byte, term uint64) error {
	k := &n.known
	r := k.leader.Load()
	if r != nil && r.term == term && r.leader == string(leader) || n.joining.Load() {
		return nil
	}
	id := string(leader)
	late := time.NewTimer(askBefore)
	defer late.Stop()
	for {
		k.mu.Lock()
		answered, more := k.answered[id], k.more
		if len(k.spoke) < maxMarks {
			k.spoke[id] = true
		}
		k.mu.Unlock()
		if answered {
			return nil
		}
		select {
		case k.wake <- struct{}{}:
		default:
		}
		select {
		case <-more:
		case <-n.stopping:
			return errAbstains
		case <-late.C:
			return nil
		}
	}
}

// Refused tells, of other nodes that have refused to run since they were heard last, why:
// each was found to be set back.
func (n *Node) Refused() map[string]string {
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	out := map[string]string{}
	for id, r := range n.known.refusals {
		out[id] = r.why
	}
	return out
}
