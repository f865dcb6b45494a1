package consensus

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// pokeStep is by how much a poke shortens the heartbeat timeout.
	pokeStep = time.Millisecond

	// watchLook is the shortest pause between two looks after the leader.
	watchLook = 20 * time.Millisecond
)

// watchLeader has a follower stand for election when the leader has been silent for the
// heartbeat timeout. raft looks by itself only once in one to two timeouts, so that
// the last follower to notice may be three late, and nobody is elected before.
func (n *Node) watchLeader() {
	if n.cfg.Transport == nil {
		return
	}
	look := time.NewTimer(n.cfg.Heartbeat)
	defer look.Stop()
	var poked time.Time
	for {
		select {
		case <-look.C:
		case <-n.stopping:
			return
		}
		look.Reset(n.lookAfterLeader(&poked))
	}
}

// lookAfterLeader pokes raft where the leader is silent, and says when to look again.
func (n *Node) lookAfterLeader(poked *time.Time) time.Duration {
	last := n.raft.LastContact()
	if n.raft.State() != raft.Follower || last.IsZero() || !last.After(*poked) {
		return n.cfg.Heartbeat / 2
	}
	all := n.raft.GetConfiguration().Configuration().Servers
	if v, _ := votes(all, raft.ServerID(n.cfg.NodeID)); !v {
		return n.cfg.Heartbeat
	}
	if left := n.cfg.Heartbeat + n.turn(all) - time.Since(last); left > 0 {
		return max(left, watchLook)
	}
	*poked = last
	n.poke()
	return n.cfg.Heartbeat / 2
}

// turn is how much later than others this node stands for election: two at the same
// time would split the votes.
func (n *Node) turn(all []raft.Server) time.Duration {
	place := slices.IndexFunc(all, func(s raft.Server) bool { return s.ID == raft.ServerID(n.cfg.NodeID) })
	step := n.cfg.Heartbeat / 12
	return time.Duration(place%5)*step + rand.N(step/2)
}

// poke makes raft look at once whether it hears a leader: it does so when its
// heartbeat timeout gets shorter.
func (n *Node) poke() {
	now := n.raft.ReloadableConfig()
	now.HeartbeatTimeout = n.raftConfig().HeartbeatTimeout
	if err := n.raft.ReloadConfig(now); err == nil {
		now.HeartbeatTimeout -= pokeStep
		err = n.raft.ReloadConfig(now)
	}
}

// votes says whether the node id has a vote, and whether nobody else has.
func votes(all []raft.Server, id raft.ServerID) (vote, alone bool) {
	others := 0
	for _, s := range all {
		switch {
		case s.Suffrage != raft.Voter:
		case s.ID == id:
			vote = true
		default:
			others++
		}
	}
	return vote, others == 0
}
