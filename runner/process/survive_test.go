package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What a job leaves behind is ended, however it tries to get away.
func TestNothingSurvivesTheJob(t *testing.T) {
	storm := filepath.Join(t.TempDir(), "storm")
	if err := os.WriteFile(storm, []byte("#!/bin/sh\nsetsid $0 &\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		launch func(t *testing.T) Launch
		swept  int // at least
		stdout string
	}{
		"daemon without marker": {func(t *testing.T) Launch { return playOf(t, "daemon") }, 1, ""},
		"daemon in a shell": {func(t *testing.T) Launch {
			return launchOf(newMarker(t), "sh", "-c", "(setsid nohup sleep 60 >/dev/null 2>&1 &); echo ok")
		}, 1, "ok\n"},
		"streams held open": {func(t *testing.T) Launch { return playOf(t, "holder") }, 1, "done\n"},
		"late output": {func(t *testing.T) Launch {
			return launchOf(newMarker(t), "sh", "-c", "(sleep 0.05; echo late) & echo early")
		}, 0, "early\nlate\n"},
		"fork storm": {func(t *testing.T) Launch {
			return launchOf(newMarker(t), "sh", "-c", storm+"; "+storm+"; "+storm)
		}, 1, ""},
	} {
		for kind, self := range selves(t) {
			t.Run(name+", "+kind, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "job")
				st, err := Spawn(t.Context(), self, dir, c.launch(t))
				if err != nil {
					t.Fatal(err)
				}
				if kind == "no cgroup" && st.Started.Cgroup != "" {
					t.Fatalf("there is a cgroup: %s", st.Started.Cgroup)
				}
				e := ended(t, dir)
				if e.Code != 0 || e.Reason != ReasonExited || e.Swept < c.swept || e.Detail != "" {
					t.Errorf("got %+v, want success and at least %d swept", e, c.swept)
				}
				if o := outputOf(t, dir).stdout; o != c.stdout {
					t.Errorf("output: got %q, want %q", o, c.stdout)
				}
				none(t, name, "PLAY=daemon")
			})
		}
	}
}

// none fails if a process has such a variable: the plays that throw away the marker.
func none(t *testing.T, what, variable string) {
	t.Helper()
	procs, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if env, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ"); err == nil && bytes.Contains(env, []byte(variable)) {
			t.Errorf("%s: process %d with %s is left", what, p.PID, variable)
		}
	}
}

func TestChildThatClosesItsStreams(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	spawned(t, dir, playOf(t, "mute"))
	if err := Stop(dir, "enough"); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, dir); e.Signal != "SIGTERM" || e.Reason != ReasonStopped {
		t.Errorf("got %+v", e)
	}
}

// A killed supervisor takes the child with it, and Sweep the rest. The outcome is lost.
func TestSupervisorKilled(t *testing.T) {
	for kind, self := range selves(t) {
		t.Run(kind, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			script := "(setsid sleep 60 &); (env -i setsid sleep 61 &); env -i sleep 62 & echo ready; exec sleep 60"
			st, err := Spawn(t.Context(), self, dir, launchOf(newMarker(t), "sh", "-c", script))
			if err != nil {
				t.Fatal(err)
			}
			saw(t, dir, "ready")
			want := 3
			var tree treeDoc
			if st.Started.Cgroup == "" {
				eventually(t, "a picture of 4 processes", func() bool {
					return readDoc(dir, treeFile, &tree) == nil && len(tree.Processes) == 4
				})
			}
			if err := syscall.Kill(st.Started.Supervisor.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			got, err := Wait(t.Context(), dir)
			if err != nil || got.State != Gone || got.Exit != nil {
				t.Fatalf("wait: got %+v %v, want gone", got, err)
			}
			eventually(t, "the child dies with the supervisor", func() bool { return !alive(st.Started.Child) })
			if err := Stop(dir, "x"); !errors.Is(err, ErrGone) {
				t.Errorf("stop: got %v, want ErrGone", err)
			}
			killed, err := Sweep(dir)
			if err != nil || killed != want {
				t.Errorf("sweep: got %d %v, want %d", killed, err, want)
			}
			if killed, err := Sweep(dir); err != nil || killed != 0 {
				t.Errorf("second sweep: got %d %v, want 0", killed, err)
			}
			for _, id := range tree.Processes {
				if alive(id) {
					t.Errorf("process %d is left", id.PID)
				}
			}
			if n := zombies(t); n > 0 {
				t.Errorf("%d zombies", n)
			}
			secrets(t, dir)
		})
	}
}

func TestSweepEndsALivingSupervisorToo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	st := spawned(t, dir, playOf(t, "stubborn"))
	saw(t, dir, "ready")
	if killed, err := Sweep(dir); err != nil || killed < 1 {
		t.Errorf("got %d %v", killed, err)
	}
	eventually(t, "both are gone", func() bool { return !alive(st.Started.Supervisor) && !alive(st.Started.Child) })
	if st, err := Attach(dir); err != nil || st.State != Gone {
		t.Errorf("got %v %v, want gone", st.State, err)
	}
}

// A runner is killed after each step of Spawn: the next one finds the job running, or gone for ever.
func TestRunnerKilledWithinSpawn(t *testing.T) {
	for steps := range 6 {
		t.Run(strconv.Itoa(steps), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			marker := newMarker(t)
			_, err := Run(t.Context(), Cmd{
				Argv: []string{os.Args[0], dir, strconv.Itoa(steps), marker}, Env: []string{"PLAY=runner"},
			})
			var exit *ExitError
			if !errors.As(err, &exit) || exit.Signal != "SIGKILL" {
				t.Fatalf("the runner: %v", err)
			}
			st, err := Attach(dir)
			if err != nil {
				t.Fatal(err)
			}
			// Right after the fork it depends on who takes the lock first.
			if steps < 4 || (steps == 4 && st.State == Gone) {
				if st.State != Gone {
					t.Fatalf("got %v, want gone", st.State)
				}
				secrets(t, dir)
				// A supervisor that comes up late, after the verdict, must not start anything.
				if _, err := os.Stat(dir); err == nil {
					late, err := Run(t.Context(), Cmd{Argv: []string{os.Args[0], SuperviseCommand, dir}, Env: []string{MarkVariable + "=" + marker}})
					if err == nil {
						t.Errorf("a late supervisor ran the job: %+v", late)
					}
				}
				if again, err := Attach(dir); err != nil || again.State != Gone {
					t.Errorf("again: got %v %v, want gone", again.State, err)
				}
				return
			}
			if st.State != Running {
				t.Fatalf("got %v, want running", st.State)
			}
			saw(t, dir, "hello")
			if err := Stop(dir, "adopted"); err != nil {
				t.Fatal(err)
			}
			if e := ended(t, dir); e.Reason != ReasonStopped || e.Detail != "adopted" {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// A supervisor is killed after each step of its opening: the job is gone, and Sweep leaves nothing of it.
func TestSupervisorKilledWithinOpening(t *testing.T) {
	for steps := range len((*supervisor)(nil).opening()) + 1 {
		t.Run(strconv.Itoa(steps), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			l := launchOf(newMarker(t), "sh", "-c", "(setsid sleep 60 &); sleep 60")
			l.Version = LaunchVersion
			if err := prepare(dir, l); err != nil {
				t.Fatal(err)
			}
			_, err := Run(t.Context(), Cmd{
				Argv: []string{os.Args[0], dir, strconv.Itoa(steps)}, Env: []string{"PLAY=supervisor", MarkVariable + "=" + l.Marker},
			})
			var exit *ExitError
			if !errors.As(err, &exit) || exit.Signal != "SIGKILL" {
				t.Fatalf("the supervisor: %v", err)
			}
			if st, err := Attach(dir); err != nil || st.State != Gone {
				t.Fatalf("got %v %v, want gone", st.State, err)
			}
			secrets(t, dir)
			if _, err := Sweep(dir); err != nil {
				t.Errorf("sweep: %v", err)
			}
			if left := survivors(t, l.Marker); len(left) > 0 {
				t.Errorf("processes %v are left after the sweep", left)
			}
		})
	}
}

func TestAttachOfNothing(t *testing.T) {
	for name, dir := range map[string]string{"missing": "/no/such/dir", "empty": t.TempDir()} {
		if st, err := Attach(dir); err != nil || st.State != Gone {
			t.Errorf("%s: got %v %v, want gone", name, st.State, err)
		}
		if killed, err := Sweep(dir); err != nil || killed != 0 {
			t.Errorf("%s: sweep: got %d %v", name, killed, err)
		}
	}
}

// Files of an earlier run of the machine speak of no process of this one, whatever the numbers in them.
func TestFilesOfAnotherBoot(t *testing.T) {
	dir := t.TempDir()
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	st := Started{Version: 1, Boot: "another", Supervisor: self, Child: self, Marker: "test-other-boot", StartedAt: time.Now()}
	if err := writeDoc(dir, startedFile, st); err != nil {
		t.Fatal(err)
	}
	if got, err := Attach(dir); err != nil || got.State != Gone {
		t.Errorf("got %v %v, want gone", got.State, err)
	}
	if killed, err := Sweep(dir); err != nil || killed != 0 {
		t.Errorf("sweep: got %d %v", killed, err)
	}
}

// A process with the right number and start time but without the marker is not ours.
func TestProofNeedsTheMarker(t *testing.T) {
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	st := Started{Boot: bootID(), Supervisor: self, Marker: "test-proof-needs"}
	if proven(st, self) {
		t.Error("a process without the marker was taken for a supervisor")
	}
	if !alive(self) || alive(Identity{PID: self.PID, StartTime: self.StartTime + 1}) {
		t.Error("the start time does not tell processes apart")
	}
	if _, err := Identify(1 << 30); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("identify of nobody: got %v", err)
	}
}

// Jobs side by side, each with a daemon left behind, don't touch each other.
func TestManyJobsAtOnce(t *testing.T) {
	root := t.TempDir()
	var group sync.WaitGroup
	for worker := range 6 {
		var markers []string
		for range 5 {
			markers = append(markers, newMarker(t))
		}
		group.Go(func() {
			for i, marker := range markers {
				dir := filepath.Join(root, fmt.Sprintf("%d-%d", worker, i))
				script := fmt.Sprintf("(setsid sleep 60 >/dev/null 2>&1 &); echo %s; exit %d", marker, i)
				if _, err := Spawn(t.Context(), os.Args[0], dir, launchOf(marker, "sh", "-c", script)); err != nil {
					t.Error(err)
					return
				}
				st, err := Wait(t.Context(), dir)
				if err != nil || st.State != Exited || st.Exit.Code != i || st.Exit.Reason != ReasonExited || st.Exit.Detail != "" {
					t.Errorf("job %s: got %+v %+v %v, want status %d", marker, st, st.Exit, err, i)
				}
				if o := outputOf(t, dir).stdout; o != marker+"\n" {
					t.Errorf("job %s: got output %q", marker, o)
				}
			}
		})
	}
	group.Wait()
	if n := zombies(t); n > 0 {
		t.Errorf("%d zombies", n)
	}
}

// Processes that only start their successor and end are caught also when no supervisor is left to inherit them.
func TestSweepCatchesAMovingTarget(t *testing.T) {
	storm := filepath.Join(t.TempDir(), "storm")
	if err := os.WriteFile(storm, []byte("#!/bin/sh\nsetsid $0 &\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for kind, self := range selves(t) {
		dir := filepath.Join(t.TempDir(), "job")
		script := storm + "; " + storm + "; echo ready; exec sleep 60"
		st, err := Spawn(t.Context(), self, dir, launchOf(newMarker(t), "sh", "-c", script))
		if err != nil {
			t.Fatal(err)
		}
		saw(t, dir, "ready")
		if err := syscall.Kill(st.Started.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got, err := Wait(t.Context(), dir); err != nil || got.State != Gone {
			t.Fatalf("%s: wait: got %v %v, want gone", kind, got.State, err)
		}
		// Each of the two lines ends with a process that has no successor because a signal of
		// ours reached it first, and those are counted. With a cgroup it may be the kernel that
		// ends a line which no look met, all at once and uncounted.
		want := 2
		if st.Started.Cgroup != "" {
			want = 0
		}
		if killed, err := Sweep(dir); err != nil || killed < want {
			t.Errorf("%s: sweep: got %d %v, want at least %d", kind, killed, err, want)
		}
		for range 20 {
			if left := survivors(t, st.Started.Marker); len(left) > 0 {
				t.Fatalf("%s: %v are left", kind, left)
			}
		}
	}
}
