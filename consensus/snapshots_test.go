package consensus

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

func TestSnapshotAndRestoreEqualReplay(t *testing.T) {
	t.Parallel()
	dir, plain := t.TempDir(), t.TempDir()
	var a, b ledger
	n, m := mustOpen(t, dir, &a, func(c *Config) { c.SnapshotEvery = 16 }), mustOpen(t, plain, &b)
	for i := range 120 {
		entry := string(rune('a' + i%26))
		mustPropose(t, n, entry)
		mustPropose(t, m, entry)
		if i%17 == 0 {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		if i%40 == 0 { // at changing distances from a snapshot
			mustClose(t, n)
			a = ledger{}
			n = mustOpen(t, dir, &a, func(c *Config) { c.SnapshotEvery = 16 })
		}
	}
	mustClose(t, n)
	mustClose(t, m)
	var restored, replayed ledger
	n, m = mustOpen(t, dir, &restored), mustOpen(t, plain, &replayed)
	if s := n.Status(); s.SnapshotIndex == 0 || s.AppliedIndex < s.SnapshotIndex {
		t.Errorf("status %+v, want a snapshot behind it", s)
	}
	if got, all := restored.calls(), len(restored.all()); got >= all {
		t.Errorf("%d of %d entries were replayed, want most from the snapshot", got, all)
	}
	strip := func(l *ledger) (out []string) { // indexes differ by raft's own entries
		for _, e := range l.all() {
			out = append(out, e[len(e)-1:])
		}
		return out
	}
	if diff := cmp.Diff(strip(&restored), strip(&replayed)); diff != "" {
		t.Errorf("snapshot and replay differ (-snapshot +replay):\n%s", diff)
	}
	if diff := cmp.Diff(restored.all(), a.all()); diff != "" {
		t.Errorf("restored differs from what was (-restored +was):\n%s", diff)
	}
}

func TestAppliedIndexSurvivesASnapshotWithoutReplay(t *testing.T) {
	dir := t.TempDir()
	n := mustOpen(t, dir, &ledger{})
	want := mustPropose(t, n, "x")
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := n.Snapshot(); err != nil { // nothing new
		t.Fatal(err)
	}
	mustClose(t, n)
	n = mustOpen(t, dir, &ledger{})
	if got := n.Status().AppliedIndex; got != want {
		t.Errorf("applied %d, want %d", got, want)
	}
}

func TestCompactionBoundsTheLog(t *testing.T) {
	t.Parallel()
	n := mustOpen(t, t.TempDir(), &ledger{}, func(c *Config) { c.SnapshotEvery = 16 })
	for range 5 {
		for range 100 {
			mustPropose(t, n, "x")
		}
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	first, err := n.store.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	if want := n.snaps.oldest() + 1; first > want || first+2*16 < want {
		t.Errorf("log starts at %d, want it to reach back to the oldest snapshot at %d and not much further", first, want-1)
	}
	if got := n.Status().LastIndex - first; got > 300 {
		t.Errorf("%d entries left of 500", got)
	}
}

func TestCutInChunks(t *testing.T) {
	b, err := openBolt(filepath.Join(t.TempDir(), storeFile))
	if err != nil {
		t.Fatal(err)
	}
	s := newLogStore(b, Stall{time.Second, time.Second}, func(e *FatalError) { t.Error(e) },
		func() uint64 { return 3500 }, func() uint64 { return 1 }, new(atomic.Pointer[[]byte]), func([]*raft.Log) {})
	defer s.Close()
	const last = 5000
	for i := uint64(1); i <= last; i += 500 {
		if err := s.StoreLogs(entries(i, 500)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(wantFirst, wantLast uint64) {
		t.Helper()
		first, err1 := s.FirstIndex()
		end, err2 := s.LastIndex()
		if first != wantFirst || end != wantLast || err1 != nil || err2 != nil {
			t.Errorf("log is %d to %d, want %d to %d (%v, %v)", first, end, wantFirst, wantLast, err1, err2)
		}
	}
	if err := s.DeleteRange(1, 4500); err != nil { // no further than the snapshot
		t.Fatal(err)
	}
	check(3501, last)
	if err := s.DeleteRange(4001, last); err != nil { // a conflicting tail goes whole
		t.Fatal(err)
	}
	check(3501, 4000)
}

// TestCommittedEntriesAreNotCut: whoever is told to forget what it knew to be
// committed stops, and forgets nothing.
func TestCommittedEntriesAreNotCut(t *testing.T) {
	b, err := openBolt(filepath.Join(t.TempDir(), storeFile))
	if err != nil {
		t.Fatal(err)
	}
	var stopped *FatalError
	s := newLogStore(b, Stall{time.Second, time.Second}, func(e *FatalError) { stopped = e },
		func() uint64 { return 0 }, func() uint64 { return 60 }, new(atomic.Pointer[[]byte]), func([]*raft.Log) {})
	defer s.Close()
	if err := s.StoreLogs(entries(1, 100)); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(61, 100); err != nil || stopped != nil {
		t.Fatalf("an end that was not committed: %v, %v", err, stopped)
	}
	if err := s.DeleteRange(60, 60); !errors.Is(err, ErrForked) || !errors.Is(stopped, ErrForked) {
		t.Errorf("a committed entry: %v, %v", err, stopped)
	}
	if last, err := s.LastIndex(); last != 60 || err != nil {
		t.Errorf("the log ends at %d, %v", last, err)
	}
}

func TestLeftoversOfACrashedSnapshotAreRemoved(t *testing.T) {
	dir := t.TempDir()
	all := []string{
		filepath.Join(dir, snapshotDir, "2-9-1700000000000"+unfinishedExt), // not finished
		filepath.Join(dir, snapshotDir, "1-7-1600000000000"),               // half removed
	}
	for _, left := range all {
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, dir, &ledger{})
	for _, left := range all {
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", filepath.Base(left), err)
		}
	}
}

// unwritable fails while a snapshot is written.
type unwritable struct{ ledger }

func (*unwritable) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return errFull }, nil
}

func TestFailedSnapshotHarmsNothing(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &unwritable{})
	mustPropose(t, n, "x")
	if err := n.Snapshot(); err == nil {
		t.Error("no error from a snapshot that can't be written")
	}
	if s := n.Status(); s.SnapshotIndex != 0 {
		t.Errorf("snapshot index %d after a failed one", s.SnapshotIndex)
	}
	mustPropose(t, n, "y")
	left, err := os.ReadDir(n.snaps.dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestProposalsGoOnDuringASnapshot(t *testing.T) {
	s := &slowSnapshot{begun: make(chan struct{}), end: make(chan struct{})}
	n := mustOpen(t, t.TempDir(), s)
	mustPropose(t, n, "x")
	done := make(chan error)
	go func() { done <- n.Snapshot() }()
	<-s.begun
	for range 10 {
		mustPropose(t, n, "y")
	}
	close(s.end)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("snapshot never ends")
	}
}

type slowSnapshot struct {
	ledger
	begun, end chan struct{}
}

func (s *slowSnapshot) Snapshot() (func(io.Writer) error, error) {
	write, err := s.ledger.Snapshot()
	return func(w io.Writer) error {
		close(s.begun)
		<-s.end
		return write(w)
	}, err
}

// TestHalfRemovedSnapshotsAreRemoved: a crash while old snapshots are removed leaves no
// directory for good, neither one without metadata nor one too many.
func TestHalfRemovedSnapshotsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	n := mustOpen(t, dir, &ledger{})
	for range 2 {
		mustPropose(t, n, "x")
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, n)
	snaps := filepath.Join(dir, snapshotDir)
	half := filepath.Join(snaps, "1-1-1700000000000")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "state.bin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, &ledger{}, func(c *Config) { c.SnapshotKeep = 1 })
	left, err := os.ReadDir(snaps)
	if err != nil || len(left) != 1 || left[0].Name() == filepath.Base(half) {
		t.Errorf("left are %v, %v, want the newest snapshot alone", left, err)
	}
}
