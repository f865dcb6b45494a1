package consensus

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	snapshotDir   = "snapshots"
	unfinishedExt = ".tmp"
	metaFile      = "meta.json" // raft's
)

// snapshotStore is raft's file snapshot store with owner-only modes, names made
// durable before the snapshot counts, and no leftovers of a crash; or that of a
// Memory.
type snapshotStore struct {
	raft.SnapshotStore
	dir    string        // "" in memory
	newest atomic.Uint64 // index of the newest snapshot on disk, 0 without one
}

// snapshotSink tells its store when the snapshot is complete.
type snapshotSink struct {
	raft.SnapshotSink
	store *snapshotStore
	index uint64
}

// Close implements raft.SnapshotSink.
func (s *snapshotSink) Close() error {
	err := s.SnapshotSink.Close()
	if err == nil {
		s.store.newest.Store(s.index)
	}
	return err
}

func openSnapshots(base string, keep int, log hclog.Logger) (*snapshotStore, error) {
	dir := filepath.Join(base, snapshotDir)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+unfinishedExt))
	if err != nil {
		return nil, err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
	}
	if err := dropHalfRemoved(dir); err != nil {
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(base, keep, log)
	if err != nil {
		return nil, err
	}
	// A crash right after a snapshot leaves one too many.
	if err := files.ReapSnapshots(); err != nil {
		return nil, err
	}
	s := &snapshotStore{SnapshotStore: files, dir: dir}
	kept, err := s.List()
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 {
		s.newest.Store(kept[0].Index)
	}
	return s, nil
}

// dropHalfRemoved ends the removal of snapshots that a crash interrupted: what is
// left of one without its description is never listed, so nobody else would.
func dropHalfRemoved(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		path := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(filepath.Join(path, metaFile)); !e.IsDir() || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// Create implements raft.SnapshotStore. Both files exist when it returns, and
// are still without state.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, members, membersIndex, trans)
	if err != nil {
		return nil, err
	}
	if s.dir != "" {
		if err := seal(filepath.Join(s.dir, sink.ID()+unfinishedExt)); err != nil {
			return nil, errors.Join(err, sink.Cancel())
		}
	}
	return &snapshotSink{sink, s, index}, nil
}

// seal gives a new snapshot directory and its files to the owner alone.
func seal(dir string) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(dir, f.Name()), 0o600); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// oldest returns the index of the oldest snapshot that is kept, 0 without one.
func (s *snapshotStore) oldest() uint64 {
	if kept, err := s.List(); err == nil && len(kept) > 0 {
		return kept[len(kept)-1].Index
	}
	return 0
}
