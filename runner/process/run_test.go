package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var shellEnv = []string{"PATH=/usr/bin:/bin"}

func sh(script string) Cmd { return Cmd{Argv: []string{"sh", "-c", script}, Env: shellEnv} }

func TestRunGivesOutputAndStatus(t *testing.T) {
	c := sh(`cat; pwd; echo "$ONLY$HOME"; echo oops >&2`)
	c.Dir, c.Stdin, c.Env = t.TempDir(), strings.NewReader("in\n"), append(shellEnv, "ONLY=this")
	got, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Stdout: []byte("in\n" + c.Dir + "\nthis\n"), Stderr: []byte("oops\n")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestRunReportsFailure(t *testing.T) {
	got, err := Run(t.Context(), sh("echo out; echo one >&2; echo two >&2; echo three >&2; echo four >&2; exit 7"))
	var exit *ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("got %v, want an ExitError", err)
	}
	if exit.Name != "sh" || exit.ExitCode != 7 || string(exit.Stdout) != "out\n" || got.ExitCode != 7 {
		t.Errorf("got %+v", exit)
	}
	if want := "sh: exit status 7: one; two; three"; err.Error() != want {
		t.Errorf("text: got %q, want %q", err, want)
	}
	if _, err = Run(t.Context(), sh("kill -9 $$")); !errors.As(err, &exit) || exit.Signal != "SIGKILL" || exit.ExitCode != -1 {
		t.Errorf("killed: got %v", err)
	}
	// The text is there also where the caller took the stream.
	c := sh("echo mine >&2; exit 1")
	var taken bytes.Buffer
	c.Stderr = &taken
	if _, err = Run(t.Context(), c); err == nil || !strings.HasSuffix(err.Error(), ": mine") || taken.String() != "mine\n" {
		t.Errorf("taken: got %v and %q", err, taken.String())
	}
}

func TestRunBoundsCapture(t *testing.T) {
	c := sh("head -c 100000 /dev/zero; head -c 50 /dev/zero >&2")
	c.Limit = 1000
	got, err := Run(t.Context(), c)
	if err != nil || len(got.Stdout) != 1000 || len(got.Stderr) != 50 || !got.Truncated {
		t.Errorf("got %d and %d bytes, truncated %v, %v", len(got.Stdout), len(got.Stderr), got.Truncated, err)
	}
	c = sh("head -c 100000 /dev/zero")
	var all bytes.Buffer
	c.Limit, c.Stdout = 10, &all
	if got, err = Run(t.Context(), c); err != nil || all.Len() != 100000 || got.Truncated || got.Stdout != nil {
		t.Errorf("with a writer: got %d bytes, %+v, %v", all.Len(), got, err)
	}
}

func TestRunFindsPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"good": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho ran\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "broken"), []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, c := range map[string]struct {
		file, path string
		found      string
	}{
		"by PATH":             {"good", "/no:" + dir, dir + "/good"},
		"last PATH wins":      {"good", "/no\x00PATH=" + dir, dir + "/good"},
		"absolute":            {dir + "/good", "", dir + "/good"},
		"relative":            {"./good", "", "./good"},
		"not in PATH":         {"good", "/no", ""},
		"relative PATH entry": {"good", ".::bin", ""},
		"no PATH":             {"good", "", ""},
		"not executable":      {"plain", dir, ""},
		"directory":           {dir, "", ""},
		"empty":               {"", dir, ""},
	} {
		env := strings.Split("PATH="+c.path, "\x00")
		got, err := LookPath(c.file, env)
		if got != c.found || (err == nil) != (c.found != "") || (err != nil && !errors.Is(err, ErrNotFound)) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.found)
		}
	}
	for _, argv := range [][]string{nil, {""}, {"no-such-program"}, {"/no/such"}, {dir + "/broken"}, {dir + "/plain"}} {
		if _, err := Run(t.Context(), Cmd{Argv: argv, Env: shellEnv}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: got %v, want ErrNotFound", argv, err)
		}
	}
	if _, err := Run(t.Context(), Cmd{Argv: []string{"sh"}, Env: shellEnv, Dir: "/no/such"}); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("missing directory: got %v, want an error that is not ErrNotFound", err)
	}
	if got, err := Run(t.Context(), Cmd{Argv: []string{"./good"}, Dir: dir}); err != nil || string(got.Stdout) != "ran\n" {
		t.Errorf("relative to Dir: got %q %v", got.Stdout, err)
	}
}

func TestRunEndsTheGroupWithTheContext(t *testing.T) {
	cause := errors.New("runner stops")
	for name, script := range map[string]string{
		"gentle":   "echo up; sleep 60 & wait",
		"stubborn": "trap '' TERM; echo up; sleep 60 & wait; sleep 60",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := sh(script)
		marker := newMarker(t)
		c.Env = append(c.Env, MarkVariable+"="+marker)
		c.Grace = 200 * time.Millisecond
		c.Stdout = writerFunc(func(p []byte) (int, error) { cancel(cause); return len(p), nil })
		begin := time.Now()
		_, err := Run(ctx, c)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("%s: got %v", name, err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if left := survivors(t, marker); len(left) > 0 {
			eventually(t, name+": no survivor", func() bool { return len(survivors(t, marker)) == 0 })
		}
		cancel(nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, sh("exit 0")); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: got %v", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRunEndsWhatStalls(t *testing.T) {
	t.Parallel()
	c := sh("echo begin; exec sleep 60")
	c.Stall = 150 * time.Millisecond
	got, err := Run(t.Context(), c)
	if !errors.Is(err, ErrStalled) || string(got.Stdout) != "begin\n" || got.Signal != "SIGTERM" {
		t.Errorf("got %+v, %v", got, err)
	}
	c = sh("for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.05; done")
	c.Stall, c.Stderr = 200*time.Millisecond, io.Discard
	if _, err := Run(t.Context(), c); err != nil {
		t.Errorf("output in time: %v", err)
	}
}

func TestRunLeavesNothingInItsGroup(t *testing.T) {
	t.Parallel()
	failed := sh("sleep 60 >/dev/null 2>&1 & exit 1")
	failed.Env = append(failed.Env, MarkVariable+"="+newMarker(t))
	if _, err := Run(t.Context(), failed); err == nil {
		t.Error("no error")
	}
	c := sh("sleep 60 & echo done")
	marker := newMarker(t) // the holder is in the group, so it is ended
	c.Env = append(c.Env, MarkVariable+"="+marker)
	begin := time.Now()
	got, err := Run(t.Context(), c)
	if err != nil || string(got.Stdout) != "done\n" {
		t.Errorf("got %q, %v", got.Stdout, err)
	}
	if took := time.Since(begin); took > leakDelay+2*time.Second {
		t.Errorf("took %v", took)
	}
}
