package consensus

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Propose appends entry to the log and returns what the state machine made of
// it, once it is fsynced by a majority and applied here, and the entry's index.
// entry must not be changed before Propose has returned, nor after an
// ErrUnknown.
//
// ErrNotLeader, ErrTooBig, ErrClosed, and the context's own cause say that
// nothing was proposed. ErrUnknown says that it may have been: it is also the
// answer where ctx ends while raft holds the entry. A *FatalError says that
// this very entry is committed and stopped the node.
func (n *Node) Propose(ctx context.Context, entry []byte) (result any, index uint64, err error) {
	if len(entry) > MaxEntry {
		return nil, 0, fmt.Errorf("propose %d bytes, at most %d: %w", len(entry), MaxEntry, ErrTooBig)
	}
	if err := n.enter(ctx); err != nil {
		return nil, 0, fmt.Errorf("propose: %w", err)
	}
	got := make(chan settled, 1)
	go func() {
		defer n.leave()
		f := n.raft.Apply(entry, 0)
		if err := f.Error(); err != nil {
			got <- settled{err: classify(err, f.Index())}
			return
		}
		o := f.Response().(outcome)
		got <- settled{o.result, f.Index(), o.err}
	}()
	s := n.await(ctx, got)
	if s.err != nil {
		return nil, 0, fmt.Errorf("propose: %w", s.err)
	}
	return s.result, s.index, nil
}

// Barrier waits until every entry committed before it is applied here. Only
// the leader can tell; others get ErrNotLeader.
func (n *Node) Barrier(ctx context.Context) error {
	if err := n.enter(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	got := make(chan settled, 1)
	go func() {
		defer n.leave()
		got <- settled{err: n.raft.Barrier(0).Error()}
	}()
	s := n.await(ctx, got)
	switch {
	case n.Err() != nil: // it may have passed over entries that were not applied
		return fmt.Errorf("barrier: %w", n.refused())
	case errors.Is(s.err, raft.ErrLeadershipLost), errors.Is(s.err, raft.ErrNotLeader), errors.Is(s.err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("barrier: %w", ErrNotLeader)
	case errors.Is(s.err, raft.ErrRaftShutdown):
		return fmt.Errorf("barrier: %w", ErrClosed)
	case s.err != nil:
		return fmt.Errorf("barrier: %w", s.err)
	}
	return nil
}

// settled is what a proposal or a barrier came to.
type settled struct {
	result any
	index  uint64
	err    error
}

// enter takes a slot. An error means that nothing was handed to raft.
func (n *Node) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case n.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopping:
		return n.refused()
	}
	select {
	case <-n.stopping:
		n.leave()
		return n.refused()
	default:
		return nil
	}
}

func (n *Node) leave() { <-n.slots }

// await waits for an outcome as long as ctx allows. What raft holds can't be
// called back.
func (n *Node) await(ctx context.Context, got <-chan settled) settled {
	select {
	case s := <-got:
		return s
	case <-ctx.Done():
		return settled{err: unknown(context.Cause(ctx))}
	case <-n.stopped:
	}
	select {
	case s := <-got:
		return s
	default:
		return settled{err: unknown(n.refused())}
	}
}

// classify turns raft's error into ours. raft gives an entry its index when it
// takes it into the log, so that one without was never proposed.
func classify(err error, index uint64) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNotLeader
	case index == 0 && errors.Is(err, raft.ErrRaftShutdown):
		return ErrClosed
	}
	return unknown(err)
}

func unknown(cause error) error { return fmt.Errorf("%w: %w", ErrUnknown, cause) }
