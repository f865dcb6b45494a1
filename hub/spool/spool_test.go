package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		appendForever(dir)
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatalf("Open(%q): %v", c.Dir, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func key(n int, name Name) Key {
	return Key{Job: fleet.JobID(fmt.Sprintf("job%d", n)), Fence: fleet.Fence{Epoch: 1, Index: uint64(n + 1)}, Name: name}
}

func mustAppend(t testing.TB, s *Store, k Key, offset int64, data string) {
	t.Helper()
	got, err := s.Append(t.Context(), k, offset, []byte(data))
	if err != nil {
		t.Fatalf("Append(%s, %d, %q): %v", k, offset, data, err)
	}
	if want := offset + int64(len(data)); got < want {
		t.Fatalf("Append(%s, %d, %q): durable %d, want at least %d", k, offset, data, got, want)
	}
}

func content(t testing.TB, s *Store, k Key) string {
	t.Helper()
	r, err := s.Reader(t.Context(), k, 0, false)
	if err != nil {
		t.Fatalf("Reader(%s): %v", k, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", k, err)
	}
	return string(data)
}

func digest(data string) fleet.Digest {
	sum := sha256.Sum256([]byte(data))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

func TestAppend(t *testing.T) {
	tests := []struct {
		name   string
		offset int64
		data   string
		want   string
		err    error
		next   int64 // wanted offset of a gap
	}{
		{name: "at the end", offset: 6, data: "ghi", want: "abcdefghi"},
		{name: "nothing at the end", offset: 6, want: "abcdef"},
		{name: "all again", offset: 0, data: "abcdef", want: "abcdef"},
		{name: "middle again", offset: 2, data: "cd", want: "abcdef"},
		{name: "overlap", offset: 4, data: "efgh", want: "abcdefgh"},
		{name: "other bytes", offset: 4, data: "eXgh", want: "abcdef", err: fleet.SpoolMismatch},
		{name: "gap", offset: 7, data: "h", want: "abcdef", err: fleet.SpoolGap, next: 6},
		{name: "empty gap", offset: 7, want: "abcdef", err: fleet.SpoolGap, next: 6},
		{name: "before the start", offset: -1, data: "x", want: "abcdef", err: fleet.BadRequest},
		{name: "up to the bound", offset: 6, data: "ghij", want: "abcdefghij"},
		{name: "over the bound", offset: 6, data: "ghijk", want: "abcdef", err: fleet.TooLarge},
		{name: "far offset", offset: 1<<63 - 1, data: "x", want: "abcdef", err: fleet.SpoolGap, next: 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, Config{Dir: t.TempDir(), MaxStream: 10})
			k := key(0, Output)
			mustAppend(t, s, k, 0, "abcdef")
			_, err := s.Append(t.Context(), k, tt.offset, []byte(tt.data))
			if !errors.Is(err, tt.err) {
				t.Errorf("Append(%d, %q): %v, want %v", tt.offset, tt.data, err, tt.err)
			}
			if gap := (*GapError)(nil); errors.As(err, &gap) && gap.Want != tt.next {
				t.Errorf("Append(%d, %q) wants offset %d, want %d", tt.offset, tt.data, gap.Want, tt.next)
			}
			if got := content(t, s, k); got != tt.want {
				t.Errorf("after Append(%d, %q): %q, want %q", tt.offset, tt.data, got, tt.want)
			}
		})
	}
}

func TestAppendToNothing(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Events)
	var gap *GapError
	if _, err := s.Append(t.Context(), k, 5, []byte("x")); !errors.As(err, &gap) || gap.Want != 0 {
		t.Errorf("Append at 5 to a new stream: %v, want a gap that wants 0", err)
	}
	if n, err := s.Append(t.Context(), k, 0, nil); n != 0 || err != nil {
		t.Errorf("Append of nothing to a new stream: %d, %v, want 0, nil", n, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Append(ended, k, 0, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Append with an ended context: %v, want %v", err, context.Canceled)
	}
	if got := s.Streams(k.Job); len(got) != 0 {
		t.Errorf("Streams: %v, want none", got)
	}
	if bytes, n := s.Usage(); bytes != 0 || n != 0 {
		t.Errorf("Usage: %d bytes in %d streams, want none", bytes, n)
	}
}

func TestBadKeys(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	good := key(0, Output)
	for _, change := range []func(*Key){
		func(k *Key) { k.Job = "" },
		func(k *Key) { k.Job = ".." },
		func(k *Key) { k.Job = "../x" },
		func(k *Key) { k.Job = "a/b" },
		func(k *Key) { k.Job = "Upper" },
		func(k *Key) { k.Job = ".deleted-x-1" },
		func(k *Key) { k.Fence = fleet.Fence{} },
		func(k *Key) { k.Name = "other" },
		func(k *Key) { k.Name = "" },
	} {
		k := good
		change(&k)
		_, err := s.Append(t.Context(), k, 0, []byte("x"))
		_, errReader := s.Reader(t.Context(), k, 0, false)
		_, errReadAt := s.ReadAt(k, make([]byte, 1), 0)
		for call, err := range map[string]error{
			"Append": err, "Reader": errReader, "ReadAt": errReadAt, "Seal": s.Seal(t.Context(), k, 0, ""),
		} {
			if !errors.Is(err, fleet.BadRequest) {
				t.Errorf("%s with key %+v: %v, want %v", call, k, err, fleet.BadRequest)
			}
		}
	}
	if err := s.Delete(".."); !errors.Is(err, fleet.BadRequest) {
		t.Errorf(`Delete(".."): %v, want %v`, err, fleet.BadRequest)
	}
}

func TestSeal(t *testing.T) {
	const text = "abcdef"
	tests := []struct {
		name   string
		length int64
		digest fleet.Digest
		err    error
	}{
		{name: "plain", length: 6},
		{name: "with digest", length: 6, digest: digest(text)},
		{name: "other digest", length: 6, digest: digest("other"), err: fleet.SpoolMismatch},
		{name: "no digest", length: 6, digest: "xyz", err: fleet.BadRequest},
		{name: "too short", length: 5, err: fleet.SpoolMismatch},
		{name: "too long", length: 7, err: fleet.SpoolGap},
		{name: "negative", length: -1, err: fleet.BadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			k := key(0, Output)
			mustAppend(t, s, k, 0, text)
			if err := s.Seal(t.Context(), k, tt.length, tt.digest); !errors.Is(err, tt.err) {
				t.Fatalf("Seal(%d, %q): %v, want %v", tt.length, tt.digest, err, tt.err)
			}
			for _, when := range []string{"at once", "after reopening"} {
				if size, sealed := s.Size(k); size != 6 || sealed != (tt.err == nil) {
					t.Errorf("Size %s: %d, %t, want 6, %t", when, size, sealed, tt.err == nil)
				}
				s.Close()
				s = open(t, Config{Dir: dir})
			}
			if tt.err != nil {
				mustAppend(t, s, k, 6, "more")
				return
			}
			mustAppend(t, s, k, 2, "cdef")
			for _, data := range []string{"efg", "eX"} {
				if _, err := s.Append(t.Context(), k, 4, []byte(data)); !errors.Is(err, fleet.LogSealed) {
					t.Errorf("Append(4, %q) to a sealed stream: %v, want %v", data, err, fleet.LogSealed)
				}
			}
			if err := s.Seal(t.Context(), k, 6, digest(text)); err != nil {
				t.Errorf("Seal again with the right digest: %v", err)
			}
			if err := s.Seal(t.Context(), k, 6, digest("other")); !errors.Is(err, fleet.SpoolMismatch) {
				t.Errorf("Seal again with another digest: %v, want %v", err, fleet.SpoolMismatch)
			}
			got := s.Streams(k.Job)
			want := []Info{{Key: k, Size: 6, Sealed: true, Digest: digest(text)}}
			if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Info{}, "SealedAt")); d != "" {
				t.Errorf("Streams (-want +got):\n%s", d)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	var want []Info
	for _, k := range []Key{
		{"job", fleet.Fence{Epoch: 1, Index: 9}, Events},
		{"job", fleet.Fence{Epoch: 1, Index: 9}, Output},
		{"job", fleet.Fence{Epoch: 1, Index: 10}, Output},
		{"job", fleet.Fence{Epoch: 2, Index: 1}, Output},
	} {
		want = append(want, Info{Key: k, Size: 3})
	}
	for _, i := range []int{2, 0, 3, 1} {
		mustAppend(t, s, want[i].Key, 0, "abc")
	}
	mustAppend(t, s, key(1, Output), 0, "other job")
	for _, when := range []string{"at once", "after reopening"} {
		if d := cmp.Diff(want, s.Streams("job")); d != "" {
			t.Errorf("Streams %s (-want +got):\n%s", when, d)
		}
		s.Close()
		s = open(t, Config{Dir: dir})
	}
}

func TestSealEmptyStream(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	k := key(0, Events)
	if err := s.Seal(t.Context(), k, 1, ""); !errors.Is(err, fleet.SpoolGap) {
		t.Errorf("Seal of a missing stream at 1: %v, want %v", err, fleet.SpoolGap)
	}
	if err := s.Seal(t.Context(), k, 0, digest("")); err != nil {
		t.Fatalf("Seal of a missing stream at 0: %v", err)
	}
	s.Close()
	s = open(t, Config{Dir: dir})
	if size, sealed := s.Size(k); size != 0 || !sealed {
		t.Errorf("Size after reopening: %d, %t, want 0, true", size, sealed)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := open(t, Config{Dir: dir})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "x")
	if err := s.Seal(t.Context(), k, 1, ""); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s: %o, want %o", path, got, want)
		}
		seen++
		return nil
	})
	if err != nil || seen != 4 {
		t.Errorf("walked %d files, %v, want 4", seen, err)
	}
}

func TestDeleteAndUsage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	for n := range 3 {
		mustAppend(t, s, key(n, Output), 0, "12345")
		mustAppend(t, s, key(n, Events), 0, "12")
	}
	for _, n := range []int{2, 0} {
		if err := s.Seal(t.Context(), key(n, Output), 5, ""); err != nil {
			t.Fatal(err)
		}
	}
	usage := func(when string, wantBytes, wantStreams int64) {
		t.Helper()
		if bytes, n := s.Usage(); bytes != wantBytes || n != wantStreams {
			t.Errorf("Usage %s: %d bytes in %d streams, want %d in %d", when, bytes, n, wantBytes, wantStreams)
		}
	}
	usage("at first", 21, 6)
	got := s.Oldest(5)
	if len(got) != 2 || got[0].SealedAt.After(got[1].SealedAt) || !got[0].Sealed {
		t.Errorf("Oldest(5): %+v, want two sealed streams in order", got)
	}
	if got := s.Oldest(1); len(got) != 1 || got[0].Key.Job != s.Oldest(5)[0].Key.Job {
		t.Errorf("Oldest(1): %+v, want the first of all", got)
	}

	reader, err := s.Reader(t.Context(), key(1, Output), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(reader, buf); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(key(1, Output).Job); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if _, err := reader.Read(buf); !errors.Is(err, fleet.NotFound) {
		t.Errorf("Read of a deleted stream: %v, want %v", err, fleet.NotFound)
	}
	if _, err := s.ReadAt(key(1, Output), buf, 0); !errors.Is(err, fleet.NotFound) {
		t.Errorf("ReadAt of a deleted stream: %v, want %v", err, fleet.NotFound)
	}
	if err := s.Delete(key(1, Output).Job); err != nil {
		t.Errorf("Delete again: %v", err)
	}
	usage("after Delete", 14, 4)

	mustAppend(t, s, key(1, Output), 0, "new")
	if got := content(t, s, key(1, Output)); got != "new" {
		t.Errorf("stream written anew: %q, want %q", got, "new")
	}
	s.Close()
	if err := os.MkdirAll(filepath.Join(dir, deletedPrefix+"job9-1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	usage("after reopening", 17, 5)
	if left, _ := filepath.Glob(filepath.Join(dir, deletedPrefix+"*")); len(left) != 0 {
		t.Errorf("half deleted after reopening: %v, want none", left)
	}
}

func TestReopenMendsSeals(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	for n := range 3 {
		mustAppend(t, s, key(n, Output), 0, "abcdef")
		if err := s.Seal(t.Context(), key(n, Output), 6, ""); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if err := os.Truncate(key(0, Output).path(dir), 4); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key(1, Output).path(dir)+sealSuffix, []byte("seal 1 6"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key(2, Output).path(dir)+tmpSuffix, []byte("se"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	for n, want := range []Info{{Size: 4}, {Size: 6}, {Size: 6, Sealed: true}} {
		if size, sealed := s.Size(key(n, Output)); size != want.Size || sealed != want.Sealed {
			t.Errorf("stream %d after reopening: %d, %t, want %d, %t", n, size, sealed, want.Size, want.Sealed)
		}
	}
	if _, err := os.Stat(key(2, Output).path(dir) + tmpSuffix); !os.IsNotExist(err) {
		t.Errorf("half written marker after reopening: %v, want it gone", err)
	}
	mustAppend(t, s, key(0, Output), 4, "ef")
	if err := s.Seal(t.Context(), key(0, Output), 6, digest("abcdef")); err != nil {
		t.Errorf("Seal of the mended stream: %v", err)
	}
}

func TestClose(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "x")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	_, err := s.Append(t.Context(), k, 1, []byte("x"))
	_, errReadAt := s.ReadAt(k, make([]byte, 1), 0)
	for call, err := range map[string]error{
		"Append": err, "ReadAt": errReadAt, "Seal": s.Seal(t.Context(), k, 1, ""), "Delete": s.Delete(k.Job),
	} {
		if !errors.Is(err, fleet.Unavailable) {
			t.Errorf("%s after Close: %v, want %v", call, err, fleet.Unavailable)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {Dir: t.TempDir(), MaxStream: -1}, {Dir: t.TempDir(), OpenFiles: -1}} {
		if s, err := Open(c); err == nil {
			s.Close()
			t.Errorf("Open(%+v) succeeded", c)
		}
	}
}

// TestConcurrentAppends has many writers offer the whole of one stream, each in
// pieces of its own size; all must succeed, whoever is first.
func TestConcurrentAppends(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	text := bytes.Repeat([]byte("0123456789abcdef!"), 40)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			size := 17 + 13*w
			for at := 0; at < len(text); at += size {
				part := text[at:min(at+size, len(text))]
				if n, err := s.Append(t.Context(), k, int64(at), part); err != nil || n < int64(at+len(part)) {
					t.Errorf("writer %d: Append(%d, %d bytes): %d, %v", w, at, len(part), n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := content(t, s, k); got != string(text) {
		t.Errorf("stream has %d bytes, want the %d that were sent", len(got), len(text))
	}
	if bytes, n := s.Usage(); bytes != int64(len(text)) || n != 1 {
		t.Errorf("Usage: %d bytes in %d streams, want %d in 1", bytes, n, len(text))
	}
}

// TestManyStreams writes 500 streams at once with few files open, and reads them.
func TestManyStreams(t *testing.T) {
	const files = 16
	s := open(t, Config{Dir: t.TempDir(), OpenFiles: files})
	var wg sync.WaitGroup
	for n := range 500 {
		wg.Go(func() {
			k := key(n, Output)
			for i := range 2 {
				if _, err := s.Append(t.Context(), k, int64(i), []byte{'x'}); err != nil {
					t.Errorf("Append to stream %d: %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(s.files.byPath); got > files {
		t.Errorf("%d files are open when idle, want at most %d", got, files)
	}
	for n := range 500 {
		if got := content(t, s, key(n, Output)); got != "xx" {
			t.Errorf("stream %d: %q, want %q", n, got, "xx")
		}
	}
}

func TestDeleteDuringAppends(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 30 {
				end, _ := s.Size(k)
				_, err := s.Append(t.Context(), k, end, []byte("x"))
				if err != nil && !errors.Is(err, fleet.SpoolGap) {
					t.Errorf("Append at %d: %v", end, err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 30 {
			if err := s.Delete(k.Job); err != nil {
				t.Errorf("Delete: %v", err)
			}
		}
	})
	wg.Wait()
	end, _ := s.Size(k)
	if got := content(t, s, k); int64(len(got)) != end {
		t.Errorf("stream has %d bytes, Size says %d", len(got), end)
	}
	if bytes, _ := s.Usage(); bytes != end {
		t.Errorf("Usage: %d bytes, want %d", bytes, end)
	}
}

// TestWhyItWasGivenUp: who bounds a call with a reason of its own is given that reason, and
// not that some deadline passed.
func TestWhyItWasGivenUp(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "abc")
	why := errors.New("no majority")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, why)
	defer cancel()
	<-ctx.Done()
	if _, err := s.Append(ctx, k, 3, []byte("d")); !errors.Is(err, why) {
		t.Errorf("Append: %v, want %v", err, why)
	}
	if err := s.Seal(ctx, k, 3, digest("abc")); !errors.Is(err, why) {
		t.Errorf("Seal: %v, want %v", err, why)
	}
}
