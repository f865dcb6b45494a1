package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		storeForever(dir)
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatalf("Open(%q): %v", c.Dir, err)
	}
	return s
}

func digest(data []byte) fleet.Digest {
	sum := sha256.Sum256(data)
	return hexSum(sum[:])
}

// noise gives n bytes that differ for each seed.
func noise(seed uint64, n int) []byte {
	data := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rand.NewChaCha8(key).Read(data)
	return data
}

func mustPut(t testing.TB, s *Store, data []byte) fleet.Digest {
	t.Helper()
	d := digest(data)
	if err := s.Put(t.Context(), d, int64(len(data)), bytes.NewReader(data)); err != nil {
		t.Fatalf("Put(%s): %v", d, err)
	}
	return d
}

func content(t testing.TB, s *Store, d fleet.Digest) []byte {
	t.Helper()
	r, size, err := s.Open(d)
	if err != nil {
		t.Fatalf("Open(%s): %v", d, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil || int64(len(data)) != size {
		t.Fatalf("read %s: %d bytes, %v, want %d", d, len(data), err, size)
	}
	return data
}

// partials lists the unfinished uploads on disk.
func partials(t testing.TB, s *Store) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.partial, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestPut(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), MaxSize: 1 << 20})
	broken := errors.New("connection reset")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	data := noise(1, 70_000)
	tests := []struct {
		name   string
		ctx    context.Context
		digest fleet.Digest
		size   int64
		from   io.Reader
		err    error
	}{
		{name: "whole", digest: digest(data), size: 70_000, from: iotest.HalfReader(bytes.NewReader(data))},
		{name: "empty", digest: digest(nil), from: strings.NewReader("")},
		{name: "largest", digest: digest(noise(2, 1<<20)), size: 1 << 20, from: bytes.NewReader(noise(2, 1<<20))},
		{name: "other bytes", digest: digest([]byte("x")), size: 1, from: strings.NewReader("y"), err: fleet.BlobDigest},
		{name: "fewer bytes", digest: digest([]byte("x")), size: 2, from: strings.NewReader("x"), err: fleet.BlobDigest},
		{name: "more bytes", digest: digest([]byte("x")), size: 1, from: strings.NewReader("xy"), err: fleet.BlobDigest},
		{name: "broken", digest: digest([]byte("xy")), size: 2, from: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)), err: broken},
		{name: "ended", ctx: ended, digest: digest([]byte("x")), size: 1, from: strings.NewReader("x"), err: context.Canceled},
		{name: "too large", digest: digest([]byte("x")), size: 1<<20 + 1, from: strings.NewReader("x"), err: fleet.TooLarge},
		{name: "negative", digest: digest([]byte("x")), size: -1, from: strings.NewReader("x"), err: fleet.BadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			err := s.Put(ctx, tt.digest, tt.size, tt.from)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Put: %v, want %v", err, tt.err)
			}
			if left := partials(t, s); len(left) != 0 {
				t.Errorf("left after Put: %v, want nothing", left)
			}
			info, err := s.Stat(tt.digest)
			if tt.err != nil {
				if !errors.Is(err, fleet.BlobMissing) {
					t.Errorf("Stat: %v, want %v", err, fleet.BlobMissing)
				}
				return
			}
			if err != nil || info.Size != tt.size || info.Stored.IsZero() {
				t.Errorf("Stat: %+v, %v, want %d bytes", info, err, tt.size)
			}
			if got := digest(content(t, s, tt.digest)); got != tt.digest {
				t.Errorf("stored content has digest %s, want %s", got, tt.digest)
			}
		})
	}
}

func TestPutAgain(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	d := mustPut(t, s, []byte("abc"))
	if err := s.Put(t.Context(), d, 3, iotest.ErrReader(errors.New("read"))); err != nil {
		t.Errorf("Put of a stored blob: %v, want no error and no read", err)
	}
	if err := s.Put(t.Context(), d, 4, strings.NewReader("abcd")); !errors.Is(err, fleet.BlobDigest) {
		t.Errorf("Put of a stored blob with another size: %v, want %v", err, fleet.BlobDigest)
	}
	if bytes, n := s.Usage(); bytes != 3 || n != 1 {
		t.Errorf("Usage: %d bytes in %d blobs, want 3 in 1", bytes, n)
	}
}

func TestConcurrentPuts(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	var wg sync.WaitGroup
	for range 4 {
		for seed := range uint64(10) {
			wg.Go(func() {
				data := noise(seed, 1000)
				if err := s.Put(t.Context(), digest(data), 1000, bytes.NewReader(data)); err != nil {
					t.Errorf("Put: %v", err)
				}
			})
		}
	}
	wg.Wait()
	if bytes, n := s.Usage(); bytes != 10_000 || n != 10 {
		t.Errorf("Usage: %d bytes in %d blobs, want 10000 in 10", bytes, n)
	}
	if left := partials(t, s); len(left) != 0 {
		t.Errorf("left after Put: %v, want nothing", left)
	}
}

// has says for each digest whether its blob is stored.
func has(s *Store, digests ...fleet.Digest) (out []bool) {
	for _, d := range digests {
		_, err := s.Stat(d)
		out = append(out, err == nil)
	}
	return out
}

func TestStoredDeleteUsage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	a, b := mustPut(t, s, []byte("a")), mustPut(t, s, []byte("bbb"))
	if d := cmp.Diff([]bool{true, false, true, false}, has(s, a, digest([]byte("c")), b, "../x")); d != "" {
		t.Errorf("stored (-want +got):\n%s", d)
	}
	r, _, err := s.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 2 {
		if err := s.Delete(b); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	if got, err := io.ReadAll(r); string(got) != "bbb" || err != nil {
		t.Errorf("read of a blob deleted meanwhile: %q, %v, want %q", got, err, "bbb")
	}
	if _, _, err := s.Open(b); !errors.Is(err, fleet.BlobMissing) {
		t.Errorf("Open of a deleted blob: %v, want %v", err, fleet.BlobMissing)
	}
	if err := os.WriteFile(filepath.Join(dir, string(a[:2]), "foreign"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.partial, wholePrefix+"X"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if bytes, n := s.Usage(); bytes != 1 || n != 1 {
			t.Errorf("Usage: %d bytes in %d blobs, want 1 in 1", bytes, n)
		}
		s = open(t, Config{Dir: dir})
		if left := partials(t, s); len(left) != 0 {
			t.Errorf("left after reopening: %v, want nothing", left)
		}
	}
}

func TestBadDigests(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: filepath.Join(dir, "blobs")})
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := string(digest([]byte("x")))
	for _, d := range []fleet.Digest{
		"", "..", "../../secret", "..//..//secret", fleet.Digest(strings.ToUpper(good)), fleet.Digest(good[:63]),
		fleet.Digest(good + "0"), fleet.Digest(good[:62] + "/."), fleet.Digest("../" + good[:61]), fleet.Digest(good[:63] + "\x00"),
	} {
		_, errStat := s.Stat(d)
		_, _, errOpen := s.Open(d)
		_, _, errUpload := s.Upload(t.Context(), d, 1)
		for call, err := range map[string]error{
			"Stat": errStat, "Open": errOpen, "Upload": errUpload, "Delete": s.Delete(d),
			"Put": s.Put(t.Context(), d, 1, strings.NewReader("x")),
		} {
			if !errors.Is(err, fleet.BadRequest) {
				t.Errorf("%s(%q): %v, want %v", call, d, err, fleet.BadRequest)
			}
		}
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := open(t, Config{Dir: dir})
	mustPut(t, s, []byte("a"))
	u, _, err := s.Upload(t.Context(), digest([]byte("bc")), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.WriteAt(t.Context(), []byte("b"), 0); err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err != nil {
			return err
		}
		want := fs.FileMode(0o700)
		if !info.IsDir() {
			want = 0o600
			files++
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s: %o, want %o", path, got, want)
		}
		return nil
	})
	if err != nil || files != 2 {
		t.Errorf("walked %d files, %v, want 2", files, err)
	}
}

// TestDirectoriesAreMadeWithTheirFirstBlob: an empty store has none of its 256 directories,
// and is an empty one to every question.
func TestDirectoriesAreMadeWithTheirFirstBlob(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []int{0, 1} {
		s := open(t, Config{Dir: dir})
		seen := 0
		if err := s.Each(func(Info) bool { seen++; return true }); err != nil || seen != want {
			t.Errorf("%d blobs, %v; want %d", seen, err, want)
		}
		d := digest([]byte("a"))
		if _, err := s.Stat(d); (err == nil) != (want == 1) || err != nil && !errors.Is(err, fleet.BlobMissing) {
			t.Errorf("Stat with %d blobs: %v", want, err)
		}
		if err := s.Delete(digest([]byte("b"))); err != nil {
			t.Errorf("Delete of what was never there: %v", err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1+want { // partial is the one
			t.Errorf("%d directories, %v; want %d", len(entries), err, 1+want)
		}
		mustPut(t, s, []byte("a"))
		if err := s.Check(t.Context(), d, func(int) error { return nil }); err != nil {
			t.Errorf("Check: %v", err)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {Dir: t.TempDir(), MaxSize: -1}} {
		if _, err := Open(c); err == nil {
			t.Errorf("Open(%+v) succeeded", c)
		}
	}
}

func TestSweep(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	data := []byte("abcdef")
	begin := func(data []byte) *Upload {
		t.Helper()
		u, _, err := s.Upload(t.Context(), digest(data), int64(len(data)))
		if err == nil {
			_, err = u.WriteAt(t.Context(), data[:3], 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u := begin(data)
	now := time.Now()
	for _, tt := range []struct {
		at      time.Time
		removed int
		bytes   int64
		offset  int64
	}{
		{now, 0, 0, 3},
		{now.Add(StaleAfter - time.Minute), 0, 0, 3},
		{now.Add(StaleAfter + time.Minute), 1, 3, 0},
		{now.Add(StaleAfter + time.Minute), 0, 0, 0},
	} {
		n, bytes, err := s.Sweep(tt.at)
		if n != tt.removed || bytes != tt.bytes || err != nil {
			t.Errorf("Sweep after %v: %d of %d bytes, %v, want %d of %d", tt.at.Sub(now), n, bytes, err, tt.removed, tt.bytes)
		}
		if _, offset, err := s.Upload(t.Context(), digest(data), 6); offset != tt.offset || err != nil {
			t.Errorf("Upload after Sweep after %v: offset %d, %v, want %d", tt.at.Sub(now), offset, err, tt.offset)
		}
	}
	if _, err := u.WriteAt(t.Context(), data[3:], 3); !errors.Is(err, fleet.SpoolGap) {
		t.Errorf("WriteAt after the upload was swept: %v, want %v", err, fleet.SpoolGap)
	}
	if _, err := u.WriteAt(t.Context(), data, 0); err != nil {
		t.Errorf("WriteAt from the start after the upload was swept: %v", err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("Commit: %v", err)
	}
}
