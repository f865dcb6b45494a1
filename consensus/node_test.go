package consensus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		proposeForever(dir)
	}
	if dir, id, ok := strings.Cut(os.Getenv(memberEnv), ":"); ok {
		memberForever(dir, id)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// ledger is a state machine that keeps every entry, and can't apply "poison".
type ledger struct {
	mu      sync.Mutex
	entries []string
	applies int // calls of Apply, also in vain
	refuse  error
}

func (l *ledger) Apply(index uint64, entry []byte) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applies++
	if bytes.Equal(entry, []byte("poison")) {
		return nil, errors.New("kind 99 is unknown")
	}
	l.entries = append(l.entries, fmt.Sprintf("%d %s", index, entry))
	return len(l.entries), nil
}

func (l *ledger) Snapshot() (func(io.Writer) error, error) {
	all := l.all()
	return func(w io.Writer) error { return json.NewEncoder(w).Encode(all) }, nil
}

func (l *ledger) Restore(r io.Reader) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	l.entries = nil
	return json.NewDecoder(bufio.NewReader(r)).Decode(&l.entries)
}

// all returns a copy of the entries, each as "index entry".
func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.entries...)
}

func (l *ledger) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applies
}

// within gives a test's waits an end.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// mustOpen opens a node that leads and has replayed its log.
func mustOpen(t testing.TB, dir string, fsm FSM, change ...func(*Config)) *Node {
	t.Helper()
	cfg := Config{Dir: dir, NodeID: "n1", Bootstrap: true, FSM: fsm}
	for _, c := range change {
		c(&cfg)
	}
	n, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.settle(within(t, 10*time.Second)); err != nil {
		t.Fatalf("settle: %v", err)
	}
	return n
}

func mustPropose(t testing.TB, n *Node, entry string) uint64 {
	t.Helper()
	_, index, err := n.Propose(within(t, 10*time.Second), []byte(entry))
	if err != nil {
		t.Fatalf("propose %q: %v", entry, err)
	}
	return index
}

func mustClose(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func TestReopenKeepsState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "hub")
	var l ledger
	n := mustOpen(t, dir, &l)
	var last uint64
	for i := range 20 {
		result, index, err := n.Propose(t.Context(), fmt.Append(nil, i))
		if err != nil || result != i+1 || index <= last {
			t.Fatalf("propose %d: got %v at %d after %d, %v", i, result, index, last, err)
		}
		last = index
	}
	s := n.Status()
	if s.State != "leader" || s.Leader != "n1" || s.AppliedIndex != last || s.CommitIndex < last || s.LastIndex < last || s.Term == 0 || s.LogBytes == 0 {
		t.Errorf("status %+v, want a leader at %d", s, last)
	}
	mustClose(t, n)
	mustClose(t, n)
	if s := n.Status(); s.State != "stopped" || n.Err() != nil {
		t.Errorf("after close: state %s, err %v", s.State, n.Err())
	}
	if _, _, err := n.Propose(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("propose after close: %v, want %v", err, ErrClosed)
	}
	if err := n.Snapshot(); !errors.Is(err, ErrClosed) {
		t.Errorf("snapshot after close: %v, want %v", err, ErrClosed)
	}

	var again ledger
	n = mustOpen(t, dir, &again, func(c *Config) { c.Bootstrap = false })
	if diff := cmp.Diff(again.all(), l.all()); diff != "" {
		t.Errorf("reopened state (-got +want):\n%s", diff)
	}
	if got := mustPropose(t, n, "more"); got <= last {
		t.Errorf("index %d after reopening, want over %d", got, last)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	n := mustOpen(t, dir, &ledger{})
	mustPropose(t, n, "x")
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if got := st.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
		return nil
	})
	if err != nil || files < 3 {
		t.Errorf("saw %d files, %v", files, err)
	}
}

func TestOpenRefusals(t *testing.T) {
	t.Parallel()
	t.Run("empty", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "hub")
		_, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &ledger{}})
		if !errors.Is(err, ErrEmpty) {
			t.Errorf("got %v, want %v", err, ErrEmpty)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the refused directory was made: %v", err)
		}
	})
	t.Run("never bootstrapped", func(t *testing.T) {
		dir := t.TempDir()
		b, err := openBolt(filepath.Join(dir, storeFile))
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if _, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &ledger{}}); !errors.Is(err, ErrEmpty) {
			t.Errorf("got %v, want %v", err, ErrEmpty)
		}
		mustPropose(t, mustOpen(t, dir, &ledger{}), "x")
	})
	t.Run("locked", func(t *testing.T) {
		n := mustOpen(t, t.TempDir(), &ledger{})
		if _, err := Open(Config{Dir: n.cfg.Dir, NodeID: "n1", FSM: &ledger{}}); !errors.Is(err, ErrLocked) {
			t.Errorf("got %v, want %v", err, ErrLocked)
		}
	})
	t.Run("another node's", func(t *testing.T) {
		n := mustOpen(t, t.TempDir(), &ledger{})
		mustClose(t, n)
		_, err := Open(Config{Dir: n.cfg.Dir, NodeID: "n2", Bootstrap: true, FSM: &ledger{}})
		if err == nil || !strings.Contains(err.Error(), `belongs to ["n1"]`) {
			t.Errorf("got %v, want the owner named", err)
		}
	})
	t.Run("config", func(t *testing.T) {
		err := Config{SnapshotEvery: 1, SnapshotKeep: 99, MaxBatch: 4096, Voters: []string{"a", ""}, Join: true, Bootstrap: true, Heartbeat: time.Millisecond}.Validate()
		for _, want := range []string{"dir is empty", "node id is empty", "state machine", "snapshot every 1", "keep 99", "batch of 4096", "2 voters without", "a voter's id is empty", "bootstrap and join", "join without", "heartbeat of 1ms"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %q", err, want)
			}
		}
		err = Config{Dir: "d", Memory: NewMemory(t), NodeID: "n", FSM: &ledger{}, Voters: []string{"m"}}.Validate()
		for _, want := range []string{"d and memory", "not among the voters"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %q", err, want)
			}
		}
		if err := (Config{Dir: "d", NodeID: "n", FSM: &ledger{}}).Validate(); err != nil {
			t.Errorf("minimal config: %v", err)
		}
	})
}

func TestProposeRefusals(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &ledger{})
	before := n.Status().LastIndex
	if _, _, err := n.Propose(t.Context(), make([]byte, MaxEntry+1)); !errors.Is(err, ErrTooBig) {
		t.Errorf("too big: got %v", err)
	}
	gone := errors.New("client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, _, err := n.Propose(ctx, []byte("x")); !errors.Is(err, gone) || errors.Is(err, ErrUnknown) {
		t.Errorf("cancelled before: got %v, want a definite %v", err, gone)
	}
	if got := n.Status().LastIndex; got != before {
		t.Errorf("refusals left entries: last index %d, want %d", got, before)
	}
	if _, _, err := n.Propose(t.Context(), make([]byte, MaxEntry)); err != nil {
		t.Errorf("biggest allowed: %v", err)
	}
}

// gate is a state machine that stops in Apply until it is let go.
type gate struct {
	ledger
	entered, release chan struct{}
}

func (g *gate) Apply(index uint64, entry []byte) (any, error) {
	g.entered <- struct{}{}
	<-g.release
	return g.ledger.Apply(index, entry)
}

func TestOutcomeUnknownWhileHeld(t *testing.T) {
	g := &gate{entered: make(chan struct{}, 1), release: make(chan struct{})}
	n := mustOpen(t, t.TempDir(), g, func(c *Config) { c.MaxBatch = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, _, err := n.Propose(ctx, []byte("x"))
		errs <- err
	}()
	<-g.entered
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, _, err := n.Propose(short, []byte("y")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) {
		t.Errorf("no slot: got %v, want a definite refusal", err)
	}
	cancel()
	if err := <-errs; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("held by raft: got %v, want unknown and the cause", err)
	}
	close(g.release)
	mustClose(t, n)
	if got := g.all(); len(got) != 1 {
		t.Errorf("applied %q, want the unknown entry alone", got)
	}
}

func TestElectsItselfAtOnce(t *testing.T) {
	dir := t.TempDir()
	best := time.Hour
	for range 5 {
		start := time.Now()
		n := mustOpen(t, dir, &ledger{})
		best = min(best, time.Since(start))
		mustClose(t, n)
	}
	t.Logf("open to a passed barrier: %v at best", best)
	if best > 250*time.Millisecond {
		t.Errorf("took %v at best", best)
	}
}

// entries makes n log entries from index first on.
func entries(first uint64, n int) []*raft.Log {
	logs := make([]*raft.Log, n)
	for i := range logs {
		logs[i] = &raft.Log{Index: first + uint64(i), Term: 1, Data: []byte("x")}
	}
	return logs
}
