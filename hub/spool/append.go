package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"tugline.dev/tugline/hub/durable"
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
	if err := k.check(); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, fmt.Errorf("append to %s at %d: %w", k, offset, fleet.BadRequest)
	}
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	if st, _ := s.find(k); st == nil && (offset > 0 || len(data) == 0) {
		// Not worth making a stream for.
		if offset > 0 {
			return 0, &GapError{Key: k, Offset: offset}
		}
		return 0, nil
	}
	if err := s.room(); err != nil {
		size, _ := s.Size(k)
		return size, fmt.Errorf("append to %s: %w", k, err)
	}
	for {
		st := s.obtain(k)
		size, err = s.appendTo(ctx, st, offset, data)
		if !errors.Is(err, errGone) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("append to %s: %w", k, durable.Coded(err))
	}
	return size, err
}

// errGone says that the stream was deleted after it was looked up.
var errGone = errors.New("stream is deleted")

func (s *Store) appendTo(ctx context.Context, st *stream, offset int64, data []byte) (int64, error) {
	h, losses, err := s.write(ctx, st, offset, data)
	if h != nil {
		// Kept open until the sync, which would else not hear of a write-back
		// that failed in between.
		defer s.files.release(h)
	}
	if err == nil {
		err = s.commit(st, h, offset+int64(len(data)), losses)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.durable, err
}

// write puts the part of data that is new into the file. It returns the open
// file and how often the stream had lost bytes by then.
func (s *Store) write(ctx context.Context, st *stream, offset int64, data []byte) (*handle, int, error) {
	st.write.Lock()
	defer st.write.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	last := offset + int64(len(data))
	switch {
	case st.gone:
		return nil, 0, errGone
	case offset > st.end:
		return nil, 0, st.gap(offset)
	case st.seal != nil && last > st.end:
		return nil, 0, fmt.Errorf("%d bytes after the end at %d: %w", last-st.end, st.end, fleet.LogSealed)
	case last > s.max:
		return nil, 0, fmt.Errorf("%d bytes at %d, where %d is the most: %w", len(data), offset, s.max, fleet.TooLarge)
	}
	h, err := s.openFor(st)
	if err != nil {
		return nil, 0, err
	}
	if err := st.mend(h); err != nil {
		return h, 0, err
	}
	again := min(st.end-offset, int64(len(data)))
	equal, err := sameBytes(h, data[:again], offset)
	switch {
	case err != nil:
		return h, 0, err
	case !equal && st.seal != nil:
		return h, 0, fmt.Errorf("%d other bytes at %d: %w", again, offset, fleet.LogSealed)
	case !equal:
		return h, 0, fmt.Errorf("%d bytes at %d differ from what is stored: %w", again, offset, fleet.SpoolMismatch)
	}
	if fresh := data[again:]; len(fresh) > 0 {
		_, err = h.WriteAt(fresh, st.end)
	}
	st.mu.Lock()
	if err == nil {
		st.end = max(st.end, last)
	} else {
		st.torn = true
	}
	losses := st.losses
	st.mu.Unlock()
	if err != nil {
		st.mend(h) // the next append tries again before it writes
	}
	return h, losses, err
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
