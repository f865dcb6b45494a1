package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestJobRunsToItsEnd(t *testing.T) {
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "in"), []byte("the prompt"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := launchOf(newMarker(t), "sh", "-c", `cat; pwd; umask; printf '%s' "$ODD$TUGLINE_MARK"; echo wrong >&2; exit 4`)
	l.Dir, l.StdinFile, l.Umask = work, filepath.Join(work, "in"), 0o027
	l.Env = append(l.Env, "ODD=\xff\xfe ", MarkVariable+"=another")
	dir, e := run(t, l)
	o := outputOf(t, dir)
	if want := "the prompt" + work + "\n0027\n\xff\xfe " + l.Marker; o.stdout != want || o.stderr != "wrong\n" || o.marks != nil {
		t.Errorf("output: got %q and %q, marks %v, want %q", o.stdout, o.stderr, o.marks, want)
	}
	if e.Code != 4 || e.Signal != "" || e.Reason != ReasonExited || e.Swept != 0 || e.Detail != "" || e.DroppedBytes != 0 {
		t.Errorf("exit: got %+v, want status 4", e)
	}
	if want := int64(len(o.stdout) + len(o.stderr)); e.Bytes != want {
		t.Errorf("bytes: got %d, want %d", e.Bytes, want)
	}
	if e.StartedAt.IsZero() || e.FinishedAt.Before(e.StartedAt) {
		t.Errorf("times: %v to %v", e.StartedAt, e.FinishedAt)
	}
	for _, name := range []string{exitFile, startedFile, supervisorFile, segmentName(0)} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, mode %v, want 0600", name, err, st.Mode())
		}
	}
}

func TestChildInheritsNothing(t *testing.T) {
	// A descriptor that this process would pass on.
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(null)
	// Signals that it ignores, as a nohup and a make leave them: 33 is the C library's own.
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTSTP, 33} {
		defer ignored(t, sig)()
	}
	dir := filepath.Join(t.TempDir(), "job")
	st := spawned(t, dir, launchOf(newMarker(t), "sh", "-c", `grep -E '^Sig(Ign|Blk)' /proc/self/status; ls -x /proc/self/fd; env; exec sleep 60`))
	saw(t, dir, "TUGLINE_MARK")
	lines := strings.Split(strings.TrimSpace(outputOf(t, dir).stdout), "\n")
	for _, line := range lines[:2] {
		if !strings.HasSuffix(line, "\t0000000000000000") {
			t.Errorf("signals: got %s", line)
		}
	}
	// 0, 1, 2 and the directory that ls reads.
	if got := strings.Fields(lines[2]); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("descriptors: got %v", got)
	}
	for _, kv := range lines[3:] {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.Contains(" PATH PWD TUGLINE_MARK SHLVL _ OLDPWD ", " "+name+" ") {
			t.Errorf("environment: %s is not of the launch", kv)
		}
	}
	if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", st.Started.Supervisor.PID, null)); target == "/dev/null" {
		t.Errorf("the supervisor holds descriptor %d: %v", null, err)
	}
	if err := Stop(dir, "seen"); err != nil {
		t.Fatal(err)
	}
	ended(t, dir)
}

func TestSignalEndsJob(t *testing.T) {
	_, e := run(t, launchOf(newMarker(t), "sh", "-c", "kill -9 $$"))
	if e.Code != -1 || e.Signal != "SIGKILL" || e.Reason != ReasonExited {
		t.Errorf("got %+v, want SIGKILL", e)
	}
}

func TestStartFailures(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(l *Launch)
		code   int
	}{
		"no program":     {func(l *Launch) { l.Argv[0] = "no-such-program" }, 127},
		"no path":        {func(l *Launch) { l.Argv[0] = "/no/such" }, 127},
		"not executable": {func(l *Launch) { l.Argv[0] = filepath.Join(dir, "plain") }, 126},
		"no directory":   {func(l *Launch) { l.Dir = "/no/such" }, 127},
		"no input":       {func(l *Launch) { l.StdinFile = "/no/such" }, 127},
	} {
		l := launchOf(newMarker(t), "true")
		c.change(&l)
		job := filepath.Join(t.TempDir(), "job")
		st, err := Spawn(t.Context(), os.Args[0], job, l)
		if !errors.Is(err, ErrStartFailed) || errors.Is(err, ErrNotFound) != (c.code == 127) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if st.State != Exited || st.Exit.Code != c.code || st.Exit.Reason != ReasonStartFailed || st.Exit.Detail == "" {
			t.Errorf("%s: got %+v", name, st.Exit)
		}
		ended(t, job)
	}
}

func TestBadLaunchesAreRefused(t *testing.T) {
	for name, change := range map[string]func(l *Launch){
		"no command":    func(l *Launch) { l.Argv = nil },
		"relative dir":  func(l *Launch) { l.Dir = "x" },
		"relative file": func(l *Launch) { l.StdinFile = "x" },
		"short marker":  func(l *Launch) { l.Marker = "x" },
		"odd marker":    func(l *Launch) { l.Marker = "../../../etc" },
		"negative":      func(l *Launch) { l.Idle = -1 },
		"segments":      func(l *Launch) { l.SegmentBytes = 1 },
		"signal":        func(l *Launch) { l.StopSignal = "KILL" },
		"umask":         func(l *Launch) { l.Umask = 0o1000 },
	} {
		l := launchOf("test-bad-launch", "true")
		change(&l)
		dir := filepath.Join(t.TempDir(), "job")
		if _, err := Spawn(t.Context(), os.Args[0], dir, l); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: the directory was made", name)
		}
	}
}

func TestDirectoryIsForOneLaunch(t *testing.T) {
	dir, _ := run(t, launchOf(newMarker(t), "true"))
	if _, err := Spawn(t.Context(), os.Args[0], dir, launchOf("test-second-launch", "true")); !errors.Is(err, ErrUsed) {
		t.Errorf("got %v, want ErrUsed", err)
	}
}

func TestBoundsEndJob(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		set    func(l *Launch)
		reason string
	}{
		"timeout":                  {"while :; do echo x; sleep 0.05; done", func(l *Launch) { l.Timeout = 400 * time.Millisecond }, ReasonTimeout},
		"idle from the start":      {"sleep 60", func(l *Launch) { l.Idle = 300 * time.Millisecond }, ReasonIdle},
		"idle after output":        {"sleep 0.2; echo x >&2; sleep 60", func(l *Launch) { l.Idle, l.FirstResponse = 300*time.Millisecond, 20*time.Second }, ReasonIdle},
		"no first response":        {"sleep 60", func(l *Launch) { l.FirstResponse, l.Idle = 300*time.Millisecond, 50*time.Millisecond }, ReasonFirstResponse},
		"idle does not hit output": {"for i in 1 2 3 4 5 6; do echo x; sleep 0.1; done", func(l *Launch) { l.Idle = 400 * time.Millisecond }, ReasonExited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := launchOf(newMarker(t), "sh", "-c", c.script)
			c.set(&l)
			begin := time.Now()
			_, e := run(t, l)
			if e.Reason != c.reason || (e.Reason != ReasonExited) != (e.Signal == "SIGTERM") {
				t.Errorf("got %+v, want %s", e, c.reason)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestStopIsGentleFirst(t *testing.T) {
	for _, sig := range []string{"INT", "TERM", "HUP"} {
		l := playOf(t, "gentle")
		l.StopSignal, l.Grace = sig, 20*time.Second
		dir := filepath.Join(t.TempDir(), "job")
		spawned(t, dir, l)
		saw(t, dir, "ready")
		for range 2 {
			if err := Stop(dir, "superseded"); err != nil {
				t.Fatal(err)
			}
		}
		e := ended(t, dir)
		if e.Code != 3 || e.Reason != ReasonStopped || e.Detail != "superseded" {
			t.Errorf("%s: got %+v", sig, e)
		}
		if o := outputOf(t, dir).stdout; o != "ready\nSIG"+sig+"\n" {
			t.Errorf("%s: got %q", sig, o)
		}
		if err := Stop(dir, "again"); err != nil {
			t.Errorf("stop after the end: %v", err)
		}
	}
}

func TestStopEndsWhatIgnoresIt(t *testing.T) {
	for name, self := range selves(t) {
		t.Run(name, func(t *testing.T) {
			l := playOf(t, "stubborn")
			dir := filepath.Join(t.TempDir(), "job")
			if _, err := Spawn(t.Context(), self, dir, l); err != nil {
				t.Fatal(err)
			}
			saw(t, dir, "ready")
			if err := Stop(dir, "cancelled"); err != nil {
				t.Fatal(err)
			}
			if e := ended(t, dir); e.Signal != "SIGKILL" || e.Reason != ReasonStopped || e.Detail != "cancelled" || e.Swept != 0 {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestSupervisorIgnoresTheTerminal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	st := spawned(t, dir, launchOf(newMarker(t), "sh", "-c", "echo ready; exec sleep 60"))
	saw(t, dir, "ready")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1} {
		if err := syscall.Kill(st.Started.Supervisor.PID, sig); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := Attach(dir); err != nil || st.State != Running {
		t.Fatalf("got %v %v, want running", st.State, err)
	}
	if err := syscall.Kill(st.Started.Supervisor.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, dir); e.Reason != ReasonStopped || e.Signal != "SIGTERM" || !strings.Contains(e.Detail, "terminated") {
		t.Errorf("got %+v", e)
	}
}

func TestSpawnGivesUpWithItsContext(t *testing.T) {
	// A program that never says that it is ready.
	self := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(self, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("shutting down")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "job")
	if _, err := Spawn(ctx, self, dir, launchOf(newMarker(t), "true")); !errors.Is(err, cause) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if st, err := Attach(dir); err != nil || st.State != Gone {
		t.Errorf("attach: got %v %v, want gone", st.State, err)
	}
	secrets(t, dir)
	if n := zombies(t); n > 0 {
		t.Errorf("%d zombies", n)
	}
}

// secrets fails if a launch with an environment is left in the directory.
func secrets(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), launchFile+".") {
			t.Errorf("%s is left", e.Name())
		}
	}
	if doc, err := readLaunch(dir); err == nil && (!doc.Revoked || doc.Env != nil || doc.Argv != nil) {
		t.Errorf("the launch is left: %+v", doc)
	}
}

func TestSpawnSaysWhenTheProgramIsNoSupervisor(t *testing.T) {
	for name, self := range map[string]string{"wrong program": "/bin/true", "no program": "/no/such"} {
		dir := filepath.Join(t.TempDir(), "job")
		if _, err := Spawn(t.Context(), self, dir, launchOf(newMarker(t), "true")); err == nil {
			t.Errorf("%s: no error", name)
		}
		if st, err := Attach(dir); err != nil || st.State != Gone {
			t.Errorf("%s: attach: got %v %v, want gone", name, st.State, err)
		}
		secrets(t, dir)
	}
}
