//go:build linux

package fault

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one tugline process and what it says.
type process struct {
	name string
	cmd  *exec.Cmd
	said *words
	done chan struct{}
}

type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (c *cluster) launch(m *machine, name string, env []string, args ...string) *process {
	c.t.Helper()
	p := &process{name: name, cmd: m.command(program, args...), said: new(words), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = p.said, p.said, c.dir
	p.cmd.Env = append(c.env(), env...)
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	return p
}

func (p *process) runs() bool {
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

// kill ends the process with -9.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// pause stops the process without ending it, and resume has it go on.
func (p *process) pause()  { p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() { p.cmd.Process.Signal(syscall.SIGCONT) }

// stop ends the process as an operator would.
func (p *process) stop() {
	if !p.runs() {
		return
	}
	p.resume()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		p.kill()
	}
}

// marked lists what still carries the cluster's mark, jobs and supervisors too.
func (c *cluster) marked() (out []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(env, []byte("HOME="+c.dir+"/")) {
			continue
		}
		line, _ := os.ReadFile(d + "/cmdline")
		out = append(out, filepath.Base(d)+" "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return out
}

func (c *cluster) endMarked() {
	for _, line := range c.marked() {
		var pid int
		fmt.Sscan(line, &pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
