package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

// The main thread is the one that hides the cgroups from the program that it becomes.
func init() { runtime.LockOSThread() }

// The test binary runs itself as the supervisor, as a job's processes, and as a runner that is killed.
func TestMain(m *testing.M) {
	if play := os.Getenv("PLAY"); play != "" {
		os.Exit(plays[play](os.Args[1:]))
	}
	if len(os.Args) == 3 && os.Args[1] == SuperviseCommand {
		code := Supervise(os.Args[2])
		// Not os.Exit, with which the race detector stays for a second.
		syscall.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// plays are what the test binary can be, by the value of PLAY; they give the exit status.
var plays = map[string]func(args []string) int{
	// A daemon: two forks, a session of its own, no standard streams, no environment but PLAY.
	"daemon": func(args []string) int {
		if len(args) == 0 {
			return start("daemon", &syscall.SysProcAttr{Setsid: true}, "middle")
		}
		if args[0] == "middle" {
			return start("daemon", nil, "end")
		}
		hang()
		return 0
	},
	// Ignores what may be ignored.
	"stubborn": func([]string) int {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		hang()
		return 0
	},
	// Says which gentle signal came.
	"gentle": func([]string) int {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		fmt.Println(signalName((<-ch).(syscall.Signal)))
		return 3
	},
	// Closes its streams and lives on.
	"mute": func([]string) int {
		for fd := range 3 {
			_ = syscall.Close(fd)
		}
		hang()
		return 0
	},
	// Writes args[0] MiB of a known pattern.
	"flood": func(args []string) int {
		mib, _ := strconv.Atoi(args[0])
		block := []byte(strings.Repeat("0123456789abcde\n", 1<<16))
		for range mib {
			if _, err := os.Stdout.Write(block); err != nil {
				return 1
			}
		}
		return 0
	},
	// Leaves a child that holds the output open.
	"holder": func(args []string) int {
		if len(args) > 0 {
			hang()
		}
		attr := &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}}
		if _, err := os.StartProcess(os.Args[0], []string{os.Args[0], "hold"}, attr); err != nil {
			return 1
		}
		fmt.Println("done")
		return 0
	},
	// A supervisor from whose sight the cgroup file system was taken.
	"bare": func(args []string) int {
		hideCgroups()
		env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PLAY=") })
		check(syscall.Exec(os.Args[0], os.Args, env))
		return 0
	},
	// A runner that is killed after args[1] steps of Spawn in the directory args[0].
	"runner": func(args []string) int {
		dir := args[0]
		steps, _ := strconv.Atoi(args[1])
		l := launchOf(args[2], "/bin/sh", "-c", "echo hello; exec sleep 60")
		l.Version = LaunchVersion
		var ready *os.File
		var err error
		for i, do := range []func(){
			func() { check(os.MkdirAll(dir, 0o700)) },
			func() { check(os.WriteFile(filepath.Join(dir, launchFile+".1"), []byte("{"), 0o600)) },
			func() { check(prepare(dir, l)) },
			func() { _, ready, err = startSupervisor(os.Args[0], dir, l.Marker); check(err) },
			func() { check(awaitReady(context.Background(), ready)) },
		} {
			if i == steps {
				break
			}
			do()
		}
		check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		return 0
	},
	// A supervisor that is killed after args[1] steps of its opening.
	"supervisor": func(args []string) int {
		steps, _ := strconv.Atoi(args[1])
		s := &supervisor{dir: args[0], signals: make(chan os.Signal, 1)}
		for _, step := range s.opening()[:steps] {
			check(step.do())
		}
		check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		return 0
	},
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
}

// start runs the test binary once more, without waiting for it.
func start(play string, attr *syscall.SysProcAttr, args ...string) int {
	_, err := os.StartProcess(os.Args[0], append([]string{os.Args[0]}, args...), &os.ProcAttr{Env: []string{"PLAY=" + play}, Sys: attr})
	check(err)
	return 0
}

// hang lasts longer than any test, but not for ever.
func hang() { <-time.After(5 * time.Minute) }

var markers atomic.Int64

// newMarker makes a marker and, when the test ends, counts what is left with it.
func newMarker(t testing.TB) string {
	marker := fmt.Sprintf("test-%d-%d", os.Getpid(), markers.Add(1))
	t.Cleanup(func() {
		eventually(t, "no process with marker "+marker, func() bool { return len(survivors(t, marker)) == 0 })
		if path := cgroupPath(marker); path != "" {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("cgroup %s is left", path)
			}
		}
	})
	return marker
}

func survivors(t testing.TB, marker string) []int {
	procs, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		if marked, _ := hasMark(p.PID, marker); marked {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// zombies counts the dead children of this process that nobody reaped, among some or all.
func zombies(t testing.TB, among ...int) int {
	t.Helper()
	if among == nil {
		names, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			pid, _ := strconv.Atoi(filepath.Base(name))
			among = append(among, pid)
		}
	}
	n := 0
	for _, pid := range among {
		if p, err := look(pid); err == nil && p.zombie && p.parent == os.Getpid() {
			n++
		}
	}
	return n
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		case <-ticker.C:
		}
	}
}

func launchOf(marker string, argv ...string) Launch {
	return Launch{Argv: argv, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Marker: marker, Grace: 300 * time.Millisecond}
}

func playOf(t testing.TB, play string, args ...string) Launch {
	l := launchOf(newMarker(t), append([]string{os.Args[0]}, args...)...)
	l.Env = append(l.Env, "PLAY="+play)
	return l
}

func spawned(t testing.TB, dir string, l Launch) Status {
	t.Helper()
	st, err := Spawn(t.Context(), os.Args[0], dir, l)
	if err != nil {
		t.Fatalf("spawn %q: %v", l.Argv, err)
	}
	return st
}

// ended waits for the exit record, and checks what holds for every end.
func ended(t testing.TB, dir string) Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	st, err := Wait(ctx, dir)
	if err != nil || st.State != Exited {
		t.Fatalf("wait: got %q, %v, want exited", st.State, err)
	}
	if left := survivors(t, st.Started.Marker); len(left) > 0 && st.Started.Marker != "" {
		t.Errorf("processes %v are left when the exit record is there", left)
	}
	if zombies(t, st.Started.Supervisor.PID) > 0 {
		t.Error("the supervisor is left as a zombie")
	}
	if _, err := os.Stat(filepath.Join(dir, launchFile)); err == nil {
		t.Error("the launch with its secrets is still there")
	}
	return *st.Exit
}

// run launches a job and waits for its end.
func run(t testing.TB, l Launch) (string, Exit) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "job")
	spawned(t, dir, l)
	return dir, ended(t, dir)
}

// output is a job's recorded output, decoded.
type output struct {
	stdout, stderr string
	marks          []fleet.Mark
}

func outputOf(t testing.TB, dir string) output {
	t.Helper()
	s, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	size, err := s.Size()
	if err != nil {
		t.Fatal(err)
	}
	var o output
	frames := fleet.NewFrameReader(bufio.NewReader(io.NewSectionReader(s, 0, size)))
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return o
		}
		if err != nil {
			t.Fatalf("offset %d of %d: %v", frames.Offset(), size, err)
		}
		switch f.Kind {
		case fleet.FrameStdout:
			o.stdout += string(f.Payload)
		case fleet.FrameStderr:
			o.stderr += string(f.Payload)
		case fleet.FrameMark:
			m, err := f.Mark()
			if err != nil {
				t.Fatal(err)
			}
			o.marks = append(o.marks, m)
		}
	}
}

// saw waits until the job's output has a text in it.
func saw(t testing.TB, dir, text string) {
	t.Helper()
	eventually(t, "output "+text, func() bool { return strings.Contains(outputOf(t, dir).stdout, text) })
}

// selves are two programs to supervise with: the test binary, and the same where no cgroup can be made.
func selves(t *testing.T) map[string]string {
	bare := filepath.Join(t.TempDir(), "bare")
	script := "#!/bin/sh\nPLAY=bare exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(bare, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"cgroup if possible": os.Args[0], "no cgroup": bare}
}
