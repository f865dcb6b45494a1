package spool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// disk makes the files of a store fail.
type disk struct {
	mu       sync.Mutex
	space    int64 // bytes that can still be written; negative: any
	sync     error
	truncate error
}

func (d *disk) set(space int64, sync, truncate error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space, d.sync, d.truncate = space, sync, truncate
}

func (d *disk) open(path string, flag int) (file, error) {
	f, err := durable.Open(path, flag)
	if err != nil {
		return nil, err
	}
	return &diskFile{file: f, disk: d}, nil
}

type diskFile struct {
	file
	disk *disk
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.space < 0 {
		return f.file.WriteAt(p, off)
	}
	fits := min(int64(len(p)), f.disk.space)
	f.disk.space -= fits
	n, err := f.file.WriteAt(p[:fits], off)
	if err == nil && n < len(p) {
		err = &os.PathError{Op: "write", Path: "stream", Err: syscall.ENOSPC}
	}
	return n, err
}

func (f *diskFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.sync != nil {
		return f.disk.sync
	}
	return f.file.Sync()
}

func (f *diskFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.truncate != nil {
		return f.disk.truncate
	}
	return f.file.Truncate(size)
}

func TestFailingDisk(t *testing.T) {
	eio := errors.New("input/output error")
	tests := []struct {
		name           string
		space          int64
		sync, truncate error
		want           error
	}{
		{name: "full at once", space: 0, want: fleet.DiskFull},
		{name: "full after some bytes", space: 3, want: fleet.DiskFull},
		{name: "full, and cannot cut", space: 3, truncate: eio, want: fleet.DiskFull},
		{name: "full at the sync", space: -1, sync: syscall.ENOSPC, want: fleet.DiskFull},
		{name: "over quota at the sync", space: -1, sync: syscall.EDQUOT, want: fleet.DiskFull},
		{name: "failed sync", space: -1, sync: eio, want: eio},
		{name: "failed sync, and cannot cut", space: -1, sync: eio, truncate: eio, want: eio},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			d := &disk{space: -1}
			s.files.open = d.open
			k := key(0, Output)
			mustAppend(t, s, k, 0, "abc")

			d.set(tt.space, tt.sync, tt.truncate)
			for range 2 {
				durable, err := s.Append(t.Context(), k, 3, []byte("defghi"))
				if durable != 3 || !errors.Is(err, tt.want) && !errors.Is(err, tt.truncate) {
					t.Errorf("Append on the failing disk: %d, %v, want 3, %v", durable, err, tt.want)
				}
				if tt.truncate == nil && tt.space >= 0 {
					if got, err := os.ReadFile(k.path(dir)); string(got) != "abc" || err != nil {
						t.Errorf("file on the failing disk: %q, %v, want %q", got, err, "abc")
					}
				}
			}
			if got := content(t, s, k); got != "abc" {
				t.Errorf("content on the failing disk: %q, want %q", got, "abc")
			}

			d.set(-1, nil, nil)
			mustAppend(t, s, k, 3, "XYZ")
			if got := content(t, s, k); got != "abcXYZ" {
				t.Errorf("content after mending: %q, want %q", got, "abcXYZ")
			}
			s.Close()
			s = open(t, Config{Dir: dir})
			if got := content(t, s, k); got != "abcXYZ" {
				t.Errorf("content after reopening: %q, want %q", got, "abcXYZ")
			}
		})
	}
}

func TestFirstAppendOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	d := &disk{space: 2}
	s.files.open = d.open
	k := key(0, Output)
	if n, err := s.Append(t.Context(), k, 0, []byte("abc")); n != 0 || !errors.Is(err, fleet.DiskFull) {
		t.Errorf("Append: %d, %v, want 0, %v", n, err, fleet.DiskFull)
	}
	s.Close()
	s = open(t, Config{Dir: dir})
	if size, _ := s.Size(k); size != 0 {
		t.Errorf("Size after reopening: %d, want 0", size)
	}
	mustAppend(t, s, k, 0, "abc")
}

func TestSealOnFailingDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "abc")
	// A directory in the marker's place makes it impossible to write.
	marker := k.path(dir) + tmpSuffix
	if err := os.Mkdir(marker, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(t.Context(), k, 3, ""); err == nil {
		t.Fatal("Seal without a marker succeeded")
	}
	if _, sealed := s.Size(k); sealed {
		t.Error("stream is sealed after a failed Seal")
	}
	mustAppend(t, s, k, 3, "d")
	if err := os.RemoveAll(marker); err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(t.Context(), k, 4, ""); err != nil {
		t.Errorf("Seal after mending: %v", err)
	}
}

// TestOneFailedSyncFailsAllItCovers lets several appends wait for one sync and
// fails it: none may be acknowledged, and all must be told.
func TestOneFailedSyncFailsAllItCovers(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	d := &disk{space: -1}
	s.files.open = d.open
	mustAppend(t, s, k, 0, "abc")
	st, _ := s.find(k)
	d.set(-1, errors.New("input/output error"), nil)

	st.sync.Lock() // as if a sync were running
	errs := make(chan error, 3)
	for i, data := range []string{"abcd", "abcde", "abcdef"} {
		go func() {
			_, err := s.Append(t.Context(), k, 0, []byte(data))
			errs <- err
		}()
		awaitWritten(t, st, int64(4+i))
	}
	st.sync.Unlock()
	failed := 0
	for range 3 {
		// Those after the first sync again only if they wrote after the loss.
		if err := <-errs; err != nil && strings.Contains(err.Error(), "input/output error") {
			failed++
		}
	}
	if failed != 3 {
		t.Errorf("%d of 3 appends failed, want all", failed)
	}
	d.set(-1, nil, nil)
	if got := content(t, s, k); got != "abc" {
		t.Errorf("content: %q, want %q", got, "abc")
	}
	mustAppend(t, s, k, 3, "XYZ")
}

// awaitWritten returns when the stream has end bytes, durable or not.
func awaitWritten(t *testing.T, st *stream, end int64) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		st.mu.Lock()
		got := st.end
		st.mu.Unlock()
		if got >= end {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("stream has %d bytes written, want %d", got, end)
		}
	}
}

// TestAppendsShareASync lets many appends to one stream wait while a sync runs: all
// of them must be acknowledged by the one after it.
func TestAppendsShareASync(t *testing.T) {
	const appends = 20
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "x")
	st, _ := s.find(k)
	var syncs atomic.Int64
	s.files.drop(k.path(s.dir))
	s.files.open = func(path string, flag int) (file, error) {
		f, err := durable.Open(path, flag)
		return &countedFile{f, &syncs}, err
	}
	st.sync.Lock() // as if a sync were running
	var wg sync.WaitGroup
	for i := range appends {
		wg.Go(func() {
			if _, err := s.Append(t.Context(), k, int64(1+i), []byte("x")); err != nil {
				t.Errorf("Append: %v", err)
			}
		})
		awaitWritten(t, st, int64(2+i))
	}
	st.sync.Unlock()
	wg.Wait()
	if got := syncs.Load(); got != 1 {
		t.Errorf("%d appends made %d syncs, want 1", appends, got)
	}
}

type countedFile struct {
	file
	syncs *atomic.Int64
}

func (f *countedFile) Sync() error {
	f.syncs.Add(1)
	return f.file.Sync()
}

func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	mustAppend(t, s, key(0, Output), 0, "abc")
	s.Close()
	foreign := []string{"README", "job0/notes", "job0/1-1.other", "job0/01-1.output", "job0/1-1.output.bak"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, Config{Dir: dir})
	if bytes, n := s.Usage(); bytes != 3 || n != 1 {
		t.Errorf("Usage: %d bytes in %d streams, want 3 in 1", bytes, n)
	}
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("foreign file: %v", err)
		}
	}
}
