// Package blob keeps artifacts and inputs on disk under the SHA-256 of their
// content.
//
// A blob is there whole or not at all: it gets its name only after its digest was
// checked and its bytes are on disk, and a call that stores one answers only after
// the name is on disk too. A blob never changes, so that storing it again costs
// nothing and readers need no lock. An upload in parts is kept across restarts and
// goes on from where it was, until Sweep finds it untouched for a day.
//
// Files and digests are checked when they come in, not when they are read. Who
// may store, read or delete a blob, and when, is for others to decide.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

const (
	// MaxPart is the most bytes that one part of an upload may have.
	MaxPart = 8 << 20

	// DefaultMaxSize is how large a blob may be, in bytes.
	DefaultMaxSize = 2 << 30
)

// Config says where the store is and how large a blob may be.
type Config struct {
	Dir     string       // required; made with mode 0700 if missing
	Logger  *slog.Logger // default: discard
	MaxSize int64        // bytes a blob; default DefaultMaxSize
	// Room says whether there is room for more bytes than are there; an error (a
	// fleet.DiskFull) is what a writer is told. Default: always.
	Room func() error
	// Broken is told when a write finds that the disk fails (durable.Broken), each time.
	// Default: nobody.
	Broken func(error)
}

func (c *Config) validate() error {
	if c.Room == nil {
		c.Room = func() error { return nil }
	}
	if c.Broken == nil {
		c.Broken = func(error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxSize == 0 {
		c.MaxSize = DefaultMaxSize
	}
	switch {
	case c.Dir == "":
		return errors.New("blob: Dir is missing")
	case c.MaxSize < 0:
		return fmt.Errorf("blob: MaxSize %d is negative", c.MaxSize)
	}
	return nil
}

// file is what the store asks of a file that it writes.
type file = durable.File

// Info describes a stored blob.
type Info struct {
	Digest fleet.Digest
	Size   int64
	Stored time.Time // by the clock of the file system
}

// Store is an open blob store. All methods may be called from many goroutines.
type Store struct {
	dir      string // with a directory for each first byte of a digest
	partial  string // uploads that are not whole
	max      int64
	log      *slog.Logger
	room     func() error
	broken   func(error)
	openFile func(path string, flag int) (file, error)

	shards [256]shard

	mu      sync.Mutex
	bytes   int64
	blobs   int64
	uploads map[uploadKey]*partial
}

// shard is one of the directories that blobs are spread over. It is made for its first blob.
type shard struct {
	sync.Mutex      // held while names in it change, until they are durable
	made       bool // it is there, and its own name is durable
	unsynced   bool // some names in it may not be durable
}

// settle makes all names in dir durable; the shard is locked.
func (sh *shard) settle(dir string) error {
	if !sh.unsynced {
		return nil
	}
	if err := durable.SyncDir(dir); err != nil {
		return err
	}
	sh.unsynced = false
	return nil
}

// Open opens the store in c.Dir and removes what an earlier process was storing
// in one piece. Uploads in parts stay. One process may have it open.
func Open(c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		dir:      filepath.Clean(c.Dir),
		partial:  filepath.Join(c.Dir, "partial"),
		max:      c.MaxSize,
		log:      c.Logger,
		room:     c.Room,
		broken:   c.Broken,
		openFile: durable.Open,
		uploads:  map[uploadKey]*partial{},
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open blobs %s: %w", s.dir, durable.Coded(err))
	}
	return s, nil
}

// path is where the blob of a valid digest lies.
func (s *Store) path(d fleet.Digest) string {
	return filepath.Join(s.dir, string(d[:2]), string(d))
}

// lock locks the shard of a valid digest.
func (s *Store) lock(d fleet.Digest) *shard {
	i, err := strconv.ParseUint(string(d[:2]), 16, 8)
	if err != nil {
		panic(err) // only valid digests get here
	}
	sh := &s.shards[i]
	sh.Lock()
	return sh
}

func checkDigest(d fleet.Digest) error {
	if !d.Valid() {
		return fmt.Errorf("blob name %q is not 64 lower-case hex digits: %w", d, fleet.BadRequest)
	}
	return nil
}

// Stat describes a stored blob, which is durable then. Errors: fleet.BlobMissing, BadRequest.
func (s *Store) Stat(d fleet.Digest) (Info, error) {
	if err := checkDigest(d); err != nil {
		return Info{}, err
	}
	stat, err := os.Lstat(s.path(d))
	if err == nil {
		sh := s.lock(d)
		err = sh.settle(filepath.Dir(s.path(d)))
		sh.Unlock()
	}
	if err != nil {
		return Info{}, s.missing(d, err)
	}
	return Info{Digest: d, Size: stat.Size(), Stored: stat.ModTime()}, nil
}

func (s *Store) missing(d fleet.Digest, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("blob %s: %w", d, fleet.BlobMissing)
	}
	return fmt.Errorf("blob %s: %w", d, err)
}

// Open opens a stored blob for reading and tells its size in bytes. It can be
// read to its end even if it is deleted meanwhile. Errors: fleet.BlobMissing,
// BadRequest.
func (s *Store) Open(d fleet.Digest) (io.ReadSeekCloser, int64, error) {
	if err := checkDigest(d); err != nil {
		return nil, 0, err
	}
	f, err := os.Open(s.path(d))
	if err != nil {
		return nil, 0, s.missing(d, err)
	}
	stat, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, s.missing(d, err)
	}
	return f, stat.Size(), nil
}

// Delete removes a blob for good. One that is not there is no error.
func (s *Store) Delete(d fleet.Digest) error {
	if err := checkDigest(d); err != nil {
		return err
	}
	sh := s.lock(d)
	defer sh.Unlock()
	stat, err := os.Lstat(s.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.remove(sh, d, stat.Size())
	}
	if err != nil {
		return fmt.Errorf("delete blob %s: %w", d, s.coded(err))
	}
	return nil
}

// Usage returns the bytes and the number of stored blobs; unfinished uploads are
// not in it.
func (s *Store) Usage() (bytes, blobs int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, s.blobs
}

func (s *Store) count(blobs, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs += blobs
	s.bytes += bytes
}

// publish gives the file at path, whose bytes are durable and have the digest,
// its name, unless another was quicker; then the file is removed.
func (s *Store) publish(d fleet.Digest, size int64, path string) error {
	sh := s.lock(d)
	defer sh.Unlock()
	if _, err := os.Lstat(s.path(d)); err == nil {
		return errors.Join(os.Remove(path), sh.settle(filepath.Dir(s.path(d))))
	}
	if err := s.name(sh, d, path); err != nil {
		return err
	}
	s.count(1, size)
	return sh.settle(filepath.Dir(s.path(d)))
}

// name gives the file at path the blob's name, which is not durable yet; the shard is locked.
func (s *Store) name(sh *shard, d fleet.Digest, path string) error {
	if !sh.made {
		if err := os.Mkdir(filepath.Dir(s.path(d)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := durable.SyncDir(s.dir); err != nil {
			return err
		}
		sh.made = true
	}
	if err := os.Rename(path, s.path(d)); err != nil {
		return err
	}
	sh.unsynced = true
	return nil
}

// stored says whether the blob is there already, and then renews it; it refuses a
// size that the blob does not have.
func (s *Store) stored(ctx context.Context, d fleet.Digest, size int64) (bool, error) {
	if err := checkDigest(d); err != nil {
		return false, err
	}
	if size < 0 {
		return false, fmt.Errorf("blob of %d bytes: %w", size, fleet.BadRequest)
	}
	if size > s.max {
		return false, fmt.Errorf("blob of %d bytes, where %d is the most: %w", size, s.max, fleet.TooLarge)
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	info, err := s.renew(d)
	switch {
	case errors.Is(err, fleet.BlobMissing):
		return false, nil
	case err != nil:
		return false, err
	case info.Size != size:
		return false, fmt.Errorf("blob %s has %d bytes, not %d: %w", d, info.Size, size, fleet.BlobDigest)
	}
	return true, nil
}

// coded gives an error of a write its code, and tells of a disk that fails.
func (s *Store) coded(err error) error { return durable.Report(err, s.broken) }
