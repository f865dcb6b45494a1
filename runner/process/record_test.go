package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// put records one piece of output.
func put(r *recorder, kind fleet.FrameKind, text string) {
	r.add(kind, append(make([]byte, fleet.FrameHeaderSize), text...), time.UnixMilli(1))
}

func newRecorder(dir string) *recorder {
	return &recorder{dir: dir, segmentBytes: minSegmentBytes, outputCap: 8 << 20}
}

func TestFloodIsCappedAndCounted(t *testing.T) {
	l := playOf(t, "flood", "300")
	l.OutputCap, l.SegmentBytes = 5<<20, 1<<20
	dir, e := run(t, l)
	o := outputOf(t, dir)
	if e.Code != 0 || e.Bytes != 5<<20 || e.DroppedBytes != 295<<20 || e.Detail != "" {
		t.Errorf("got %+v, want 5 MiB recorded and 295 MiB dropped", e)
	}
	if want := strings.Repeat("0123456789abcde\n", 5<<16); o.stdout != want {
		t.Errorf("the recorded %d bytes are not the first %d", len(o.stdout), len(want))
	}
	want := []fleet.Mark{{Reason: fleet.MarkOutputCap, DroppedBytes: o.marks[0].DroppedBytes}, {Reason: fleet.MarkEnd, DroppedBytes: 295 << 20}}
	if diff := cmp.Diff(want, o.marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "spool-*.seg"))
	if err != nil || len(segments) < 5 {
		t.Errorf("got %d segments, %v", len(segments), err)
	}
	for _, s := range segments {
		if st, err := os.Stat(s); err != nil || st.Size() > l.SegmentBytes {
			t.Errorf("segment %s: %d bytes, %v", s, st.Size(), err)
		}
	}
}

func TestLowDiskDropsAndResumes(t *testing.T) {
	l := launchOf(newMarker(t), "echo", "hello")
	l.MinFreeBytes = 1 << 60
	dir, e := run(t, l)
	o := outputOf(t, dir)
	if e.Code != 0 || e.DroppedBytes != 6 || e.Bytes != 0 || o.stdout != "" {
		t.Errorf("got %+v and %q", e, o.stdout)
	}
	if want := []fleet.Mark{{Reason: fleet.MarkDiskLow}, {Reason: fleet.MarkEnd, DroppedBytes: 6}}; !cmp.Equal(want, o.marks) {
		t.Errorf("marks: got %+v, want %+v", o.marks, want)
	}

	dir = t.TempDir()
	r := newRecorder(dir)
	put(r, fleet.FrameStdout, "before ")
	r.minFree = 1 << 60
	put(r, fleet.FrameStdout, "lost")
	put(r, fleet.FrameStdout, "lost too")
	r.minFree, r.low = 1, false
	put(r, fleet.FrameStdout, "after")
	if err := r.finish(time.UnixMilli(2)); err != nil {
		t.Fatal(err)
	}
	o = outputOf(t, dir)
	want := []fleet.Mark{{Reason: fleet.MarkDiskLow}, {Reason: fleet.MarkResumed, DroppedBytes: 12}, {Reason: fleet.MarkEnd, DroppedBytes: 12}}
	if o.stdout != "before after" || !cmp.Equal(want, o.marks) {
		t.Errorf("got %q, marks %+v, want %+v", o.stdout, o.marks, want)
	}
}

// When the disk is full in the middle of a frame the rest of it is written first once there is room: what a reader
// has seen never changes.
func TestFullDiskTearsNoFrame(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(old.Cur)
	for _, healed := range []bool{true, false} {
		dir := t.TempDir()
		r := newRecorder(dir)
		put(r, fleet.FrameStdout, "first ")
		limit(uint64(r.size) + 20)
		put(r, fleet.FrameStdout, "torn but mended ")
		put(r, fleet.FrameStderr, "lost")
		if healed {
			limit(old.Cur)
			put(r, fleet.FrameStdout, "last")
		}
		err := r.finish(time.UnixMilli(2))
		limit(old.Cur)
		if !errors.Is(err, syscall.EFBIG) {
			t.Errorf("finish: got %v, want the first failure", err)
		}
		if healed {
			o := outputOf(t, dir)
			want := []fleet.Mark{{Reason: fleet.MarkResumed, DroppedBytes: 4}, {Reason: fleet.MarkEnd, DroppedBytes: 4}}
			if o.stdout != "first torn but mended last" || o.stderr != "" || !cmp.Equal(want, o.marks) || r.kept != 26 || r.dropped != 4 {
				t.Errorf("got %q, marks %+v, kept %d, dropped %d", o.stdout, o.marks, r.kept, r.dropped)
			}
			continue
		}
		s, err := OpenSpool(dir)
		if err != nil {
			t.Fatal(err)
		}
		tail, err := s.Tail(fleet.FrameStdout, 100)
		if string(tail) != "first " || err != nil || r.kept != 6 || r.dropped != 20 {
			t.Errorf("not healed: got %q %v, kept %d, dropped %d", tail, err, r.kept, r.dropped)
		}
		s.Close()
	}
}

func TestTinyPiecesDontOutgrowTheCap(t *testing.T) {
	dir := t.TempDir()
	r := &recorder{dir: dir, segmentBytes: defaultSegmentBytes, outputCap: 1 << 20}
	for range 200_000 {
		put(r, fleet.FrameStdout, "x")
	}
	if err := r.finish(time.UnixMilli(2)); err != nil {
		t.Fatal(err)
	}
	if r.size > 2*r.outputCap+markRoom+1000 || r.kept+r.dropped != 200_000 {
		t.Errorf("stream of %d bytes, kept %d, dropped %d", r.size, r.kept, r.dropped)
	}
}

func TestStreamsAreRecordedSideBySide(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(dir)
	s, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	for kind, text := range map[fleet.FrameKind]string{fleet.FrameStdout: "out\n", fleet.FrameStderr: "error\n"} {
		writers.Go(func() {
			for range 2000 {
				put(r, kind, strings.Repeat(text, 50))
			}
		})
	}
	others.Go(func() { every(time.Millisecond, stop, r.sync) })
	others.Go(func() {
		every(time.Millisecond, stop, func() {
			if _, err := s.Tail(fleet.FrameStdout, 100); err != nil {
				t.Error(err)
			}
		})
	})
	writers.Wait()
	close(stop)
	others.Wait()
	if err := r.finish(time.UnixMilli(2)); err != nil {
		t.Fatal(err)
	}
	o := outputOf(t, dir)
	if o.stdout != strings.Repeat("out\n", 100_000) || o.stderr != strings.Repeat("error\n", 100_000) || o.marks != nil {
		t.Errorf("got %d and %d bytes, marks %v", len(o.stdout), len(o.stderr), o.marks)
	}
}

// Whatever is recorded comes out again, at any offset and in any portion, while it grows.
func TestSpoolReadsWhatWasRecorded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		s, err := OpenSpool(dir)
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		r := newRecorder(dir)
		r.segmentBytes = int64(rapid.IntRange(1, 300).Draw(rt, "segment"))
		var want []byte
		for range rapid.IntRange(0, 20).Draw(rt, "pieces") {
			text := strings.Repeat("abc", rapid.IntRange(1, 60).Draw(rt, "length"))
			put(r, fleet.FrameStderr, text)
			want = fleet.AppendFrame(want, fleet.Frame{Kind: fleet.FrameStderr, At: 1, Payload: []byte(text)})
			if size, err := s.Size(); err != nil || size != int64(len(want)) {
				rt.Fatalf("size: got %d %v, want %d", size, err, len(want))
			}
			off := rapid.IntRange(0, len(want)).Draw(rt, "offset")
			p := make([]byte, rapid.IntRange(0, 400).Draw(rt, "portion"))
			n, err := s.ReadAt(p, int64(off))
			expect := want[off:min(off+len(p), len(want))]
			if !bytes.Equal(p[:n], expect) || (err == io.EOF) != (n < len(p)) || (err != nil && err != io.EOF) {
				rt.Fatalf("read %d at %d of %d: got %d bytes, %v", len(p), off, len(want), n, err)
			}
		}
		if err := r.finish(time.UnixMilli(2)); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestSpoolFollowsAJob(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	l := launchOf(newMarker(t), "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done; echo end")
	spawned(t, dir, l)
	s, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got bytes.Buffer
	var off int64
	for {
		size, err := s.Wait(t.Context(), off)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || size <= off {
			t.Fatalf("wait: got %d %v after %d", size, err, off)
		}
		if _, err := io.Copy(&got, io.NewSectionReader(s, off, size-off)); err != nil {
			t.Fatal(err)
		}
		off = size
	}
	e := ended(t, dir)
	if off != e.SpoolBytes || int64(got.Len()) != off {
		t.Errorf("followed %d bytes, copied %d, the exit record says %d", off, got.Len(), e.SpoolBytes)
	}
	if tail, err := s.Tail(fleet.FrameStdout, 6); err != nil || string(tail) != "3\nend\n" {
		t.Errorf("tail: got %q %v", tail, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Size(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after close: got %v", err)
	}
}

func TestWaitsEndWithTheContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	spawned(t, dir, launchOf(newMarker(t), "sleep", "60"))
	s, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("spool: got %v", err)
	}
	if st, err := Wait(ctx, dir); !errors.Is(err, context.DeadlineExceeded) || st.State != Running {
		t.Errorf("job: got %v %v", st.State, err)
	}
	if err := Stop(dir, "done"); err != nil {
		t.Fatal(err)
	}
	ended(t, dir)
}

// The exit record is written into the room taken at the start, and never seen half.
func TestExitRecordIsWhole(t *testing.T) {
	dir := t.TempDir()
	s := &supervisor{dir: dir}
	if err := s.reserve(); err != nil {
		t.Fatal(err)
	}
	if readExit(dir) != nil {
		t.Fatal("the reserved room is taken for a record")
	}
	want := Exit{Code: rand.IntN(200), Reason: ReasonExited, Detail: "näh"}
	if err := commitExit(dir, want); err != nil {
		t.Fatal(err)
	}
	if got := readExit(dir); got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, exitFile), bytes.Repeat([]byte{0}, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readExit(dir); got != nil {
		t.Errorf("a record of zero bytes was read as %+v", got)
	}
}
