package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// SuperviseCommand is the subcommand that runs Supervise: `tugline supervise DIR`.
const SuperviseCommand = "supervise"

var (
	// ErrUsed says that a job was launched from the directory before. Every launch needs one of its own.
	ErrUsed = errors.New("the directory was used by an earlier launch")
	// ErrStartFailed says that the job's child could not be started, or was stopped before it was.
	ErrStartFailed = errors.New("the job's process was not started")
)

// Spawn starts a supervisor from the program self, which starts the job, and returns once the job's child runs. The
// directory is made if it is missing and must be unused. The supervisor is a session of its own and goes on without the
// runner; its argv carries the directory alone.
//
// An error says that no process of the job is left: the error wraps ErrStartFailed, and ErrNotFound where there is no
// such program, if the child could not be started, or the context's error if that ended first. Whoever is killed
// within Spawn asks Attach what came of it.
func Spawn(ctx context.Context, self, dir string, l Launch) (Status, error) {
	l.Version = LaunchVersion
	if _, err := l.withDefaults(); err != nil {
		return Status{}, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Status{}, fmt.Errorf("spawn in %s: %w", dir, err)
	}
	status, err := spawn(ctx, self, dir, l)
	if err != nil {
		return status, fmt.Errorf("spawn in %s: %w", dir, err)
	}
	return status, nil
}

func spawn(ctx context.Context, self, dir string, l Launch) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, contextError(ctx)
	}
	if err := prepare(dir, l); err != nil {
		return Status{}, err
	}
	sup, ready, err := startSupervisor(self, dir, l.Marker)
	if err != nil {
		_ = os.Remove(filepath.Join(dir, launchFile))
		return Status{}, err
	}
	defer ready.Close()
	if err := awaitReady(ctx, ready); err != nil {
		return Status{}, errors.Join(err, abandon(sup, dir))
	}
	st, announced := recorded(dir)
	if e := readExit(dir); e != nil {
		// It never ran, or it was so quick that it has ended already.
		waitDead(st)
		if e.Reason == ReasonStartFailed {
			err = fmt.Errorf("%w: %s", ErrStartFailed, e.Detail)
			if e.Code == codeNotFound {
				err = fmt.Errorf("%w (%w)", err, ErrNotFound)
			}
		}
		return Status{State: Exited, Started: st, Exit: e}, errors.Join(err, sup.Release())
	}
	if !announced && !alive(st.Supervisor) {
		err := fmt.Errorf("%w: its supervisor ended", ErrStartFailed)
		return Status{}, errors.Join(err, abandon(sup, dir))
	}
	return Status{State: Running, Started: st}, sup.Release()
}

// prepare makes the directory and writes the launch.
func prepare(dir string, l Launch) error {
	if os.Mkdir(dir, 0o700) == nil {
		return writeLaunch(dir, l) // it is new, and so holds nothing
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{launchFile, supervisorFile, startedFile, exitFile, segmentName(0)} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w (%s exists)", ErrUsed, name)
		}
	}
	return writeLaunch(dir, l)
}

// startSupervisor starts the supervisor. What it says on ready is one byte when the child runs, or nothing.
func startSupervisor(self, dir, marker string) (sup *os.Process, ready *os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer tell.Close()
	sup, err = os.StartProcess(self, []string{self, SuperviseCommand, dir}, &os.ProcAttr{
		// It must not keep a file system busy by standing in it.
		Dir: "/",
		// Two threads of Go code are all it can use; on a large machine more only cost time and memory.
		Env:   []string{MarkVariable + "=" + marker, fmt.Sprintf("%s=%d", readyVariable, readyFD), "GOMAXPROCS=2"},
		Files: []*os.File{null, null, null, tell},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = ready.Close()
		return nil, nil, fmt.Errorf("start the supervisor: %w", err)
	}
	return sup, ready, nil
}

// awaitReady waits until the supervisor has started the child, or has ended.
func awaitReady(ctx context.Context, ready *os.File) error {
	release := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer release()
	_, err := ready.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return contextError(ctx)
	}
	return nil // what the files say then decides
}

// abandon ends a supervisor that has not got its child to run, and whatever it may have started.
func abandon(sup *os.Process, dir string) error {
	_ = sup.Kill()
	_, _ = sup.Wait()
	if _, err := Attach(dir); err != nil { // revokes the launch
		return err
	}
	_, err := Sweep(dir)
	return err
}
