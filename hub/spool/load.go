package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

// load finds the streams on disk and makes them durable as they are, since the
// process before may have ended between a write and its sync. Only the bytes of
// sealed streams are known to be durable without.
func (s *Store) load() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		job := fleet.JobID(e.Name())
		switch {
		case e.IsDir() && strings.HasPrefix(e.Name(), deletedPrefix):
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		case e.IsDir() && validJob(job):
			if err := s.loadJob(job); err != nil {
				return err
			}
		default:
			s.log.Warn("spool ignores a foreign file", "path", filepath.Join(s.dir, e.Name()))
		}
	}
	return durable.SyncDir(s.dir)
}

// loadJob finds the streams of one job.
func (s *Store) loadJob(job fleet.JobID) error {
	dir := filepath.Join(s.dir, string(job))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sealed := map[string]bool{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), sealSuffix); ok {
			sealed[name] = true
		}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		k, ok := parseFile(job, e.Name())
		switch {
		case ok && e.Type().IsRegular():
			st, err := s.loadStream(k, sealed[e.Name()])
			if err != nil {
				return err
			}
			s.jobs[job] = append(s.jobs[job], st)
			s.streams.Add(1)
			s.bytes.Add(st.durable)
		case strings.HasSuffix(e.Name(), tmpSuffix), strings.HasSuffix(e.Name(), copySuffix):
			if err := os.Remove(path); err != nil {
				return err
			}
		case strings.HasSuffix(e.Name(), sealSuffix):
		default:
			s.log.Warn("spool ignores a foreign file", "path", path)
		}
	}
	return durable.SyncDir(dir)
}

// loadStream reads the state of one stream. A marker that does not fit its stream
// is removed, so that the missing bytes are asked for again.
func (s *Store) loadStream(k Key, sealed bool) (*stream, error) {
	path := k.path(s.dir)
	stat, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	st := &stream{key: k, exists: true, linked: true, end: stat.Size(), durable: stat.Size()}
	if sealed {
		l, err := loadSeal(path + sealSuffix)
		if err == nil && l.length == st.end {
			st.seal = l
			return st, nil
		}
		s.log.Error("stream does not fit its seal and is open again",
			"job", k.Job, "fence", k.Fence, "stream", k.Name, "size", st.end, "err", err)
		if err := os.Remove(path + sealSuffix); err != nil {
			return nil, err
		}
	}
	h, err := s.files.acquire(path, false)
	if err != nil {
		return nil, err
	}
	defer s.files.release(h)
	return st, h.Sync()
}

func loadSeal(path string) (*seal, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if stat.Size() > maxSeal {
		return nil, fmt.Errorf("seal marker of %d bytes", stat.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := parseSeal(data)
	if err != nil {
		return nil, err
	}
	l.at = stat.ModTime()
	return l, nil
}
