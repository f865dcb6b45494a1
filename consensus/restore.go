package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/raft"
)

// Checker is what a state machine may be beside, to look at a backup before the group
// is set back to it: Check says whether Restore would take what it reads, and changes
// nothing.
type Checker interface {
	Check(io.Reader) error
}

// Restore sets the whole group back to a backup, and returns once a majority has taken
// it. The backup is read to its end, checked, and shown to a Checker first; until then
// nothing is changed. What is proposed meanwhile has an unknown outcome. The members
// stay, and indexes and numbers go on from where they were. Only the leader can do it; errors are
// otherwise those of Propose, or ErrBackup.
func (n *Node) Restore(ctx context.Context, r io.Reader) error {
	if err := n.leads("restore", nil); err != nil {
		return err
	}
	body, b, err := n.unpack(r)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := n.enter(ctx); err != nil {
		body.Close()
		return fmt.Errorf("restore: %w", err)
	}
	f := &later{done: make(chan struct{})}
	n.restoring.Add(1)
	go func() {
		defer close(f.done)
		defer n.restoring.Add(-1)
		defer body.Close()
		f.err = n.restore(body, b)
	}()
	if err = n.await(ctx, f); err == nil {
		err = f.Error()
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// later is a future of this package.
type later struct {
	done chan struct{}
	err  error
}

func (f *later) Error() error {
	<-f.done
	return f.err
}

// numberMargin is for commands that another leader may have had committed, where this
// node has lost its leadership and got it back while it was to set the group back.
const numberMargin = 1 << 20

// restore has raft take the state in body, which becomes that of an entry behind all
// others. Numbers go on from where they were too. So that it is known where that is,
// nothing is handed over until it is done, and all that was is applied first.
func (n *Node) restore(body *os.File, b Backup) error {
	st, err := body.Stat()
	if err != nil {
		return err
	}
	n.gather.hold(true)
	defer n.gather.hold(false)
	if err := n.raft.Barrier(0).Error(); err != nil { // in the place in raft's queue that the slot of this call has
		return n.notSetBack(err)
	}
	index := max(n.raft.LastIndex()+1, b.Index)
	number := max(index, b.Number)
	if at := n.fsm.reached(); at >= number || n.packs() {
		number = max(number, at) + numberMargin
	}
	head := appendHead(nil, index, number)
	meta := &raft.SnapshotMeta{Version: 1, Index: b.Index, Term: b.Term, Size: int64(len(head)) + st.Size()}
	if err := n.raft.Restore(meta, io.MultiReader(bytes.NewReader(head), body), 0); err != nil || n.Err() != nil {
		return n.notSetBack(err)
	}
	return nil
}

// notSetBack says why the group was not set back, or may not have been.
func (n *Node) notSetBack(err error) error {
	switch {
	case n.Err() != nil:
		return n.Err()
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNotLeader
	}
	return unknown(err)
}

// unpack reads and checks a whole backup. The state machine's bytes are in a file
// without a name, which is gone when it is closed.
func (n *Node) unpack(r io.Reader) (_ *os.File, b Backup, err error) {
	f, err := os.CreateTemp(n.cfg.Dir, "restore-*.tmp") // in simulations where the system has such files
	if err != nil {
		return nil, b, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, b, err
	}
	b, err = ReadBackup(r, func(r io.Reader) error {
		_, err := io.Copy(f, r)
		return err
	})
	if err != nil {
		return nil, b, err
	}
	if c, ok := n.cfg.FSM.(Checker); ok {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, b, err
		}
		if err := c.Check(f); err != nil {
			return nil, b, fmt.Errorf("the state machine does not take it: %w", err)
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, b, err
}
