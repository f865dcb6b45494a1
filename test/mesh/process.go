package mesh

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is one tugline process and what it says.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *Words
	done chan struct{}
}

// Words is what a process writes, to be read meanwhile.
type Words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *Words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *Words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// Start starts a command in a process group of its own and keeps what it writes.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, log: new(Words), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { cmd.Wait(); close(p.done) }()
	return p, nil
}

// Runs says whether the process lives; one that was never started does not.
func (p *Process) Runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// ExitCode is that of a process that has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Said is what the process has written so far.
func (p *Process) Said() string { return p.log.String() }

// Kill ends the process with -9 and waits until it is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Pause stops the process without ending it, and Resume has it go on.
func (p *Process) Pause()  { p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *Process) Resume() { p.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the process as an operator would.
func (p *Process) Stop() {
	if !p.Runs() {
		return
	}
	p.Resume()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		p.Kill()
	}
}

// NoneLeft fails the test where a process is left that has one of the marks in its
// environment, and ends it.
func NoneLeft(t *testing.T, marks ...string) {
	t.Helper()
	var left []string
	for range 50 { // what was told to end may take a moment
		if left = marked(marks); len(left) == 0 {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	for _, p := range left {
		t.Errorf("a process is left: %s", p)
	}
	for _, p := range marked(marks) {
		var pid int
		fmt.Sscan(p, &pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// marked lists the processes that have one of the marks in their environment: the pid
// and the command line of each.
func marked(marks []string) []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil {
			continue
		}
		for _, mark := range marks {
			if bytes.Contains(env, []byte(mark)) {
				cmd, _ := os.ReadFile(d + "/cmdline")
				out = append(out, filepath.Base(d)+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
				break
			}
		}
	}
	return out
}

// Tail is the end of a text, of n bytes at most.
func Tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
