package worktree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// The states of a record. Between preparing and ready no agent has run in the tree.
const (
	statePreparing = "preparing"
	stateReady     = "ready"
	stateRemoved   = "removed"
)

const recordVersion = 1

// A record is what is known of a job's worktree. It stands apart from the tree, where an agent does not write, and it
// outlives the tree, so that the job can be built again at the same path.
type record struct {
	Version    int         `json:"version"`
	Job        fleet.JobID `json:"job"`
	Fence      fleet.Fence `json:"fence"`
	State      string      `json:"state"`
	At         time.Time   `json:"at"`
	URL        string      `json:"url,omitempty"`
	Key        string      `json:"key,omitempty"`
	Cache      string      `json:"cache"`      // directory under repos/
	Generation string      `json:"generation"` // directory under repos/CACHE/
	Admin      string      `json:"admin"`      // git directory of the worktree, inside the cache
	Path       string      `json:"path"`
	Base       string      `json:"base"` // "" for a repository without a commit
	Branch     string      `json:"branch"`
	Ref        string      `json:"ref,omitempty"`
	StartTree  string      `json:"start_tree,omitempty"` // what git saw right after the checkout, where that is not the base's tree
	Notes      []string    `json:"notes,omitempty"`
	// Results are the commits that each attempt's harvest put into its bundle, by fence, and Bases those on which these
	// bundles build. Delivered are the bundles that the hub has acknowledged. Published are commits that were pushed.
	Results   map[string]string `json:"results,omitempty"`
	Bases     map[string]string `json:"bases,omitempty"`
	Delivered []span            `json:"delivered,omitempty"`
	Published []string          `json:"published,omitempty"`
	// Given are the commits that the remote, or who asked for the job, gave for it. It is noted as they come: a ref in
	// the cache may have been written by an agent since.
	Given []string `json:"given,omitempty"`
}

// maxPublished bounds the commits that a record remembers; those of the last attempts count.
const maxPublished = 32

func (r *record) branchRef() string { return "refs/heads/" + r.Branch }

func (s *Store) recordPath(job fleet.JobID) string {
	return filepath.Join(s.dir, "jobs", string(job)+".json")
}

// load gives a job's record, nil if there is none.
func (s *Store) load(job fleet.JobID) (*record, error) {
	data, err := os.ReadFile(s.recordPath(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read worktree record of %s: %w", job, err)
	}
	r, err := parseRecord(data)
	if err != nil {
		return nil, fmt.Errorf("read worktree record of %s: %w", job, err)
	}
	return r, nil
}

func parseRecord(data []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("version %d was written by another release", r.Version)
	}
	return &r, nil
}

// save writes a record so that after a crash either the old or the new one is there.
func (s *Store) save(r *record) error {
	r.Version, r.At = recordVersion, s.now().UTC()
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write worktree record of %s: %w", r.Job, err)
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, "jobs"), ".new-")
	if err != nil {
		return fmt.Errorf("write worktree record of %s: %w", r.Job, err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.recordPath(r.Job))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write worktree record of %s: %w", r.Job, err)
	}
	return nil
}

// amend changes a job's record as it is on disk.
func (s *Store) amend(job fleet.JobID, change func(*record)) error {
	s.records.Lock()
	defer s.records.Unlock()
	rec, err := s.load(job)
	if err != nil || rec == nil {
		return err
	}
	change(rec)
	return s.save(rec)
}

// remember adds to what is known to be elsewhere, without what was forgotten long ago.
func remember[T comparable](all []T, more ...T) []T {
	for _, x := range more {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all[max(0, len(all)-maxPublished):]
}

// Delivered notes that the hub has acknowledged the bundle of an attempt's result: what is in it is not here alone.
func (s *Store) Delivered(job fleet.JobID, fence fleet.Fence) error {
	return s.amend(job, func(rec *record) {
		of := fence.String()
		if tip := rec.Results[of]; tip != "" {
			rec.Delivered = remember(rec.Delivered, span{rec.Bases[of], tip})
		}
		delete(rec.Results, of)
		delete(rec.Bases, of)
	})
}
