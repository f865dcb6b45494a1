package spool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tugline.dev/tugline/shared/fleet"
)

// ReadAt reads durable bytes of the stream from off into p, as io.ReaderAt does:
// it returns io.EOF with fewer bytes than p holds. A stream that is not there is
// fleet.NotFound.
func (s *Store) ReadAt(k Key, p []byte, off int64) (int, error) {
	if err := k.check(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fmt.Errorf("read %s at %d: %w", k, off, fleet.BadRequest)
	}
	st, _ := s.find(k)
	if st == nil {
		return 0, notFound(k)
	}
	st.mu.Lock()
	size := st.durable
	st.mu.Unlock()
	if off >= size {
		return 0, io.EOF
	}
	short := int64(len(p)) > size-off
	if short {
		p = p[:size-off]
	}
	n, err := s.readAt(st, p, off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// readAt fills p, all of which is known to be durable.
func (s *Store) readAt(st *stream, p []byte, off int64) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	h, err := s.files.acquire(st.key.path(s.dir), false)
	if err != nil {
		if _, here := st.info(); !here {
			return 0, notFound(st.key)
		}
		return 0, fmt.Errorf("read %s: %w", st.key, err)
	}
	defer s.files.release(h)
	n, err := h.ReadAt(p, off)
	switch {
	case n == len(p):
		return n, nil
	case err == io.EOF:
		// The file is shorter than what was acknowledged; an end would hide it.
		err = io.ErrUnexpectedEOF
	}
	return n, fmt.Errorf("read %s at %d: %w", st.key, off, err)
}

// Reader returns a reader of the stream from offset from on. Without follow it
// ends at what is durable when it gets there; with follow it then waits for more,
// also for a stream that does not exist yet, until the stream is sealed (io.EOF),
// ctx ends (its cause), the stream is deleted (fleet.NotFound), the store is
// closed (fleet.Unavailable), or the reader is. It is for one goroutine, save for
// Close. A slow reader holds nobody up and keeps no file open between reads.
func (s *Store) Reader(ctx context.Context, k Key, from int64, follow bool) (io.ReadCloser, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	if from < 0 {
		return nil, fmt.Errorf("read %s from %d: %w", k, from, fleet.BadRequest)
	}
	r := &reader{store: s, key: k, next: from, follow: follow}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r, nil
}

// reader keeps its context because io.Reader has no room for one.
type reader struct {
	store  *Store
	key    Key
	next   int64 // offset of the byte to read
	follow bool
	stream *stream // once it was found
	ctx    context.Context
	cancel context.CancelCauseFunc
}

var errReaderClosed = errors.New("reader is closed")

// Close ends a Read that waits, and all later ones.
func (r *reader) Close() error {
	r.cancel(errReaderClosed)
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.ctx.Err() != nil {
			return 0, context.Cause(r.ctx)
		}
		ready, change, err := r.look(len(p))
		if err != nil {
			return 0, err
		}
		if ready > 0 || len(p) == 0 {
			n, err := r.store.readAt(r.stream, p[:ready], r.next)
			r.next += int64(n)
			return n, err
		}
		select {
		case <-change:
		case <-r.ctx.Done():
		case <-r.store.done:
			return 0, fmt.Errorf("read %s: spool is closed: %w", r.key, fleet.Unavailable)
		}
	}
}

// look says how many of the wanted bytes can be read now; if none, what to wait
// for, or that the end is reached.
func (r *reader) look(want int) (ready int, change <-chan struct{}, err error) {
	if r.stream == nil {
		st, born := r.store.find(r.key)
		if st == nil && r.follow {
			return 0, born, nil
		}
		if st == nil {
			return 0, nil, io.EOF
		}
		r.stream = st
	}
	st := r.stream
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.gone:
		return 0, nil, notFound(r.key)
	case r.next < st.durable:
		return int(min(int64(want), st.durable-r.next)), nil, nil
	case !r.follow || st.seal != nil:
		return 0, nil, io.EOF
	}
	if st.grown == nil {
		st.grown = make(chan struct{})
	}
	return 0, st.grown, nil
}

func notFound(k Key) error { return fmt.Errorf("stream %s: %w", k, fleet.NotFound) }
