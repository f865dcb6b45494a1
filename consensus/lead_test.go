package consensus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// group opens three nodes on one network.
func group(t *testing.T, dir string, net *network) (nodes []*Node, ledgers []*ledger) {
	t.Helper()
	voters := []string{"n0", "n1", "n2"}
	for _, id := range voters {
		l := &ledger{}
		n, err := Open(Config{
			Dir: filepath.Join(dir, id), NodeID: id, Bootstrap: true, FSM: l,
			Voters: voters, Transport: net.listen(id),
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes, ledgers = append(nodes, n), append(ledgers, l)
	}
	return nodes, ledgers
}

func leading(nodes []*Node, not *Node) *Node {
	for {
		for _, n := range nodes {
			if n != not && n.Status().State == "leader" {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestThreeNodesLoseTheirLeader cuts off leader after leader, in virtual time,
// while every node proposes all the time.
func TestThreeNodesLoseTheirLeader(t *testing.T) {
	t.Parallel()
	const losses = 8
	dir, started := t.TempDir(), time.Now()
	var acked sync.Map
	var acks atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		nodes, ledgers := group(t, dir, net)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var terms, lost atomic.Int64
		for _, n := range nodes {
			var running atomic.Int32
			wg.Go(func() {
				err := n.WhileLeader(ctx, func(ctx context.Context) error {
					if running.Add(1) != 1 {
						t.Errorf("%s: two terms at once", n.cfg.NodeID)
					}
					defer running.Add(-1)
					terms.Add(1)
					<-ctx.Done()
					time.Sleep(3 * time.Second) // slow to notice
					if errors.Is(context.Cause(ctx), ErrLostLeadership) {
						lost.Add(1)
					}
					return context.Cause(ctx)
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: WhileLeader: %v", n.cfg.NodeID, err)
				}
			})
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					entry := fmt.Sprintf("%s-%d", n.cfg.NodeID, i)
					before := n.Status().LastIndex
					switch _, index, err := n.Propose(ctx, []byte(entry)); {
					case err == nil:
						acked.Store(fmt.Sprintf("%d %s", index, entry), true)
						acks.Add(1)
						if index <= before {
							t.Errorf("%s: acknowledged at %d, had %d before", entry, index, before)
						}
					case errors.Is(err, ErrNotLeader), errors.Is(err, ErrUnknown), ctx.Err() != nil:
					default:
						t.Errorf("propose: %v", err)
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		for range losses {
			leader := leading(nodes, nil)
			time.Sleep(5 * time.Second)
			begun := time.Now()
			net.cut(leader.cfg.NodeID)
			leading(nodes, leader)
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("failover took %v", d)
			}
			time.Sleep(2 * time.Second)
			net.cut()
			time.Sleep(5 * time.Second)
		}
		stop()
		wg.Wait()
		leader := leading(nodes, nil)
		if err := leader.Barrier(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		want := ledgers[0].all()
		for i, l := range ledgers {
			if diff := cmp.Diff(l.all(), want); diff != "" {
				t.Errorf("n%d differs from n0 (-n%d +n0):\n%s", i, i, diff)
			}
		}
		have := map[string]bool{}
		for _, e := range want {
			have[e] = true
		}
		acked.Range(func(e, _ any) bool {
			if !have[e.(string)] {
				t.Errorf("acknowledged %q is gone", e)
			}
			return true
		})
		if terms.Load() < losses || lost.Load() < losses-1 || lost.Load() > terms.Load() {
			t.Errorf("%d terms, %d lost, after %d cuts", terms.Load(), lost.Load(), losses)
		}
		for _, n := range nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		net.close()
	})
	if acks.Load() < 100 {
		t.Errorf("only %d entries acknowledged", acks.Load())
	}
	t.Logf("%d acknowledged, %v of real time", acks.Load(), time.Since(started))
}

func TestOnlyTheNewLeaderTakesProposals(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		nodes, _ := group(t, dir, net)
		defer net.close()
		for range 3 {
			leader := leading(nodes, nil)
			mustPropose(t, leader, "x")
			if err := leader.raft.LeadershipTransfer().Error(); err != nil {
				t.Fatal(err)
			}
			next := leading(nodes, leader)
			if err := next.settle(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := leader.Propose(t.Context(), []byte("y")); !errors.Is(err, ErrNotLeader) {
				t.Errorf("propose on a follower: %v", err)
			}
			if err := leader.Barrier(t.Context()); !errors.Is(err, ErrNotLeader) {
				t.Errorf("barrier on a follower: %v", err)
			}
		}
		for _, n := range nodes {
			n.Close()
		}
	})
}

func TestFollowerCatchesUpFromASnapshot(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		nodes, ledgers := group(t, dir, net)
		defer net.close()
		leader := leading(nodes, nil)
		rc := leader.raft.ReloadableConfig()
		rc.TrailingLogs = 1
		if err := leader.raft.ReloadConfig(rc); err != nil {
			t.Fatal(err)
		}
		behind := 0
		for nodes[behind] == leader {
			behind++
		}
		net.cut(nodes[behind].cfg.NodeID)
		for range 3 {
			for range 10 {
				mustPropose(t, leader, "x")
			}
			if err := leader.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		net.cut()
		time.Sleep(time.Minute)
		mustPropose(t, leading(nodes, nil), "y")
		time.Sleep(time.Second)
		if got := ledgers[behind]; got.calls() >= 30 {
			t.Errorf("%d entries were replayed, want a snapshot", got.calls())
		}
		for i, l := range ledgers {
			if diff := cmp.Diff(l.all(), ledgers[0].all()); diff != "" {
				t.Errorf("n%d differs from n0:\n%s", i, diff)
			}
		}
		if s := nodes[behind].Status(); s.SnapshotIndex == 0 || s.AppliedIndex == 0 {
			t.Errorf("status %+v, want a snapshot installed", s)
		}
		for _, n := range nodes {
			n.Close()
		}
	})
}

func TestWhileLeaderEnds(t *testing.T) {
	t.Run("with the error of its work", func(t *testing.T) {
		n := mustOpen(t, t.TempDir(), &ledger{})
		broken := errors.New("broken")
		if err := n.WhileLeader(t.Context(), func(context.Context) error { return broken }); err != broken {
			t.Errorf("got %v, want %v", err, broken)
		}
	})
	t.Run("with its context, resting after nil", func(t *testing.T) {
		n := mustOpen(t, t.TempDir(), &ledger{})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause, runs := errors.New("enough"), 0
		err := n.WhileLeader(ctx, func(context.Context) error {
			runs++
			cancel(cause)
			return nil
		})
		if err != cause || runs != 1 {
			t.Errorf("got %v after %d runs, want %v after 1", err, runs, cause)
		}
	})
	t.Run("with the node", func(t *testing.T) {
		n := mustOpen(t, t.TempDir(), &ledger{})
		err := n.WhileLeader(t.Context(), func(ctx context.Context) error {
			n.Propose(ctx, []byte("poison"))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		var fatal *FatalError
		if !errors.As(err, &fatal) || !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want the fatal error", err)
		}
	})
	t.Run("before it begins on a node that fails", func(t *testing.T) {
		dir := t.TempDir()
		n := mustOpen(t, dir, &ledger{})
		n.Propose(t.Context(), []byte("poison"))
		mustClose(t, n)
		n, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &ledger{}})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		err = n.WhileLeader(t.Context(), func(context.Context) error {
			t.Error("led with a state that lacks committed entries")
			return nil
		})
		if !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
	})
}

// raft refuses barriers during a transfer of leadership, also during one that
// comes to nothing.
func TestFailedBarrierIsRetriedWhileLeading(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		net.silent = true
		nodes, _ := group(t, dir, net)
		defer net.close()
		leader := leading(nodes, nil)
		var to *Node
		for _, n := range nodes {
			if n != leader {
				to = n
			}
		}
		net.cut(to.cfg.NodeID)
		time.Sleep(time.Second)
		refusing := leader.raft.LeadershipTransferToServer(raft.ServerID(to.cfg.NodeID), raft.ServerAddress(to.cfg.NodeID))
		ctx, cancel := context.WithCancel(t.Context())
		for !errors.Is(leader.Barrier(ctx), ErrNotLeader) {
			time.Sleep(time.Millisecond)
		}
		begun := time.Now()
		err := leader.WhileLeader(ctx, func(ctx context.Context) error {
			if d := time.Since(begun); d < barrierRetry {
				t.Errorf("barrier passed after %v: nothing refused it", d)
			}
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("WhileLeader: %v", err)
		}
		if err := refusing.Error(); err == nil {
			t.Error("the transfer went through")
		}
		for _, n := range nodes {
			n.Close()
		}
	})
}
