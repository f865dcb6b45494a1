package attempt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/shared/fleet"
)

// The files in the scratch directory of a job without repository, beside the directory
// "work" in which its attempts run and the ones that are set aside.
const (
	scratchFence = "fence" // the attempt that had "work" last
	scratchDone  = "done"  // the same, once nothing of it is owed to the hub any more
)

func (h *Host) jobScratch(job fleet.JobID) string {
	return filepath.Join(h.Dir, "scratch", string(job))
}

// emptyDir gives the directory of a job without repository: empty for a new attempt,
// as it was left for one that goes on. What an earlier attempt left is kept aside.
func (a *Attempt) emptyDir() (dir, note string, err error) {
	a.host.scratchMu.Lock()
	defer a.host.scratchMu.Unlock()
	job := a.host.jobScratch(a.asg.Job)
	dir, mark := filepath.Join(job, "work"), filepath.Join(job, scratchFence)
	was, err := os.ReadFile(mark)
	ours := err == nil && string(was) == a.asg.Fence.String()
	if _, err := os.Stat(dir); a.goesOn() && errors.Is(err, os.ErrNotExist) {
		if !a.mayBegin() && !ours {
			return "", "", a.gone("the directory in which the job worked is gone from this runner, and there is nothing to build it from")
		}
		note = "begins in an empty directory: what earlier turns may have left is not on this runner"
	}
	if err := os.Remove(filepath.Join(job, scratchDone)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("take up scratch directory: %w", err)
	}
	if !a.goesOn() && !ours {
		if err := os.Rename(dir, filepath.Join(job, "before-"+a.asg.Fence.String())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", "", fmt.Errorf("set the earlier attempt's directory aside: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make scratch directory: %w", err)
	}
	if ours {
		return dir, note, nil
	}
	if err := os.WriteFile(mark, []byte(a.asg.Fence.String()), 0o600); err != nil {
		return "", "", fmt.Errorf("make scratch directory: %w", err)
	}
	return dir, note, nil
}

// freeScratch notes that the hub has everything of the attempt: its result, its sealed
// output and every file of its evidence. Only a directory with that note may go.
func (a *Attempt) freeScratch() {
	if a.asg.Spec.Repo != nil || !a.delivered {
		return
	}
	a.host.scratchMu.Lock()
	defer a.host.scratchMu.Unlock()
	job, fence := a.host.jobScratch(a.asg.Job), a.asg.Fence.String()
	if was, err := os.ReadFile(filepath.Join(job, scratchFence)); err != nil || string(was) != fence {
		return // it never got that far, or a later attempt works there
	}
	if err := os.WriteFile(filepath.Join(job, scratchDone), []byte(fence), 0o600); err != nil {
		a.log.Warn("the scratch directory will be kept", "err", err)
	}
}

// SweepScratch removes the scratch directories of jobs without repository whose last
// attempt ended more than keep before now and owes the hub nothing. Without proof of
// that one is kept, and so is what an earlier attempt of the job left. It gives how
// many were removed.
func (h *Host) SweepScratch(now time.Time, keep time.Duration) (removed int, err error) {
	all, err := os.ReadDir(filepath.Join(h.Dir, "scratch"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for scratch directories: %w", err)
	}
	busy := map[fleet.JobID]bool{}
	for _, rec := range h.Journal.Attempts() {
		busy[rec.Job] = true
	}
	var failed error
	for _, e := range all {
		if job := fleet.JobID(e.Name()); e.IsDir() && !busy[job] {
			ok, err := h.sweepScratch(job, now.Add(-keep))
			if failed = errors.Join(failed, err); ok {
				removed++
			}
		}
	}
	return removed, failed
}

// owesScratch says whether the hub may lack something of a job's last attempt.
func (h *Host) owesScratch(job fleet.JobID) (bool, error) {
	dir := h.jobScratch(job)
	note, err := os.ReadFile(filepath.Join(dir, scratchDone))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	fence, err2 := os.ReadFile(filepath.Join(dir, scratchFence))
	if err := errors.Join(err, err2); err != nil {
		return true, fmt.Errorf("read the notes of scratch directory %s: %w", dir, err)
	}
	return len(note) == 0 || string(note) != string(fence), nil
}

// sweepScratch removes one job's; an attempt that begins meanwhile waits, and takes the
// note away first.
func (h *Host) sweepScratch(job fleet.JobID, before time.Time) (bool, error) {
	h.scratchMu.Lock()
	defer h.scratchMu.Unlock()
	dir := h.jobScratch(job)
	done := filepath.Join(dir, scratchDone)
	st, err := os.Stat(done)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.ModTime().After(before) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the notes of scratch directory %s: %w", dir, err)
	}
	if owed, err := h.owesScratch(job); owed || err != nil {
		return false, err
	}
	if work, err := filepath.EvalSymlinks(filepath.Join(dir, "work")); err == nil && probe.MountedIn(work) != "" {
		return false, nil // what is behind a mount is somebody else's, and would go along
	}
	if err := os.RemoveAll(filepath.Join(dir, "work")); err != nil {
		return false, fmt.Errorf("remove scratch directory: %w", err)
	}
	err = errors.Join(os.Remove(done), os.Remove(filepath.Join(dir, scratchFence)))
	_ = os.Remove(dir) // not while something was set aside in it
	return err == nil, err
}
