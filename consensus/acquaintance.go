package consensus

import (
	"sync"
	"sync/atomic"
)

// acquaintance is what a node knows of the others and of what they know of it.
type acquaintance struct {
	run     runID
	cleared atomic.Bool            // enough of the others have said what they know of this node
	refused atomic.Bool            // this node was set back
	leader  atomic.Pointer[reign]  // whose entries were taken last
	keep    atomic.Pointer[[]byte] // what was heard and is not on disk yet; nil: nothing
	wake    chan struct{}
	folding sync.Mutex

	mu       sync.Mutex
	marks    map[string]mark
	reigns   []*reign // the latest leaders, the newest last
	runs     map[string]*runs
	refusals map[string]refusal // of the process of a node that was heard last
	answered map[string]bool    // who has said what it knows of this node
	asking   map[string]bool
	spoke    map[string]bool // who has sent entries, member or not
	more     chan struct{}   // closed and replaced when another one has answered
	kept     []byte          // of what was heard, as it was encoded last
}

// reign is a leader's term.
type reign struct {
	leader string
	term   uint64
	over   bool // what the leader had of its own term is taken in
}

// maxReigns bounds the leaders that are remembered.
const maxReigns = 8

// follow notes that entries of a leader were taken.
func (a *acquaintance) follow(leader string, term uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.leader.Load(); r != nil && r.term >= term {
		return
	}
	r := &reign{leader: leader, term: term}
	if a.reigns = append(a.reigns, r); len(a.reigns) > maxReigns {
		a.reigns = a.reigns[1:]
	}
	a.leader.Store(r)
}

// refusal is why a process does not go on.
type refusal struct {
	run runID
	why string
}

func (a *acquaintance) init() {
	a.wake, a.more = make(chan struct{}, 1), make(chan struct{})
	a.marks, a.runs, a.refusals = map[string]mark{}, map[string]*runs{}, map[string]refusal{}
	a.answered, a.asking, a.spoke = map[string]bool{}, map[string]bool{}, map[string]bool{}
}
