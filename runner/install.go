package runner

import (
	"context"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/process"
)

// Enrolled gives the name under which a data directory is enrolled; ok is false where it
// is not.
func Enrolled(dir string) (name string, ok bool, err error) {
	id, err := loadIdentity(dir)
	if err != nil || id == nil || id.Runner == "" {
		return "", false, err
	}
	return id.Name, true, nil
}

// Enrol makes the data directory a runner's with the ticket, without running it, so that
// whoever installs it hears at once what is wrong.
func (r *Runner) Enrol(ctx context.Context) error {
	j, err := journal.Open(r.cfg.Dir)
	if err != nil {
		return err
	}
	defer j.Close()
	_, err = r.enrolled(ctx)
	return err
}

// Busy says whether jobs of a data directory run that no runner has: it was stopped, and
// they go on under their supervisors.
func Busy(dir string) (bool, error) {
	j, err := journal.Open(dir)
	if err != nil {
		return false, err
	}
	defer j.Close()
	for _, a := range j.Attempts() {
		if !a.Progress.Intent || a.Progress.Finished || a.Progress.Ended {
			continue
		}
		st, err := process.Attach(attempt.ProcessDir(a))
		if err != nil {
			return false, err
		}
		if st.State == process.Running {
			return true, nil
		}
	}
	return false, nil
}
