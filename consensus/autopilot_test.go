package consensus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is what an owner knows of its nodes.
type world struct {
	mu    sync.Mutex
	facts map[string]Fact
}

func (w *world) set(f Fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[f.ID] = f
}

func (w *world) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.facts, id)
}

func (w *world) all() (out []Fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.facts {
		out = append(out, f)
	}
	return out
}

// fly runs the autopilot of a node until the test's end.
func (w *world) fly(t *testing.T, n *Node) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Autopilot(ctx, Pilot{Facts: w.all, DeadAfter: 2 * time.Minute}); !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
			t.Errorf("autopilot: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func TestAutopilotPromotesWhoIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{facts: map[string]Fact{"a": {ID: "a", Alive: true, Ready: true}}}
		l := newLab(t, "a")
		defer l.end()
		a := l.leader()
		w.fly(t, a)
		w.fly(t, l.open("b", join))
		mustPropose(t, a, "x")
		time.Sleep(time.Minute) // past the time in which the library takes everybody for stable
		if err := a.AddLearner(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		is := func(want string) bool {
			for range 1000 {
				if slices.Contains(l.members(a), "b "+want) {
					return true
				}
				time.Sleep(100 * time.Millisecond)
			}
			return false
		}
		stays := func(why string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			if !slices.Contains(l.members(a), "b learner") {
				t.Errorf("promoted while %s: %q", why, l.members(a))
			}
		}
		stays("nobody knows of it")
		w.set(Fact{ID: "b", Alive: true})
		stays("it is not ready")
		l.cut("b")
		w.set(Fact{ID: "b", Alive: true, Ready: true})
		stays("it can't be reached")
		l.cut()
		begun := time.Now()
		if !is("voter") {
			t.Fatal("not promoted")
		}
		if d := time.Since(begun); d < 8*time.Second || d > 30*time.Second {
			t.Errorf("promoted after %v, want when it was stable", d)
		}
	})
}

func TestAutopilotRemovesTheDeadOnlyWhenSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{facts: map[string]Fact{}}
		ids := []string{"a", "b", "c"}
		l := newLab(t, ids...)
		defer l.end()
		for _, id := range ids {
			w.set(Fact{ID: id, Alive: true, Ready: true})
			w.fly(t, l.nodes[id])
		}
		leader := l.leader()
		dead, quiet := l.others(leader)[0].cfg.NodeID, l.others(leader)[1].cfg.NodeID
		l.close(dead)
		w.set(Fact{ID: dead})
		time.Sleep(6 * time.Minute)
		if got := l.members(leader); len(got) != 3 {
			t.Errorf("of three, one was removed: %q", got)
		}
		// Gossip may err about who answers, and says nothing of others.
		w.set(Fact{ID: quiet})
		time.Sleep(6 * time.Minute)
		w.forget(quiet)
		time.Sleep(6 * time.Minute)
		if got := l.members(leader); len(got) != 3 {
			t.Errorf("who answers was removed: %q", got)
		}
		w.set(Fact{ID: quiet, Alive: true, Ready: true})
		if err := leader.AddLearner(t.Context(), "d"); err != nil {
			t.Fatal(err)
		}
		w.set(Fact{ID: "d", Alive: true, Ready: true})
		w.fly(t, l.open("d", join))
		time.Sleep(6 * time.Minute)
		want := []string{leader.cfg.NodeID + " voter", quiet + " voter", "d voter"}
		got := l.members(leader)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("members %q, want %q", got, want)
		}
		if l.leader() != leader {
			t.Error("leadership has moved")
		}
		// A learner that is dead is in nobody's way, and goes too.
		if err := leader.AddLearner(t.Context(), "e"); err != nil {
			t.Fatal(err)
		}
		w.set(Fact{ID: "e"})
		time.Sleep(time.Minute)
		if got := l.members(leader); len(got) != 4 {
			t.Errorf("removed before its time: %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := l.members(leader); len(got) != 3 {
			t.Errorf("members %q", got)
		}
	})
}

func TestAutopilotNeedsFacts(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &ledger{})
	if err := n.Autopilot(t.Context(), Pilot{}); err == nil {
		t.Error("flies blind")
	}
}
