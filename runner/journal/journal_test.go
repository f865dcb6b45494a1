package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

func open(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatalf("Open(%s): %v", dir, err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func fence(i uint64) fleet.Fence { return fleet.Fence{Epoch: 1, Index: i} }

func TestReopenKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := j.See(Desired{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	a := Attempt{Job: "j1", Fence: fence(7), Order: "o1", Assignment: []byte(`{"x":1}`), Dir: "/x"}
	if err := j.Begin(a); err != nil {
		t.Fatal(err)
	}
	if err := j.Update(fence(7), Durable, func(p *Progress) { p.Acked, p.Intent = true, true }, Item{Kind: "accepted", Fence: fence(7)}); err != nil {
		t.Fatal(err)
	}
	id, count, items := j.ID(), j.Count(), j.Pending(0, 10)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
	if err := j.Begin(Attempt{Fence: fence(8)}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Begin after Close = %v, want an error that wraps os.ErrClosed", err)
	}

	k := open(t, dir)
	if k.ID() != id {
		t.Errorf("journal id changed from %s to %s", id, k.ID())
	}
	if k.Count() <= count {
		t.Errorf("count %d after reopen, want more than %d", k.Count(), count)
	}
	a.Progress = Progress{Acked: true, Intent: true}
	if d := cmp.Diff([]Attempt{a}, k.Attempts()); d != "" {
		t.Errorf("attempts (-want +got):\n%s", d)
	}
	if d := cmp.Diff(items, k.Pending(0, 10)); d != "" {
		t.Errorf("outbox (-want +got):\n%s", d)
	}
	if !k.SeenOrder("o1") {
		t.Error("order o1 is not remembered")
	}
	if ok, _ := k.See(Desired{1, 2, 2}); ok {
		t.Error("an older desired set counts after reopen")
	}
	if err := k.Put(Lazy, Item{Kind: "x"}); err != nil {
		t.Fatal(err)
	}
	got := k.Pending(items[0].Seq, 10)
	if len(got) != 1 || got[0].Seq <= items[0].Seq {
		t.Errorf("new item %+v, want a number above %d", got, items[0].Seq)
	}
}

func TestOneProcessADirectory(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := Open(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("second Open = %v, want ErrLocked", err)
	}
	_ = j.Close()
	open(t, dir)
}

func TestDamageBehindSoundRecordsStartsANewJournal(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for i := range uint64(3) {
		if err := j.Begin(Attempt{Fence: fence(i + 1), Order: string(rune('a' + i))}); err != nil {
			t.Fatal(err)
		}
	}
	id := j.ID()
	_ = j.Close()
	path := filepath.Join(dir, fileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := next(b)
	b[first+frameHead+3] ^= 0xff // inside the second record
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	k := open(t, dir)
	if k.ID() == id {
		t.Error("the journal kept its id although records were lost")
	}
	if k.Note() == "" {
		t.Error("nothing is said of the damage")
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Errorf("the damaged file is not kept: %v", err)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	b, err := frame(record{N: 1, Head: &headRecord{Version: formatVersion + 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err := Open(dir); err == nil {
		_ = j.Close()
		t.Fatal("a journal of a newer format was opened")
	}
}

func TestCompactionKeepsTheSum(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	body := make([]byte, 32<<10)
	if err := j.Begin(Attempt{Job: "keep", Fence: fence(1), Order: "o"}); err != nil {
		t.Fatal(err)
	}
	for range 80 {
		if err := j.Put(Lazy, Item{Kind: "k", Body: body}); err != nil {
			t.Fatal(err)
		}
		p := j.Pending(0, 1)
		if err := j.Ack(p[0].Seq); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Put(Durable, Item{Kind: "last"}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() > 2*compactSize {
		t.Errorf("journal is %d bytes after 80 settled items of 32 KiB", st.Size())
	}
	want, items := j.Attempts(), j.Pending(0, 10)
	_ = j.Close()
	k := open(t, dir)
	if d := cmp.Diff(want, k.Attempts()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(items, k.Pending(0, 10)); d != "" {
		t.Error(d)
	}
}

// snapshot is what a caller can see of a journal.
type snapshot struct {
	Attempts []Attempt
	Items    []Item
	Desired  Desired
}

func look(j *Journal) snapshot {
	return snapshot{j.Attempts(), j.Pending(0, 1<<20), j.Desired()}
}

// A journal whose file is cut anywhere behind the last durable call opens as one of
// the states that it went through since then.
func TestAnyCutBehindThePromisedPartIsAState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "j")
		if err != nil {
			rt.Fatal(err)
		}
		j := open(t, dir)
		fences := rapid.Uint64Range(1, 4)
		states := []snapshot{look(j)} // since the last durable one
		n := rapid.IntRange(1, 25).Draw(rt, "ops")
		for range n {
			d := Durability(rapid.Bool().Draw(rt, "durable"))
			f := fence(fences.Draw(rt, "fence"))
			switch rapid.IntRange(0, 5).Draw(rt, "op") {
			case 0:
				err, d = j.Begin(Attempt{Fence: f, Order: f.String(), Assignment: []byte(`{}`)}), Durable
			case 1:
				if _, ok := j.Attempt(f); !ok {
					continue
				}
				err = j.Update(f, d, func(p *Progress) { p.Facts++ }, Item{Fence: f, Kind: "facts"}, Item{Fence: f, Kind: "more"})
			case 2:
				err = j.Put(d, Item{Kind: "put", Body: []byte("body")})
			case 3:
				d = Lazy
				if p := j.Pending(0, 2); len(p) > 0 {
					err = j.Ack(p[len(p)-1].Seq)
				}
			case 4:
				err, d = j.Forget(f), Lazy
			case 5:
				_, err = j.See(Desired{1, 1, rapid.Uint64Range(0, 9).Draw(rt, "index")})
				d = Lazy
			}
			if err != nil {
				rt.Fatal(err)
			}
			if j.durable == j.size {
				states = nil
			}
			states = append(states, look(j))
		}
		durable := j.durable
		_ = j.Close()
		path := filepath.Join(dir, fileName)
		b, err := os.ReadFile(path)
		if err != nil {
			rt.Fatal(err)
		}
		cut := rapid.Int64Range(durable, int64(len(b))).Draw(rt, "cut")
		if err := os.WriteFile(path, b[:cut], 0o600); err != nil {
			rt.Fatal(err)
		}
		k, err := Open(dir)
		if err != nil {
			rt.Fatalf("open a journal cut at %d of %d: %v", cut, len(b), err)
		}
		defer k.Close()
		got := look(k)
		for _, s := range states {
			if cmp.Equal(s, got) {
				return
			}
		}
		rt.Fatalf("cut at %d (durable %d, size %d): the state is none of the %d it went through: %+v", cut, durable, len(b), len(states), got)
	})
}
