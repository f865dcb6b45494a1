package consensus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// refusals proposes until stopped, and gives for how long at most nothing was taken.
func refusals(t *testing.T, n *Node) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	worst := make(chan time.Duration)
	go func() {
		var longest time.Duration
		for last := time.Now(); ctx.Err() == nil; {
			_, _, err := n.Propose(ctx, []byte("meanwhile"))
			switch d := time.Since(last); {
			case err == nil:
				longest, last = max(longest, d), time.Now()
			case ctx.Err() == nil && !errors.Is(err, ErrHandingOver):
				t.Errorf("propose: %v", err)
			case ctx.Err() != nil:
				longest = max(longest, d)
			}
			time.Sleep(20 * time.Millisecond)
		}
		worst <- longest
	}()
	return func() time.Duration { cancel(); return <-worst }
}

// A node that is known to be away is refused at once, and nothing else is.
func TestTransferToANodeThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		off := l.others(leader)[0].cfg.NodeID
		mustPropose(t, leader, "x")
		l.cut(off)
		time.Sleep(4 * time.Second)
		stop := refusals(t, leader)
		begun := time.Now()
		if err := leader.Transfer(t.Context(), off); !errors.Is(err, ErrAway) || time.Since(begun) > 50*time.Millisecond {
			t.Errorf("transfer to a node that is away: %v after %v", err, time.Since(begun))
		}
		time.Sleep(10 * time.Second)
		if d := stop(); d > 100*time.Millisecond {
			t.Errorf("nothing was taken for %v", d)
		}
		l.cut()
		time.Sleep(5 * time.Second)
		if err := l.leader().Transfer(t.Context(), off); l.leader().cfg.NodeID != off {
			t.Errorf("transfer to a node that is back: %v", err)
		}
	})
}

// A node that goes away just when it is to lead stops proposals once, and not for long.
func TestTransferToANodeThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		off := l.others(leader)[0].cfg.NodeID
		mustPropose(t, leader, "x")
		stop := refusals(t, leader)
		time.Sleep(time.Second)
		l.cut(off)
		if err := leader.Transfer(t.Context(), off); err == nil {
			t.Error("transfer to a node that went away succeeds")
		}
		time.Sleep(20 * time.Second)
		if d := stop(); d > 2*time.Second {
			t.Errorf("nothing was taken for %v", d)
		}
		if now := l.leader(off); now != leader {
			t.Errorf("%s leads; want %s all the time", now.cfg.NodeID, leader.cfg.NodeID)
		}
	})
}
