package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// maxChunk bounds the bytes of one Append.
const maxChunk = 256 << 10

// source gives a stream by offset, also again from an earlier one.
type source interface {
	// next gives bytes at an offset, at most maxChunk. None and done say that the
	// stream ends there; none alone, that more may come.
	next(off int64) (data []byte, done bool, err error)
}

// send brings one stream to the hub, whatever happens to the connection. fresh says
// that the hub can't hold anything of it yet.
func (a *Attempt) send(ctx context.Context, s Stream, f *feed, src source, fresh bool) {
	var off int64
	data, done := []byte(nil), false
	var err error
	for first := !fresh; ; first = false {
		_, _, _, grown := f.at()
		if !first {
			if data, done, err = src.next(off); err != nil {
				a.log.Error("recorded stream could not be read", "stream", string(s), "err", err)
				f.incomplete(string(s), err)
				return
			}
			if len(data) == 0 {
				if done {
					return
				}
				select {
				case <-grown:
				case <-ctx.Done():
					return
				}
				continue
			}
		}
		durable, err := a.host.Hub.Append(ctx, a.asg.Job, a.asg.Fence, s, off, data)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, fleet.LogSealed):
			return
		case err != nil && !errors.Is(err, fleet.SpoolGap):
			a.log.Warn("hub takes no more of the stream", "stream", string(s), "offset", off, "err", err)
			f.incomplete(string(s), err)
			return
		}
		off = durable
		if s == Output {
			a.mu.Lock()
			a.sent = off
			a.mu.Unlock()
		}
	}
}

// outputSource gives the frames of the spool, masked.
type outputSource struct {
	feed *feed

	masked frameMask
	read   int64  // offset in the spool up to which it was masked
	ready  []byte // masked bytes; base is the offset of the first
	base   int64
	ended  bool
}

func (o *outputSource) next(off int64) ([]byte, bool, error) {
	length, _, final, _ := o.feed.at()
	if o.feed.mask.empty() {
		data, err := readAt(o.feed.spool, off, length)
		return data, final && off >= length, err
	}
	if off < o.base || o.masked.mask.empty() {
		*o = outputSource{feed: o.feed, masked: frameMask{mask: o.feed.mask}}
	}
	for {
		if skip := min(off-o.base, int64(len(o.ready))); skip > 0 {
			o.ready, o.base = o.ready[skip:], o.base+skip
		}
		if len(o.ready) > 0 && o.base == off {
			return o.ready[:min(maxChunk, len(o.ready))], false, nil
		}
		if o.ended {
			return nil, true, nil
		}
		raw, err := readAt(o.feed.spool, o.read, length)
		if err != nil {
			return nil, false, err
		}
		if len(raw) == 0 && !final {
			return nil, false, nil
		}
		if err := o.masked.write(raw); err != nil {
			return nil, false, err
		}
		o.read += int64(len(raw))
		o.ended = final && o.read >= length
		o.ready = append(o.ready[:len(o.ready):len(o.ready)], o.masked.take(o.ended)...)
	}
}

// eventsSource gives the events file.
type eventsSource struct {
	feed *feed
	path string
	file *os.File
}

func (e *eventsSource) next(off int64) ([]byte, bool, error) {
	_, length, final, _ := e.feed.at()
	if off >= length {
		return nil, final, nil
	}
	if e.file == nil {
		f, err := os.Open(e.path)
		if err != nil {
			return nil, false, fmt.Errorf("read events: %w", err)
		}
		e.file = f
	}
	data, err := readAt(e.file, off, length)
	return data, false, err
}

func (e *eventsSource) close() {
	if e.file != nil {
		_ = e.file.Close()
	}
}

func readAt(r io.ReaderAt, off, length int64) ([]byte, error) {
	n := min(int64(maxChunk), length-off)
	if n <= 0 {
		return nil, nil
	}
	b := make([]byte, n)
	got, err := r.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read at %d: %w", off, err)
	}
	return b[:got], nil
}

// wait records why the process waits on its provider; a change is told at once. An
// attempt that was found again tells in any case: what the hub knows may be old.
func (a *Attempt) wait(reason string, _ time.Time) {
	a.mu.Lock()
	changed := a.waiting != reason || a.resumed && !a.waitTold
	a.waiting, a.waitTold = reason, true
	a.mu.Unlock()
	if changed {
		a.fact("detail", reason)
		a.host.Hub.Changed()
	}
}
