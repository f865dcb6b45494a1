package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// GapError refuses bytes that do not join the end of a stream. errors.Is finds
// fleet.SpoolGap in it.
type GapError struct {
	Key    Key
	Offset int64 // what was offered
	Want   int64 // how many bytes are durable: what to send next
}

// Error says what is missing.
func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s has %d bytes, but %d was offered: send from there", e.Key, e.Want, e.Offset)
}

// Unwrap returns the code.
func (e *GapError) Unwrap() error { return fleet.SpoolGap }

// gap refuses offset. It wants what follows the durable bytes, which may be before
// the end: whoever is told so may take it for an acknowledgement.
func (st *stream) gap(offset int64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return &GapError{Key: st.key, Offset: offset, Want: st.durable}
}

// Append adds data at offset, which must be the stream's end or before it; the
// part before the end must be equal to what is stored. It returns, with or
// without an error, how many bytes of the stream are durable; without one, all of
// data is. The context counts until the first byte is written: from then on
// Append waits for the disk. Errors: fleet.SpoolGap (a *GapError),
// SpoolMismatch, LogSealed, TooLarge, DiskFull, BadRequest, Unavailable.
func (s *Store) Append(ctx context.Context, k Key, offset int64, data []byte) (size int64, err error) {
	for {
		p, err := s.Write(ctx, k, offset, data)
		if err == nil {
			size, err = p.Commit()
		} else {
			size, _ = s.Size(k)
		}
		if !errors.Is(err, errGone) {
			return size, err
		}
	}
}

// Pending is data that is in a stream's file and not known to be durable. Whoever
// has one calls Commit, and calls it once.
type Pending struct {
	End    int64 // of the stream with this data
	Start  int64 // where the stream ended before
	Losses int   // how often the stream had given up bytes by then; see ReadWritten

	store  *Store
	stream *stream
	handle *handle
	last   int64
}

// Write is the first half of Append: it puts data into the file. Errors are those
// of Append.
func (s *Store) Write(ctx context.Context, k Key, offset int64, data []byte) (*Pending, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("append to %s at %d: %w", k, offset, fleet.BadRequest)
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	p, err := s.begin(ctx, k, offset, data)
	if err != nil {
		s.leave()
		return nil, fmt.Errorf("append to %s: %w", k, s.coded(err))
	}
	return p, nil
}

func (s *Store) begin(ctx context.Context, k Key, offset int64, data []byte) (*Pending, error) {
	if st, _ := s.find(k); st == nil && (offset > 0 || len(data) == 0) {
		// Not worth making a stream for.
		if offset > 0 {
			return nil, &GapError{Key: k, Offset: offset}
		}
		return &Pending{store: s}, nil
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	for {
		p := &Pending{store: s, stream: s.obtain(k), last: offset + int64(len(data))}
		err := s.write(ctx, p, offset, data)
		if err == nil {
			return p, nil
		}
		if p.handle != nil {
			s.files.release(p.handle)
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
}

// Commit is the second half of Append: it returns when the data are durable.
func (p *Pending) Commit() (size int64, err error) {
	defer p.store.leave()
	if p.stream == nil {
		return 0, nil
	}
	// Kept open until the sync, which would else not hear of a write-back that
	// failed in between.
	defer p.store.files.release(p.handle)
	err = p.store.commit(p.stream, p.handle, p.last, p.Losses)
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("append to %s: %w", p.stream.key, p.store.coded(err))
	}
	return p.stream.durable, err
}

// errGone says that the stream was deleted after it was looked up.
var errGone = errors.New("stream is deleted")

// write puts the part of data that is new into the file, and fills in the rest of p.
func (s *Store) write(ctx context.Context, p *Pending, offset int64, data []byte) error {
	st, last := p.stream, p.last
	st.write.Lock()
	defer st.write.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case st.gone:
		return errGone
	case offset > st.end:
		return st.gap(offset)
	case st.seal != nil && last > st.end:
		return fmt.Errorf("%d bytes after the end at %d: %w", last-st.end, st.end, fleet.LogSealed)
	case last > s.max:
		return fmt.Errorf("%d bytes at %d, where %d is the most: %w", len(data), offset, s.max, fleet.TooLarge)
	}
	h, err := s.openFor(st)
	if err != nil {
		return err
	}
	p.handle = h
	if err := st.mend(h); err != nil {
		return err
	}
	again := min(st.end-offset, int64(len(data)))
	equal, err := sameBytes(h, data[:again], offset)
	switch {
	case err != nil:
		return err
	case !equal && st.seal != nil:
		return fmt.Errorf("%d other bytes at %d: %w", again, offset, fleet.LogSealed)
	case !equal:
		return fmt.Errorf("%d bytes at %d differ from what is stored: %w", again, offset, fleet.SpoolMismatch)
	}
	if fresh := data[again:]; len(fresh) > 0 {
		_, err = h.WriteAt(fresh, st.end)
	}
	st.mu.Lock()
	p.Start = st.end
	if err == nil {
		st.end = max(st.end, last)
	} else {
		st.torn = true
	}
	p.End, p.Losses = st.end, st.losses
	st.mu.Unlock()
	if err != nil {
		st.mend(h) // the next append tries again before it writes
	}
	return err
}

// commit returns when all bytes before last are durable. Whoever comes while a
// sync is running waits for the next one and shares it with all others who do.
func (s *Store) commit(st *stream, h *handle, last int64, losses int) error {
	st.sync.Lock()
	defer st.sync.Unlock()
	st.mu.Lock()
	lost := st.losses != losses
	cause := st.lost
	gone := st.gone
	settled := st.linked && st.durable >= last
	st.mu.Unlock()
	switch {
	case gone:
		return errGone
	case lost:
		return cause
	case settled:
		return nil
	}
	if err := s.flush(st, h); err != nil {
		st.write.Lock()
		defer st.write.Unlock()
		st.giveUp(h, err)
		return err
	}
	return nil
}

// sameBytes says whether want is what the file holds at offset.
func sameBytes(f file, want []byte, offset int64) (bool, error) {
	buf := make([]byte, min(len(want), 32<<10))
	for len(want) > 0 {
		part := buf[:min(len(buf), len(want))]
		if _, err := f.ReadAt(part, offset); err != nil {
			return false, err
		}
		if !bytes.Equal(part, want[:len(part)]) {
			return false, nil
		}
		want = want[len(part):]
		offset += int64(len(part))
	}
	return true, nil
}
