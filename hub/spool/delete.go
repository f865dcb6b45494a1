package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// deletedPrefix begins the name of a job's directory that is being deleted; no
// job's id begins so.
const deletedPrefix = ".deleted-"

// Delete removes all streams of a job for good. Readers of them get
// fleet.NotFound. A job without streams is no error.
func (s *Store) Delete(job fleet.JobID) error {
	if !validJob(job) {
		return fmt.Errorf("job %q is not an id: %w", job, fleet.BadRequest)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	trash, err := s.detach(job)
	if err == nil && trash != "" {
		if err = os.RemoveAll(trash); err == nil {
			err = durable.SyncDir(s.dir)
		}
	}
	if err != nil {
		return fmt.Errorf("delete streams of job %s: %w", job, s.coded(err))
	}
	return nil
}

// detach takes the job's streams out of the store and moves its directory aside,
// so that from then on the job may be written anew. It returns where to.
func (s *Store) detach(job fleet.JobID) (trash string, err error) {
	for {
		s.mu.RLock()
		list := slices.Clone(s.jobs[job])
		s.mu.RUnlock()
		if len(list) == 0 {
			return "", nil
		}
		for _, st := range list {
			st.sync.Lock()
			st.write.Lock()
		}
		trash, changed, err := s.detachLocked(job, list)
		for _, st := range list {
			st.write.Unlock()
			st.sync.Unlock()
		}
		if err != nil || !changed {
			return trash, err
		}
	}
}

// detachLocked does so unless streams were added or taken out since list was
// made; every stream of list is locked.
func (s *Store) detachLocked(job fleet.JobID, list []*stream) (trash string, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(list, s.jobs[job]) {
		return "", true, nil
	}
	dir := filepath.Join(s.dir, string(job))
	s.deleted++
	trash = filepath.Join(s.dir, fmt.Sprintf("%s%s-%d", deletedPrefix, job, s.deleted))
	if err := os.Rename(dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	delete(s.jobs, job)
	for _, st := range list {
		s.files.drop(st.key.path(s.dir))
		st.mu.Lock()
		st.gone = true
		if st.exists {
			s.streams.Add(-1)
			s.bytes.Add(-st.durable)
		}
		st.wake()
		st.mu.Unlock()
	}
	return trash, false, nil
}
