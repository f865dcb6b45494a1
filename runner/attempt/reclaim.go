package attempt

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// ReclaimScratch gives space back until there is enough: directories of the given names, which tools make again, of jobs
// without repository that have ended and owe the hub nothing, those that ended first at the beginning. Nothing says there
// what is ignored, so that a name alone is not enough: a tool must have made it.
func (h *Host) ReclaimScratch(ctx context.Context, names []string, enough func() bool) (directories int, bytes int64, err error) {
	all, err := os.ReadDir(filepath.Join(h.Dir, "scratch"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, 0, err
	}
	type ended struct {
		job fleet.JobID
		at  time.Time
	}
	var jobs []ended
	for _, e := range all {
		job := fleet.JobID(e.Name())
		if st, err := os.Stat(filepath.Join(h.jobScratch(job), scratchDone)); err == nil {
			jobs = append(jobs, ended{job, st.ModTime()})
		}
	}
	slices.SortFunc(jobs, func(a, b ended) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.job, b.job)) })
	for _, j := range jobs {
		if ctx.Err() != nil || enough() {
			break
		}
		n, size, failed := h.reclaimScratch(j.job, names)
		directories, bytes, err = directories+n, bytes+size, errors.Join(err, failed)
	}
	return directories, bytes, err
}

// reclaimScratch does it for one job; an attempt that begins meanwhile waits.
func (h *Host) reclaimScratch(job fleet.JobID, names []string) (directories int, bytes int64, err error) {
	h.scratchMu.Lock()
	defer h.scratchMu.Unlock()
	busy := slices.ContainsFunc(h.Journal.Attempts(), func(a journal.Attempt) bool { return a.Job == job })
	if owed, err := h.owesScratch(job); busy || owed || err != nil {
		return 0, 0, err
	}
	work, err := filepath.EvalSymlinks(filepath.Join(h.jobScratch(job), "work"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil || probe.MountedIn(work) != "" { // what is behind a mount is somebody else's
		return 0, 0, err
	}
	err = filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == work {
			return nil
		}
		if d.Name() == ".git" {
			return fs.SkipDir
		}
		if !slices.Contains(names, d.Name()) || !madeByTool(path) || worktree.HasRepository(path) {
			return nil
		}
		size := worktree.SizeOf(path)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		directories, bytes = directories+1, bytes+size
		return fs.SkipDir
	})
	return directories, bytes, err
}

// madeByTool says that a directory was made by a tool that makes it again: by its mark, or by a name that people give to
// nothing.
func madeByTool(dir string) bool {
	for _, mark := range []string{"CACHEDIR.TAG", "pyvenv.cfg"} {
		if st, err := os.Lstat(filepath.Join(dir, mark)); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	name := filepath.Base(dir)
	return name == "node_modules" || name == "DerivedData" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "__")
}
