package consensus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// What a node's own disk says of itself is no proof: it may be an old copy, put in place by a
// restored machine or by hand, which has forgotten entries that it acknowledged and votes that
// it gave. The other nodes remember for it how far it was. Committed entries never leave a log
// and a term never falls, so a node that is behind what another has heard of it was set back.

// mark is how far a node was heard to be.
type mark struct {
	// Term and Index are of the newest entry that was known to be committed and to be on
	// its disk. What it had behind that may have been cut since.
	Term, Index uint64
	// Vote is the newest term that it took part in.
	Vote uint64
}

// before says whether a log that ends with the one entry lacks what one with the other has,
// the way elections compare logs.
func before(term, index, thanTerm, thanIndex uint64) bool {
	return term < thanTerm || term == thanTerm && index < thanIndex
}

// and is what two marks say together.
func (m mark) and(o mark) mark {
	if before(m.Term, m.Index, o.Term, o.Index) {
		m.Term, m.Index = o.Term, o.Index
	}
	m.Vote = max(m.Vote, o.Vote)
	return m
}

// SetBack is the error of a node that runs on an old copy of its directory. It is ErrSetBack.
type SetBack struct {
	From       string // who knows better
	Last, Held struct {
		Term, Index uint64 // of the newest entry in the directory, and of one that the node had, committed
	}
	Vote, Voted uint64 // the directory's term, and the newest that the node took part in
}

func (e *SetBack) Error() string {
	if before(e.Last.Term, e.Last.Index, e.Held.Term, e.Held.Index) {
		return fmt.Sprintf("%v: its log ends with entry %d of term %d, and node %s knows that this node had entry %d of term %d, which is committed",
			ErrSetBack, e.Last.Index, e.Last.Term, e.From, e.Held.Index, e.Held.Term)
	}
	return fmt.Sprintf("%v: it knows of term %d, and node %s knows that this node took part in term %d", ErrSetBack, e.Vote, e.From, e.Voted)
}

// Unwrap makes it ErrSetBack.
func (e *SetBack) Unwrap() error { return ErrSetBack }

// judge says whether a node whose log ends with last, and which is in its term, is behind
// what another one has heard of it. Nil: it is not. The figures of the node must have been
// taken after those of the other came: what it did meanwhile may be in both.
func judge(last mark, from string, heard mark) error {
	if !before(last.Term, last.Index, heard.Term, heard.Index) && last.Vote >= heard.Vote {
		return nil
	}
	e := &SetBack{From: from, Vote: last.Vote, Voted: heard.Vote}
	e.Last.Term, e.Last.Index = last.Term, last.Index
	e.Held.Term, e.Held.Index = heard.Term, heard.Index
	return e
}

// enough says whether a node that begins may vote, by how many voters there are beside it,
// how many of them have said what they know of it, and how long it has waited. A majority,
// the node included, is needed, so that two old copies at a time are no majority; then those
// who take longer are waited for a little, since any one may be the only one that knows.
func enough(others, answered int, waited, patience time.Duration) bool {
	return answered >= others || answered >= (others+1)/2 && waited >= patience
}

// runID names one run of a process.
type runID [16]byte

// maxRuns bounds the processes of one node that are remembered.
const maxRuns = 8

// runs are the processes that were heard as one node. A node has one after the other; two at
// a time are a directory and its copy.
//
// Of two, one that lacks anything of what the node is known to have is found to be set back.
// Where neither does, the one that was started first has to stop. No entry is lost by that: it
// is told so only while the other one has all that it has itself. And it must be this one,
// because after a restart it is always the older process that is gone: a late word of a dead
// process, in a socket of a node that stood still, is answered to nobody. If the younger had to
// stop, it would end a healthy node.
type runs struct {
	now run
	old []run // others that are not to go on, the newest last
	// rivals say that they were started before the process now. That one may be gone, and
	// this machine have slept since: they are of the others once it is heard again.
	rivals []run
}

type run struct {
	id    runID
	began time.Time // by the clock of this node
	last  mark      // the end of its log
}

// hear takes a process in that says that it has run for so long, and that its log ends with
// last; known is what this node is known to have. It returns true where another process, which
// has all that, has been started since. One that was not cleared to vote counts for nothing.
func (r *runs) hear(id runID, up time.Duration, cleared bool, last, known mark, now time.Time) (superseded bool) {
	one := run{id, now.Add(-up), last}
	known = known.and(last)
	covered := !before(r.now.last.Term, r.now.last.Index, known.Term, known.Index)
	switch {
	case id == r.now.id:
		r.now.last = last
		for _, o := range r.rivals {
			r.supersede(o)
		}
		r.rivals = nil
		return false
	case slices.ContainsFunc(r.old, func(o run) bool { return o.id == id }):
		return covered
	case !cleared:
		return false
	case r.now.id == runID{}:
		r.now = one
		return false
	case one.began.Before(r.now.began):
		if r.rivals = without(r.rivals, id); len(r.rivals) < maxRuns {
			r.rivals = append(r.rivals, one)
		}
		return false
	default:
		r.supersede(r.now)
		r.now, r.rivals = one, without(r.rivals, id)
		return false
	}
}

func (r *runs) supersede(o run) {
	if r.old = append(r.old, o); len(r.old) > maxRuns {
		r.old = r.old[1:]
	}
}

func without(all []run, id runID) []run {
	return slices.DeleteFunc(all, func(o run) bool { return o.id == id })
}

// drop forgets a process that has refused to run: what it took the place of goes on.
func (r *runs) drop(id runID) {
	r.old, r.rivals = without(r.old, id), without(r.rivals, id)
	if id != r.now.id {
		return
	}
	r.now = run{}
	if n := len(r.old); n > 0 {
		r.now, r.old = r.old[n-1], r.old[:n-1]
	}
}

// keyHeard is what was heard of the other nodes.
var keyHeard = []byte("tugline.heard")

const (
	heardVersion = 1
	maxMarks     = 256 // in one message
)

// appendMarks encodes marks by node id.
func appendMarks(b []byte, m map[string]mark) []byte {
	b = appendUint(b, uint64(len(m)))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		b = appendMark(appendBytes(b, []byte(id)), m[id])
	}
	return b
}

func appendMark(b []byte, m mark) []byte {
	return appendUint(appendUint(appendUint(b, m.Term), m.Index), m.Vote)
}

func (c *cursor) mark() mark { return mark{c.uint(), c.uint(), c.uint()} }

func (c *cursor) marks() map[string]mark {
	n := c.uint()
	if n > maxMarks {
		c.b, c.bad = nil, true
	}
	var m map[string]mark
	last := ""
	for i := uint64(0); i < n && !c.bad; i++ {
		if m == nil {
			m = map[string]mark{}
		}
		id := string(c.bytes())
		c.bad = c.bad || i > 0 && id <= last
		m[id], last = c.mark(), id
	}
	return m
}

// parseHeard reads what was kept on disk.
func parseHeard(b []byte) (map[string]mark, error) {
	if len(b) == 0 {
		return map[string]mark{}, nil
	}
	c := &cursor{b: b[1:]}
	m := c.marks()
	if b[0] != heardVersion || c.bad || len(c.b) > 0 {
		return nil, errors.New("what was heard of other nodes is in no form that this version knows")
	}
	if m == nil {
		m = map[string]mark{}
	}
	return m, nil
}

// question is what a node asks each other one every now and then, and tells of itself
// with it.
type question struct {
	raft.RPCHeader
	Run     runID
	Up      time.Duration // since it was started
	Cleared bool          // it votes
	Refused string        // why it does not go on; "": it does
	Held    mark          // of itself
	Last    mark          // the end of its log, and its term
	Heard   map[string]mark
}

// answer is what the asked one has heard.
type answer struct {
	raft.RPCHeader
	You        mark
	Superseded bool // another process was started since as the node that asked
	Heard      map[string]mark
}

func (q *question) append(b []byte) []byte {
	b = append(appendHeader(b, q.RPCHeader), q.Run[:]...)
	b = appendBytes(appendBool(appendUint(b, uint64(q.Up)), q.Cleared), []byte(q.Refused))
	return appendMarks(appendMark(appendMark(b, q.Held), q.Last), q.Heard)
}

func (c *cursor) question(h raft.RPCHeader) *question {
	q := &question{RPCHeader: h}
	for i := range q.Run {
		q.Run[i] = c.byte()
	}
	q.Up, q.Cleared, q.Refused = time.Duration(c.uint()), c.bool(), string(c.bytes())
	c.bad = c.bad || q.Up < 0
	q.Held, q.Last = c.mark(), c.mark()
	q.Heard = c.marks()
	return q
}

func (a *answer) append(b []byte) []byte {
	return appendMarks(appendBool(appendMark(appendHeader(b, a.RPCHeader), a.You), a.Superseded), a.Heard)
}

func (c *cursor) answer(h raft.RPCHeader) answer {
	return answer{RPCHeader: h, You: c.mark(), Superseded: c.bool(), Heard: c.marks()}
}
