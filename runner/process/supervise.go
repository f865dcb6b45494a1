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
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
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

	// settleTime is given to what the child left behind to finish its output before it is ended.
	settleTime = 250 * time.Millisecond
	// drainLimit bounds the wait for the end of the output once every process is gone.
	drainLimit = 2 * time.Second
	// tick is the longest time between two looks at the clock and at the stop file.
	tick = time.Second
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
// written. It takes over the process: signals, umask and child processes. Call it first thing in main, or before, on
// the initial goroutine.
func Supervise(dir string) int {
	// The child is ended when the thread that started it ends, so this thread must be kept.
	runtime.LockOSThread()
	s := &supervisor{dir: dir, signals: make(chan os.Signal, 8)}
	// Caught and not ignored: an ignored signal would stay ignored in the job's processes. Only SIGTERM means
	// something, a hang-up or an interrupt of the terminal that started the runner does not.
	signal.Notify(s.signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	dropIgnored()
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
	sweeper.reaper = r
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
	return !sw.strangers(time.Since(s.begin))
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
