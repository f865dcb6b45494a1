package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// TestEveryBitCounts: an entry on disk with one bit of it flipped, or with one byte
// replaced or cut off, is never taken for an entry.
func TestEveryBitCounts(t *testing.T) {
	want := raft.Log{Index: 300, Term: 7, Data: []byte("what was acknowledged"), Extensions: []byte("x"), AppendedAt: time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)}
	b, at, err := appendStored(nil, &want)
	if err != nil {
		t.Fatal(err)
	}
	k, v := b[:at], b[at:]
	var got raft.Log
	if err := readStored(k, v, &got); err != nil || cmp.Diff(want, got) != "" {
		t.Fatalf("read %+v, %v", got, err)
	}
	bad := func(what string, k, v []byte) {
		t.Helper()
		if err := readStored(k, v, &got); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range b {
		for x := 1; x < 256; x++ { // every other byte in its place
			c := bytes.Clone(b)
			c[i] ^= byte(x)
			bad(fmt.Sprintf("byte %d ^ %02x", i, x), c[:at], c[at:])
		}
	}
	for i := range v {
		bad(fmt.Sprintf("cut to %d", i), k, v[:i])
	}
	bad("one more", k, append(bytes.Clone(v), 0))
	bad("of another place", key(299), v)
}

// log-v1.db is of a version that kept no checksums: a log of one voter with five commands.
// It is read as it is, and goes on with checksums.
func TestLogWithoutChecksums(t *testing.T) {
	dir := t.TempDir()
	old, err := os.ReadFile("testdata/log-v1.db")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, storeFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := summed(t, dir); n != 0 {
		t.Errorf("%d entries of the old file have a checksum", n)
	}
	want := []string{"4 entry 0", "5 entry 1", "6 entry 2", "7 entry 3", "8 entry 4"}
	var l ledger
	n := mustOpen(t, dir, &l)
	if d := cmp.Diff(want, l.all()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	mustPropose(t, n, "new")
	mustClose(t, n)
	if n := summed(t, dir); n == 0 {
		t.Error("what was added has no checksum")
	}
	var again ledger
	mustClose(t, mustOpen(t, dir, &again))
	if got := again.all(); len(got) != 6 || !strings.HasSuffix(got[5], " new") {
		t.Errorf("after another start: %q", got)
	}
}

// summed counts the entries with a checksum.
func summed(t *testing.T, dir string) (n int) {
	t.Helper()
	eachStored(t, dir, func(_, v []byte) []byte {
		if v[0] == fieldsSummed {
			n++
		}
		return nil
	})
	return n
}

// eachStored shows every entry on disk, and puts another value in its place where one is
// given.
func eachStored(t *testing.T, dir string, fn func(k, v []byte) []byte) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, storeFile), 0o600, &bbolt.Options{Timeout: lockWait})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketLogs)
		return b.ForEach(func(k, v []byte) error {
			if v := fn(k, v); v != nil {
				return b.Put(bytes.Clone(k), v)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// damage flips a bit of the command with this text.
func damage(t *testing.T, dir, text string) (index uint64) {
	t.Helper()
	eachStored(t, dir, func(k, v []byte) []byte {
		at := bytes.Index(v, []byte(text))
		if at < 0 {
			return nil
		}
		v = bytes.Clone(v)
		v[at] ^= 4
		d := decoder{b: k}
		index = d.sized(8)
		return v
	})
	if index == 0 {
		t.Fatalf("no entry with %q", text)
	}
	return index
}

// TestDamagedEntry: a flipped bit is named with its file and entry, at a start, in a dump,
// in a replay and in a recovery, and nothing is applied or changed.
func TestDamagedEntry(t *testing.T) {
	dir := t.TempDir()
	n := mustOpen(t, dir, &ledger{})
	for i := range 5 {
		mustPropose(t, n, fmt.Sprintf("entry %d", i))
	}
	mustClose(t, n)
	index := damage(t, dir, "entry 2")
	named := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(dir, storeFile)) || !strings.Contains(err.Error(), fmt.Sprintf("entry %d", index)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var l ledger
	n, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &l})
	if err == nil {
		n.Close()
	}
	named("open", err)
	if got := l.all(); len(got) > 2 {
		t.Errorf("applied %q", got)
	}
	named("dump", Dump(dir, func(Entry) error { return nil }))
	_, err = Replay(dir, &ledger{})
	named("replay", err)
	_, err = Recover(dir, "n1", &ledger{}, true)
	named("recover", err)
	if _, err := Replay(dir, &ledger{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("after a recovery in vain: %v", err)
	}
}

// TestDamagedEntryFeedsNobody: a leader that finds a flipped bit in what a follower lacks
// stops, and the follower gets it from the next one.
func TestDamagedEntryFeedsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		behind := l.others(leader)[0].cfg.NodeID
		l.close(behind)
		for i := range cacheEntries + 100 {
			mustPropose(t, leader, fmt.Sprintf("entry %d", i))
		}
		id := leader.cfg.NodeID
		l.disk[id].mu.Lock()
		l.disk[id].broken = leader.Status().LastIndex - cacheEntries - 50
		l.disk[id].mu.Unlock()
		l.open(behind)
		select {
		case <-leader.Done():
		case <-time.After(time.Minute):
			t.Fatal("the leader goes on")
		}
		if err := leader.Err(); !errors.Is(err, ErrDamaged) {
			t.Errorf("it stopped with %v", err)
		}
		l.close(id)
		l.leader(id)
		if got := l.same(); len(got) != cacheEntries+100 {
			t.Errorf("the others have %d entries", len(got))
		}
	})
}
