package consensus

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	snapshotDir   = "snapshots"
	unfinishedExt = ".tmp"
)

// snapshotStore is raft's file snapshot store with owner-only modes, names made
// durable before the snapshot counts, and no leftovers of a crash.
type snapshotStore struct {
	*raft.FileSnapshotStore
	dir string
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
	files, err := raft.NewFileSnapshotStoreWithLogger(base, keep, log)
	if err != nil {
		return nil, err
	}
	return &snapshotStore{FileSnapshotStore: files, dir: dir}, nil
}

// Create implements raft.SnapshotStore. Both files exist when it returns, and
// are still without state.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, members, membersIndex, trans)
	if err != nil {
		return nil, err
	}
	if err := seal(filepath.Join(s.dir, sink.ID()+unfinishedExt)); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
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

// newest and oldest return the indexes of the snapshots on disk, 0 if there is
// none.
func (s *snapshotStore) newest() uint64 {
	if kept, err := s.List(); err == nil && len(kept) > 0 {
		return kept[0].Index
	}
	return 0
}

func (s *snapshotStore) oldest() uint64 {
	if kept, err := s.List(); err == nil && len(kept) > 0 {
		return kept[len(kept)-1].Index
	}
	return 0
}
