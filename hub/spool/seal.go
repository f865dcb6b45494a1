package spool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// seal says that a stream is complete.
type seal struct {
	length int64
	digest fleet.Digest // empty if it was sealed without one
	at     time.Time    // when its marker was written, by the file system
}

const (
	sealSuffix = ".seal"
	tmpSuffix  = sealSuffix + ".tmp"
	maxSeal    = 256 // bytes of a marker
)

// encode gives the text of a marker: a version, the length, and the digest or -.
func (l *seal) encode() []byte {
	digest := string(l.digest)
	if digest == "" {
		digest = "-"
	}
	return fmt.Appendf(nil, "seal 1 %d %s\n", l.length, digest)
}

func parseSeal(data []byte) (*seal, error) {
	var l seal
	var digest string
	if _, err := fmt.Sscanf(string(data), "seal 1 %d %s\n", &l.length, &digest); err != nil {
		return nil, fmt.Errorf("seal marker: %w", err)
	}
	if digest != "-" {
		l.digest = fleet.Digest(digest)
	}
	if string(l.encode()) != string(data) || l.length < 0 || l.digest != "" && !l.digest.Valid() {
		return nil, fmt.Errorf("seal marker %q is not in its form", data)
	}
	return &l, nil
}

// Seal says that the stream is complete at length bytes, which must be its end.
// With a digest, the stored bytes are read and must have it. From then on nothing
// can be added. Sealing again the same way is no error. When Seal returns nil,
// stream and seal are durable. Errors: fleet.SpoolGap (a *GapError) if bytes are
// missing, SpoolMismatch if there are more or other ones, DiskFull, BadRequest,
// Unavailable.
func (s *Store) Seal(ctx context.Context, k Key, length int64, digest fleet.Digest) error {
	_, err := s.seal(ctx, k, length, digest, digest != "")
	return err
}

// SealSum is Seal with the digest of what is stored, which it gives.
func (s *Store) SealSum(ctx context.Context, k Key, length int64) (fleet.Digest, error) {
	return s.seal(ctx, k, length, "", true)
}

func (s *Store) seal(ctx context.Context, k Key, length int64, digest fleet.Digest, sum bool) (fleet.Digest, error) {
	if err := k.check(); err != nil {
		return "", err
	}
	if length < 0 || digest != "" && !digest.Valid() {
		return "", fmt.Errorf("seal %s at %d with digest %q: %w", k, length, digest, fleet.BadRequest)
	}
	if err := s.enter(); err != nil {
		return "", err
	}
	defer s.leave()
	if st, _ := s.find(k); st == nil && length > 0 {
		return "", fmt.Errorf("seal %s: %w", k, &GapError{Key: k, Offset: length})
	}
	for {
		got, err := s.sealStream(ctx, s.obtain(k), length, digest, sum)
		switch {
		case errors.Is(err, errGone):
			continue
		case err != nil:
			return "", fmt.Errorf("seal %s: %w", k, s.coded(err))
		}
		return got, nil
	}
}

// sealStream gives the digest that the stream is sealed with.
func (s *Store) sealStream(ctx context.Context, st *stream, length int64, digest fleet.Digest, sum bool) (fleet.Digest, error) {
	st.sync.Lock()
	defer st.sync.Unlock()
	st.write.Lock()
	defer st.write.Unlock()
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	switch {
	case st.gone:
		return "", errGone
	case length > st.end:
		return "", st.gap(length)
	case length < st.end:
		return "", fmt.Errorf("length %d, but %d bytes are stored: %w", length, st.end, fleet.SpoolMismatch)
	case st.seal != nil && st.exists && (digest == "" && !sum || digest == "" && st.seal.digest != "" || digest != "" && digest == st.seal.digest):
		return st.seal.digest, nil
	case st.seal != nil && st.seal.digest != "": // else the digest is checked and added
		return "", fmt.Errorf("sealed with digest %s, not %s: %w", st.seal.digest, digest, fleet.SpoolMismatch)
	}
	h, err := s.openFor(st)
	if err != nil {
		return "", err
	}
	defer s.files.release(h)
	if err := st.mend(h); err != nil {
		return "", err
	}
	if err := s.flush(st, h); err != nil {
		st.giveUp(h, err)
		return "", err
	}
	if sum {
		hash := sha256.New()
		if _, err := io.Copy(hash, io.NewSectionReader(h, 0, length)); err != nil {
			return "", err
		}
		got := fleet.Digest(hex.EncodeToString(hash.Sum(nil)))
		if digest != "" && got != digest {
			return "", fmt.Errorf("the stored bytes have digest %s, not %s: %w", got, digest, fleet.SpoolMismatch)
		}
		digest = got
	}
	return digest, s.mark(st, &seal{length: length, digest: digest})
}

// SealEmpty says that nothing was ever added to the stream and nothing will be. It
// writes nothing: readers see the seal, and the stream takes no bytes, for as long as
// the store is open; whoever calls it keeps a record of its own that tells so later.
// Errors: fleet.SpoolMismatch if there are bytes, BadRequest, Unavailable.
func (s *Store) SealEmpty(k Key) error {
	if err := k.check(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	for {
		if err := sealEmpty(s.obtain(k)); !errors.Is(err, errGone) {
			return err
		}
	}
}

func sealEmpty(st *stream) error {
	st.write.Lock()
	defer st.write.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.gone:
		return errGone
	case st.end > 0:
		return fmt.Errorf("seal %s: length 0, but %d bytes are stored: %w", st.key, st.end, fleet.SpoolMismatch)
	case st.seal == nil:
		st.seal = &seal{at: time.Now()}
		st.wake()
	}
	return nil
}

// mark writes the marker and makes the stream sealed; sync and write are held.
func (s *Store) mark(st *stream, l *seal) error {
	path := st.key.path(s.dir) + sealSuffix
	if err := durable.WriteFile(path, l.encode()); err != nil {
		return err
	}
	stat, err := os.Stat(path)
	if err != nil {
		return err
	}
	l.at = stat.ModTime()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.seal = l
	st.wake()
	return nil
}
