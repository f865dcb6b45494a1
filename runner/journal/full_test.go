package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gofrs/flock"

	"tugline.dev/tugline/shared/fleet"
)

// disk is a writer with so much room.
type disk struct{ room int }

func (d *disk) write(f *os.File, b []byte, at int64) error {
	if n := min(d.room, len(b)); n < len(b) {
		_, _ = f.WriteAt(b[:n], at) // what fits
		return &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return writeAt(f, b, at)
}

func (d *disk) open(t *testing.T, dir string) *Journal {
	t.Helper()
	lock := flock.New(filepath.Join(dir, lockName))
	if held, err := lock.TryLock(); err != nil || !held {
		t.Fatalf("lock: %v, %v", held, err)
	}
	j, err := openWith(dir, lock, d.write)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return j
}

const plenty = 1 << 30

// On a full disk what is lazy waits and what is durable is refused; once there is
// room the file has all of it, in order, and nothing twice.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	d := &disk{room: plenty}
	j := d.open(t, dir)
	a := Attempt{Fence: fence(1), Job: "j"}
	if err := j.Begin(a); err != nil {
		t.Fatal(err)
	}
	count := j.Count()
	d.room = 20
	if err := j.Update(a.Fence, Durable, func(p *Progress) { p.Finished = true }, Item{Fence: a.Fence, Kind: "finished"}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("durable on a full disk: %v", err)
	}
	if got, _ := j.Attempt(a.Fence); got.Progress.Finished || len(j.Pending(0, 9)) > 0 {
		t.Errorf("what was refused shows: %+v", got)
	}
	if err := j.Update(a.Fence, Lazy, func(p *Progress) { p.Stop = "why" }, Item{Fence: a.Fence, Kind: "facts"}); err != nil {
		t.Fatalf("lazy on a full disk: %v", err)
	}
	if ok, err := j.See(Desired{Term: 3}); !ok || err != nil || j.Desired().Term != 3 {
		t.Errorf("See on a full disk: %v, %v", ok, err)
	}
	if len(j.Pending(0, 9)) != 0 {
		t.Error("an item shows that is not written")
	}
	if err := j.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Flush on a full disk: %v", err)
	}
	if err := j.Sync(); err != nil || j.Count() != count {
		t.Errorf("Sync on a full disk: %v; count %d after %d", err, j.Count(), count)
	}
	d.room = plenty
	if err := j.Update(a.Fence, Durable, func(p *Progress) { p.Finished = true }, Item{Fence: a.Fence, Kind: "finished"}); err != nil {
		t.Fatal(err)
	}
	check := func(j *Journal) {
		t.Helper()
		got, ok := j.Attempt(a.Fence)
		items := j.Pending(0, 9)
		if !ok || !got.Progress.Finished || got.Progress.Stop != "why" || j.Desired().Term != 3 {
			t.Errorf("attempt %+v, desired %+v", got, j.Desired())
		}
		if len(items) != 2 || items[0].Kind != "facts" || items[1].Kind != "finished" {
			t.Errorf("outbox %+v", items)
		}
	}
	check(j)
	crash(j)
	j = reopen(t, dir)
	check(j)
	if j.Count() <= count {
		t.Errorf("count went from %d to %d", count, j.Count())
	}
	_ = j.Close()
}

// A journal opens on a full disk; numbers of the outbox are not given twice by
// whoever opens it next.
func TestOpenOnAFullDisk(t *testing.T) {
	for _, room := range []int{0, 20, 100} {
		dir := t.TempDir()
		d := &disk{room: plenty}
		j := d.open(t, dir)
		a := Attempt{Fence: fence(1), Job: "j"}
		if err := errors.Join(j.Begin(a), j.Put(Durable, Item{Fence: a.Fence, Kind: "one"})); err != nil {
			t.Fatal(err)
		}
		id, count, last := j.ID(), j.Count(), j.Pending(0, 9)[0].Seq
		_ = j.Close()

		d.room = room
		j = d.open(t, dir)
		if _, ok := j.Attempt(a.Fence); !ok || j.ID() != id || j.Count() < count || len(j.Pending(0, 9)) != 1 {
			t.Fatalf("room %d: id %s, count %d after %d, outbox %+v", room, j.ID(), j.Count(), count, j.Pending(0, 9))
		}
		if err := j.Put(Lazy, Item{Fence: a.Fence, Kind: "two"}); err != nil {
			t.Fatal(err)
		}
		if n := len(j.Pending(0, 9)); n != 1 {
			t.Errorf("room %d: %d items show, want the written one alone", room, n)
		}
		crash(j)

		d.room = plenty
		j = d.open(t, dir)
		if err := j.Put(Lazy, Item{Fence: a.Fence, Kind: "three"}); err != nil {
			t.Fatal(err)
		}
		items := j.Pending(0, 9)
		if len(items) != 2 || items[0].Kind != "one" || items[1].Kind != "three" || items[1].Seq <= last {
			t.Errorf("room %d: outbox %+v", room, items)
		}
		_ = j.Close()
	}
	// The file that was kept says that it was opened, before it says anything else.
	dir := t.TempDir()
	d := &disk{room: plenty}
	j := d.open(t, dir)
	if err := j.Begin(Attempt{Fence: fence(1)}); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	d.room = 0
	j = d.open(t, dir)
	d.room = plenty
	if err := j.Put(Durable, Item{Fence: fence(1), Kind: "one"}); err != nil {
		t.Fatal(err)
	}
	one := j.Pending(0, 9)[0].Seq
	crash(j)
	j = d.open(t, dir)
	if err := j.Put(Durable, Item{Fence: fence(1), Kind: "two"}); err != nil {
		t.Fatal(err)
	}
	if two := j.Pending(one, 9); len(two) != 1 || two[0].Seq>>32 == one>>32 {
		t.Errorf("%d, then %+v: the number of opens did not grow", one, two)
	}
	_ = j.Close()
}

// A file that can't be rewritten is no error of whoever acknowledges.
func TestCompactionThatFailsIsNotFatal(t *testing.T) {
	dir := t.TempDir()
	d := &disk{room: plenty}
	j := d.open(t, dir)
	f := fence(1)
	if err := j.Begin(Attempt{Fence: f}); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if err := j.Put(Durable, Item{Fence: f, Kind: "x", Body: make([]byte, 100_000)}); err != nil {
			t.Fatal(err)
		}
		d.room = 100_000 // for a record, and not for the whole
		for _, it := range j.Pending(0, 99)[1:] {
			if err := j.Ack(it.Seq); err != nil {
				t.Fatalf("acknowledge: %v", err)
			}
		}
		d.room = plenty
	}
	if err := j.Ack(j.Pending(0, 1)[0].Seq); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	if j = reopen(t, dir); len(j.Pending(0, 99)) != 0 {
		t.Errorf("outbox %+v", j.Pending(0, 99))
	}
	_ = j.Close()
}

// After a failed fsync nothing is taken for durable until a new file is.
func TestFailedSyncBeginsANewFile(t *testing.T) {
	dir := t.TempDir()
	j := reopen(t, dir)
	f := fleet.Fence{Epoch: 1, Index: 1}
	if err := j.Begin(Attempt{Fence: f}); err != nil {
		t.Fatal(err)
	}
	good := j.file
	r, w, err := os.Pipe() // what can be closed and not synced
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j.write = func(f *os.File, b []byte, at int64) error {
		if f != w {
			return syscall.ENOSPC // no room for a new file either
		}
		return writeAt(good, b, at)
	}
	j.file = w
	if err := j.Put(Durable, Item{Fence: f, Kind: "one"}); err == nil {
		t.Fatal("a failed fsync is no error")
	}
	if n := len(j.Pending(0, 9)); n != 0 {
		t.Errorf("%d items show that may not be on the disk", n)
	}
	j.write = writeAt
	if err := j.Flush(); err != nil {
		t.Fatalf("with a sound disk again: %v", err)
	}
	if items := j.Pending(0, 9); len(items) != 1 {
		t.Errorf("outbox %+v, want the one item, which is durable now", items)
	}
	crash(j)
	if j = reopen(t, dir); len(j.Pending(0, 9)) != 1 {
		t.Errorf("outbox after a crash: %+v", j.Pending(0, 9))
	}
	_ = j.Close()
}

func crash(j *Journal) {
	_ = j.file.Close()
	_ = j.lock.Unlock()
}

func reopen(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
