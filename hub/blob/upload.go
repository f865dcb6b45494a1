package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// GapError refuses a part that does not join what is there. errors.Is finds
// fleet.SpoolGap in it.
type GapError struct {
	Digest fleet.Digest
	Offset int64 // what was offered
	Want   int64 // what to send next
}

// Error says what is missing.
func (e *GapError) Error() string {
	return fmt.Sprintf("upload of blob %s has %d bytes, but %d was offered: send from %d", e.Digest, e.Want, e.Offset, e.Want)
}

// Unwrap returns the code.
func (e *GapError) Unwrap() error { return fleet.SpoolGap }

// Upload is an upload in parts. Uploads of the same digest and size are one: what
// one caller stored, the others need not send. It holds nothing open.
type Upload struct {
	store *Store
	key   uploadKey
}

// uploadKey has the size in it, so that who claims a wrong one is in nobody's way.
type uploadKey struct {
	digest fleet.Digest
	size   int64
}

func (k uploadKey) path(s *Store) string {
	return filepath.Join(s.partial, fmt.Sprintf("%s-%d", k.digest, k.size))
}

// partial is the state of one unfinished upload, shared by all who take part. It
// is known while anyone uses it or its file exists.
type partial struct {
	mu     sync.Mutex
	loaded bool
	end    int64     // durable bytes in the file
	sum    hash.Hash // of the first summed bytes
	summed int64
	users  int // guarded by the store's mu
}

// Upload begins an upload of size bytes, or goes on with one, and returns it with
// the offset of the first byte to send. If the offset is size there is nothing to
// send, and Commit is next. Errors: fleet.TooLarge, BadRequest, BlobDigest if the
// blob is stored with another size.
func (s *Store) Upload(ctx context.Context, d fleet.Digest, size int64) (u *Upload, offset int64, err error) {
	u = &Upload{store: s, key: uploadKey{d, size}}
	done, err := u.with(ctx, func(p *partial, _ string) error {
		offset = p.end
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("upload blob %s: %w", d, s.coded(err))
	}
	if done {
		offset = size
	}
	return u, offset, nil
}

// WriteAt stores a part of at most MaxPart bytes and returns, with or without an
// error, how many bytes of the upload are durable. The part may begin before that
// (then it replaces what is there; the digest decides at the end), but not after
// it. Errors: fleet.SpoolGap (a *GapError), TooLarge, DiskFull.
func (u *Upload) WriteAt(ctx context.Context, part []byte, offset int64) (size int64, err error) {
	if len(part) > MaxPart {
		return 0, fmt.Errorf("upload blob %s: part of %d bytes, where %d is the most: %w",
			u.key.digest, len(part), MaxPart, fleet.TooLarge)
	}
	done, err := u.with(ctx, func(p *partial, path string) error {
		if err := u.store.room(); err != nil {
			return err
		}
		err := u.write(p, path, part, offset)
		size = p.end
		return err
	})
	if err != nil {
		return size, fmt.Errorf("upload blob %s: %w", u.key.digest, u.store.coded(err))
	}
	if done {
		size = u.key.size
	}
	return size, nil
}

func (u *Upload) write(p *partial, path string, part []byte, offset int64) error {
	last := offset + int64(len(part))
	switch {
	case offset < 0:
		return fmt.Errorf("part at %d: %w", offset, fleet.BadRequest)
	case offset > p.end:
		return &GapError{Digest: u.key.digest, Offset: offset, Want: p.end}
	case last > u.key.size:
		return fmt.Errorf("part ends at %d of %d bytes: %w", last, u.key.size, fleet.TooLarge)
	case len(part) == 0:
		return nil
	}
	f, err := u.store.openFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if offset < p.summed {
		p.sum, p.summed = nil, 0
	}
	if _, err = f.WriteAt(part, offset); err == nil {
		err = f.Sync()
	}
	if err != nil {
		// What stood after offset may be half replaced.
		p.end = min(p.end, offset)
		if cut := f.Truncate(p.end); cut != nil {
			p.loaded = false
		}
		return errors.Join(err, f.Close())
	}
	if p.end == 0 {
		if err := durable.SyncDir(u.store.partial); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	p.end = max(p.end, last)
	if p.summed == offset {
		p.hash().Write(part)
		p.summed = last
	}
	return f.Close()
}

func (p *partial) hash() hash.Hash {
	if p.sum == nil {
		p.sum, p.summed = sha256.New(), 0
	}
	return p.sum
}

// Commit checks the digest of the whole upload and makes it a blob; when it
// returns nil, the blob is durable. Errors: fleet.SpoolGap (a *GapError) if bytes
// are missing; BlobDigest if they are not what was promised, and then the upload
// is removed and begins anew.
func (u *Upload) Commit(ctx context.Context) error {
	_, err := u.with(ctx, func(p *partial, path string) error { return u.commit(ctx, p, path) })
	if err != nil {
		return fmt.Errorf("finish upload of blob %s: %w", u.key.digest, u.store.coded(err))
	}
	return nil
}

func (u *Upload) commit(ctx context.Context, p *partial, path string) error {
	if p.end < u.key.size {
		return &GapError{Digest: u.key.digest, Offset: u.key.size, Want: p.end}
	}
	f, err := u.store.openFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	err = p.verify(ctx, f, u.key)
	if err == nil {
		err = f.Sync() // also of what an earlier process wrote
	}
	err = errors.Join(err, f.Close())
	if errors.Is(err, fleet.BlobDigest) {
		p.reset()
		return errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return err
	}
	if err := u.store.publish(u.key.digest, u.key.size, path); err != nil {
		p.loaded = false
		return err
	}
	p.reset()
	return nil
}

// verify hashes what was not hashed when it came in.
func (p *partial) verify(ctx context.Context, f file, k uploadKey) error {
	sum := p.hash()
	buf := make([]byte, 256<<10)
	for p.summed < k.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), k.size-p.summed)], p.summed)
		sum.Write(buf[:n])
		p.summed += int64(n)
		if err != nil && (n == 0 || err != io.EOF) {
			return err
		}
	}
	if got := hexSum(sum.Sum(nil)); got != k.digest {
		return fmt.Errorf("the uploaded bytes have digest %s: %w", got, fleet.BlobDigest)
	}
	return nil
}

func (p *partial) reset() { p.end, p.sum, p.summed = 0, nil, 0 }

// with runs fn alone among all who use this upload, with what is known of it; or
// not, and says so, if the blob is stored already.
func (u *Upload) with(ctx context.Context, fn func(p *partial, path string) error) (done bool, err error) {
	s := u.store
	if done, err := s.stored(ctx, u.key.digest, u.key.size); err != nil || done {
		return done, err
	}
	path := u.key.path(s)
	s.mu.Lock()
	p := s.uploads[u.key]
	if p == nil {
		p = &partial{}
		s.uploads[u.key] = p
	}
	p.users++
	s.mu.Unlock()

	p.mu.Lock()
	// Again, since whoever had p may have stored it.
	done, err = s.stored(ctx, u.key.digest, u.key.size)
	if err == nil && !done {
		if err = p.load(path); err == nil {
			err = fn(p, path)
		}
	}
	keep := p.end > 0
	p.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	p.users--
	if p.users == 0 && !keep {
		delete(s.uploads, u.key)
	}
	return done, err
}

// load finds what an earlier process, or a failure, left in the file.
func (p *partial) load(path string) error {
	if p.loaded {
		return nil
	}
	stat, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.reset()
	if err == nil {
		p.end = stat.Size()
	}
	p.loaded = true
	return nil
}
