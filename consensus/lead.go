package consensus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// barrierRetry is the pause after a barrier that failed while still leading.
const barrierRetry = 20 * time.Millisecond

// leadership is this node's own view of whether it leads.
type leadership struct {
	mu      sync.Mutex
	leads   bool          // raft says so
	held    bool          // and yet this node is not to act as leader
	count   uint64        // times that this node has become leader
	lost    chan struct{} // closed when the present time ends; nil while not leading
	changed chan struct{} // closed and replaced at every change

	handing atomic.Bool // Transfer is under way
}

func (l *leadership) set(lead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = lead
	l.turn()
}

// hold keeps the node from acting as leader, whatever raft says.
func (l *leadership) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != held {
		l.held = held
		l.turn()
	}
}

// isHeld says whether the node is kept from acting as leader.
func (l *leadership) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// turn ends the present time and begins the next.
func (l *leadership) turn() {
	if l.lost != nil {
		close(l.lost)
		l.lost = nil
	}
	if l.leads && !l.held {
		l.count++
		l.lost = make(chan struct{})
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *leadership) now() (count uint64, lost, changed chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.lost, l.changed
}

// WhileLeader runs fn once for each term in which this node leads, until ctx
// ends or the node stops, and returns that cause. Before fn starts, every
// earlier entry is applied; a barrier that fails is tried again for as long as
// the node leads. fn's context is cancelled with ErrLostLeadership as its
// cause when the term ends, and the next term waits until fn has returned. An
// error that fn returns within its term ends WhileLeader; nil rests until the
// next term.
//
// Leadership can be lost a moment before fn hears of it. What fn proposes then
// is refused or unknown, so that only effects beside the log need care.
func (n *Node) WhileLeader(ctx context.Context, fn func(ctx context.Context) error) error {
	var served uint64
	for {
		count, lost, changed := n.leadership.now()
		if lost == nil || count == served {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-n.stopping:
				return fmt.Errorf("lead: %w", n.refused())
			}
		}
		served = count
		if err := n.term(ctx, lost, fn); err != nil {
			return err
		}
	}
}

// term runs fn for one term and returns its error if the term outlived it.
func (n *Node) term(ctx context.Context, lost <-chan struct{}, fn func(context.Context) error) error {
	tctx, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-lost:
			end(ErrLostLeadership)
		case <-n.stopping:
			end(n.refused())
		case <-tctx.Done():
		}
	}()
	defer func() {
		end(nil)
		<-watched
	}()
	if err := n.settle(tctx); err != nil {
		return nil // the term is over; the loop sees why
	}
	err := fn(tctx)
	if err != nil && tctx.Err() != nil {
		n.log.Debug("leader work ended with its term", "err", err)
		return nil
	}
	return err
}

// settle passes a barrier, however often that takes.
func (n *Node) settle(ctx context.Context) error {
	for {
		err := n.Barrier(ctx)
		if err == nil {
			return nil
		}
		n.log.Debug("barrier failed", "err", err)
		retry := time.NewTimer(barrierRetry)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return context.Cause(ctx)
		}
	}
}
