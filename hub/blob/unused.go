package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Each calls f for every stored blob until f says stop. A blob that is stored or
// deleted meanwhile may be among them or not.
func (s *Store) Each(f func(Info) bool) error {
	stop := false
	for i := range s.shards {
		err := s.EachIn(byte(i), func(info Info) bool {
			stop = !f(info)
			return !stop
		})
		if err != nil || stop {
			return err
		}
	}
	return nil
}

// EachIn is Each for the blobs whose digests have this first byte.
func (s *Store) EachIn(first byte, f func(Info) bool) error {
	sh := &s.shards[first]
	sh.Lock()
	made := sh.made
	sh.Unlock()
	if !made {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, fmt.Sprintf("%02x", first)))
	if err != nil {
		return fmt.Errorf("walk blobs: %w", err)
	}
	for _, e := range entries {
		d := fleet.Digest(e.Name())
		if !d.Valid() || !e.Type().IsRegular() {
			continue // foreign, as the log said when the store was opened
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("walk blobs: %w", err)
		}
		if !f(Info{Digest: d, Size: info.Size(), Stored: info.ModTime()}) {
			return nil
		}
	}
	return nil
}

// Renew is Stat for somebody who is about to name the blob in a record: the blob
// counts as stored now, so that DeleteUnused leaves it alone until the record is
// there. Put and Upload renew what they find. Errors: fleet.BlobMissing, BadRequest.
func (s *Store) Renew(d fleet.Digest) (Info, error) {
	info, err := s.renew(d)
	return info, s.coded(err)
}

func (s *Store) renew(d fleet.Digest) (Info, error) {
	if err := checkDigest(d); err != nil {
		return Info{}, err
	}
	sh := s.lock(d)
	defer sh.Unlock()
	path, now := s.path(d), time.Now()
	err := os.Chtimes(path, now, now)
	if err == nil {
		err = sh.settle(filepath.Dir(path))
	}
	var stat os.FileInfo
	if err == nil {
		stat, err = os.Lstat(path)
	}
	if err != nil {
		return Info{}, s.missing(d, err)
	}
	return Info{Digest: d, Size: stat.Size(), Stored: stat.ModTime()}, nil
}

// DeleteUnused removes a blob for good unless it was stored or renewed at or after
// the given time. It gives the bytes freed; 0 where it stays or is not there.
func (s *Store) DeleteUnused(d fleet.Digest, since time.Time) (freed int64, err error) {
	if err := checkDigest(d); err != nil {
		return 0, err
	}
	sh := s.lock(d)
	defer sh.Unlock()
	stat, err := os.Lstat(s.path(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err == nil && !stat.ModTime().Before(since):
		return 0, nil
	case err == nil:
		err = s.remove(sh, d, stat.Size())
	}
	if err != nil {
		return 0, fmt.Errorf("delete blob %s: %w", d, s.coded(err))
	}
	return stat.Size(), nil
}

// remove deletes a blob; its shard is locked.
func (s *Store) remove(sh *shard, d fleet.Digest, size int64) error {
	path := s.path(d)
	if err := os.Remove(path); err != nil {
		return err
	}
	s.count(-1, -size)
	sh.unsynced = true
	return sh.settle(filepath.Dir(path))
}
