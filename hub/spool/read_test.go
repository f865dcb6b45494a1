package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

func TestReadAt(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "abcdef")
	tests := []struct {
		off  int64
		size int
		want string
		err  error
	}{
		{0, 6, "abcdef", nil},
		{2, 3, "cde", nil},
		{4, 5, "ef", io.EOF},
		{6, 1, "", io.EOF},
		{100, 1, "", io.EOF},
		{-1, 1, "", fleet.BadRequest},
	}
	for _, tt := range tests {
		buf := make([]byte, tt.size)
		n, err := s.ReadAt(k, buf, tt.off)
		if string(buf[:n]) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("ReadAt(%d bytes, %d): %q, %v, want %q, %v", tt.size, tt.off, buf[:n], err, tt.want, tt.err)
		}
	}
}

// TestReadDamaged takes bytes away behind the store's back: a reader must not take
// that for the end.
func TestReadDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	short, removed := key(0, Output), key(1, Output)
	for _, k := range []Key{short, removed} {
		mustAppend(t, s, k, 0, "abcdef")
		s.files.drop(k.path(dir))
	}
	if err := os.Truncate(short.path(dir), 3); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(removed.path(dir)); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[Key]error{short: io.ErrUnexpectedEOF, removed: os.ErrNotExist} {
		if _, err := s.ReadAt(k, make([]byte, 6), 0); !errors.Is(err, want) {
			t.Errorf("ReadAt(%s): %v, want %v", k, err, want)
		}
		r, err := s.Reader(t.Context(), k, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); !errors.Is(err, want) {
			t.Errorf("read of %s: %v, want %v", k, err, want)
		}
		r.Close()
	}
}

// TestFollow has readers follow a stream from before it exists to its seal, from
// different offsets, while one of them never reads.
func TestFollow(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), OpenFiles: 1})
	k := key(0, Output)
	text := bytes.Repeat([]byte("a line of output\n"), 50)
	idle, err := s.Reader(t.Context(), k, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	var wg sync.WaitGroup
	for _, from := range []int{0, 1, 100, len(text), len(text) + 5} {
		r, err := s.Reader(t.Context(), k, int64(from), true)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer r.Close()
			got, err := io.ReadAll(r)
			if want := text[min(from, len(text)):]; err != nil || !bytes.Equal(got, want) {
				t.Errorf("follow from %d: %d bytes, %v, want %d", from, len(got), err, len(want))
			}
		})
	}
	for at := 0; at < len(text); at += 17 {
		mustAppend(t, s, k, int64(at), string(text[at:at+17]))
	}
	if err := s.Seal(t.Context(), k, int64(len(text)), ""); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestFollowEnds(t *testing.T) {
	cause := errors.New("the page was closed")
	tests := []struct {
		name string
		end  func(s *Store, r io.Closer, cancel context.CancelCauseFunc) error
		want error
	}{
		{"context", func(_ *Store, _ io.Closer, cancel context.CancelCauseFunc) error { cancel(cause); return nil }, cause},
		{"reader closed", func(_ *Store, r io.Closer, _ context.CancelCauseFunc) error { return r.Close() }, errReaderClosed},
		{"store closed", func(s *Store, _ io.Closer, _ context.CancelCauseFunc) error { return s.Close() }, fleet.Unavailable},
		{"deleted", func(s *Store, _ io.Closer, _ context.CancelCauseFunc) error { return s.Delete("job0") }, fleet.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, Config{Dir: t.TempDir()})
			k := key(0, Output)
			mustAppend(t, s, k, 0, "x")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r, err := s.Reader(ctx, k, 1, true)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				_, err := r.Read(make([]byte, 1))
				got <- err
			}()
			awaitFollower(t, s, k)
			if err := tt.end(s, r, cancel); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-got:
				if !errors.Is(err, tt.want) {
					t.Errorf("Read: %v, want %v", err, tt.want)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("Read still waits")
			}
			r.Close()
		})
	}
}

// awaitFollower returns when a reader waits for the stream to grow.
func awaitFollower(t *testing.T, s *Store, k Key) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		st, _ := s.find(k)
		st.mu.Lock()
		waits := st.grown != nil
		st.mu.Unlock()
		if waits {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no reader waits")
		}
	}
}

// TestReadersSeeOnlyDurableBytes holds a sync back and looks at the stream.
func TestReadersSeeOnlyDurableBytes(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	k := key(0, Output)
	syncing, goOn := make(chan struct{}), make(chan struct{})
	s.files.open = func(path string, flag int) (file, error) {
		f, err := durable.Open(path, flag)
		return &slowSync{file: f, syncing: syncing, goOn: goOn}, err
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Append(t.Context(), k, 0, []byte("abc"))
		done <- err
	}()
	<-syncing
	if size, _ := s.Size(k); size != 0 {
		t.Errorf("Size during the sync: %d, want 0", size)
	}
	if got := content(t, s, k); got != "" {
		t.Errorf("content during the sync: %q, want none", got)
	}
	var gap *GapError
	if _, err := s.Append(t.Context(), k, 9, []byte("x")); !errors.As(err, &gap) || gap.Want != 0 {
		t.Errorf("Append after a gap during the sync: %v, want a gap that wants 0", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := content(t, s, k); got != "abc" {
		t.Errorf("content after the sync: %q, want %q", got, "abc")
	}
}

type slowSync struct {
	file
	syncing, goOn chan struct{}
}

func (f *slowSync) Sync() error {
	f.syncing <- struct{}{}
	<-f.goOn
	return f.file.Sync()
}

// TestSealedEmpty: a follower of a stream that was never written hears of its end,
// the stream takes no more bytes, and nothing of it is on disk.
func TestSealedEmpty(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	k := key(0, Output)
	r, err := s.Reader(t.Context(), k, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		end <- err
	}()
	for range 2 {
		if err := s.SealEmpty(k); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-end; err != io.EOF {
		t.Errorf("the follower got %v, want the end", err)
	}
	if size, sealed := s.Size(k); size != 0 || !sealed {
		t.Errorf("Size: %d, %t, want 0, true", size, sealed)
	}
	if _, err := s.Append(t.Context(), k, 0, []byte("x")); !errors.Is(err, fleet.LogSealed) {
		t.Errorf("Append: %v, want %v", err, fleet.LogSealed)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("on disk: %v, %v", left, err)
	}
	if err := s.Seal(t.Context(), k, 0, ""); err != nil {
		t.Errorf("sealed for good: %v", err)
	}
	s.Close()
	s = open(t, Config{Dir: dir})
	if _, sealed := s.Size(k); !sealed {
		t.Error("a seal for good is gone after reopening")
	}
	full := key(1, Output)
	mustAppend(t, s, full, 0, "x")
	if err := s.SealEmpty(full); !errors.Is(err, fleet.SpoolMismatch) {
		t.Errorf("SealEmpty of a stream with a byte: %v, want %v", err, fleet.SpoolMismatch)
	}
}
