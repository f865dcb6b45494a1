package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/mesh/meshtest"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		last, heard mark
		setBack     bool
	}{
		"nothing is known":                        {mark{3, 10, 3}, mark{}, false},
		"as it was":                               {mark{3, 10, 3}, mark{3, 10, 3}, false},
		"further than was heard":                  {mark{3, 12, 3}, mark{3, 10, 3}, false},
		"a new node of which nothing is known":    {mark{}, mark{}, false},
		"an end that was not committed, cut":      {mark{4, 11, 4}, mark{3, 10, 4}, false},
		"a shorter log of a newer leader":         {mark{5, 9, 5}, mark{3, 10, 3}, false},
		"recovered: a term of its own":            {mark{4, 9, 4}, mark{3, 12, 3}, false},
		"it lacks an entry":                       {mark{3, 9, 3}, mark{3, 10, 3}, true},
		"it lacks all":                            {mark{}, mark{3, 10, 3}, true},
		"longer, with what was never committed":   {mark{3, 20, 5}, mark{4, 15, 5}, true},
		"it has all, and has forgotten a vote":    {mark{3, 10, 3}, mark{3, 10, 4}, true},
		"its term is newer, and it lacks entries": {mark{3, 9, 7}, mark{3, 10, 3}, true},
	} {
		err := judge(c.last, "n2", c.heard)
		if got := errors.Is(err, ErrSetBack); got != c.setBack || (err != nil) != c.setBack {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "node n2 knows") {
			t.Errorf("%s: it does not say from whom: %v", name, err)
		}
	}
}

func TestEnough(t *testing.T) {
	const patience = 300 * time.Millisecond
	for _, c := range []struct {
		others, answered int
		waited           time.Duration
		want             bool
	}{
		{0, 0, 0, true}, // alone
		{1, 0, time.Hour, false}, {1, 1, 0, true},
		{2, 0, time.Hour, false}, {2, 1, 0, false}, {2, 1, patience, true}, {2, 2, 0, true},
		{3, 1, time.Hour, false}, {3, 2, patience, true},
		{4, 1, time.Hour, false}, {4, 2, 0, false}, {4, 2, patience, true}, {4, 4, 0, true},
	} {
		if got := enough(c.others, c.answered, c.waited, patience); got != c.want {
			t.Errorf("%d of %d others after %v: %v", c.answered, c.others, c.waited, got)
		}
	}
}

func TestRuns(t *testing.T) {
	a, b, c := runID{1}, runID{2}, runID{3}
	type word struct {
		id      runID
		at      int // seconds
		up      int
		cleared bool
		last    uint64 // entry
	}
	for name, test := range map[string]struct {
		words []word
		want  string // per word: . goes on, x is told that it was superseded
	}{
		"one process":                              {[]word{{a, 10, 5, true, 7}, {a, 20, 15, true, 7}}, ".."},
		"a restart":                                {[]word{{a, 10, 5, true, 7}, {b, 20, 1, false, 7}, {b, 21, 2, true, 7}, {b, 30, 11, true, 7}}, "...."},
		"a late word of the process before":        {[]word{{a, 10, 5, true, 7}, {b, 20, 1, true, 7}, {a, 20, 14, true, 7}, {b, 30, 11, true, 7}}, "..x."},
		"a copy beside it":                         {[]word{{a, 10, 5, true, 7}, {b, 20, 1, true, 7}, {a, 30, 25, true, 7}, {b, 31, 12, true, 7}}, "..x."},
		"the copy is heard first":                  {[]word{{b, 20, 1, true, 7}, {a, 30, 25, true, 7}, {b, 31, 12, true, 7}, {a, 32, 27, true, 7}}, "...x"},
		"one that may not vote yet takes no place": {[]word{{a, 10, 5, true, 7}, {b, 20, 1, false, 7}, {a, 21, 16, true, 7}}, "..."},
		"the copy lacks what the first has since":  {[]word{{a, 10, 5, true, 7}, {b, 20, 1, true, 7}, {a, 30, 25, true, 8}, {b, 31, 12, true, 8}, {a, 32, 27, true, 8}}, "....x"},
		"three": {[]word{{a, 10, 5, true, 7}, {b, 20, 1, true, 7}, {c, 30, 1, true, 7}, {a, 31, 26, true, 7}, {b, 32, 13, true, 7}, {c, 33, 4, true, 7}}, "...xx."},
		"of two the older, whichever was heard earlier": {[]word{{c, 10, 1, true, 7}, {a, 11, 10, false, 7}, {a, 12, 11, true, 7}, {c, 13, 4, true, 7}, {a, 14, 13, true, 7}}, "....x"},
		"a restart while the one that listens slept":    {[]word{{a, 10, 5, true, 7}, {b, 20, 1000, true, 7}, {b, 30, 1010, true, 7}}, "..."},
	} {
		var r runs
		start := time.Unix(1e9, 0)
		got := ""
		for _, w := range test.words {
			if r.hear(w.id, time.Duration(w.up)*time.Second, w.cleared, mark{1, w.last, 1}, mark{}, start.Add(time.Duration(w.at)*time.Second)) {
				got += "x"
			} else {
				got += "."
			}
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	var r runs
	now := time.Unix(1e9, 0)
	r.hear(a, time.Minute, true, mark{}, mark{}, now)
	r.hear(b, time.Second, true, mark{}, mark{}, now)
	r.drop(b)
	if r.hear(a, time.Minute, true, mark{}, mark{}, now) {
		t.Error("a copy that has refused to run ends the node")
	}
	for i := range 3 * maxRuns {
		r.hear(runID{9, byte(i)}, 0, true, mark{}, mark{}, now.Add(time.Duration(i)*time.Second))
	}
	if r.hear(a, time.Hour, true, mark{}, mark{1, 1, 1}, now) {
		t.Error("one is told to stop for another that lacks an entry")
	}
	if len(r.old) > maxRuns {
		t.Errorf("%d processes are remembered", len(r.old))
	}
}

// copyOf is what a disk holds now.
func (m *Memory) copyOf(t *testing.T) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory(t)
	c.logs, c.vars, c.snaps = maps.Clone(m.logs), maps.Clone(m.vars), append([]*memorySnapshot{}, m.snaps...)
	c.first, c.last, c.keep = m.first, m.last, m.keep
	return c
}

// ends waits until a node has stopped by itself, and closes it.
func (l *lab) ends(id string, want error) {
	l.t.Helper()
	select {
	case <-l.nodes[id].Done():
	case <-time.After(time.Minute):
		for id, n := range l.nodes {
			n.fold()
			l.t.Log(id, n.Status(), n.known.marks, n.last(), n.known.answered, n.known.cleared.Load())
		}
		l.t.Fatalf("%s goes on", id)
	}
	if err := l.nodes[id].Err(); !errors.Is(err, want) {
		l.t.Errorf("%s stopped with %v, want %v", id, err, want)
	}
	l.close(id)
}

// An old copy in place of a voter's disk is refused, whoever leads, also after all nodes
// were started anew, and where the one that counted on the voter leads no more. What was
// acknowledged stays. The newer disk, put back, is taken.
func TestOldCopyIsRefused(t *testing.T) {
	for _, name := range []string{"follower", "leader", "all restart", "snapshot", "vote"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, "a", "b", "c")
				defer l.end()
				leader := l.leader()
				mustPropose(t, leader, "before")
				l.same()
				others := l.others(leader)
				old, behind := others[0].cfg.NodeID, others[1].cfg.NodeID
				if name == "leader" {
					old = leader.cfg.NodeID
				}
				l.close(old)
				copied := l.disk[old].copyOf(t)
				l.open(old)
				leader = l.leader()
				if old == leader.cfg.NodeID {
					behind = l.others(leader)[0].cfg.NodeID
				} else if behind == leader.cfg.NodeID {
					for _, n := range l.others(leader) {
						if n.cfg.NodeID != old {
							behind = n.cfg.NodeID
						}
					}
				}
				if name == "vote" { // no entry is lost, a vote is
					for _, id := range []string{behind, leader.cfg.NodeID} {
						if err := l.leader().Transfer(within(t, time.Minute), id); err != nil {
							t.Fatal(err)
						}
						leader = l.leader()
					}
				}
				l.net.Isolate(behind)
				for i := range 20 {
					mustPropose(t, leader, fmt.Sprintf("acknowledged %d", i))
				}
				if name == "snapshot" {
					if err := leader.Snapshot(); err != nil {
						t.Fatal(err)
					}
				}
				newer := l.disk[old]
				if name == "all restart" {
					time.Sleep(wordEvery)
					l.net.Heal()
					time.Sleep(2 * wordEvery)
					for id := range maps.Clone(l.nodes) {
						l.close(id)
					}
					l.disk[old] = copied
					l.open(behind)
					l.open(old) // the two without the one that has all
				} else {
					l.close(old)
					l.disk[old] = copied
					l.net.Heal()
					l.open(old)
				}
				l.ends(old, ErrSetBack)
				if name == "all restart" {
					l.open(leader.cfg.NodeID)
				}
				leader = l.leader()
				if why := leader.Refused()[old]; name != "all restart" && !strings.Contains(why, "old copy") {
					t.Errorf("the leader %s says of it: %q; old %s behind %s", leader.cfg.NodeID, why, old, behind)
					for id, n := range l.nodes {
						t.Log(id, n.Refused(), n.Status())
					}
				}
				mustPropose(t, leader, "after")
				l.disk[old] = newer
				l.open(old)
				if got := l.same(); len(got) != 22 {
					t.Errorf("kept %d entries: %q", len(got), got)
				}
				time.Sleep(2 * wordEvery)
				if why := l.leader().Refused(); len(why) > 0 {
					t.Errorf("the leader still says %q", why)
				}
			})
		})
	}
}

// latePort is a Transport that accepts connections once whoever has its port is gone.
type latePort struct {
	node   *meshtest.Node
	closed chan struct{}
	mu     sync.Mutex
	inner  net.Listener
}

func (p *latePort) Accept() (net.Conn, error) {
	for {
		l, err := p.node.Listen(1)
		if err == nil {
			p.mu.Lock()
			p.inner = l
			p.mu.Unlock()
			return nil, errors.New("begins now")
		}
		p.mu.Lock()
		l = p.inner
		p.mu.Unlock()
		if l != nil {
			return l.Accept()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
}

func (p *latePort) Close() error {
	close(p.closed)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner != nil {
		return p.inner.Close()
	}
	return nil
}

func (p *latePort) Addr() net.Addr { return address("late") }

func (p *latePort) Dial(id string, timeout time.Duration) (net.Conn, error) {
	return meshPort{node: p.node}.Dial(id, timeout)
}

// A directory and its copy run at the same time, both with all that is known of the node: the
// one that was started first stops, and the other goes on.
func TestCopyBesideItsOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		mustPropose(t, leader, "one")
		l.same()
		first := l.others(leader)[0]
		id := first.cfg.NodeID
		time.Sleep(2 * wordEvery)
		disk := l.disk[id].copyOf(t)
		l.disk[id] = disk
		l.fsm[id] = &ledger{}
		second, err := Open(Config{NodeID: id, Memory: disk, FSM: l.fsm[id], Transport: &latePort{node: l.net.Node(id), closed: make(chan struct{})}})
		if err != nil {
			t.Fatal(err)
		}
		l.nodes[id] = second
		select {
		case <-first.Done():
		case <-time.After(time.Minute):
			t.Fatal("both go on")
		}
		if err := first.Err(); !errors.Is(err, ErrTwin) {
			t.Errorf("it stopped with %v", err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		mustPropose(t, l.leader(), "two")
		if got := l.same(); len(got) != 2 {
			t.Errorf("kept %q", got)
		}
		select {
		case <-second.Done():
			t.Errorf("the other one stopped too: %v", second.Err())
		default:
		}
	})
}

// Votes are given again within a round trip after all were started anew, and an idle group
// writes nothing.
func TestAcquaintanceCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		l := &lab{t, meshtest.New(1), map[string]*Node{}, map[string]*ledger{}, map[string]*Memory{}}
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			l.disk[id] = NewMemory(t)
			l.disk[id].Sync = func() { writes.Add(1) }
			l.open(id, func(c *Config) { c.Bootstrap, c.Voters = true, ids })
		}
		defer l.end()
		mustPropose(t, l.leader(), "one")
		l.same()
		for round := range 5 {
			for id := range maps.Clone(l.nodes) {
				l.close(id)
			}
			down := ""
			for _, id := range ids {
				if down == "" && round > 2 {
					down = id
					continue
				}
				l.open(id)
			}
			begun := time.Now()
			l.leader()
			if d := time.Since(begun); d > 2*time.Second {
				t.Errorf("round %d: a leader after %v", round, d)
			}
			if down != "" {
				l.open(down)
			}
		}
		time.Sleep(2 * keepEvery)
		before := writes.Load()
		time.Sleep(10 * time.Minute)
		if n := writes.Load() - before; n > 0 {
			t.Errorf("%d writes by an idle group", n)
		}
	})
}

// olderPort is the Transport of a node of a version that does not know the question.
type olderPort struct{ meshPort }

type olderConn struct{ net.Conn }

func (p olderPort) Accept() (net.Conn, error) {
	c, err := p.meshPort.Accept()
	if err != nil {
		return nil, err
	}
	return olderConn{c}, nil
}

// Read ends the connection at a question, which is the first in what arrives at a time.
func (c olderConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if got := bytes.TrimPrefix(b[:n], []byte(hello)); len(got) >= headLen && got[0] == kindQuestion && got[1] == 0 {
		c.Close()
		return 0, errWire
	}
	return n, err
}

// Beside nodes of an older version, which know of no questions, a new one votes and leads.
func TestOlderNodesKnowNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.end()
		ids := []string{"a", "b", "c"}
		older := func(c *Config) { c.Transport = olderPort{c.Transport.(meshPort)} }
		for _, id := range ids {
			l.open(id, func(c *Config) {
				if c.Bootstrap, c.Voters = true, ids; id != "a" {
					older(c)
				}
			})
		}
		l.leader()
		for range 3 {
			l.close("a", "b")
			l.open("a")
			l.open("b", older)
			mustPropose(t, l.leader(), "one")
			l.close("c") // now a has to vote
			mustPropose(t, l.leader("c"), "two")
			l.open("c", older)
		}
		if !l.nodes["a"].mayVote() {
			t.Error("it never votes")
		}
		if got := l.same(); len(got) != 6 {
			t.Errorf("applied %q", got)
		}
	})
}
