// Package process starts and ends the processes of a runner.
//
// Run is for short helper commands. A job runs under a supervisor: a small process of this same program that outlives
// the runner, records the job's output and its exit in the job's directory, holds its timeouts and ends everything
// that the job leaves behind. Spawn starts one, Attach finds it again, Wait, Stop and OpenSpool follow it, and Sweep
// cleans up where the supervisor itself was killed.
//
// Guaranteed: an exit record is durable, comes after the durable output, and is written when no process of the job
// is left, or names those that could not be ended. A job without a supervisor and without an exit record is Gone:
// nothing is started from its directory any more, and its outcome is unknown, never a success.
//
// Not guaranteed: that a process is found which left the job's cgroup, descends from it no longer and removed the
// marker from its environment; on macOS that holds for one that does the latter two between two pictures of the
// process table. Output between two syncs, at most about a second of it, may be lost when the machine goes down.
package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// readyVariable tells the supervisor which descriptor to write to once the child runs.
	readyVariable = "TUGLINE_READY_FD"
	readyFD       = 3

	// lockPatience bounds the wait for a runner that looks at the directory just now.
	lockPatience = 2 * time.Second
	// settleTime is given to what the child left behind to finish its output before it is ended.
	settleTime = 250 * time.Millisecond
	// drainLimit bounds the wait for the end of the output once every process is gone.
	drainLimit = 2 * time.Second
	// tick is the longest time between two looks at the clock and at the stop file.
	tick = time.Second
	// exitRoom is reserved for the exit record in bytes, and exitPatience bounds the tries to write it.
	exitRoom     = 4 << 10
	exitPatience = time.Minute
	// syncEvery is the time between two syncs of the spool while output comes.
	syncEvery = time.Second
)

// A supervisor runs one job.
type supervisor struct {
	dir     string
	lock    *os.File // supervisor.json
	ready   *os.File // nil if nobody waits
	signals chan os.Signal

	launch  Launch
	started Started
	begin   time.Time
	group   *cgroup // nil if none could be made
	lineage *lineage
	// pictured is what tree.json says.
	pictured []Identity

	outputs [2]*os.File // read ends of standard output and standard error
	rec     *recorder
	last    atomic.Int64 // when the last output came, in nanoseconds after begin; 0 if none did
	notes   []string     // for Exit.Detail
}

// Supervise runs the job in a directory that Spawn prepared, and returns when it has ended: 0 if the exit record is
// written. It takes over the process: signals, umask and child processes. Call it first thing in main, on the
// initial goroutine.
func Supervise(dir string) int {
	// The child is ended when the thread that started it ends, so this thread must be kept.
	runtime.LockOSThread()
	s := &supervisor{dir: dir, signals: make(chan os.Signal, 8)}
	// Caught and not ignored: an ignored signal would stay ignored in the job's processes. Only SIGTERM means
	// something, a hang-up or an interrupt of the terminal that started the runner does not.
	signal.Notify(s.signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	keep := -1
	if os.Getenv(readyVariable) == strconv.Itoa(readyFD) {
		keep = readyFD
		syscall.CloseOnExec(readyFD)
		s.ready = os.NewFile(readyFD, "ready")
	}
	dropInherited(keep)
	for _, step := range s.opening() {
		if err := step.do(); err != nil {
			return s.refuse(err)
		}
	}
	return s.attend()
}

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
	s.begin = time.Now()
	pid, _, err := syscall.StartProcess(path, l.Argv, attr)
	if err != nil && s.group != nil {
		// The kernel, or the rights on the tree, may forbid starting a process in a cgroup directly.
		s.noteError("remove cgroup", s.group.remove())
		s.group, s.started.Cgroup, attr.Sys = nil, "", childAttr(nil)
		pid, _, err = syscall.StartProcess(path, l.Argv, attr)
	}
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

// announce says that the child runs. Where that can't be written the locked file still proves us.
func (s *supervisor) announce() error {
	s.noteError("announce", writeDoc(s.dir, startedFile, s.started))
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

// attend records the output and watches the child until it has ended, then ends and records the rest.
func (s *supervisor) attend() int {
	s.rec = &recorder{
		dir: s.dir, segmentBytes: s.launch.SegmentBytes, outputCap: s.launch.OutputCap, minFree: s.launch.MinFreeBytes,
	}
	// The goroutines below end with the output, with the children, and with these channels; all are waited for.
	var reading, background sync.WaitGroup
	for i, kind := range []fleet.FrameKind{fleet.FrameStdout, fleet.FrameStderr} {
		reading.Go(func() { s.drain(s.outputs[i], kind) })
	}
	drained := make(chan struct{})
	background.Go(func() { reading.Wait(); close(drained) })
	stop, treeStop := make(chan struct{}), make(chan struct{})
	background.Go(func() { every(syncEvery, stop, s.rec.sync) })
	self := s.started.Supervisor
	s.lineage = newLineage(self, s.started.Child)
	var picturing sync.WaitGroup
	if s.group == nil {
		picturing.Go(func() { every(treeInterval, treeStop, s.picture) })
	}
	r := reap(s.started.Child.PID)

	sweeper := newSweeper(s.launch.Marker, s.group, s.lineage)
	cause, detail, forced := s.watch(r)
	close(treeStop)
	picturing.Wait()
	if forced {
		err := sweeper.sweep()
		// A process that waits in the kernel may take its time; without its end there is no exit to record.
		for !waitFor(r.ended, drainLimit) {
			err = sweeper.sweep()
		}
		s.noteError("sweep", err)
	} else {
		waitFor(drained, settleTime)
	}
	if !s.nothingLeft(r, sweeper) {
		s.noteError("sweep", sweeper.sweep())
	}
	if s.group != nil {
		s.noteError("remove cgroup", removeCgroup(s.group))
	}
	if !waitFor(drained, drainLimit) {
		s.notes = append(s.notes, "a process that could not be ended holds the output open")
	}
	for _, f := range s.outputs {
		_ = f.Close() // ends the reading if it has not ended
	}
	close(stop)
	background.Wait()

	delete(sweeper.killed, s.started.Child)
	finished := time.Now().UTC()
	s.noteError("record output", s.rec.finish(finished))
	if detail != "" {
		s.notes = append([]string{detail}, s.notes...)
	}
	e := Exit{
		StartedAt: s.started.StartedAt, FinishedAt: finished, Reason: cause, Swept: len(sweeper.killed),
		Bytes: s.rec.kept, DroppedBytes: s.rec.dropped, SpoolBytes: s.rec.size,
	}
	e.Code, e.Signal = r.status.ExitStatus(), ""
	if r.status.Signaled() {
		e.Signal = signalName(r.status.Signal())
	}
	return s.writeExit(e)
}

// watch waits for the child to end and asks it to when it is time. forced says that it did not in time.
func (s *supervisor) watch(r *reaper) (cause, detail string, forced bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var grace <-chan time.Time
	for {
		asked := false
		select {
		case <-r.ended:
			if cause == "" {
				cause = ReasonExited
			}
			return cause, detail, false
		case <-grace:
			return cause, detail, true
		case sig := <-s.signals:
			asked = sig == syscall.SIGTERM
		case <-timer.C:
		}
		due, wait := s.due(time.Since(s.begin))
		timer.Reset(wait)
		if cause != "" {
			continue
		}
		if stop := s.stopReason(); stop != nil {
			cause, detail = ReasonStopped, stop.Reason
		} else if asked {
			cause, detail = ReasonStopped, "the supervisor was terminated"
		} else if due != "" {
			cause = due
		}
		if cause != "" {
			// Checked when the launch was read.
			gentle, _ := parseSignal(s.launch.StopSignal)
			_ = signalExact(s.started.Child, gentle)
			grace = time.After(s.launch.Grace)
		}
	}
}

// due gives the bound that the job has passed after running for so long, or "", and the time until the next look.
func (s *supervisor) due(ran time.Duration) (reason string, wait time.Duration) {
	last := time.Duration(s.last.Load())
	wait = tick
	check := func(bound, from time.Duration, why string) {
		if bound == 0 {
			return
		}
		if left := from + bound - ran; left > 0 {
			wait = min(wait, left)
		} else if reason == "" {
			reason = why
		}
	}
	check(s.launch.Timeout, 0, ReasonTimeout)
	if last == 0 {
		check(s.launch.FirstResponse, 0, ReasonFirstResponse)
	}
	if last > 0 || s.launch.FirstResponse == 0 {
		check(s.launch.Idle, last, ReasonIdle)
	} else if s.launch.Idle > 0 {
		wait = min(wait, s.launch.Idle) // the first byte may come any time
	}
	return reason, wait
}

// drain records one stream to its end.
func (s *supervisor) drain(f *os.File, kind fleet.FrameKind) {
	buf := make([]byte, fleet.FrameHeaderSize+fleet.MaxFramePayload)
	for {
		n, err := f.Read(buf[fleet.FrameHeaderSize:])
		if n > 0 {
			now := time.Now()
			s.last.Store(max(int64(now.Sub(s.begin)), 1))
			s.rec.add(kind, buf[:fleet.FrameHeaderSize+n], now)
		}
		if err != nil {
			return
		}
	}
}

// nothingLeft says that the job is known to have no process any more, found out cheaply: most jobs leave none.
func (s *supervisor) nothingLeft(r *reaper, sw *sweeper) bool {
	if !orphansReturn || !r.childless() {
		return false
	}
	if s.group != nil && s.group.remove() != nil {
		return false
	}
	return !sw.strangers()
}

// picture keeps what a runner needs to end the job's processes should we be killed.
func (s *supervisor) picture() {
	procs, err := processes()
	if err != nil {
		return
	}
	if known := s.lineage.update(procs); !slices.Equal(known, s.pictured) {
		s.pictured = known
		_ = writeDoc(s.dir, treeFile, treeDoc{Processes: known})
	}
}

// stopReason gives what Stop asked for, nil if it did not.
func (s *supervisor) stopReason() *stopDoc {
	var doc stopDoc
	if readDoc(s.dir, stopFile, &doc) != nil {
		return nil
	}
	return &doc
}

func (s *supervisor) noteError(doing string, err error) {
	if err != nil {
		s.notes = append(s.notes, doing+": "+err.Error())
	}
}

// writeExit writes the exit record and makes it durable.
func (s *supervisor) writeExit(e Exit) int {
	e.Detail = strings.Join(s.notes, "; ")
	err := commitExit(s.dir, e)
	for deadline := time.Now().Add(exitPatience); err != nil && time.Now().Before(deadline); {
		time.Sleep(tick)
		err = commitExit(s.dir, e)
	}
	s.tellReady()
	if err != nil {
		return 1
	}
	return 0
}

// reserve takes the room of the exit record while there is some: what can't be recorded is not started.
func (s *supervisor) reserve() error {
	room := bytes.Repeat([]byte{' '}, exitRoom)
	if err := os.WriteFile(filepath.Join(s.dir, exitReserve), room, 0o600); err != nil {
		return fmt.Errorf("reserve room for the exit record: %w", err)
	}
	return nil
}

// commitExit makes the exit record durable. It overwrites the reserved room in place, which needs no new space.
func commitExit(dir string, e Exit) error {
	tmp := filepath.Join(dir, exitReserve)
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := rewrite(f, e); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, exitFile)); err != nil {
		return err
	}
	return syncDir(dir)
}

// rewrite replaces the content of an open file by the JSON of v.
func rewrite(f *os.File, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}

// every calls fn again and again until stop is closed.
func every(period time.Duration, stop <-chan struct{}, fn func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			fn()
		}
	}
}

func waitFor(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
