package consensus

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Propose appends command to the log and returns what the state machine made of
// it, once it is fsynced by a majority and applied here, and the command's number.
// command must not be changed before Propose has returned, nor after an
// ErrUnknown. Its first byte may be any but 0xf0.
//
// ErrNotLeader, ErrHandingOver (which is one), ErrTooBig, ErrClosed, and the context's
// own cause say that nothing was proposed. ErrUnknown says that it may have been: it is also the
// answer where ctx ends while raft holds the command. A *FatalError says that
// this very command is committed and stopped the node.
func (n *Node) Propose(ctx context.Context, command []byte) (result any, number uint64, err error) {
	switch {
	case len(command) > MaxEntry:
		return nil, 0, fmt.Errorf("propose %d bytes, at most %d: %w", len(command), MaxEntry, ErrTooBig)
	case isPack(command):
		return nil, 0, fmt.Errorf("propose: the command %w", errMarked)
	case n.leadership.isHeld():
		return nil, 0, fmt.Errorf("propose: %w", ErrNotLeader)
	}
	if err := n.enter(ctx); err != nil {
		return nil, 0, fmt.Errorf("propose: %w", err)
	}
	if n.leadership.handing.Load() { // looked at with the slot taken: Transfer waits for those
		n.leave()
		return nil, 0, fmt.Errorf("propose: %w", ErrHandingOver)
	}
	c := n.gather.add(command, !n.packs())
	if err := n.answerTo(ctx, c); err != nil {
		return nil, 0, fmt.Errorf("propose: %w", err)
	}
	if err := c.answer.err; err != nil {
		return nil, 0, fmt.Errorf("propose: %w", err)
	}
	return c.answer.result, c.answer.number, nil
}

// packs says whether several commands may go into one entry now.
func (n *Node) packs() bool { return n.cfg.Packs == nil || n.cfg.Packs() }

// answerTo waits for the answer to c as long as ctx allows, and no longer than the
// node lives. What raft was given can't be called back, what it was not can.
func (n *Node) answerTo(ctx context.Context, c *proposal) (err error) {
	select {
	case <-c.pack.done:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-n.stopped:
		err = n.refused()
	}
	if n.gather.giveUp(c) {
		n.leave()
		return err
	}
	select {
	case <-c.pack.done:
		return nil
	default:
		return unknown(err)
	}
}

// hand gives a pack to raft.
func (n *Node) hand(p *pack) {
	p.future = n.raft.Apply(p.entry, 0)
	n.pending <- pending{p.future, len(p.sent), func() {
		p.settle()
		close(p.done)
		n.gather.answered(p)
	}}
}

// Barrier waits until every entry committed before it is applied here. Only
// the leader can tell; others get ErrNotLeader.
func (n *Node) Barrier(ctx context.Context) error {
	if err := n.enter(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	f := n.raft.Barrier(0)
	err := n.await(ctx, f)
	if err == nil {
		err = f.Error()
	}
	switch {
	case n.Err() != nil: // it may have passed over entries that were not applied
		return fmt.Errorf("barrier: %w", n.refused())
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("barrier: %w", ErrNotLeader)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("barrier: %w", ErrClosed)
	case err != nil:
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// enter takes a slot, one for each command. There are no more slots than raft's queue
// has room for, so that handing over never blocks. An error means that nothing was
// handed over.
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

// pending is a future that raft owes an answer.
type pending struct {
	future raft.Future
	slots  int    // that it takes
	done   func() // called once it has its answer; does not wait
}

// await waits for f as long as ctx allows; an error says that f is still open.
// What raft holds can't be called back.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	done := n.watch(f)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return unknown(context.Cause(ctx))
	case <-n.stopped:
	}
	select {
	case <-done:
		return nil
	default:
		return unknown(n.refused())
	}
}

// watch gives f to collect, which closes what is returned once f has its answer.
func (n *Node) watch(f raft.Future) <-chan struct{} {
	done := make(chan struct{})
	n.pending <- pending{f, 1, func() { close(done) }} // there is room for as many as there are slots
	return done
}

// collect waits for futures in place of those who proposed, because a future
// can't be waited for with a context. raft answers in the order of its log, so
// that waiting for one after the other delays none by more than its own batch.
func (n *Node) collect() {
	defer close(n.collected)
	for {
		select {
		case p := <-n.pending:
			p.future.Error()
			p.done()
			for range p.slots {
				n.leave()
			}
		case <-n.drained:
			return
		}
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
