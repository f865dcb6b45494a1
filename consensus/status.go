package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// Status is what a node says of itself. The figures are read one after another
// and may be of slightly different moments.
type Status struct {
	NodeID        string `json:"node_id"`
	State         string `json:"state"`          // follower, candidate, leader, or stopped
	Leader        string `json:"leader"`         // node id of the leader, empty if unknown
	Term          uint64 `json:"term"`           // current term
	LastIndex     uint64 `json:"last_index"`     // newest entry on this disk
	CommitIndex   uint64 `json:"commit_index"`   // newest entry known to be committed
	AppliedIndex  uint64 `json:"applied_index"`  // newest entry the state machine has taken; raft's own entries don't count
	SnapshotIndex uint64 `json:"snapshot_index"` // newest entry in a snapshot on this disk
	LogBytes      int64  `json:"log_bytes"`      // size of the log store on disk, bytes
	Stalled       bool   `json:"stalled"`        // the disk under the log is too slow for a leader's
}

// Status is cheap, and may be called at any time, also after Close.
func (n *Node) Status() Status {
	s := Status{
		NodeID:        n.cfg.NodeID,
		State:         strings.ToLower(n.raft.State().String()),
		Leader:        n.Leader(),
		Term:          n.raft.CurrentTerm(),
		LastIndex:     n.raft.LastIndex(),
		CommitIndex:   n.raft.CommitIndex(),
		AppliedIndex:  n.fsm.applied.Load(),
		SnapshotIndex: n.snaps.newest.Load(),
		Stalled:       n.stalled.Load(),
	}
	if n.raft.State() == raft.Shutdown {
		s.State = "stopped"
	}
	if n.cfg.Memory != nil {
		return s
	}
	if st, err := os.Stat(filepath.Join(n.cfg.Dir, storeFile)); err == nil {
		s.LogBytes = st.Size()
	}
	return s
}

// Snapshot writes a snapshot now and cuts the log. It does nothing where no
// entry was applied yet.
func (n *Node) Snapshot() error {
	select {
	case <-n.stopping:
		return fmt.Errorf("snapshot: %w", n.refused())
	default:
	}
	err := n.raft.Snapshot().Error()
	switch {
	case errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("snapshot: %w", n.refused())
	case err != nil:
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}
