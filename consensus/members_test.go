package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/mesh/meshtest"
)

// lab is a group of nodes that live in memory, for use in a bubble.
type lab struct {
	t     *testing.T
	net   *meshtest.Network
	nodes map[string]*Node
	fsm   map[string]*ledger
	disk  map[string]*Memory
}

func newLab(t *testing.T, ids ...string) *lab {
	l := &lab{t, meshtest.New(1), map[string]*Node{}, map[string]*ledger{}, map[string]*Memory{}}
	for _, id := range ids {
		l.open(id, func(c *Config) { c.Bootstrap, c.Voters = true, ids })
	}
	return l
}

// try opens a node on the disk of its name.
func (l *lab) try(id string, change ...func(*Config)) (*Node, error) {
	if l.disk[id] == nil {
		l.disk[id] = NewMemory(l.t)
	}
	l.fsm[id] = &ledger{}
	listen, err := l.net.Node(id).Listen(1)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := Config{NodeID: id, Memory: l.disk[id], FSM: l.fsm[id], Transport: meshPort{listen, l.net.Node(id)}}
	for _, c := range change {
		c(&cfg)
	}
	n, err := Open(cfg)
	if err == nil {
		l.nodes[id] = n
	} else {
		listen.Close()
	}
	return n, err
}

// meshPort is a Transport on a network in memory.
type meshPort struct {
	net.Listener
	node *meshtest.Node
}

func (p meshPort) Dial(id string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.node.Dial(ctx, id, 1)
}

// cut isolates the named nodes and connects all others. What is sent to and from an
// isolated node waits.
func (l *lab) cut(ids ...string) {
	l.net.Heal()
	for _, id := range ids {
		l.net.Isolate(id)
	}
}

func (l *lab) open(id string, change ...func(*Config)) *Node {
	l.t.Helper()
	n, err := l.try(id, change...)
	if err != nil {
		l.t.Fatalf("open %s: %v", id, err)
	}
	return n
}

func (l *lab) close(ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		if err := l.nodes[id].Close(); err != nil {
			l.t.Errorf("close %s: %v", id, err)
		}
		delete(l.nodes, id)
	}
}

func (l *lab) end() {
	for id := range l.nodes {
		l.close(id)
	}
}

// leader waits for a node that leads, other than not, and has settled.
func (l *lab) leader(not ...string) *Node {
	l.t.Helper()
	for range 10000 {
		for id, n := range l.nodes {
			if !slices.Contains(not, id) && n.Status().State == "leader" && n.Barrier(l.t.Context()) == nil {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.t.Fatal("nobody leads")
	return nil
}

// others are the nodes that are not n.
func (l *lab) others(n *Node) (out []*Node) {
	for _, m := range l.nodes {
		if m != n {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *Node) int { return strings.Compare(a.cfg.NodeID, b.cfg.NodeID) })
	return out
}

func (l *lab) members(n *Node) (out []string) {
	l.t.Helper()
	all, err := n.Members()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, m := range all {
		kind := "learner"
		if m.Voter {
			kind = "voter"
		}
		out = append(out, m.ID+" "+kind)
	}
	return out
}

// same waits until all nodes have applied the same entries, and gives them.
func (l *lab) same() []string {
	l.t.Helper()
	var want []string
	for range 1000 {
		same := true
		want = nil
		for id := range l.nodes {
			if got := l.fsm[id].all(); want == nil {
				want = got
			} else if !slices.Equal(got, want) {
				same = false
			}
		}
		if same {
			return want
		}
		time.Sleep(20 * time.Millisecond)
	}
	for id, f := range l.fsm {
		l.t.Errorf("%s has %q", id, f.all())
	}
	return want
}

func join(c *Config) { c.Join = true }

func TestGrowToThreeAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a")
		defer l.end()
		a := l.leader()
		mustPropose(t, a, "one")
		ctx := within(t, time.Minute)
		if err := a.Promote(ctx, "b"); !errors.Is(err, ErrNotMember) {
			t.Errorf("promote a stranger: %v", err)
		}
		for _, id := range []string{"b", "c"} {
			n := l.open(id, join)
			if s := n.Status(); s.State != "follower" || s.Leader != "" || s.Term != 0 {
				t.Errorf("waiting node is %+v", s)
			}
			if err := a.AddLearner(ctx, id); err != nil {
				t.Fatal(err)
			}
			if got := l.members(a); got[len(got)-1] != id+" learner" {
				t.Errorf("members %q", got)
			}
			if err := a.VerifyLeader(ctx); err != nil {
				t.Errorf("with a learner: %v", err)
			}
			if err := a.Promote(ctx, id); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(a.Promote(ctx, id), a.AddLearner(ctx, id)); err != nil {
				t.Errorf("again: %v", err)
			}
			mustPropose(t, a, "with "+id)
		}
		if d := cmp.Diff(l.members(a), []string{"a voter", "b voter", "c voter"}); d != "" {
			t.Error(d)
		}
		if got := l.same(); len(got) != 3 {
			t.Errorf("applied %q", got)
		}
		for _, n := range l.others(a) {
			if err := n.AddLearner(ctx, "d"); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a follower adds: %v", err)
			}
			if err := n.Remove(ctx, "d"); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a follower removes: %v", err)
			}
			if n.Leader() != "a" {
				t.Errorf("%s follows %q", n.cfg.NodeID, n.Leader())
			}
		}
		all, _ := a.Members()
		for _, m := range all[1:] {
			if m.Match != a.Status().LastIndex || m.Contact < 0 || m.Contact > time.Second {
				t.Errorf("the leader knows %+v", m)
			}
		}

		// The group goes on without the first node, at once.
		if err := a.Remove(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		next := l.leader("a")
		if d := time.Since(begun); d > a.cfg.Heartbeat/2 {
			t.Errorf("new leader after %v", d)
		}
		if err := next.Remove(ctx, "a"); err != nil {
			t.Errorf("remove who is gone: %v", err)
		}
		time.Sleep(time.Minute) // the removed node disturbs nobody
		if s := next.Status(); s.State != "leader" {
			t.Errorf("deposed: %+v", s)
		}
		if s := a.Status(); s.State != "follower" {
			t.Errorf("removed node is %+v", s)
		}
		ctx = within(t, time.Minute)
		for _, n := range l.others(next) {
			if n != a {
				if err := next.Remove(ctx, n.cfg.NodeID); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := next.Remove(ctx, next.cfg.NodeID); !errors.Is(err, ErrLastVoter) {
			t.Errorf("remove the last: %v", err)
		}
		mustPropose(t, next, "alone")

		// Alone again, it is as quick as ever.
		id := next.cfg.NodeID
		l.close(id)
		begun = time.Now()
		l.open(id)
		l.leader("a")
		if d := time.Since(begun); d > 50*time.Millisecond {
			t.Errorf("alone, leads after %v", d)
		}
	})
}

func TestJoinedNodeRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a")
		defer l.end()
		if _, err := l.try("b"); !errors.Is(err, ErrEmpty) {
			t.Errorf("open what is empty: %v", err)
		}
		l.open("b", join)
		l.close("b")
		if _, err := l.try("b", func(c *Config) { c.Bootstrap = true }); err == nil || !strings.Contains(err.Error(), "waits to be added") {
			t.Errorf("bootstrap a waiting node: %v", err)
		}
		if _, err := l.try("x", func(c *Config) { c.Memory = l.disk["b"] }); err == nil || !strings.Contains(err.Error(), `belongs to ["b"]`) {
			t.Errorf("open under another id: %v", err)
		}
		l.open("b") // not added yet, and yet no longer empty
		a := l.leader()
		if err := errors.Join(a.AddLearner(t.Context(), "b"), a.Promote(t.Context(), "b")); err != nil {
			t.Fatal(err)
		}
		mustPropose(t, a, "x")
		l.close("b")
		l.open("b")
		mustPropose(t, l.leader(), "y") // needs both
		if got := l.same(); len(got) != 2 {
			t.Errorf("applied %q", got)
		}
	})
}

// A voter whose disk was wiped must neither vote nor stand in for what it had, while
// one follower lacks an acknowledged entry.
func TestWipedVoterIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		wiped, behind := l.others(leader)[0].cfg.NodeID, l.others(leader)[1].cfg.NodeID
		l.cut(behind)
		mustPropose(t, leader, "acknowledged")
		l.close(wiped)
		first := leader.cfg.NodeID
		l.close(first)
		delete(l.disk, wiped)
		if _, err := l.try(wiped); !errors.Is(err, ErrEmpty) {
			t.Errorf("restart with an empty disk: %v", err)
		}
		l.open(wiped, join)
		l.cut()
		time.Sleep(time.Minute)
		for id, n := range l.nodes {
			if n.Status().State == "leader" {
				t.Errorf("%s leads without the entry", id)
			}
		}
		l.open(first)
		l.leader(wiped)
		select {
		case <-l.nodes[wiped].Done():
		case <-time.After(time.Minute):
			t.Fatal("the wiped node goes on")
		}
		if err := l.nodes[wiped].Err(); !errors.Is(err, ErrLostDisk) {
			t.Errorf("stopped with %v", err)
		}
		l.close(wiped)
		if got := l.same(); len(got) != 1 {
			t.Errorf("kept %q", got)
		}
	})
}

func TestPromoteWaitsForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a")
		defer l.end()
		a := l.leader()
		l.open("b", join)
		l.cut("b")
		if err := a.AddLearner(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if err := a.Promote(t.Context(), "b"); !errors.Is(err, ErrBehind) {
			t.Errorf("promote who can't be reached: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Promote(ctx, "b"); !errors.Is(err, ErrBehind) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("promote with a deadline: %v", err)
		}
		mustPropose(t, a, "alone") // the learner holds nothing up
		l.cut()
		if err := a.Promote(t.Context(), "b"); err != nil {
			t.Errorf("promote: %v", err)
		}
		// Two voters need both.
		l.cut("b")
		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, _, err := a.Propose(ctx, []byte("x")); !errors.Is(err, ErrUnknown) {
			t.Errorf("one of two commits: %v", err)
		}
		// Yet one can do without the other, as long as it leads.
		if err := a.Remove(t.Context(), "b"); err != nil {
			t.Errorf("one of two removes the other: %v", err)
		}
		l.cut()
		l.leader()
	})
}

func TestFailoverTimes(t *testing.T) {
	var worst, sum time.Duration
	const rounds = 60
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, "a", "b", "c")
			defer l.end()
			leader := l.leader()
			// Entries are on their way when it happens, so that one follower may hold
			// more than the other.
			l.net.Delay(0, 10*time.Millisecond)
			ctx, stop := context.WithCancel(t.Context())
			var writing sync.WaitGroup
			for i := range 8 {
				writing.Go(func() {
					for ctx.Err() == nil {
						leader.Propose(ctx, fmt.Append(nil, i))
						time.Sleep(time.Duration(i+1) * time.Millisecond)
					}
				})
			}
			time.Sleep(time.Second + time.Duration(round)*time.Millisecond)
			l.cut(leader.cfg.NodeID)
			begun := time.Now()
			mustPropose(t, l.leader(leader.cfg.NodeID), "x")
			stop()
			writing.Wait()
			d := time.Since(begun)
			worst, sum = max(worst, d), sum+d
			l.cut()
		})
	}
	t.Logf("worst %v, mean %v", worst, sum/rounds)
	if worst > 2*time.Second {
		t.Errorf("a new leader took %v", worst)
	}
}
