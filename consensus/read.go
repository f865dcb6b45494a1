package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// verifier lets reads that come at the same time share one round of messages.
type verifier struct {
	settled atomic.Uint64 // the term in which this node has passed a barrier

	mu     sync.Mutex
	next   *round // which has not begun yet
	busy   bool   // a round is under way
	closed bool
	rounds sync.WaitGroup
}

type round struct {
	done chan struct{}
	err  error
}

// VerifyLeader returns nil if this node led at a moment after the call and its
// state machine holds every entry acknowledged before it by anybody: what is read
// from the state machine then is linearizable. It returns ErrNotLeader elsewhere.
func (n *Node) VerifyLeader(ctx context.Context) error {
	v := &n.verifier
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return fmt.Errorf("verify leadership: %w", n.refused())
	}
	r := v.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		v.next = r
		if !v.busy {
			v.busy = true
			v.rounds.Go(n.verifyRounds)
		}
	}
	v.mu.Unlock()
	select {
	case <-r.done:
		if r.err != nil {
			return fmt.Errorf("verify leadership: %w", r.err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close takes nothing more and waits for what is under way.
func (v *verifier) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.rounds.Wait()
}

// verifyRounds makes rounds as long as somebody waits for one. Each answers those
// who came before it began.
func (n *Node) verifyRounds() {
	v := &n.verifier
	for {
		v.mu.Lock()
		r := v.next
		v.next = nil
		v.busy = r != nil
		v.mu.Unlock()
		if r == nil {
			return
		}
		r.err = n.verify()
		close(r.done)
	}
}

func (n *Node) verify() error {
	ctx := context.Background() // raft answers, or is stopped
	term := n.raft.CurrentTerm()
	if n.verifier.settled.Load() != term || n.hasLearners() {
		// raft counts what learners answer as votes; a barrier does not.
		if err := n.Barrier(ctx); err != nil {
			return err
		}
		if n.raft.CurrentTerm() == term {
			n.verifier.settled.Store(term)
		}
		return nil
	}
	if err := n.enter(ctx); err != nil {
		return err
	}
	f := n.raft.VerifyLeader()
	err := n.await(ctx, f)
	if err == nil {
		err = f.Error()
	}
	switch {
	case n.Err() != nil:
		return n.refused()
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost):
		return ErrNotLeader
	case errors.Is(err, raft.ErrRaftShutdown):
		return ErrClosed
	case err != nil:
		return err
	case n.raft.CurrentTerm() != term:
		return ErrNotLeader // led again, in a term that has not settled
	}
	return nil
}

func (n *Node) hasLearners() bool {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			return true
		}
	}
	return false
}
