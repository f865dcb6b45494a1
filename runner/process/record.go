package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// freeCheckEvery bounds the time, and freeCheckBytes the output, between two looks at the free disk space.
	freeCheckEvery = time.Second
	freeCheckBytes = 1 << 20
	// markRoom is kept apart from the bound on the stream for the marks that say what is missing.
	markRoom = 1 << 20
)

// segmentName is the name of the spool's file that begins at an offset of the stream. The next segment's name
// follows from the length of this one.
func segmentName(offset int64) string { return fmt.Sprintf("spool-%016d.seg", offset) }

// A recorder appends a job's output to the spool. It never fails: what can't be written is dropped and counted.
type recorder struct {
	dir          string
	segmentBytes int64
	outputCap    int64
	minFree      int64

	mu      sync.Mutex
	f       *os.File
	full    []*os.File // segments to sync and close
	begin   int64      // offset of the current segment
	size    int64      // length of the stream
	kept    int64      // output bytes recorded
	dropped int64      // output bytes not recorded
	gap     string     // why output is dropped now; "" while it is recorded
	// owed is the rest of a frame of which only the beginning could be written. It goes first once there is room:
	// bytes that a reader has seen must never change.
	owed       []byte
	owedOutput int64
	failed     error // the first failure
	dirty      bool
	newSegment bool
	low        bool // the last look at the free space
	checked    time.Time
	sinceCheck int64
}

// add records one piece of output. buf is room for a frame header and the payload after it.
func (r *recorder) add(kind fleet.FrameKind, buf []byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := int64(len(buf) - fleet.FrameHeaderSize)
	room := r.outputCap - r.kept
	// Tiny pieces cost a header each; the second bound keeps the stream from outgrowing the cap by much.
	if r.size > 2*r.outputCap+markRoom {
		room = 0
	}
	switch {
	case r.gap == fleet.MarkOutputCap:
		r.dropped += n
		return
	case room <= 0:
		r.drop(n, fleet.MarkOutputCap, at)
		return
	case !r.settle():
		r.drop(n, fleet.MarkWriteError, at)
		return
	case r.diskLow(n, at):
		r.drop(n, fleet.MarkDiskLow, at)
		return
	}
	if r.gap != "" && !r.resume(at) {
		r.drop(n, fleet.MarkWriteError, at)
		return
	}
	keep := min(n, room)
	fleet.PutFrameHeader(buf, kind, int(keep), at.UnixMilli())
	if !r.write(buf[:fleet.FrameHeaderSize+keep], keep) {
		r.drop(n, fleet.MarkWriteError, at)
		return
	}
	r.kept += keep
	if keep < n {
		r.drop(n-keep, fleet.MarkOutputCap, at)
	}
}

// drop counts output that is not recorded and marks where that begins.
func (r *recorder) drop(n int64, why string, at time.Time) {
	if r.gap != why {
		r.gap = why
		r.mark(why, at)
	}
	r.dropped += n
}

// resume marks the end of a gap.
func (r *recorder) resume(at time.Time) bool {
	if !r.mark(fleet.MarkResumed, at) {
		return false
	}
	r.gap = ""
	return true
}

func (r *recorder) mark(reason string, at time.Time) bool {
	frame := fleet.MarkAt(at.UnixMilli(), fleet.Mark{DroppedBytes: r.dropped, Reason: reason})
	return r.settle() && r.write(fleet.AppendFrame(nil, frame), 0)
}

// settle writes what is owed of an incomplete frame.
func (r *recorder) settle() bool {
	if len(r.owed) == 0 {
		return true
	}
	n, err := r.f.Write(r.owed)
	r.size += int64(n)
	r.owed = r.owed[n:]
	r.note(err)
	if len(r.owed) == 0 {
		r.owedOutput = 0
	}
	return len(r.owed) == 0
}

// write appends one frame of so many output bytes; false says that nothing of it was written. A frame of which a part
// was written counts as written, its rest is owed.
func (r *recorder) write(frame []byte, output int64) bool {
	if r.f == nil || (r.size > r.begin && r.size-r.begin+int64(len(frame)) > r.segmentBytes) {
		f, err := os.OpenFile(filepath.Join(r.dir, segmentName(r.size)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			r.note(err)
			return false
		}
		if r.f != nil {
			r.full = append(r.full, r.f)
		}
		r.f, r.begin, r.newSegment = f, r.size, true
	}
	n, err := r.f.Write(frame)
	r.size += int64(n)
	r.dirty = true
	r.note(err)
	if n == 0 {
		return false
	}
	if n < len(frame) {
		r.owed, r.owedOutput = append(r.owed[:0], frame[n:]...), output
	}
	return true
}

func (r *recorder) note(err error) {
	if err != nil && r.failed == nil {
		r.failed = err
	}
}

// diskLow says whether the spool's file system has less than the wanted free space.
func (r *recorder) diskLow(n int64, now time.Time) bool {
	if r.minFree == 0 {
		return false
	}
	r.sinceCheck += n
	if r.sinceCheck >= freeCheckBytes || now.Sub(r.checked) >= freeCheckEvery {
		var st unix.Statfs_t
		if err := unix.Statfs(r.dir, &st); err == nil {
			r.low = int64(st.Bavail)*int64(st.Bsize) < r.minFree
		}
		r.checked, r.sinceCheck = now, 0
	}
	return r.low
}

// sync makes durable what was written before the call. One goroutine at a time calls it.
func (r *recorder) sync() {
	r.mu.Lock()
	f, full, dirty, fresh := r.f, r.full, r.dirty, r.newSegment
	r.full, r.dirty, r.newSegment = nil, false, false
	r.mu.Unlock()
	var errs []error
	for _, old := range full {
		errs = append(errs, old.Sync(), old.Close())
	}
	if dirty {
		errs = append(errs, f.Sync())
	}
	if fresh {
		errs = append(errs, syncDir(r.dir))
	}
	r.mu.Lock()
	r.note(errors.Join(errs...))
	r.mu.Unlock()
}

// finish writes the last mark if output is missing, and syncs. Nobody adds or syncs any more. It gives the first
// failure of the whole recording.
func (r *recorder) finish(at time.Time) error {
	if !r.settle() {
		r.kept -= r.owedOutput
		r.dropped += r.owedOutput
	} else if r.dropped > 0 {
		r.mark(fleet.MarkEnd, at)
	}
	r.sync()
	if r.f != nil {
		r.note(r.f.Close())
		r.f = nil
	}
	return r.failed
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
