package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"tugline.dev/tugline/shared/fleet"
)

// wholePrefix begins the name of a file that Put is writing.
const wholePrefix = "put-"

// Put stores a blob of size bytes, read from r, and returns when it is durable. A
// blob that is stored already is not read. Errors: fleet.BlobDigest if r has
// other bytes, fewer or more; TooLarge, DiskFull, BadRequest, the context's, and
// what r fails with. On an error nothing is left.
func (s *Store) Put(ctx context.Context, d fleet.Digest, size int64, r io.Reader) error {
	done, err := s.stored(ctx, d, size)
	if err == nil && !done {
		err = s.room()
	}
	if err == nil && !done {
		err = s.write(ctx, d, size, r, s.publish)
	}
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, s.coded(err))
	}
	return nil
}

// write puts a blob into a file of its own and, once that is durable, has it published.
func (s *Store) write(ctx context.Context, d fleet.Digest, size int64, r io.Reader, publish func(fleet.Digest, int64, string) error) (err error) {
	path := filepath.Join(s.partial, wholePrefix+rand.Text())
	f, err := s.openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(path) // the first error is the one to tell
		}
	}()
	if err := errors.Join(fill(ctx, f, d, size, r), f.Close()); err != nil {
		return err
	}
	return publish(d, size, path)
}

// fill writes exactly size bytes from r, checks their digest and makes them
// durable.
func fill(ctx context.Context, f file, d fleet.Digest, size int64, r io.Reader) error {
	sum := sha256.New()
	buf := make([]byte, min(max(size, 1), 256<<10))
	var n int64
	for n < size {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := io.ReadFull(r, buf[:min(int64(len(buf)), size-n)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%d bytes came, not %d: %w", n+int64(m), size, fleet.BlobDigest)
		}
		if err != nil {
			return err
		}
		sum.Write(buf[:m])
		if _, err := f.WriteAt(buf[:m], n); err != nil {
			return err
		}
		n += int64(m)
	}
	if m, _ := io.ReadFull(r, buf[:1]); m > 0 {
		return fmt.Errorf("more than %d bytes came: %w", size, fleet.BlobDigest)
	}
	if got := hexSum(sum.Sum(nil)); got != d {
		return fmt.Errorf("the bytes have digest %s: %w", got, fleet.BlobDigest)
	}
	return f.Sync()
}

func hexSum(sum []byte) fleet.Digest { return fleet.Digest(hex.EncodeToString(sum)) }
