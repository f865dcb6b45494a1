package consensus

import (
	"errors"
	"fmt"
)

var (
	// ErrNotLeader is a definite refusal: this node does not lead, and nothing
	// was proposed.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnknown says that the entry was handed over and that its outcome is
	// not known: it may be committed already, later, or never. It is wrapped
	// with the cause.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed is a definite refusal by a node or a feed that has stopped.
	ErrClosed = errors.New("closed")
	// ErrTooBig is a definite refusal of an entry over MaxEntry bytes.
	ErrTooBig = errors.New("entry too big")
	// ErrEmpty says that a directory holds no node and that none was to be made.
	ErrEmpty = errors.New("no node here: bootstrap one, join a group, or name the directory of an existing one")
	// ErrLocked says that another process has the directory open.
	ErrLocked = errors.New("in use by another process")
	// ErrNotMember says that the group has no such node, or that it has no vote.
	ErrNotMember = errors.New("not a member")
	// ErrLastVoter is the refusal to remove the only node with a vote.
	ErrLastVoter = errors.New("the last voter of the group")
	// ErrNobody says that there is no other voter.
	ErrNobody = errors.New("there is no other voter")
	// ErrBehind says that a learner lacks too much of the log for a vote.
	ErrBehind = errors.New("has not caught up")
	// ErrLostDisk stops a node that the group takes for a voter and that has lost
	// what it voted and stored.
	ErrLostDisk = errors.New("the group gave this node a vote, and its disk is new: take it out of the group, then add it as a new node with another id")
	// ErrForked stops a node that is told to cut entries which it knew to be committed:
	// somewhere a node votes that has forgotten them, or two under one id.
	ErrForked = errors.New("another node's log contradicts entries that were committed: a copy or an old state of a node's directory has taken part; take that node out of the group, then add it as a new node with another id")
	// ErrSetBack stops a node that others have heard to be further than its directory is.
	ErrSetBack = errors.New("this directory is an old copy of the node's")
	// ErrTwin stops a node as which another process was started while it ran.
	ErrTwin = errors.New("another process runs as this node, from a copy of its directory, and was started later")
	// ErrDamaged says that an entry on disk is not what was written there. What it was is
	// known to the other nodes, or to a backup.
	ErrDamaged = errors.New("the disk has damaged it")
	// ErrLostLeadership is the cause of a cancelled WhileLeader context.
	ErrLostLeadership = errors.New("lost leadership")
)

// FatalError is why a node stopped by itself. A node that goes on after one
// would hold a state that no other node has.
type FatalError struct {
	Op    string // apply, restore, append, read, save, cut, join, or rejoin
	Index uint64 // log index where one is known, else 0
	Part  int    // which of the commands of a pack, from 1 on; else 0
	Err   error
}

func (e *FatalError) Error() string {
	switch {
	case e.Index == 0:
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	case e.Part > 0:
		return fmt.Sprintf("%s command %d of entry %d: %v", e.Op, e.Part, e.Index, e.Err)
	}
	return fmt.Sprintf("%s entry %d: %v", e.Op, e.Index, e.Err)
}

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }
