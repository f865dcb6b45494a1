package replica

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"tugline.dev/tugline/hub/spool"
)

func mustRecord(t testing.TB, dir string, keep func(spool.Key) bool) *record {
	t.Helper()
	r, err := openRecord(dir, keep)
	if err != nil {
		t.Fatalf("open record: %v", err)
	}
	t.Cleanup(r.close)
	return r
}

func all(spool.Key) bool { return true }

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	r := mustRecord(t, dir, all)
	for _, s := range []struct {
		b    Ballot
		want bool
	}{{Ballot{1, 3, 0}, true}, {Ballot{1, 2, 0}, false}, {Ballot{1, 3, 9}, true}, {Ballot{2, 1, 0}, true}, {Ballot{1, 9, 0}, false}} {
		if ok, err := r.raise(s.b, "n1"); ok != s.want || err != nil {
			t.Errorf("raise to %v: %v, %v, want %v", s.b, ok, err, s.want)
		}
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := r.set(key(i), stamp{Ballot{2, 1, uint64(i)}, i%2 == 0}); err != nil {
				t.Errorf("set %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	r.close()
	if err := r.set(key(1), stamp{}); err == nil {
		t.Error("a closed record takes entries")
	}
	r = mustRecord(t, dir, func(k spool.Key) bool { return k != key(7) })
	if got := r.promise(); got != (Ballot{2, 1, 0}) {
		t.Errorf("promise %v after a restart", got)
	}
	// Of two nodes that claim one ballot only the first may act.
	for node, want := range map[string]bool{"n1": true, "n2": false} {
		if ok, err := r.raise(Ballot{2, 1, 0}, node); ok != want || err != nil {
			t.Errorf("the same ballot for %s after a restart: %v, %v", node, ok, err)
		}
	}
	for i := range 50 {
		want := stamp{Ballot{2, 1, uint64(i)}, i%2 == 0}
		if i == 7 {
			want = stamp{}
		}
		if got := r.stampOf(key(i)); got != want {
			t.Errorf("stamp of %d: %v, want %v", i, got, want)
		}
	}
}

// TestRecordTorn: wherever the power cut the file, what stands before is read, and
// what comes after goes on from there.
func TestRecordTorn(t *testing.T) {
	dir := t.TempDir()
	r := mustRecord(t, dir, all)
	var ends []int64
	for i := range 3 {
		if err := r.set(key(i), stamp{Ballot: Ballot{1, uint64(i + 1), 0}}); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, r.size)
	}
	r.close()
	path := filepath.Join(dir, recordName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= len(whole); n++ {
		for _, tail := range [][]byte{nil, bytes.Repeat([]byte{0}, 40), bytes.Repeat([]byte{0xa5}, 40)} {
			cut := append(bytes.Clone(whole[:n]), tail...)
			if err := os.WriteFile(path, cut, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := openRecord(dir, all)
			if err != nil {
				t.Fatalf("cut at %d: %v", n, err)
			}
			for i := range 3 {
				want := stamp{}
				if bytes.HasPrefix(cut, whole[:ends[i]]) { // zeros may be what was cut off
					want = stamp{Ballot: Ballot{1, uint64(i + 1), 0}}
				}
				if got := r.stampOf(key(i)); got != want {
					t.Errorf("cut at %d: stamp of %d is %v, want %v", n, i, got, want)
				}
			}
			r.close()
		}
	}
}

// TestRecordStaysSmall: what is overwritten does not pile up.
func TestRecordStaysSmall(t *testing.T) {
	r := mustRecord(t, t.TempDir(), all)
	r.size = compactAt // as if so much had been written
	if err := r.set(key(1), stamp{Ballot: Ballot{1, 1, 0}}); err != nil {
		t.Fatal(err)
	}
	if r.size > 1<<10 {
		t.Errorf("%d bytes after it was written anew", r.size)
	}
	if err := r.set(key(2), stamp{Ballot: Ballot{1, 2, 0}}); err != nil {
		t.Fatal(err)
	}
	r.forget(func(k spool.Key) bool { return k == key(1) })
	if r.stampOf(key(1)) != (stamp{}) || r.stampOf(key(2)) == (stamp{}) {
		t.Error("the wrong stamp was forgotten")
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(appendEntry(nil, entry{key: key(1), stamp: stamp{Ballot{1, 2, 3}, true}}))
	f.Add(appendEntry(appendEntry(nil, entry{stamp: stamp{Ballot: Ballot{1, 2, 0}}, to: "n1"}), entry{key: key(3)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := parseEntry(b)
		if err != nil {
			return
		}
		if got := append(appendEntry(nil, e), rest...); !bytes.Equal(got, b) {
			t.Errorf("%x is written as %x", b, got)
		}
	})
}

// TestBallots puts ballots in order.
func TestBallots(t *testing.T) {
	order := []Ballot{{}, {0, 0, 1}, {0, 1, 0}, {0, 1, 5}, {1, 0, 0}, {1, 2, 0}, {1, 2, 1}, {2, 1, 0}}
	for i, a := range order {
		for j, b := range order {
			want := min(max(i-j, -1), 1)
			if got := a.Compare(b); got != want {
				t.Errorf("compare %v with %v: %d, want %d", a, b, got, want)
			}
		}
	}
	if fmt.Sprint(Ballot{1, 2, 3}.term()) != fmt.Sprint(Ballot{1, 2, 0}) {
		t.Error("the term has a round")
	}
}
