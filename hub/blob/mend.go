package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"tugline.dev/tugline/shared/fleet"
)

// Check reads a stored blob again and says whether the disk still has what was
// stored: a damaged one is fleet.BlobDigest or an error of the disk, one that is
// not there fleet.BlobMissing. pace is called with the number of bytes about to be
// read and may wait.
func (s *Store) Check(ctx context.Context, d fleet.Digest, pace func(n int) error) error {
	f, size, err := s.Open(d)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	buf := make([]byte, min(256<<10, max(size, 1)))
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buf[:min(int64(len(buf)), left)]
		if err := pace(len(part)); err != nil {
			return err
		}
		if _, err := io.ReadFull(f, part); err != nil {
			return fmt.Errorf("check blob %s: %w: %w", d, fleet.BlobDigest, err)
		}
		sum.Write(part)
		left -= int64(len(part))
	}
	if got := hexSum(sum.Sum(nil)); got != d {
		return fmt.Errorf("check blob %s: the bytes have digest %s: %w", d, got, fleet.BlobDigest)
	}
	return nil
}

// Mend puts size bytes of r in the place of a damaged blob, or of one that is not
// there. On an error what is there stays. Errors are those of Put.
func (s *Store) Mend(ctx context.Context, d fleet.Digest, size int64, r io.Reader) error {
	err := checkDigest(d)
	if err == nil {
		err = s.room()
	}
	if err == nil {
		err = s.write(ctx, d, size, r, s.replace)
	}
	if err != nil {
		return fmt.Errorf("mend blob %s: %w", d, s.coded(err))
	}
	return nil
}

// replace is publish where the new file wins.
func (s *Store) replace(d fleet.Digest, size int64, path string) error {
	sh := s.lock(d)
	defer sh.Unlock()
	blobs, bytes := int64(1), size
	switch stat, err := os.Lstat(s.path(d)); {
	case err == nil:
		blobs, bytes = 0, size-stat.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := s.name(sh, d, path); err != nil {
		return err
	}
	s.count(blobs, bytes)
	return sh.settle(filepath.Dir(s.path(d)))
}
