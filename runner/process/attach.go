package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A State says what is known of a job's processes.
type State string

const (
	Running State = "running" // the supervisor lives; the child runs, or is about to
	Exited  State = "exited"  // there is an exit record
	Gone    State = "gone"    // neither a supervisor nor an exit record, now and for ever: the outcome is lost
)

// ErrGone says that a job's supervisor is gone without an exit record.
var ErrGone = errors.New("the job's supervisor is gone")

// A Status is what Attach found.
type Status struct {
	State State
	// Started says who runs; its Child is zero while the child is about to start, all is zero where nothing is known.
	Started Started
	// Exit is set if the state is Exited.
	Exit *Exit
}

const (
	// startPatience bounds the wait for a supervisor that lives but has not started its child yet.
	startPatience = 5 * time.Second
	// deathPatience bounds the wait for a supervisor that has written the exit record and has nothing left to do.
	deathPatience = 5 * time.Second
)

// Attach tells what became of a job, after a restart of the runner or any time else. A supervisor counts as alive only
// if it is proven by kernel start time and by the marker in its environment. Gone is final: where a supervisor might
// still come up, Attach revokes the launch first. Sweep is then due, for it ends what the supervisor left.
func Attach(dir string) (Status, error) {
	deadline := time.Now().Add(startPatience)
	for {
		st, announced := recorded(dir)
		if announced && proven(st, st.Supervisor) && readExit(dir) == nil {
			return Status{State: Running, Started: st}, nil
		}
		if e := readExit(dir); e != nil {
			waitDead(st)
			return Status{State: Exited, Started: st, Exit: e}, nil
		}
		lock, err := lockDir(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Status{State: Gone}, nil
		case errors.Is(err, errLocked):
			// A supervisor before its announcement, or another look like this one.
			if time.Now().After(deadline) {
				if announced {
					return Status{}, fmt.Errorf("attach to %s: the supervisor is dead, but its directory stays %w", dir, errLocked)
				}
				return Status{State: Running, Started: st}, nil
			}
			time.Sleep(2 * time.Millisecond)
			continue
		case err != nil:
			return Status{}, fmt.Errorf("attach to %s: %w", dir, err)
		}
		// With the lock in hand no supervisor is alive, and none that still comes up will find a launch.
		e := readExit(dir)
		if e == nil {
			err = revoke(dir, st)
		}
		st, _ = recorded(dir)
		_ = lock.Close()
		switch {
		case err != nil:
			return Status{}, fmt.Errorf("attach to %s: %w", dir, err)
		case e != nil:
			return Status{State: Exited, Started: st, Exit: e}, nil
		}
		alive(st.Supervisor) // reaps it if it was our child
		return Status{State: Gone, Started: st}, nil
	}
}

// Wait blocks until a job has exited or is gone, or the context ends. It works alike for supervisors of this runner and
// of an earlier one. Where the kernel tells of the end of a process it looks once a second beside that, else in growing
// intervals of at most 20 ms.
func Wait(ctx context.Context, dir string) (Status, error) {
	pause := time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		st, _ := recorded(dir)
		for readExit(dir) == nil && st.Boot == bootID() && alive(st.Supervisor) {
			if !awaitEnd(ctx, st.Supervisor, time.Second) {
				timer.Reset(pause)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
				pause = min(pause+pause/8, 20*time.Millisecond)
			}
			if ctx.Err() != nil {
				return Status{State: Running, Started: st}, contextError(ctx)
			}
		}
		status, err := Attach(dir)
		if err != nil || status.State != Running {
			return status, err
		}
		if ctx.Err() != nil {
			return status, contextError(ctx)
		}
	}
}

// Stop asks the supervisor to end the job: the gentle signal to the child, the grace, then every process. It returns
// at once; Wait tells when it is done. It is nil for a job that has exited, and wraps ErrGone if there is no supervisor:
// Sweep ends the job then, and also where a supervisor shows no end long after the grace. Asking again changes nothing.
func Stop(dir string, reason string) error {
	st, err := Attach(dir)
	switch {
	case err != nil:
		return err
	case st.State == Exited:
		return nil
	case st.State == Gone:
		return fmt.Errorf("stop %s: %w", dir, ErrGone)
	}
	var unsaid error // on a full disk the signal says it, only the reason is lost
	if _, err := os.Stat(filepath.Join(dir, stopFile)); errors.Is(err, fs.ErrNotExist) {
		unsaid = writeDoc(dir, stopFile, stopDoc{Reason: reason, At: time.Now().UTC()})
	}
	// The supervisor looks at the file from time to time in any case; the signal makes it look now.
	if proven(st.Started, st.Started.Supervisor) {
		if err := signalExact(st.Started.Supervisor, syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", dir, err)
		}
		return nil
	}
	if unsaid != nil {
		return fmt.Errorf("stop %s: %w", dir, unsaid)
	}
	return nil
}

// recorded gives what the files say of who runs, and whether the child is known to have been started.
func recorded(dir string) (st Started, announced bool) {
	if st = readStarted(dir, startedFile); st.Boot != "" {
		return st, true
	}
	if st = readStarted(dir, supervisorFile); st.Boot != "" {
		return st, false
	}
	doc, err := readLaunch(dir)
	if err != nil {
		return Started{}, false
	}
	return Started{Marker: doc.Marker}, false
}

// revoke makes sure that nothing is started from a launch any more, and forgets its secrets. The marker stays, for
// the sweep. The caller holds the lock.
func revoke(dir string, st Started) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), launchFile+".") {
			_ = os.Remove(filepath.Join(dir, e.Name())) // half written by a runner that was killed
		}
	}
	if _, err := os.Stat(filepath.Join(dir, launchFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return writeDoc(dir, launchFile, launchDoc{Launch: Launch{Marker: st.Marker}, Revoked: true})
}

// waitDead waits a moment for a supervisor that has written its exit record and is about to end, and reaps it if it is
// our child.
func waitDead(st Started) {
	if st.Boot != bootID() {
		return
	}
	pause := 200 * time.Microsecond
	for deadline := time.Now().Add(deathPatience); alive(st.Supervisor) && time.Now().Before(deadline); {
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

var errLocked = errors.New("locked")

// lockDir takes the lock that a supervisor holds for as long as it lives. Closing the file releases it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, supervisorFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}
