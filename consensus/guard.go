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
	switch req.(type) {
	case *raft.RequestVoteRequest:
		if n.joining.Load() {
			return &raft.RequestVoteResponse{RPCHeader: n.header()}, nil
		}
	case *raft.RequestPreVoteRequest:
		if n.joining.Load() {
			return &raft.RequestPreVoteResponse{RPCHeader: n.header()}, nil
		}
	case *raft.TimeoutNowRequest:
		if n.joining.Load() || !n.stands() {
			return nil, errAbstains
		}
	}
	return nil, nil
}

func (n *Node) header() raft.RPCHeader {
	id := []byte(n.cfg.NodeID)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: id}
}

// answered implements guard.
func (n *Node) answered(req, resp any) {
	if !n.joining.Load() {
		return
	}
	a, ok := req.(*raft.AppendEntriesRequest)
	if !ok || isHeartbeat(a) || !resp.(*raft.AppendEntriesResponse).Success {
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
