package replica

import (
	"maps"
	"slices"
)

// view is the cluster as one node sees it.
type view struct {
	self   string
	voters map[string]bool // self among them, if it is one
	others []string        // all other nodes, in order
}

func newView(self string, members []Member) *view {
	v := &view{self: self, voters: map[string]bool{}}
	for _, m := range members {
		if m.Voter {
			v.voters[m.ID] = true
		}
		if m.ID != self {
			v.others = append(v.others, m.ID)
		}
	}
	slices.Sort(v.others)
	v.others = slices.Compact(v.others)
	return v
}

func (v *view) equal(w *view) bool {
	return slices.Equal(v.others, w.others) && maps.Equal(v.voters, w.voters)
}

// majority is how many voters any two of which share one.
func (v *view) majority() int { return len(v.voters)/2 + 1 }

// meeting is how many voters meet every majority.
func (v *view) meeting() int { return len(v.voters) - v.majority() + 1 }

// look takes up a change of the members.
func (r *Replica) look() {
	now, old := newView(r.cfg.Self, r.cfg.Members()), r.view.Load()
	if now.equal(old) {
		return
	}
	// What went straight to the stores ends before there is anybody to copy to.
	r.gate.Lock()
	r.view.Store(now)
	r.gate.Unlock()
	r.log.Info("members of the cluster", "nodes", len(now.others)+1, "voters", len(now.voters))
	r.tend(now)
	if t := r.leading(); t != nil {
		t.recount()
	}
	r.debts.doubt()
	poke(r.compare)
}

// tend has a peer for each other node, and ends those that are members no more.
func (r *Replica) tend(v *view) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.peers {
		if !slices.Contains(v.others, id) {
			delete(r.peers, id)
			p.cancel()
		}
	}
	if r.running == nil {
		return
	}
	for _, id := range v.others {
		if r.peers[id] == nil {
			p := newPeer(r, id, r.running)
			r.peers[id] = p
			r.wg.Go(p.run)
		}
	}
}

// peer gives the peer of that id, or nil.
func (r *Replica) peer(id string) *peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[id]
}

// connected gives the peers that can be asked now, in the order of their ids.
func (r *Replica) connected() []*peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*peer
	for _, id := range slices.Sorted(maps.Keys(r.peers)) {
		if p := r.peers[id]; p.up() != nil {
			out = append(out, p)
		}
	}
	return out
}

// alone says whether there is no other node. If so, the caller holds gate for
// reading and calls its unlock.
func (r *Replica) alone() bool {
	if !r.leads.Load() {
		r.look() // Lead does it for its term
	}
	r.gate.RLock()
	if len(r.view.Load().others) == 0 {
		return true
	}
	r.gate.RUnlock()
	return false
}
