package consensus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		if err := leader.Transfer(t.Context(), leader.cfg.NodeID); err != nil || leader.Status().State != "leader" {
			t.Errorf("transfer to itself: %v", err)
		}
		if err := leader.Transfer(t.Context(), "stranger"); !errors.Is(err, ErrNotMember) {
			t.Errorf("transfer to a stranger: %v", err)
		}
		for range 3 {
			for _, to := range l.others(leader) {
				mustPropose(t, leader, "x")
				begun := time.Now()
				if err := leader.Transfer(t.Context(), to.cfg.NodeID); err != nil {
					t.Fatal(err)
				}
				if got := l.leader(); got != to || time.Since(begun) > 100*time.Millisecond {
					t.Errorf("%s leads after %v, want %s at once", got.cfg.NodeID, time.Since(begun), to.cfg.NodeID)
				}
				if err := leader.Transfer(t.Context(), ""); !errors.Is(err, ErrNotLeader) {
					t.Errorf("transfer by a follower: %v", err)
				}
				leader = to
			}
		}
		// Who can't be reached is passed over.
		off := l.others(leader)[0].cfg.NodeID
		l.cut(off)
		time.Sleep(5 * time.Second)
		if err := leader.Transfer(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		next := l.leader(leader.cfg.NodeID, off)
		if err := next.Transfer(t.Context(), off); err == nil || l.leader() != next {
			t.Errorf("transfer to a node that is cut off: %v", err)
		}
		l.cut(off, leader.cfg.NodeID)
		if err := next.Transfer(t.Context(), ""); err == nil {
			t.Errorf("transfer with nobody there: %v", err)
		}
		l.cut()
		l.leader()
	})
}

func TestTransferAlone(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &ledger{})
	if err := n.Transfer(t.Context(), ""); !errors.Is(err, ErrNobody) {
		t.Errorf("got %v, want %v", err, ErrNobody)
	}
	mustPropose(t, n, "goes on")
}

func TestWhoAbstainsDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		shy := l.others(leader)[0]
		shy.Abstain(true)
		if err := leader.Transfer(t.Context(), shy.cfg.NodeID); err == nil {
			t.Error("leadership went to who abstains")
		}
		leader.Abstain(true)
		if err := leader.Transfer(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		for range 3 { // the only one that stands comes back each time
			want := l.others(leader)[1]
			if got := l.leader(); got != want {
				t.Errorf("%s leads, want %s", got.cfg.NodeID, want.cfg.NodeID)
			}
			l.cut(want.cfg.NodeID)
			time.Sleep(2 * time.Second)
			for _, n := range []*Node{shy, leader} {
				if n.Status().State == "leader" {
					t.Errorf("%s leads", n.cfg.NodeID)
				}
			}
			l.cut()
		}
		// Better one that should not than none.
		l.cut(l.leader().cfg.NodeID)
		begun := time.Now()
		l.leader(l.others(leader)[1].cfg.NodeID)
		if d := time.Since(begun); d < 2*time.Second || d > 12*time.Second {
			t.Errorf("one who abstains leads after %v", d)
		}
		l.cut()
	})
}

// A leader whose disk hangs gives leadership away, although raft's own loop hangs with
// it, acts as leader no more, and catches up when the disk goes on.
func TestHungDiskGivesLeadershipAway(t *testing.T) {
	for name, hang := range map[string]time.Duration{"hung": time.Minute, "slow": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				defer l.end()
				ids := []string{"a", "b", "c"}
				slow := make(map[string]chan time.Duration)
				for _, id := range ids {
					takes := make(chan time.Duration, 1)
					takes <- 0
					slow[id] = takes
					l.disk[id] = NewMemory(t)
					l.disk[id].Sync = func() {
						d := <-takes
						takes <- d
						time.Sleep(d)
					}
					l.open(id, func(c *Config) { c.Bootstrap, c.Voters = true, ids })
				}
				leader := l.leader()
				id := leader.cfg.NodeID
				works, ended := make(chan bool, 2), make(chan error, 2)
				go leader.WhileLeader(t.Context(), func(ctx context.Context) error {
					works <- true
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil
				})
				mustPropose(t, leader, "before")
				<-works // else it might never begin, with the disk as it is from here on
				<-slow[id]
				slow[id] <- hang
				begun := time.Now()
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						select {
						case <-stop:
							return
						default:
							leader.Propose(t.Context(), []byte("meanwhile"))
							time.Sleep(100 * time.Millisecond)
						}
					}
				}()
				next := l.leader(id)
				d := time.Since(begun)
				if d < 10*time.Second || d > 20*time.Second {
					t.Errorf("%s leads after %v", next.cfg.NodeID, d)
				}
				if s := leader.Status(); !s.Stalled {
					t.Errorf("status %+v", s)
				}
				select {
				case err := <-ended:
					if !errors.Is(err, ErrLostLeadership) {
						t.Errorf("leader's work ended with %v", err)
					}
				case <-time.After(2 * time.Second):
					t.Error("the leader's work goes on")
				}
				mustPropose(t, next, "after")
				<-slow[id]
				slow[id] <- 0
				time.Sleep(90 * time.Second)
				close(stop)
				<-done
				if s := leader.Status(); s.Stalled {
					t.Errorf("status %+v", s)
				}
				l.same()
				mustPropose(t, l.leader(), "end")
			})
		})
	}
}

func TestPace(t *testing.T) {
	s := newLogStore(nil, Stall{P99: 2 * time.Second, For: 10 * time.Second}, nil, nil, nil, nil, nil)
	p := &s.pace
	now := time.Unix(1e9, 0)
	step := func(takes time.Duration) (stalled bool) {
		p.begin(now)
		now = now.Add(takes)
		p.end(now)
		stalled, _ = p.look(now, 10*time.Second)
		return stalled
	}
	for range 1000 {
		if step(time.Millisecond) {
			t.Fatal("stalled while all is quick")
		}
	}
	for range 3 { // single hiccups of an idle node
		if step(3 * time.Second) {
			t.Error("stalled after one slow append")
		}
		now = now.Add(4 * time.Second)
		if stalled, _ := p.look(now, 10*time.Second); stalled {
			t.Error("stalled after one slow append")
		}
		now = now.Add(20 * time.Second)
		if stalled, idle := p.look(now, 10*time.Second); stalled || !idle {
			t.Errorf("stalled %v, idle %v, after a pause", stalled, idle)
		}
	}
	slow := 0
	for range 10 {
		if step(3 * time.Second) {
			slow++
		}
	}
	if slow < 5 || slow > 7 {
		t.Errorf("stalled in %d of 10 looks at 3 s each, want after the first 10 s", slow)
	}
	p.begin(now)
	if stalled, _ := p.look(now.Add(time.Minute), 10*time.Second); !stalled {
		t.Error("not stalled while an append hangs")
	}
}
