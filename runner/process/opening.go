package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockPatience bounds the wait for a runner that looks at the directory just now.
const lockPatience = 2 * time.Second

// A step of the opening. After any of them the process may be killed: what is on disk then always tells whether a
// child may have been started.
type step struct {
	name string
	do   func() error
}

func (s *supervisor) opening() []step {
	return []step{
		{"lock", s.takeLock},
		{"read", s.readLaunch},
		{"identify", s.identify},
		{"reserve", s.reserve},
		{"contain", s.contain},
		{"start", s.start},
		{"announce", s.announce},
		{"forget", s.forget},
	}
}

// errLeave says that the directory is not ours to touch.
var errLeave = errors.New("the directory has a supervisor, or its launch was revoked")

func (s *supervisor) takeLock() error {
	deadline := time.Now().Add(lockPatience)
	for {
		f, err := lockDir(s.dir)
		if err == nil {
			s.lock = f
			return nil
		}
		if !errors.Is(err, errLocked) || time.Now().After(deadline) {
			return fmt.Errorf("%w: %w", errLeave, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *supervisor) readLaunch() error {
	if readExit(s.dir) != nil || readStarted(s.dir, startedFile).Boot != "" {
		return errLeave
	}
	doc, err := readLaunch(s.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", errLeave, err)
	}
	if doc.Revoked {
		return errLeave
	}
	s.launch, err = doc.Launch.withDefaults()
	return err
}

// identify says who we are in the locked file, for a runner that comes back before the child runs.
func (s *supervisor) identify() error {
	self, err := Identify(os.Getpid())
	if err != nil {
		return err
	}
	s.started = Started{
		Version: LaunchVersion, Boot: bootID(), Supervisor: self, Marker: s.launch.Marker, Cgroup: cgroupPath(s.launch.Marker),
	}
	return rewrite(s.lock, s.started)
}

// contain makes sure that no process of the job gets away.
func (s *supervisor) contain() error {
	// Tolerated: the marker still finds what gets away.
	s.noteError("adopt orphans", becomeReaper())
	if g, err := makeCgroup(s.started.Cgroup); err == nil {
		s.group = g
	} else {
		s.started.Cgroup = ""
	}
	return nil
}

// start runs the child. A failure here means that it never ran.
func (s *supervisor) start() error {
	if s.stopReason() != nil {
		return errStopped
	}
	l := s.launch
	if st, err := os.Stat(l.Dir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	} else if !st.IsDir() {
		return fmt.Errorf("working directory %s: %w", l.Dir, syscall.ENOTDIR)
	}
	path, err := lookPath(l.Argv[0], l.Dir, l.Env)
	if err != nil {
		return err
	}
	stdin := l.StdinFile
	if stdin == "" {
		stdin = os.DevNull
	}
	in, err := os.Open(stdin)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	defer in.Close()
	var ends [2]*os.File
	for i := range ends {
		if s.outputs[i], ends[i], err = os.Pipe(); err != nil {
			return fmt.Errorf("output pipe: %w", err)
		}
		defer ends[i].Close()
	}
	if l.Umask != 0 {
		// Our own files are made with their exact modes, which a stricter mask can't change.
		syscall.Umask(l.Umask)
	}
	attr := &syscall.ProcAttr{
		Dir: l.Dir, Env: withMark(l.Env, l.Marker), Sys: childAttr(s.group),
		// Fd makes the file blocking, which is what the child expects.
		Files: []uintptr{in.Fd(), ends[0].Fd(), ends[1].Fd()},
	}
	undo := jobsGoFirst()
	s.begin = time.Now()
	pid, _, err := syscall.StartProcess(path, l.Argv, attr)
	if err != nil && s.group != nil {
		// The kernel, or the rights on the tree, may forbid starting a process in a cgroup directly.
		s.noteError("remove cgroup", s.group.remove())
		s.group, s.started.Cgroup, attr.Sys = nil, "", childAttr(nil)
		pid, _, err = syscall.StartProcess(path, l.Argv, attr)
	}
	s.noteError("be ended after the job where memory is short", undo())
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	s.started.StartedAt = s.begin.UTC()
	// It can't be reaped before we wait for it, so this is still the same process, if only its remains.
	child, err := look(pid)
	s.noteError("identify the child", err)
	s.started.Child = child.Identity
	s.started.Child.PID = pid
	return nil
}

// announce says that the child runs. Where that can't be written the locked file still proves us. The locked file under
// a second name is one file less to make for every job; whoever reads it half written takes it as not there yet.
func (s *supervisor) announce() error {
	err := rewrite(s.lock, s.started)
	if err == nil {
		err = os.Link(s.lock.Name(), filepath.Join(s.dir, startedFile))
	}
	if err != nil {
		err = writeDoc(s.dir, startedFile, s.started)
	}
	s.noteError("announce", err)
	return nil
}

// forget removes the launch with its secrets, and lets the runner go on.
func (s *supervisor) forget() error {
	s.noteError("remove launch", os.Remove(filepath.Join(s.dir, launchFile)))
	s.tellReady()
	return nil
}

func (s *supervisor) tellReady() {
	if s.ready != nil {
		_, _ = s.ready.Write([]byte{'r'})
		_ = s.ready.Close()
		s.ready = nil
	}
}

var errStopped = errors.New("stopped before the start")

// refuse ends a supervisor that started nothing.
func (s *supervisor) refuse(cause error) int {
	if errors.Is(cause, errLeave) {
		return 1
	}
	if s.group != nil {
		s.noteError("remove cgroup", s.group.remove())
	}
	now := time.Now().UTC()
	e := Exit{Code: codeNotExecutable, StartedAt: now, FinishedAt: now, Reason: ReasonStartFailed}
	switch stop := s.stopReason(); {
	case errors.Is(cause, errStopped) && stop != nil:
		e.Code, e.Reason = -1, ReasonStopped
		s.notes = append([]string{stop.Reason}, s.notes...)
	case errors.Is(cause, ErrNotFound) && !errors.Is(cause, os.ErrPermission), errors.Is(cause, syscall.ENOENT):
		e.Code = codeNotFound
		fallthrough
	default:
		s.notes = append([]string{cause.Error()}, s.notes...)
	}
	code := s.writeExit(e)
	_ = os.Remove(filepath.Join(s.dir, launchFile))
	return code
}
