package process

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// frozenDir has the files of a job's directory as the first release wrote them. They are
// never changed: supervisors that wrote such files live on while their runner is replaced.
const frozenDir = "testdata/supervisor-v1"

func init() { plays["frozen"] = frozenSupervisor }

// frozenVar is where a frozen supervisor, which has no directory of its own, finds its files.
const frozenVar = "FROZEN"

// frozenFile gives one with some words replaced.
func frozenFile(dir, name string, words ...string) []byte {
	b, err := os.ReadFile(filepath.Join(dir, name))
	check(err)
	return []byte(strings.NewReplacer(words...).Replace(strings.TrimSpace(string(b))))
}

// frozenSupervisor does what a supervisor of the first release does, with its files byte for
// byte, and has nothing of this package but how the machine tells processes apart.
func frozenSupervisor(args []string) int {
	dir, files := args[1], os.Getenv(frozenVar)
	path := func(name string) string { return filepath.Join(dir, name) }
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	lock, err := os.OpenFile(path("supervisor.json"), os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	check(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	var launch struct {
		Version   int
		Marker    string
		Argv, Env []string
		Dir       string
	}
	b, err := os.ReadFile(path("launch.json"))
	check(err)
	check(json.Unmarshal(b, &launch))
	text := func(in ...string) (out []string) {
		for _, s := range in {
			b, err := base64.StdEncoding.DecodeString(s)
			check(err)
			out = append(out, string(b))
		}
		return out
	}
	self, err := Identify(os.Getpid())
	check(err)
	var child Identity
	announce := func() {
		_, err := lock.WriteAt(frozenFile(files, "supervisor.json", "BOOT", bootID(), "MARKER", launch.Marker,
			"SUPERVISOR_PID", strconv.Itoa(self.PID), "SUPERVISOR_START", fmt.Sprint(self.StartTime), "CHILD_PID", strconv.Itoa(child.PID), "CHILD_START", fmt.Sprint(child.StartTime)), 0)
		check(err)
	}
	announce()
	check(os.WriteFile(path("exit.tmp"), []byte(strings.Repeat(" ", 4096)), 0o600))
	out, in, err := os.Pipe()
	check(err)
	argv := text(launch.Argv...)
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Dir: text(launch.Dir)[0], Env: append(text(launch.Env...), "TUGLINE_MARK="+launch.Marker), Files: []*os.File{nil, in, in}})
	check(err)
	check(in.Close())
	row, err := look(p.Pid) // it may have ended, and is not reaped yet
	check(err)
	child = row.Identity
	announce()
	check(os.Link(path("supervisor.json"), path("started.json")))
	check(os.Remove(path("launch.json")))
	ready := os.NewFile(3, "ready")
	_, err = ready.Write([]byte{'r'})
	check(err)
	check(ready.Close())

	word := make([]byte, 6)
	_, err = io.ReadFull(out, word)
	check(err)
	check(os.WriteFile(path("spool-0000000000000000.seg"), append(frozenFrame, word...), 0o600))
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = p.Wait() }()
	reason, detail := "exited", ""
	select {
	case <-ended:
	case <-stop:
		var why struct{ Reason string }
		b, err := os.ReadFile(path("stop.json"))
		check(err)
		check(json.Unmarshal(b, &why))
		reason, detail = "stopped", why.Reason
		check(p.Signal(syscall.SIGTERM))
		<-ended
	}
	check(os.WriteFile(path("exit.tmp"), frozenFile(files, "exit.json", "REASON", reason, "DETAIL", detail), 0o600))
	check(os.Rename(path("exit.tmp"), path("exit.json")))
	return 0
}

// frozenFrame is the head of six bytes of standard output: kind, length, milliseconds.
var frozenFrame = []byte{0x01, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0x01, 0x99, 0, 0, 0, 0}

// frozen gives a program that supervises as the first release did.
func frozen(t *testing.T) string {
	t.Helper()
	files, err := filepath.Abs(frozenDir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "frozen")
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' PLAY=frozen exec '%s' \"$@\"\n", frozenVar, files, os.Args[0])
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Today's runner starts, finds again, stops and reads what a supervisor of the first release
// supervises, and ends what one leaves that was killed.
func TestSupervisorsOfTheFirstRelease(t *testing.T) {
	start := func(t *testing.T, script string) (string, Status) {
		dir := filepath.Join(t.TempDir(), "job")
		st, err := Spawn(t.Context(), frozen(t), dir, launchOf(newMarker(t), "/bin/sh", "-c", script))
		if err != nil {
			t.Fatal(err)
		}
		return dir, st
	}
	at := func(s string) time.Time {
		d, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := Exit{Code: 7, StartedAt: at("2026-12-01T08:00:00.25Z"), FinishedAt: at("2026-12-01T08:00:03Z"), Bytes: 6, SpoolBytes: 22}
	for name, c := range map[string]struct{ script, reason, detail string }{
		"exits":      {"echo begun", "exited", ""},
		"is stopped": {"echo begun; exec sleep 60", "stopped", "somebody wished so"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, st := start(t, c.script)
			if c.detail != "" {
				saw(t, dir, "begun")
				found, err := Attach(dir)
				if err != nil || found.State != Running || found.Started != st.Started || found.Started.Child.PID == 0 || found.Started.StartedAt != want.StartedAt {
					t.Fatalf("found %+v, %v; started was %+v", found, err, st)
				}
				if err := Stop(dir, c.detail); err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(filepath.Join(dir, "stop.json"))
				var doc stopDoc
				if err := json.Unmarshal(b, &doc); err != nil {
					t.Fatal(err)
				}
				if golden := frozenFile(frozenDir, "stop.json", "AT", doc.At.Format(time.RFC3339Nano)); err != nil || string(b) != string(golden) {
					t.Errorf("it is told to stop by %s, want %s", b, golden)
				}
			}
			w := want
			w.Reason, w.Detail = c.reason, c.detail
			if d := cmp.Diff(w, ended(t, dir)); d != "" {
				t.Errorf("the end (-want +got):\n%s", d)
			}
			if o := outputOf(t, dir); o.stdout != "begun\n" {
				t.Errorf("the output is %+v", o)
			}
		})
	}
	t.Run("is killed", func(t *testing.T) {
		dir, st := start(t, "echo begun; exec sleep 60")
		saw(t, dir, "begun")
		if err := syscall.Kill(st.Started.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got, err := Wait(t.Context(), dir); err != nil || got.State != Gone || got.Started != st.Started {
			t.Errorf("got %+v, %v, want gone", got, err)
		}
		if n, err := Sweep(dir); err != nil || n != 1 {
			t.Errorf("swept %d, %v; want the child", n, err)
		}
	})
}

// What is written today has every field that it had, of the same type.
func TestFilesOfTheFirstRelease(t *testing.T) {
	marker := newMarker(t)
	l := launchOf(marker, "/bin/sh", "-c", "echo begun")
	l.Version, l.Env, l.StdinFile, l.StopSignal, l.Umask = LaunchVersion, []string{"PATH=/usr/bin:/bin", "A=b\xff"}, "/dev/null", "INT", 0o22
	l.OutputCap, l.SegmentBytes, l.MinFreeBytes = 1<<20, minSegmentBytes, 4096
	l.Timeout, l.Idle, l.FirstResponse, l.Grace = time.Hour, 15*time.Minute, 5*time.Minute, time.Second
	dir := t.TempDir()
	if err := writeLaunch(dir, l); err != nil {
		t.Fatal(err)
	}
	golden := frozenFile(frozenDir, "launch.json", "MARKER", marker)
	if b, err := os.ReadFile(filepath.Join(dir, "launch.json")); err != nil || string(b) != string(golden) {
		t.Errorf("a launch is written as\n%s, want\n%s", b, golden)
	}
	if err := os.WriteFile(filepath.Join(dir, "launch.json"), golden, 0o600); err != nil {
		t.Fatal(err)
	}
	if doc, err := readLaunch(dir); err != nil || cmp.Diff(l, doc.Launch) != "" {
		t.Errorf("a launch is read as %+v, %v\n%s", doc.Launch, err, cmp.Diff(l, doc.Launch))
	}

	done, _ := run(t, launchOf(newMarker(t), "/bin/sh", "-c", "echo begun >&1; exit 7"))
	for name, file := range map[string]string{"supervisor.json": "supervisor.json", "started.json": "supervisor.json", "exit.json": "exit.json"} {
		was := map[string]any{}
		numbers := []string{"SUPERVISOR_PID", "1", "SUPERVISOR_START", "1", "CHILD_PID", "1", "CHILD_START", "1"}
		if err := json.Unmarshal(frozenFile(frozenDir, file, numbers...), &was); err != nil {
			t.Fatal(err)
		}
		is := map[string]any{}
		b, err := os.ReadFile(filepath.Join(done, name))
		if err == nil {
			err = json.Unmarshal(b, &is)
		}
		if err != nil {
			t.Fatal(err)
		}
		delete(was, "detail") // said where there is something to say
		for field, v := range was {
			if got, want := fmt.Sprintf("%T", is[field]), fmt.Sprintf("%T", v); got != want {
				t.Errorf("%s has %s as %s, and had it as %s", name, field, got, want)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(done, "spool-0000000000000000.seg"))
	if head := len(frozenFrame); err != nil || len(b) != head+6 || string(b[:8]) != string(frozenFrame[:8]) || string(b[head:]) != "begun\n" {
		t.Errorf("output is recorded as %q, %v", b, err)
	}
}
