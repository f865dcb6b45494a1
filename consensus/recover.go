package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Recovery says what Recover did.
type Recovery struct {
	Before Contents // what was there
	// MaybeLost names the other voters: what they acknowledged with each other behind
	// Before.Last is lost.
	MaybeLost []string
	// KeptFrom and KeptTo are the entries that were not known to be committed. They
	// are committed now, whether they were acknowledged or not; 0 if there are none.
	KeptFrom, KeptTo uint64
	// DroppedFrom and DroppedTo are those among them that were taken off the log,
	// because the state machine refuses the first.
	DroppedFrom, DroppedTo uint64
}

// Recover makes the node that lives in dir the only voter of its group, for when most
// of the others are gone for good. The log is kept; the node takes all that is in it
// for committed when it is opened next. fsm is a new state machine, which Recover uses
// to see whether that will succeed and which is of no use afterwards. An entry that it
// refuses is an error, unless drop is set and the entry is not known to be committed:
// then the log ends before it. ErrLocked says that the node runs.
//
// The other nodes must not come back: with their own majority they would be a second
// group of the same name.
func Recover(dir, nodeID string, fsm FSM, drop bool) (Recovery, error) {
	var r Recovery
	o, err := openOffline(dir, false)
	if err == nil {
		r, err = o.recover(nodeID, fsm, drop)
		err = errors.Join(err, o.Close())
	}
	if err != nil {
		return r, fmt.Errorf("recover %s: %w", dir, err)
	}
	return r, nil
}

func (o *offline) recover(nodeID string, fsm FSM, drop bool) (r Recovery, err error) {
	c, err := o.replay(fsm)
	if err != nil {
		return r, err
	}
	r.Before = c
	if c.NodeID != "" && c.NodeID != nodeID {
		return r, fmt.Errorf("as node %q: the directory belongs to %q", nodeID, c.NodeID)
	}
	for _, m := range c.Members {
		if m.Voter && m.ID != nodeID {
			r.MaybeLost = append(r.MaybeLost, m.ID)
		}
	}
	last := c.Last
	if c.Refused != nil {
		var fatal *FatalError
		errors.As(c.Refused, &fatal)
		if fatal.Index <= c.Committed {
			return r, fmt.Errorf("a committed entry is not understood, a newer version may do so: %w", fatal)
		}
		if !drop {
			return r, fmt.Errorf("an entry is not understood, a newer version may do so, or it is to be dropped: %w", fatal)
		}
		r.DroppedFrom, r.DroppedTo = fatal.Index, c.Last
		last = fatal.Index - 1
		if err := o.store.DeleteRange(fatal.Index, c.Last); err != nil {
			return r, err
		}
	}
	if last > c.Committed {
		r.KeptFrom, r.KeptTo = c.Committed+1, last
	}
	// A term of its own: whoever still is in an older one gets no vote and no entry
	// into this node.
	if err := o.store.SetUint64([]byte("CurrentTerm"), c.Term+1); err != nil {
		return r, err
	}
	if err := o.store.Set(keyJoin, nil); err != nil {
		return r, err
	}
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(nodeID), Address: raft.ServerAddress(nodeID)}}}
	return r, o.store.StoreLog(&raft.Log{
		Index: last + 1, Term: c.Term + 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(alone),
	})
}
