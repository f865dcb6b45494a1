package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// load counts what is in the directories that there are.
func (s *Store) load() error {
	if err := os.MkdirAll(s.partial, 0o700); err != nil {
		return err
	}
	for i := range s.shards {
		shard := filepath.Join(s.dir, fmt.Sprintf("%02x", i))
		entries, err := os.ReadDir(shard)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		// The process before may have ended between a rename and its sync. The directories' own names are synced below.
		s.shards[i].made, s.shards[i].unsynced = true, true
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return err
			}
			if d := fleet.Digest(e.Name()); !d.Valid() || s.path(d) != filepath.Join(shard, e.Name()) || !info.Mode().IsRegular() {
				s.log.Warn("blob store ignores a foreign file", "path", filepath.Join(shard, e.Name()))
				continue
			}
			s.blobs++
			s.bytes += info.Size()
		}
	}
	if err := s.loadUploads(); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(s.partial), durable.SyncDir(s.dir), durable.SyncDir(filepath.Dir(s.dir)))
}

// loadUploads makes durable what there is of uploads, and removes what cannot go
// on.
func (s *Store) loadUploads() error {
	entries, err := os.ReadDir(s.partial)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.partial, e.Name())
		if strings.HasPrefix(e.Name(), wholePrefix) {
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		if !e.Type().IsRegular() {
			s.log.Warn("blob store ignores a foreign file", "path", path)
			continue
		}
		f, err := s.openFile(path, os.O_RDWR)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
