package blob

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

func mustUpload(t testing.TB, s *Store, data []byte, wantOffset int64) *Upload {
	t.Helper()
	u, offset, err := s.Upload(t.Context(), digest(data), int64(len(data)))
	if err != nil || offset != wantOffset {
		t.Fatalf("Upload: offset %d, %v, want %d", offset, err, wantOffset)
	}
	return u
}

func TestUpload(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	data := noise(1, 100_000)
	u := mustUpload(t, s, data, 0)
	if n, err := u.WriteAt(t.Context(), data[:40_000], 0); n != 40_000 || err != nil {
		t.Fatalf("first part: %d, %v", n, err)
	}
	var gap *GapError
	if n, err := u.WriteAt(t.Context(), data[50_000:], 50_000); n != 40_000 || !errors.As(err, &gap) || gap.Want != 40_000 {
		t.Errorf("part after a gap: %d, %v, want 40000 and a gap that wants it", n, err)
	}
	if err := u.Commit(t.Context()); !errors.As(err, &gap) || gap.Want != 40_000 {
		t.Errorf("early Commit: %v, want a gap that wants 40000", err)
	}

	s = open(t, Config{Dir: dir}) // as after a restart
	u = mustUpload(t, s, data, 40_000)
	if n, err := u.WriteAt(t.Context(), data[30_000:60_000], 30_000); n != 60_000 || err != nil {
		t.Errorf("overlapping part: %d, %v, want 60000", n, err)
	}
	if n, err := u.WriteAt(t.Context(), append(data[60_000:], 'x'), 60_000); n != 60_000 || !errors.Is(err, fleet.TooLarge) {
		t.Errorf("part beyond the size: %d, %v, want 60000, %v", n, err, fleet.TooLarge)
	}
	if _, err := u.WriteAt(t.Context(), make([]byte, MaxPart+1), 60_000); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("part over the bound: %v, want %v", err, fleet.TooLarge)
	}
	if _, err := u.WriteAt(t.Context(), data, -1); !errors.Is(err, fleet.BadRequest) {
		t.Errorf("part before the start: %v, want %v", err, fleet.BadRequest)
	}
	if n, err := u.WriteAt(t.Context(), data[60_000:], 60_000); n != 100_000 || err != nil {
		t.Errorf("last part: %d, %v, want 100000", n, err)
	}
	if has(s, digest(data))[0] {
		t.Error("blob is there before Commit")
	}
	for range 2 {
		if err := u.Commit(t.Context()); err != nil {
			t.Fatalf("Commit: %v", err)
		}
	}
	if got := content(t, s, digest(data)); !bytes.Equal(got, data) {
		t.Error("stored content differs from what was sent")
	}
	if n, err := u.WriteAt(t.Context(), data[:10], 0); n != 100_000 || err != nil {
		t.Errorf("part after Commit: %d, %v, want 100000", n, err)
	}
	mustUpload(t, s, data, 100_000)
	if left := partials(t, s); len(left) != 0 {
		t.Errorf("left after Commit: %v, want nothing", left)
	}
	if len(s.uploads) != 0 {
		t.Errorf("%d uploads are remembered after Commit, want none", len(s.uploads))
	}
}

func TestUploadEmpty(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	u := mustUpload(t, s, nil, 0)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	if !has(s, digest(nil))[0] {
		t.Error("empty blob is not there")
	}
}

func TestUploadOfOtherBytes(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	data := []byte("abcdef")
	u := mustUpload(t, s, data, 0)
	if _, err := u.WriteAt(t.Context(), []byte("abcdeX"), 0); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); !errors.Is(err, fleet.BlobDigest) {
		t.Errorf("Commit: %v, want %v", err, fleet.BlobDigest)
	}
	if left := partials(t, s); len(left) != 0 {
		t.Errorf("left after Commit: %v, want nothing", left)
	}
	mustUpload(t, s, data, 0)
	if _, err := u.WriteAt(t.Context(), data, 0); err != nil {
		t.Errorf("WriteAt anew: %v", err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("Commit of the right bytes: %v", err)
	}
}

// TestUploadWrongSize begins an upload under a wrong size; the right one must not
// be hindered by it.
func TestUploadWrongSize(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	data := []byte("abcdef")
	wrong, _, err := s.Upload(t.Context(), digest(data), 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.WriteAt(t.Context(), []byte("xyz"), 0); err != nil {
		t.Fatal(err)
	}
	u := mustUpload(t, s, data, 0)
	if _, err := u.WriteAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("Commit: %v", err)
	}
	if err := wrong.Commit(t.Context()); !errors.Is(err, fleet.BlobDigest) {
		t.Errorf("Commit under the wrong size: %v, want %v", err, fleet.BlobDigest)
	}
}

func TestConcurrentUploads(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	data := noise(3, 50_000)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			u, offset, err := s.Upload(t.Context(), digest(data), int64(len(data)))
			for err == nil && offset < int64(len(data)) {
				end := min(offset+int64(3000+w*700), int64(len(data)))
				offset, err = u.WriteAt(t.Context(), data[offset:end], offset)
			}
			if err == nil {
				err = u.Commit(t.Context())
			}
			if err != nil {
				t.Errorf("uploader %d: %v", w, err)
			}
		})
	}
	wg.Wait()
	if got := content(t, s, digest(data)); !bytes.Equal(got, data) {
		t.Error("stored content differs from what was sent")
	}
	if bytes, n := s.Usage(); bytes != 50_000 || n != 1 {
		t.Errorf("Usage: %d bytes in %d blobs, want 50000 in 1", bytes, n)
	}
}

// disk makes the files of a store fail.
type disk struct {
	space    int64 // bytes that can still be written; negative: any
	sync     error
	truncate error
}

type diskFile struct {
	file
	disk *disk
}

func (d *disk) open(path string, flag int) (file, error) {
	f, err := durable.Open(path, flag)
	return &diskFile{f, d}, err
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if f.disk.space < 0 {
		return f.file.WriteAt(p, off)
	}
	fits := min(int64(len(p)), f.disk.space)
	f.disk.space -= fits
	n, err := f.file.WriteAt(p[:fits], off)
	if err == nil && n < len(p) {
		err = &os.PathError{Op: "write", Path: "blob", Err: syscall.ENOSPC}
	}
	return n, err
}

func (f *diskFile) Sync() error {
	if f.disk.sync != nil {
		return f.disk.sync
	}
	return f.file.Sync()
}

func (f *diskFile) Truncate(size int64) error {
	if f.disk.truncate != nil {
		return f.disk.truncate
	}
	return f.file.Truncate(size)
}

func TestFullDisk(t *testing.T) {
	for _, d := range []disk{
		{space: 2},
		{space: -1, sync: syscall.ENOSPC},
		{space: -1, sync: syscall.EDQUOT},
	} {
		s := open(t, Config{Dir: t.TempDir()})
		full := d
		s.openFile = full.open
		data := []byte("abcdef")
		if err := s.Put(t.Context(), digest(data), 6, bytes.NewReader(data)); !errors.Is(err, fleet.DiskFull) {
			t.Errorf("%+v: Put: %v, want %v", d, err, fleet.DiskFull)
		}
		full = d
		u := mustUpload(t, s, data, 0)
		if n, err := u.WriteAt(t.Context(), data, 0); n != 0 || !errors.Is(err, fleet.DiskFull) {
			t.Errorf("%+v: WriteAt: %d, %v, want 0, %v", d, n, err, fleet.DiskFull)
		}
		full = disk{space: -1}
		if n, err := u.WriteAt(t.Context(), data, 0); n != 6 || err != nil {
			t.Errorf("%+v: WriteAt after mending: %d, %v, want 6", d, n, err)
		}
		full = d
		if d.sync != nil {
			if err := u.Commit(t.Context()); !errors.Is(err, fleet.DiskFull) {
				t.Errorf("%+v: Commit: %v, want %v", d, err, fleet.DiskFull)
			}
		}
		full = disk{space: -1}
		if err := u.Commit(t.Context()); err != nil {
			t.Errorf("%+v: Commit after mending: %v", d, err)
		}
	}
}

// TestModel uploads one blob over random parts, failures and restarts, and compares
// the offsets with a byte slice.
func TestModel(t *testing.T) {
	base := t.TempDir()
	// One store for all runs: opening makes 256 directories.
	d := &disk{space: -1}
	s := open(t, Config{Dir: base})
	s.openFile = d.open
	run := byte(0)
	rapid.Check(t, func(t *rapid.T) {
		run++
		data := append([]byte{run}, noise(uint64(run), rapid.IntRange(0, 40).Draw(t, "size"))...)
		size := int64(len(data))
		if err := s.Delete(digest(data)); err != nil {
			t.Fatal(err)
		}
		u, end, err := s.Upload(t.Context(), digest(data), size)
		if err != nil || end != 0 {
			t.Fatalf("Upload: %d, %v, want 0", end, err)
		}
		var model []byte
		stored := false
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				_, offset, err := s.Upload(t.Context(), digest(data), size)
				want := int64(len(model))
				if stored {
					want = size
				}
				if err != nil || offset != want {
					t.Fatalf("Upload: offset %d, %v, want %d", offset, err, want)
				}
			},
			"part": func(t *rapid.T) {
				offset := rapid.IntRange(0, len(model)+1).Draw(t, "offset")
				part := bytes.Clone(data[min(offset, len(data)):])
				part = part[:rapid.IntRange(0, len(part)).Draw(t, "length")]
				if len(part) > 0 && rapid.IntRange(0, 9).Draw(t, "flip") == 0 {
					part[0] ^= 1
				}
				fails := rapid.IntRange(0, 3).Draw(t, "fails") == 0
				if fails {
					d.space, d.truncate = int64(rapid.IntRange(0, len(part)).Draw(t, "space")), nil
					if rapid.Bool().Draw(t, "sync fails") {
						d.sync = syscall.EIO
					}
				}
				n, err := u.WriteAt(t.Context(), part, int64(offset))
				*d = disk{space: -1}
				switch {
				case stored:
				case offset > len(model):
					if !errors.Is(err, fleet.SpoolGap) {
						t.Fatalf("WriteAt(%d bytes, %d): %v, want %v", len(part), offset, err, fleet.SpoolGap)
					}
				case err == nil:
					model = slices.Concat(model[:offset], part, model[min(offset+len(part), len(model)):])
				case fails:
					model = model[:n]
				default:
					t.Fatalf("WriteAt(%d bytes, %d): %v", len(part), offset, err)
				}
			},
			"restart": func(*rapid.T) {
				s.mu.Lock()
				clear(s.uploads)
				s.mu.Unlock()
			},
			"commit": func(t *rapid.T) {
				err := u.Commit(t.Context())
				var want error
				switch {
				case stored || bytes.Equal(model, data):
					stored, model = true, nil
				case int64(len(model)) < size:
					want = fleet.SpoolGap
				default:
					want, model = fleet.BlobDigest, nil
				}
				if !errors.Is(err, want) {
					t.Fatalf("Commit: %v, want %v", err, want)
				}
				if got, err := os.ReadFile(s.path(digest(data))); stored && (err != nil || !bytes.Equal(got, data)) {
					t.Fatalf("stored content: %q, %v, want %q", got, err, data)
				}
			},
		})
		if _, _, err := s.Sweep(time.Now().Add(2 * StaleAfter)); err != nil {
			t.Fatal(err)
		}
	})
}
