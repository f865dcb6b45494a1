package blob

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"tugline.dev/tugline/hub/durable"
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
	if err := errors.Join(durable.Fill(ctx, f, d, size, r, fleet.BlobDigest), f.Close()); err != nil {
		return err
	}
	return publish(d, size, path)
}

func hexSum(sum []byte) fleet.Digest { return fleet.Digest(hex.EncodeToString(sum)) }
