package consensus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// paceSlots is how many parts the time of a Stall has. The 99th percentile is that
// of the newest half of them.
const paceSlots = 20

// pace counts how long appends to the log take.
type pace struct {
	p99, slot time.Duration
	wake      chan struct{} // an append began while nobody looked

	mu      sync.Mutex
	started time.Time // of the append under way, zero without one
	asleep  bool
	slots   [paceSlots / 2]struct{ at, all, slow int64 } // at is the number of the slot since the epoch
	over    time.Time                                    // since when the percentile is too high, zero if it is not
}

func (p *pace) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = now
	if p.asleep {
		p.asleep = false
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

func (p *pace) end(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now, now.Sub(p.started))
	p.started = time.Time{}
}

func (p *pace) count(now time.Time, took time.Duration) {
	at := now.UnixNano() / int64(p.slot)
	s := &p.slots[at%int64(len(p.slots))]
	if s.at != at {
		s.at, s.all, s.slow = at, 0, 0
	}
	s.all++
	if took > p.p99 {
		s.slow++
	}
}

// look says whether appends are too slow and have been for all of d, and whether
// there is anything to look at.
func (p *pace) look(now time.Time, d time.Duration) (stalled, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all, slow int64
	oldest := now.UnixNano()/int64(p.slot) - int64(len(p.slots))
	for _, s := range p.slots {
		if s.at > oldest {
			all, slow = all+s.all, slow+s.slow
		}
	}
	if !p.started.IsZero() {
		all++
		if now.Sub(p.started) > p.p99 {
			slow++
		}
	}
	if slow*100 <= all {
		p.over = time.Time{}
		p.asleep = all == 0
		return false, p.asleep
	}
	if p.over.IsZero() {
		p.over = now
	}
	return now.Sub(p.over) >= d, false
}

// watchDisk gives leadership away while appends to the log are too slow.
func (n *Node) watchDisk() {
	p := &n.store.pace
	tick := time.NewTicker(p.slot)
	defer tick.Stop()
	var tried time.Time
	var shedding sync.WaitGroup
	defer shedding.Wait()
	for {
		select {
		case <-tick.C:
		case <-n.stopping:
			return
		}
		stalled, idle := p.look(time.Now(), n.cfg.Stall.For)
		if was := n.stalled.Swap(stalled); was != stalled {
			n.log.Warn("the disk under the log became too slow, or fast again", "slow", stalled)
		}
		switch {
		case !stalled:
			n.leadership.hold(false)
		case n.raft.State() != raft.Leader:
			n.leadership.hold(true)
		case time.Since(tried) > n.cfg.Stall.For:
			tried = time.Now()
			shedding.Wait()
			shedding.Go(n.shed)
		}
		if idle {
			tick.Stop()
			select {
			case <-p.wake:
			case <-n.stopping:
				return
			}
			tick.Reset(p.slot)
		}
	}
}

// shed gives leadership to another voter, if there is one that answers, and has this
// node act as leader no more: raft's loop may hang in the disk and hear of nothing.
// A voter is told even where this node cannot see that it has all there is.
func (n *Node) shed() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*n.cfg.Heartbeat)
	defer cancel()
	ids, err := n.successors(ctx, "")
	if err == nil {
		err = n.Transfer(ctx, "")
		if err != nil && (errors.Is(err, errTold) || n.raft.State() != raft.Leader || n.handOver(ids)) {
			err = nil
		}
	}
	if err == nil {
		n.leadership.hold(true)
	}
	n.log.Warn("leadership is to go elsewhere because of a slow disk", "to", ids, "err", err)
}
