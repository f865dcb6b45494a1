package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// The time between two looks for new output grows with the silence, between these bounds.
	minPoll = time.Millisecond
	maxPoll = 50 * time.Millisecond
)

// A Spool reads a job's recorded output, also while the supervisor writes it: one stream of log frames, addressed by byte
// offset over all segments. Its bytes never change once they are there. It may be used from several goroutines.
type Spool struct {
	dir string

	mu       sync.Mutex
	segments []segment // all but the last are complete
	open     *os.File  // one segment is kept open
	openAt   int
	closed   bool
}

type segment struct{ begin, size int64 }

// OpenSpool opens the recorded output in a job's directory, which may have none yet.
func OpenSpool(dir string) (*Spool, error) {
	s := &Spool{dir: dir}
	if _, err := s.Size(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close lets go of the files. It is idempotent; reading after it fails with fs.ErrClosed.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.open == nil {
		return nil
	}
	f := s.open
	s.open = nil
	return f.Close()
}

// Size is the length of the stream now, in bytes. The last frame may be incomplete: its rest follows, or never will
// if the supervisor was killed.
func (s *Spool) Size() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grow()
}

// grow brings the list of segments up to date.
func (s *Spool) grow() (int64, error) {
	if s.closed {
		return 0, fmt.Errorf("spool %s: %w", s.dir, fs.ErrClosed)
	}
	for {
		begin, last := int64(0), len(s.segments)-1
		if last >= 0 {
			st, err := os.Stat(s.path(last))
			if err != nil {
				return 0, fmt.Errorf("spool: %w", err)
			}
			s.segments[last].size = st.Size()
			begin = s.segments[last].begin + st.Size()
			if st.Size() == 0 {
				return begin, nil // its own name is that of the next one
			}
		}
		// A segment is never written to once the next one exists, but it may have grown between the two looks;
		// then the name looked for here does not exist and the next round sees both.
		if _, err := os.Stat(filepath.Join(s.dir, segmentName(begin))); errors.Is(err, fs.ErrNotExist) {
			return begin, nil
		} else if err != nil {
			return 0, fmt.Errorf("spool: %w", err)
		}
		s.segments = append(s.segments, segment{begin: begin})
	}
}

func (s *Spool) path(i int) string {
	return filepath.Join(s.dir, segmentName(s.segments[i].begin))
}

// ReadAt reads from an offset of the stream, over the borders of segments. Like every io.ReaderAt it gives io.EOF
// where the stream ends for now.
func (s *Spool) ReadAt(p []byte, off int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("spool: negative offset %d", off)
	}
	size, err := s.grow()
	if err != nil {
		return 0, err
	}
	for n < len(p) && off < size {
		i := s.segmentOf(off)
		if err := s.use(i); err != nil {
			return n, err
		}
		seg := s.segments[i]
		want := min(int64(len(p)-n), seg.begin+seg.size-off)
		m, err := s.open.ReadAt(p[n:n+int(want)], off-seg.begin)
		n, off = n+m, off+int64(m)
		if err != nil && int64(m) < want {
			return n, fmt.Errorf("spool: %w", err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// segmentOf finds the segment that holds an offset within the stream.
func (s *Spool) segmentOf(off int64) int {
	i := len(s.segments) - 1
	for i > 0 && s.segments[i].begin > off {
		i--
	}
	return i
}

func (s *Spool) use(i int) error {
	if s.open != nil && s.openAt == i {
		return nil
	}
	f, err := os.Open(s.path(i))
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if s.open != nil {
		_ = s.open.Close()
	}
	s.open, s.openAt = f, i
	return nil
}

// Wait blocks until the stream is longer than off and gives its length. The error is io.EOF when the job has its
// exit record, so that nothing more will come, or the context's. A job whose supervisor was killed gets no exit record:
// end the context when Attach or Wait says that it is gone.
func (s *Spool) Wait(ctx context.Context, off int64) (size int64, err error) {
	pause := minPoll
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		// The exit record comes after the last byte, so it must be looked for first.
		_, statErr := os.Stat(filepath.Join(s.dir, exitFile))
		size, err := s.Size()
		switch {
		case err != nil:
			return 0, err
		case size > off:
			return size, nil
		case statErr == nil:
			return size, io.EOF
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return size, contextError(ctx)
		case <-timer.C:
		}
		pause = min(pause+pause/4, maxPoll)
	}
}

// Tail gives the last bytes, at most limit, that the job wrote to one of its streams. It looks only at the end of the
// recorded output: the last two segments.
func (s *Spool) Tail(kind fleet.FrameKind, limit int) ([]byte, error) {
	size, err := s.Size()
	if err != nil || size == 0 || limit <= 0 {
		return nil, err
	}
	s.mu.Lock()
	// Frames never cross the border of segments, so every segment begins with one.
	begin := s.segments[max(0, len(s.segments)-2)].begin
	s.mu.Unlock()
	frames := fleet.NewFrameReader(io.NewSectionReader(s, begin, size-begin))
	var tail []byte
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return tail, nil
		}
		if err != nil {
			return tail, fmt.Errorf("spool: offset %d: %w", begin+frames.Offset(), err)
		}
		if f.Kind != kind {
			continue
		}
		tail = append(tail, f.Payload...)
		if over := len(tail) - limit; over > 0 {
			tail = append(tail[:0], tail[over:]...)
		}
	}
}
