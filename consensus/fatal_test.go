package consensus

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// waitDone waits until the node has stopped by itself and returns why.
func waitDone(t *testing.T, n *Node) *FatalError {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("node goes on")
	}
	var fatal *FatalError
	if err := n.Err(); !errors.As(err, &fatal) {
		t.Fatalf("stopped with %v, want a fatal error", err)
	}
	return fatal
}

func TestFatalEntryStopsTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var l ledger
	n := mustOpen(t, dir, &l)
	mustPropose(t, n, "good")
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}

	// Entries race with the poisoned one; whatever they are told, none may be
	// applied behind it.
	var wg sync.WaitGroup
	var applied atomic.Int64
	for range 32 {
		wg.Go(func() {
			for {
				_, _, err := n.Propose(t.Context(), []byte("race"))
				switch {
				case err == nil:
					applied.Add(1)
				case errors.Is(err, ErrUnknown), errors.Is(err, ErrClosed):
					return
				default:
					t.Errorf("racing propose: %v", err)
					return
				}
			}
		})
	}
	_, _, err := n.Propose(t.Context(), []byte("poison"))
	var fatal *FatalError
	if !errors.As(err, &fatal) || errors.Is(err, ErrUnknown) || fatal.Op != "apply" || !strings.Contains(err.Error(), "kind 99 is unknown") {
		t.Errorf("propose: got %v, want the fatal error itself", err)
	}
	stopped := waitDone(t, n)
	wg.Wait()
	if stopped.Index == 0 || stopped != fatal {
		t.Errorf("stopped with %v, want %v", stopped, fatal)
	}
	if _, _, err := n.Propose(t.Context(), []byte("late")); !errors.Is(err, ErrClosed) || !errors.Is(err, stopped) {
		t.Errorf("late propose: %v, want a definite refusal with the cause", err)
	}
	if err := n.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("late barrier: %v", err)
	}
	if err := n.Snapshot(); !errors.Is(err, ErrClosed) {
		t.Errorf("late snapshot: %v", err)
	}
	mustClose(t, n)
	kept := l.all()
	if got, want := len(kept), int(applied.Load())+1; got != want {
		t.Errorf("%d entries applied, %d acknowledged", got, want)
	}
	if got, want := l.calls(), len(kept)+1; got != want {
		t.Errorf("%d calls of Apply, want %d: something was applied behind the fatal entry", got, want)
	}
	if n.fsm.applied.Load() >= stopped.Index {
		t.Errorf("applied %d, want under %d", n.fsm.applied.Load(), stopped.Index)
	}

	// The entry is committed: the next start fails at the same place.
	for range 2 {
		var again ledger
		n, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &again})
		if err != nil {
			t.Fatal(err)
		}
		if got := waitDone(t, n); got.Index != stopped.Index || got.Op != "apply" {
			t.Errorf("reopened: stopped with %v, want index %d", got, stopped.Index)
		}
		mustClose(t, n)
		if got := again.all(); len(got) != len(kept) {
			t.Errorf("reopened: %d entries, want %d", len(got), len(kept))
		}
	}
}

func TestNoSnapshotBehindAFatalEntry(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &ledger{})
	mustPropose(t, n, "good")
	n.Propose(t.Context(), []byte("poison"))
	if snap, err := n.fsm.Snapshot(); err == nil {
		t.Errorf("got snapshot %v of a stopped state machine", snap)
	}
}

func TestRefusedSnapshotFailsOpen(t *testing.T) {
	dir := t.TempDir()
	n := mustOpen(t, dir, &ledger{})
	for range 3 { // more than one snapshot, so that raft could fall back
		mustPropose(t, n, "x")
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, n)
	refuse := errors.New("written by a newer version")
	_, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &ledger{refuse: refuse}})
	var fatal *FatalError
	if !errors.As(err, &fatal) || !errors.Is(err, refuse) || fatal.Op != "restore" {
		t.Errorf("got %v, want a fatal restore error", err)
	}
	mustOpen(t, dir, &ledger{}) // the lock is free again and nothing was harmed
}

func TestUnknownSnapshotFormat(t *testing.T) {
	for _, head := range []string{"", "TGS", "TGS9" + "\x00\x00\x00\x00\x00\x00\x00\x01[]"} {
		m := &machine{fsm: &ledger{}, fail: func(*FatalError) {}, setBack: func() bool { return false }}
		err := m.Restore(readCloser{bytes.NewReader([]byte(head))})
		var fatal *FatalError
		if !errors.As(err, &fatal) {
			t.Errorf("header %q: got %v, want a fatal error", head, err)
		}
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// disk is a store that can be told to fail.
type disk struct {
	backend
	full atomic.Bool
	sets atomic.Int64 // SetUint64 fails when this falls to 0
}

var errFull = errors.New("no space left on device")

func (d *disk) StoreLogs(logs []*raft.Log) error {
	if d.full.Load() {
		return errFull
	}
	return d.backend.StoreLogs(logs)
}

func (d *disk) SetUint64(key []byte, val uint64) error {
	if d.sets.Add(-1) == 0 {
		return errFull
	}
	return d.backend.SetUint64(key, val)
}

func TestFullDiskStopsTheNode(t *testing.T) {
	var l ledger
	var d *disk
	cfg := Config{Dir: t.TempDir(), NodeID: "n1", Bootstrap: true, FSM: &l}
	n, err := open(cfg, func(b backend) backend { d = &disk{backend: b}; return d })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.settle(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	mustPropose(t, n, "x")
	d.full.Store(true)
	if _, _, err := n.Propose(t.Context(), []byte("y")); !errors.Is(err, ErrUnknown) || !errors.Is(err, errFull) {
		t.Errorf("got %v, want unknown because of %v", err, errFull)
	}
	if got := waitDone(t, n); got.Op != "append" || !errors.Is(got, errFull) {
		t.Errorf("stopped with %v", got)
	}
	mustClose(t, n)
	if got := l.all(); len(got) != 1 {
		t.Errorf("applied %q", got)
	}
}

// A node that can't save its term would panic inside raft and take the whole
// process down. The term is saved once by Open, then at the election.
func TestFullDiskAtElectionDoesNotPanic(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpen(t, dir, &ledger{}))
	cfg := Config{Dir: dir, NodeID: "n1", FSM: &ledger{}}
	failing := func(sets int64) func(backend) backend {
		return func(b backend) backend {
			d := &disk{backend: b}
			d.sets.Store(sets)
			return d
		}
	}
	var fatal *FatalError
	if _, err := open(cfg, failing(1)); !errors.As(err, &fatal) || fatal.Op != "save" {
		t.Errorf("open: got %v, want a fatal error of saving", err)
	}
	n, err := open(cfg, failing(2))
	if err != nil {
		t.Fatal(err)
	}
	if got := waitDone(t, n); got.Op != "save" || !errors.Is(got, errFull) {
		t.Errorf("stopped with %v", got)
	}
	if err := n.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestDamagedSnapshotFallsBack(t *testing.T) {
	dir := t.TempDir()
	var l ledger
	n := mustOpen(t, dir, &l, func(c *Config) { c.SnapshotEvery = 16 })
	for i := range 4 {
		for range 40 + i {
			mustPropose(t, n, "x")
		}
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	newest := n.Status().SnapshotIndex
	mustClose(t, n)
	kept, err := n.snaps.List()
	if err != nil || len(kept) != 2 || kept[0].Index != newest {
		t.Fatalf("snapshots %v, %v", kept, err)
	}
	if err := os.Truncate(filepath.Join(n.snaps.dir, kept[0].ID, "state.bin"), 40); err != nil {
		t.Fatal(err)
	}
	var again ledger
	n = mustOpen(t, dir, &again)
	if got, want := again.all(), l.all(); len(got) != len(want) || got[len(got)-1] != want[len(want)-1] {
		t.Errorf("%d entries after falling back, want %d", len(got), len(want))
	}
	mustClose(t, n)
}

func TestNoReadableSnapshotFailsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := mustOpen(t, dir, &ledger{}, func(c *Config) { c.SnapshotEvery, c.SnapshotKeep = 16, 1 })
	for range 60 {
		mustPropose(t, n, "x")
	}
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, n)
	kept, err := n.snaps.List()
	if err != nil || len(kept) != 1 {
		t.Fatalf("snapshots %v, %v", kept, err)
	}
	for _, gone := range []string{"state.bin", "meta.json"} { // unreadable, then invisible
		if err := os.Remove(filepath.Join(n.snaps.dir, kept[0].ID, gone)); err != nil {
			t.Fatal(err)
		}
		if n, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &ledger{}}); err == nil {
			n.Close()
			t.Errorf("opened without %s", gone)
		} else {
			t.Log(err)
		}
	}
}
