package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// SweepMark ends every process that carries a marker, is in its cgroup, or descends from one that does, the supervisor
// included. It needs no directory, for where that is lost or was never trusted. It gives the number of processes ended.
func SweepMark(marker string) (killed int, err error) {
	if !validMarker(marker) {
		return 0, fmt.Errorf("sweep by marker %q: no marker", marker)
	}
	pids, err := processIDs()
	if err != nil {
		return 0, fmt.Errorf("sweep by marker %s: %w", marker, err)
	}
	var seen []Identity
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		if marked, _ := hasMark(pid, marker); marked {
			if p, err := inspect(pid); err == nil {
				seen = append(seen, p.Identity)
			}
		}
	}
	s := newSweeper(marker, findCgroup(cgroupPath(marker)), newLineage(Identity{}, seen...))
	if err = s.sweep(); err == nil {
		err = removeCgroup(s.group)
	}
	for id := range s.killed {
		alive(id) // reaps a supervisor that was our child
	}
	if err != nil {
		return len(s.killed), fmt.Errorf("sweep by marker %s: %w", marker, err)
	}
	return len(s.killed), nil
}

// Reap ends the processes of every job whose marker begins with a prefix, but for the markers that are kept. It is for
// jobs of which the caller has no record any more. It gives the number of processes ended; an error says that some may
// be left.
func Reap(prefix string, keep func(marker string) bool) (killed int, err error) {
	own := os.Getenv(MarkVariable) // of the job within which this process was started
	strays := func() ([]string, error) {
		pids, err := processIDs()
		if err != nil {
			return nil, fmt.Errorf("look for processes marked %s: %w", prefix, err)
		}
		found := groupMarkers()
		for _, pid := range pids {
			if pid != os.Getpid() {
				found = append(found, markOf(pid))
			}
		}
		slices.Sort(found)
		return slices.DeleteFunc(slices.Compact(found), func(marker string) bool {
			return marker == own || !validMarker(marker) || !strings.HasPrefix(marker, prefix) || keep(marker)
		}), nil
	}
	markers, err := strays()
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, marker := range markers {
		n, err := SweepMark(marker)
		killed += n
		failed = append(failed, err)
	}
	return killed, errors.Join(failed...)
}

// End ends a job whose supervisor does not do it: the supervisor first, proven to be it, then every process, and writes
// the exit record in its place, with the given reason. A record that is there already stays. Between the two the job
// looks as if it were gone: of whoever waits for it at the same time the caller must not take that answer. The error
// wraps ErrGone if there is no directory; then SweepMark is left.
func End(dir, reason, detail string) error {
	if readExit(dir) != nil {
		return nil
	}
	st, _ := recorded(dir)
	killed, err := Sweep(dir)
	if err != nil {
		return err
	}
	lock, err := lockDir(dir)
	for deadline := time.Now().Add(deathPatience); errors.Is(err, errLocked) && time.Now().Before(deadline); {
		time.Sleep(2 * time.Millisecond)
		lock, err = lockDir(dir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("end %s: %w", dir, ErrGone)
	case err != nil:
		return fmt.Errorf("end %s: %w", dir, err)
	}
	defer lock.Close()
	if readExit(dir) != nil {
		return nil
	}
	if err := revoke(dir, st); err != nil {
		return fmt.Errorf("end %s: %w", dir, err)
	}
	spool, err := OpenSpool(dir)
	if err != nil {
		return fmt.Errorf("end %s: %w", dir, err)
	}
	defer spool.Close()
	size, err := spool.Size()
	if err != nil {
		return fmt.Errorf("end %s: %w", dir, err)
	}
	err = commitExit(dir, Exit{
		Code: -1, Signal: "SIGKILL", StartedAt: st.StartedAt, FinishedAt: time.Now().UTC(), Reason: reason, Detail: detail,
		SpoolBytes: size, Swept: max(0, killed-2), // beside the supervisor and the child
	})
	if err != nil {
		return fmt.Errorf("end %s: %w", dir, err)
	}
	return nil
}
