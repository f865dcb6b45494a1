package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrNotFound says that the program of a command does not exist or may not be executed.
	ErrNotFound = errors.New("program not found")
	// ErrStalled says that a command was ended because it gave no byte for Cmd.Stall.
	ErrStalled = errors.New("no output for too long")
)

const (
	defaultCapture = 1 << 20
	defaultGrace   = 2 * time.Second
	// leakDelay bounds the wait for the output pipes after the command itself has ended: a grandchild
	// that inherited them could hold them open for ever.
	leakDelay = 2 * time.Second
	// headBytes of standard error are kept for the text of an ExitError, also when the caller took the stream.
	headBytes = 4 << 10
)

// A Cmd is one short helper command, such as git or the version check of an agent CLI.
type Cmd struct {
	Argv []string
	// Dir is the working directory; "" is that of the caller.
	Dir string
	// Env is the whole environment, nothing is inherited. Argv[0] is looked up in its PATH.
	Env []string
	// Stdin is copied to the command; nil is /dev/null. A reader that may block for ever must be closed by the caller.
	Stdin io.Reader
	// Stdout and Stderr take the streams; nil captures up to Limit bytes of each into the Result.
	Stdout, Stderr io.Writer
	// Limit bounds each captured stream in bytes, 1 MiB if 0. What is beyond it is read and dropped.
	Limit int
	// Stall ends the command once neither stream gave a byte for so long; 0 is no such bound.
	Stall time.Duration
	// Grace lies between SIGTERM and SIGKILL to the command's process group, 2 s if 0.
	Grace time.Duration
}

// A Result is what a command left behind.
type Result struct {
	// Stdout and Stderr are what was captured: the first Limit bytes of each stream.
	Stdout, Stderr []byte
	// Truncated says that a captured stream was longer than Limit.
	Truncated bool
	// ExitCode is the exit status, -1 if a signal ended the command or it never started.
	ExitCode int
	// Signal names the signal that ended the command, such as "SIGKILL"; "" if none did.
	Signal string
}

// An ExitError reports a command that ran and ended with a status other than 0.
type ExitError struct {
	Result
	// Name is Argv[0].
	Name string
	// Head holds the first lines of standard error, at most 4 KiB, also where a writer took that stream.
	Head string
}

func (e *ExitError) Error() string {
	end := fmt.Sprintf("%s: exit status %d", e.Name, e.ExitCode)
	if e.Signal != "" {
		end = e.Name + ": ended by " + e.Signal
	}
	if head := firstLines(e.Head, 3); head != "" {
		return end + ": " + head
	}
	return end
}

// Run starts a command in a process group of its own and waits for it. The error is an *ExitError for a status
// other than 0, or wraps ErrNotFound, ErrStalled or the context's error and cause; the Result is filled as far as
// the command came. When the context ends or the command stalls, its group gets SIGTERM and, after the grace,
// SIGKILL. Run returns at most about Grace + 2 s after that, even if another process holds the pipes open. What a
// failed command leaves in its group is ended as well.
func Run(ctx context.Context, c Cmd) (Result, error) {
	res := Result{ExitCode: -1}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return res, fmt.Errorf("run: empty command: %w", ErrNotFound)
	}
	name := c.Argv[0]
	if ctx.Err() != nil {
		return res, fmt.Errorf("run %s: %w", name, contextError(ctx))
	}
	if c.Dir != "" {
		if st, err := os.Stat(c.Dir); err != nil {
			return res, fmt.Errorf("run %s: working directory: %w", name, err)
		} else if !st.IsDir() {
			return res, fmt.Errorf("run %s: working directory %s: %w", name, c.Dir, syscall.ENOTDIR)
		}
	}
	path, err := lookPath(name, c.Dir, c.Env)
	if err != nil {
		return res, fmt.Errorf("run %s: %w", name, err)
	}
	limit, grace := c.Limit, c.Grace
	if limit <= 0 {
		limit = defaultCapture
	}
	if grace <= 0 {
		grace = defaultGrace
	}

	var lastByte atomic.Int64
	begun := time.Now()
	stdout := &tap{next: c.Stdout, last: &lastByte, begun: begun, keep: limit}
	stderr := &tap{next: c.Stderr, last: &lastByte, begun: begun, keep: limit}
	if c.Stdout != nil {
		stdout.keep = 0
	}
	if c.Stderr != nil {
		stderr.keep = headBytes
	}
	cmd := &exec.Cmd{
		Path: path, Args: c.Argv, Dir: c.Dir, Env: append([]string{}, c.Env...), Stdin: c.Stdin,
		Stdout: stdout, Stderr: stderr, WaitDelay: leakDelay,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return res, fmt.Errorf("run %s: %w (%w)", name, ErrNotFound, err)
		}
		return res, fmt.Errorf("run %s: %w", name, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()

	cut, err := attend(ctx, cmd.Process.Pid, waited, c.Stall, grace, func() time.Duration {
		return time.Since(begun) - time.Duration(lastByte.Load())
	})
	if err != nil {
		// What a failed command leaves in its group, such as the ssh of a git fetch, or whoever keeps a pipe open
		// after a good end, is of no use to anybody.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}

	res.ExitCode, res.Signal = exitOf(cmd.ProcessState)
	res.Stdout, res.Stderr = stdout.bytes(), stderr.bytes()
	head := res.Stderr
	if c.Stdout != nil {
		res.Stdout = nil
	}
	if c.Stderr != nil {
		res.Stderr = nil
	}
	res.Truncated = (c.Stdout == nil && stdout.isCut()) || (c.Stderr == nil && stderr.isCut())
	switch {
	case cut != nil:
		return res, fmt.Errorf("run %s: %w", name, cut)
	case res.ExitCode != 0:
		return res, &ExitError{Result: res, Name: name, Head: string(head[:min(len(head), headBytes)])}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		// Status 0, but a stream could not be copied.
		return res, fmt.Errorf("run %s: %w", name, err)
	}
	return res, nil
}

// attend waits for a started command and ends its group when the context ends or it falls silent. cut is the
// reason for which it was ended, err what Wait said.
func attend(ctx context.Context, pid int, waited <-chan error, stall, grace time.Duration, silent func() time.Duration) (cut, err error) {
	var check <-chan time.Time
	if stall > 0 {
		ticker := time.NewTicker(max(stall/8, time.Millisecond))
		defer ticker.Stop()
		check = ticker.C
	}
	for cut == nil {
		select {
		case err := <-waited:
			return nil, err
		case <-ctx.Done():
			cut = contextError(ctx)
		case <-check:
			if silent() >= stall {
				cut = fmt.Errorf("%w (%v)", ErrStalled, stall)
			}
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err = <-waited:
		// Members of the group that ignored the signal outlive the leader.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	case <-timer.C:
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		err = <-waited
	}
	return cut, err
}

// LookPath finds a program the way a shell would, in the PATH of env. A name with a slash is taken as it is.
// Relative and empty directories of PATH are passed over, so that a job's checkout can't plant a program.
// The error wraps ErrNotFound.
func LookPath(file string, env []string) (string, error) { return lookPath(file, "", env) }

func lookPath(file, dir string, env []string) (string, error) {
	if strings.Contains(file, "/") {
		at := file
		if !filepath.IsAbs(file) && dir != "" {
			at = filepath.Join(dir, file)
		}
		if err := executable(at); err != nil {
			return "", fmt.Errorf("%w (%w)", ErrNotFound, err)
		}
		return file, nil
	}
	path := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	if file == "" || path == "" {
		return "", fmt.Errorf("%q: %w (no PATH in the environment)", file, ErrNotFound)
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			continue
		}
		if at := filepath.Join(d, file); executable(at) == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("%q: %w in PATH", file, ErrNotFound)
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return &fs.PathError{Op: "exec", Path: path, Err: syscall.EISDIR}
	case st.Mode()&0o111 == 0:
		return &fs.PathError{Op: "exec", Path: path, Err: fs.ErrPermission}
	}
	return nil
}

// contextError gives the context's error together with its cause, so that errors.Is finds either.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return cmp.Or(cause, err)
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// A tap passes one stream on, keeps its first bytes and notes when the last byte came. It is locked because a
// leaked pipe may still be copied into it when Run reads the result.
type tap struct {
	next  io.Writer
	last  *atomic.Int64 // nanoseconds after begun
	begun time.Time
	keep  int

	mu  sync.Mutex
	buf bytes.Buffer
	cut bool
}

func (t *tap) Write(p []byte) (int, error) {
	t.last.Store(int64(time.Since(t.begun)))
	t.mu.Lock()
	room := min(t.keep-t.buf.Len(), len(p))
	t.buf.Write(p[:room])
	t.cut = t.cut || room < len(p)
	t.mu.Unlock()
	if t.next == nil {
		return len(p), nil
	}
	return t.next.Write(p)
}

func (t *tap) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf.Bytes())
}

func (t *tap) isCut() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

func exitOf(st *os.ProcessState) (code int, signal string) {
	if st == nil {
		return -1, ""
	}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, signalName(ws.Signal())
	}
	return st.ExitCode(), ""
}

func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[:n]
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
