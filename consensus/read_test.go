package consensus

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestVerifyLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		for _, n := range l.others(leader) {
			if err := n.VerifyLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a follower: %v", err)
			}
		}
		before := leader.Status().LastIndex
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := leader.VerifyLeader(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := leader.Status().LastIndex; got > before+1 {
			t.Errorf("reads left %d entries", got-before)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		l.cut(leader.cfg.NodeID)
		synctest.Wait() // an answer that was under way may still arrive, and count
		if err := leader.VerifyLeader(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that ended: %v", err)
		}
		// From the moment on when another one may be elected, nothing is verified here.
		begun := time.Now()
		if err := leader.VerifyLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("cut off: %v after %v", err, time.Since(begun))
		}
		l.leader(leader.cfg.NodeID)
		if err := leader.VerifyLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("deposed: %v", err)
		}
		l.cut()
	})
}

// A learner's answer is no vote: a leader that still reaches one and no voter must not
// take itself for the leader.
func TestLearnersVerifyNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		l.open("d", join)
		if err := leader.AddLearner(t.Context(), "d"); err != nil {
			t.Fatal(err)
		}
		if err := leader.VerifyLeader(t.Context()); err != nil {
			t.Error(err)
		}
		others := l.others(leader)
		l.net.Partition([]string{leader.cfg.NodeID, "d"}, []string{others[0].cfg.NodeID, others[1].cfg.NodeID})
		synctest.Wait() // as above
		if err := leader.VerifyLeader(t.Context()); err == nil {
			t.Error("verified by a learner")
		}
		l.cut()
		l.leader()
	})
}

func TestVerifyLeaderAfterClose(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &ledger{})
	if err := n.VerifyLeader(t.Context()); err != nil {
		t.Error(err)
	}
	mustClose(t, n)
	if err := n.VerifyLeader(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
