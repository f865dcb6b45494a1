package consensus

import (
	"maps"
	"slices"
	"sort"
	"strconv"

	"github.com/hashicorp/raft"
)

// hearAll takes in what others have heard of members.
func (n *Node) hearAll(heard map[string]mark) {
	ids, _ := n.fellows()
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, m := range heard {
		if slices.Contains(ids, id) {
			k.marks[id] = k.marks[id].and(m)
		}
	}
	maps.DeleteFunc(k.marks, func(id string, _ mark) bool { return !slices.Contains(ids, id) })
	if b := appendMarks([]byte{heardVersion}, k.marks); !slices.Equal(b, k.kept) {
		k.kept = b
		k.keep.Store(&b)
	}
}

// fold takes in what this node knows of others by itself: as a leader, or as one that was,
// what they have confirmed and is committed by now; as a follower, that a leader had on its
// disk what is of its term before anybody else; as a candidate, in which terms they voted.
func (n *Node) fold() {
	n.known.folding.Lock()
	defer n.known.folding.Unlock()
	heard := map[string]mark{}
	commit := n.raft.CommitIndex()
	ids, _ := n.fellows()
	w := n.trans.(*wire)
	for _, id := range ids {
		index, term, vote := w.confirmed(id)
		m := mark{Vote: vote}
		// Only what is in this log still: something else may be committed in its place.
		if index > 0 && n.termAt(index) == term {
			if m.Term, m.Index = term, index; index > commit {
				m.Term, m.Index = n.termAt(commit), commit
			}
		}
		heard[id] = m
	}
	n.known.mu.Lock()
	reigns := slices.Clone(n.known.reigns)
	n.known.mu.Unlock()
	for _, r := range reigns {
		now := n.termAt(commit)
		if r.over || now < r.term {
			continue
		}
		if index := n.newest(r.term, commit); index > 0 {
			heard[r.leader] = heard[r.leader].and(mark{Term: r.term, Index: index})
		}
		r.over = now > r.term
	}
	n.hearAll(heard)
}

// newest is the newest entry of a term up to the one at most, 0 where there is none.
func (n *Node) newest(term, most uint64) uint64 {
	if n.termAt(most) == term {
		return most
	}
	first, err := n.logs.FirstIndex()
	if err != nil || first > most {
		return 0
	}
	later := sort.Search(int(most-first)+1, func(i int) bool { return n.termAt(first+uint64(i)) > term })
	if index := first + uint64(later) - 1; later > 0 && n.termAt(index) == term {
		return index
	}
	return 0
}

// held is the newest entry on this disk that is known to be committed.
func (n *Node) held() (term, index uint64) {
	index = n.raft.CommitIndex()
	if term = n.termAt(index); term == 0 {
		return 0, 0
	}
	return term, index
}

// termAt is the term of an entry in the log, 0 where it is not there.
func (n *Node) termAt(index uint64) uint64 {
	var l raft.Log
	if index == 0 || n.logs.GetLog(index, &l) != nil {
		return 0
	}
	return l.Term
}

// last is the end of this node's log, and its term.
func (n *Node) last() mark {
	s := n.raft.Stats()
	num := func(name string) uint64 {
		v, _ := strconv.ParseUint(s[name], 10, 64) // raft wrote it
		return v
	}
	m := mark{Term: num("last_log_term"), Index: num("last_log_index"), Vote: num("term")}
	return m.and(mark{Term: num("last_snapshot_term"), Index: num("last_snapshot_index")})
}
