package update

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A disk on which less and less is free: the program finds no room, then not even the
// record does.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	program := build(t, "1.0.0", "good")
	mib := 3*len(program)>>20 + 1
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		t.Fatalf("mount a small file system, which this test needs root for: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	g := rigAt(t, dir)
	rel, b := g.release("2.0.0", "good")
	ballast := filepath.Join(dir, "ballast")
	page := os.Getpagesize()
	for i, free := range []int{0, page, 2 * page, len(b) / 2, len(b) - page, len(b), len(b) + page} {
		g.must(fill(ballast, free))
		rel.Asked = fmt.Sprint(i)
		err := g.placeIt(rel, b)
		var no *Refusal
		if err == nil || errors.As(err, &no) {
			if free < len(b) {
				t.Fatalf("with %d bytes free for %d: %v", free, len(b), err)
			}
		}
		if err == nil {
			g.serves("2.0.0")
			g.must(g.point("1.0.0"))
			g.must(g.Begin())
		}
		g.serves("1.0.0")
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	rel.Asked = "with room"
	g.must(g.placeIt(rel, b))
	g.serves("2.0.0")
}

// fill leaves so many bytes free.
func fill(file string, free int) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	for err == nil {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return f.Truncate(max(st.Size()-int64(free), 0))
}
