package spool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// Whoever keeps equal copies of streams on several nodes needs what follows: to
// list and compare streams, to hand on bytes before they are durable here, to take
// back what never counted, and to take a finished stream over whole.

// copySuffix ends the name of a stream that is being taken over.
const copySuffix = ".copy.tmp"

// Each calls f for every stream of which something is on disk, in no order, until
// f says stop. The store may be used meanwhile.
func (s *Store) Each(f func(Info) bool) {
	s.mu.RLock()
	all := make([]*stream, 0, len(s.jobs))
	for _, list := range s.jobs {
		all = append(all, list...)
	}
	s.mu.RUnlock()
	for _, st := range all {
		if info, ok := st.info(); ok && !f(info) {
			return
		}
	}
}

// Peek describes one stream; false if nothing of it is on disk.
func (s *Store) Peek(k Key) (Info, bool) {
	st, _ := s.find(k)
	if st == nil {
		return Info{Key: k}, false
	}
	return st.info()
}

// ReadWritten reads bytes that Write put into the file, durable or not. It fails
// with fleet.Conflict if the stream has given up bytes since it had done so losses
// times: then what stands there now may not be what Write put there. Bytes that
// are not written are io.ErrUnexpectedEOF.
func (s *Store) ReadWritten(k Key, p []byte, off int64, losses int) error {
	st, _ := s.find(k)
	if st == nil {
		return notFound(k)
	}
	n, err := s.readAt(st, p, off)
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.gone:
		return notFound(k)
	case st.losses != losses:
		return fmt.Errorf("read %s at %d: it gave up bytes: %w", k, off, fleet.Conflict)
	case off+int64(n) > st.end:
		return fmt.Errorf("read %s at %d: %w", k, off, io.ErrUnexpectedEOF)
	}
	return err
}

// Losses says how often the stream has given up bytes.
func (s *Store) Losses(k Key) int {
	st, _ := s.find(k)
	if st == nil {
		return 0
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.losses
}

// Sum gives the SHA-256 of the durable bytes from from up to to. Errors:
// fleet.SpoolGap if there are fewer, BadRequest, NotFound, the context's.
func (s *Store) Sum(ctx context.Context, k Key, from, to int64) (fleet.Digest, error) {
	if from < 0 || to < from {
		return "", fmt.Errorf("sum of %s from %d to %d: %w", k, from, to, fleet.BadRequest)
	}
	sum := sha256.New()
	buf := make([]byte, min(256<<10, max(to-from, 1)))
	for from < to {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		n, err := s.ReadAt(k, buf[:min(int64(len(buf)), to-from)], from)
		sum.Write(buf[:n])
		from += int64(n)
		if errors.Is(err, io.EOF) && from < to {
			err = &GapError{Key: k, Offset: to, Want: from}
		}
		if err != nil && from < to {
			return "", fmt.Errorf("sum of %s: %w", k, err)
		}
	}
	return fleet.Digest(hex.EncodeToString(sum.Sum(nil))), nil
}

// Cut takes back everything after the first size bytes, acknowledged or not, and
// the seal with it. Who calls it knows that nobody counts on those bytes. Errors:
// fleet.SpoolGap if there are fewer bytes, BadRequest, NotFound, Unavailable.
func (s *Store) Cut(k Key, size int64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	st, _ := s.find(k)
	if st == nil {
		return notFound(k)
	}
	st.sync.Lock()
	defer st.sync.Unlock()
	st.write.Lock()
	defer st.write.Unlock()
	if err := s.cut(st, size); err != nil {
		return fmt.Errorf("cut %s at %d: %w", k, size, s.coded(err))
	}
	return nil
}

var errCut = errors.New("the stream was cut meanwhile")

func (s *Store) cut(st *stream, size int64) error {
	switch {
	case st.gone || !st.exists:
		return notFound(st.key)
	case size < 0:
		return fleet.BadRequest
	case size > st.durable:
		return st.gap(size)
	}
	h, err := s.openFor(st)
	if err != nil {
		return err
	}
	defer s.files.release(h)
	if err := s.unseal(st); err != nil {
		return err
	}
	// Nobody reads what is about to go.
	st.mu.Lock()
	s.bytes.Add(size - st.durable)
	st.end, st.durable, st.torn = size, size, true
	st.lost = errCut
	st.losses++
	st.mu.Unlock()
	if err := st.mend(h); err != nil {
		return err
	}
	return h.Sync()
}

// unseal removes the marker for good; sync and write are held.
func (s *Store) unseal(st *stream) error {
	if st.seal == nil {
		return nil
	}
	path := st.key.path(s.dir) + sealSuffix
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	st.mu.Lock()
	st.seal = nil
	st.mu.Unlock()
	return nil
}

// Received is a finished stream that lies beside the stream that it is to replace.
// Whoever has one calls Place or Discard, and calls one of them once.
type Received struct {
	store  *Store
	key    Key
	tmp    string
	length int64
	digest fleet.Digest
}

// Receive takes a finished stream over: length bytes from r that have the digest. When
// it returns they are durable and verified, and nothing has changed yet. Errors:
// fleet.SpoolMismatch if r has other bytes, fewer or more; DiskFull, TooLarge,
// BadRequest, Unavailable, the context's, and what r fails with.
func (s *Store) Receive(ctx context.Context, k Key, length int64, digest fleet.Digest, r io.Reader) (*Received, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	switch {
	case length < 1 || !digest.Valid():
		return nil, fmt.Errorf("take over %s with %d bytes and digest %q: %w", k, length, digest, fleet.BadRequest)
	case length > s.max:
		return nil, fmt.Errorf("take over %s with %d bytes, where %d is the most: %w", k, length, s.max, fleet.TooLarge)
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	c := &Received{store: s, key: k, length: length, digest: digest}
	err := s.room()
	if err == nil {
		err = c.receive(ctx, r)
	}
	if err != nil {
		s.leave()
		return nil, fmt.Errorf("take over %s: %w", k, s.coded(err))
	}
	return c, nil
}

func (c *Received) receive(ctx context.Context, r io.Reader) error {
	s, path := c.store, c.key.path(c.store.dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	c.tmp = path + "." + rand.Text() + copySuffix
	f, err := s.files.open(c.tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if err = errors.Join(durable.Fill(ctx, f, c.digest, c.length, r, fleet.SpoolMismatch), f.Close()); err != nil {
		os.Remove(c.tmp) // the first error is the one to tell
	}
	return err
}

// Place has the bytes replace what there is of the stream, which is sealed then. After an
// error the stream may be as before or replaced, and may have lost its seal.
func (c *Received) Place() error {
	s := c.store
	defer s.leave()
	err := s.replace(s.obtain(c.key), c.tmp, c.length, c.digest)
	for errors.Is(err, errGone) {
		err = s.replace(s.obtain(c.key), c.tmp, c.length, c.digest)
	}
	if err != nil {
		os.Remove(c.tmp) // the first error is the one to tell
		return fmt.Errorf("take over %s: %w", c.key, c.store.coded(err))
	}
	return nil
}

// Discard gives the bytes up.
func (c *Received) Discard() {
	defer c.store.leave()
	if err := os.Remove(c.tmp); err != nil {
		c.store.log.Warn("removing a discarded copy failed", "job", c.key.Job, "fence", c.key.Fence, "err", err)
	}
}

// replace gives the file at tmp, which is durable, the stream's name and seals it.
func (s *Store) replace(st *stream, tmp string, length int64, digest fleet.Digest) error {
	st.sync.Lock()
	defer st.sync.Unlock()
	st.write.Lock()
	defer st.write.Unlock()
	if st.gone {
		return errGone
	}
	if err := s.unseal(st); err != nil {
		return err
	}
	path := st.key.path(s.dir)
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	s.files.drop(path)
	st.mu.Lock()
	if !st.exists {
		s.streams.Add(1)
	}
	s.bytes.Add(length - st.durable)
	st.exists, st.linked, st.torn = true, true, false
	st.end, st.durable = length, length
	st.lost = errCut
	st.losses++
	st.mu.Unlock()
	if err := durable.SyncDir(s.dir); err != nil {
		return err
	}
	return s.mark(st, &seal{length: length, digest: digest}) // which makes the new name durable too
}

// Check reads a sealed stream again and says whether the disk still has what was
// sealed. A damaged one is fleet.SpoolMismatch or an error of the disk; one that is
// not sealed or has no digest is not looked at. pace is called with the number of
// bytes about to be read and may wait.
func (s *Store) Check(ctx context.Context, k Key, pace func(n int) error) error {
	info, ok := s.Peek(k)
	if !ok || !info.Sealed || info.Digest == "" {
		return nil
	}
	sum := sha256.New()
	buf := make([]byte, min(256<<10, max(info.Size, 1)))
	for off := int64(0); off < info.Size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		part := buf[:min(int64(len(buf)), info.Size-off)]
		if err := pace(len(part)); err != nil {
			return err
		}
		if n, err := s.ReadAt(k, part, off); n < len(part) {
			if now, ok := s.Peek(k); !ok || now.SealedAt != info.SealedAt {
				return nil // deleted or replaced meanwhile
			}
			return fmt.Errorf("check %s: %w: %w", k, fleet.SpoolMismatch, err)
		}
		sum.Write(part)
		off += int64(len(part))
	}
	if got := fleet.Digest(hex.EncodeToString(sum.Sum(nil))); got != info.Digest {
		if now, ok := s.Peek(k); ok && now.Digest == info.Digest {
			return fmt.Errorf("check %s: the bytes have digest %s, not %s: %w", k, got, info.Digest, fleet.SpoolMismatch)
		}
	}
	return nil
}
