package consensus

import (
	"errors"

	"github.com/hashicorp/raft"
)

// A node that was made to join a group casts no vote and does not stand for election
// until it has seen the whole log up to a place where it is a learner. One that finds
// itself a voter there instead has lost its disk: it may have voted in this term
// already, and others count on entries that it no longer has.

// refuse implements guard.
func (n *Node) refuse(req any) (any, error) {
	if n.known.refused.Load() {
		return nil, errAbstains
	}
	switch r := req.(type) {
	case *question:
		return n.answer(r)
	case *raft.AppendEntriesRequest:
		if !isHeartbeat(r) {
			return nil, n.askFirst(r.ID, r.Term)
		}
	case *raft.InstallSnapshotRequest:
		return nil, n.askFirst(r.ID, r.Term)
	case *raft.RequestVoteRequest:
		if !n.mayVote() {
			return &raft.RequestVoteResponse{RPCHeader: n.header()}, nil
		}
	case *raft.RequestPreVoteRequest:
		if !n.mayVote() {
			return &raft.RequestPreVoteResponse{RPCHeader: n.header()}, nil
		}
	case *raft.TimeoutNowRequest:
		if !n.mayVote() || !n.stands() {
			return nil, errAbstains
		}
	}
	return nil, nil
}

// mayVote implements guard: the group has shown that it knows this disk, and enough of the
// other nodes have said that it is not an old one.
func (n *Node) mayVote() bool {
	return !n.joining.Load() && n.known.cleared.Load() && !n.known.refused.Load()
}

func (n *Node) header() raft.RPCHeader {
	id := []byte(n.cfg.NodeID)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: id}
}

// answered implements guard.
func (n *Node) answered(req, resp any) {
	a, ok := req.(*raft.AppendEntriesRequest)
	if !ok || isHeartbeat(a) || !resp.(*raft.AppendEntriesResponse).Success {
		return
	}
	if r := n.known.leader.Load(); r == nil || r.term < a.Term {
		n.known.follow(string(a.ID), a.Term)
	}
	if !n.joining.Load() {
		return
	}
	if a.LeaderCommitIndex > a.PrevLogEntry+uint64(len(a.Entries)) {
		return // there is more to come
	}
	<-n.begun
	m, _, err := n.member(n.cfg.NodeID)
	switch {
	case err != nil || m.ID == "":
	case m.Voter:
		n.fail(&FatalError{Op: "join", Err: ErrLostDisk})
	case n.store.Set(keyJoin, nil) == nil:
		n.joining.Store(false)
		n.log.Info("became a learner of the group")
	}
}

var errAbstains = errors.New("this node does not stand for election")
