// Package e2e drives the real binary: hubs, runners, git and processes, with kill -9
// where something must survive it. Nothing in it is a fake but the lines that are cut.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tugline-e2e")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "tugline")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/tugline")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build tugline:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// mesh is one hub and one runner as processes of their own.
type mesh struct {
	t      *testing.T
	dir    string
	listen string // of the hub
	public string // what runners are told; the same unless a line is put between
	hub    *process
	runner *process
	extra  []string // of the runner's command line
	slots  int
}

// process is one tugline process and what it says.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newMesh prepares a mesh and starts nothing. What runs at the end is stopped, its
// words are shown if the test failed, and no process of it may be left.
func newMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{t: t, dir: t.TempDir(), slots: 2}
	m.listen = freePort(t)
	m.public = "http://" + m.listen
	t.Cleanup(func() {
		for _, p := range []*process{m.runner, m.hub} {
			if p != nil {
				p.stop()
				if t.Failed() {
					t.Logf("--- %s said:\n%s", p.name, tail(p.log.String(), 8000))
				}
			}
		}
		for _, left := range m.processes() {
			t.Errorf("a process is left: %s", left)
		}
		m.endAll()
	})
	return m
}

// up starts hub and runner and waits until the runner is online.
func up(t *testing.T) *mesh {
	t.Helper()
	m := newMesh(t)
	m.startHub()
	m.startRunner()
	m.online()
	return m
}

func (m *mesh) launch(name string, args ...string) *process {
	m.t.Helper()
	p := &process{name: name, cmd: exec.Command(binary, args...), log: new(lockedBuffer), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = m.env()
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	return p
}

// env is a clean environment with a home of its own, marked so that what the mesh
// starts can be found again.
func (m *mesh) env() []string {
	home := filepath.Join(m.dir, "home")
	os.MkdirAll(home, 0o755)
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "TZ=UTC", "USER=tester", "LOGNAME=tester",
		"GIT_CONFIG_NOSYSTEM=1", "E2E_MESH=" + m.dir, "TUGLINE_HUB=http://" + m.listen, "TUGLINE_TOKEN=" + m.token()}
}

func (m *mesh) token() string {
	b, _ := os.ReadFile(filepath.Join(m.dir, "hub", "operator.token"))
	return strings.TrimSpace(string(b))
}

func (m *mesh) startHub() {
	m.t.Helper()
	args := []string{"hub", "run", "--data-dir", filepath.Join(m.dir, "hub"), "--listen", m.listen, "--bootstrap"}
	if m.public != "http://"+m.listen {
		args = append(args, "--public-url", m.public)
	}
	m.hub = m.launch("hub", args...)
	m.eventually(15*time.Second, "the hub is ready", func() bool {
		select {
		case <-m.hub.done:
			m.t.Fatalf("the hub ended:\n%s", m.hub.log)
		default:
		}
		out, _, code := m.try("hub", "status", "--json")
		return code == 0 && strings.Contains(out, `"leader"`)
	})
}

func (m *mesh) startRunner() {
	m.t.Helper()
	dir := filepath.Join(m.dir, "runner")
	args := []string{"runner", "run", "--data-dir", dir, "--name", "r1", "--slots", fmt.Sprint(m.slots)}
	if _, err := os.Stat(filepath.Join(dir, "identity.json")); err != nil {
		os.MkdirAll(dir, 0o700)
		if err := os.WriteFile(filepath.Join(dir, "runner.yaml"), []byte(fmt.Sprintf("slots: %d\nallow_file: true\n", m.slots)), 0o600); err != nil {
			m.t.Fatal(err)
		}
		var k api.Ticket
		m.json(&k, "hub", "ticket", "--json")
		args = append(args, "--ticket", k.Ticket)
	}
	m.runner = m.launch("runner", append(args, m.extra...)...)
}

func (m *mesh) online() {
	m.t.Helper()
	m.eventually(20*time.Second, "the runner is online", func() bool {
		var rs api.Runners
		out, _, code := m.try("runner", "list", "--json")
		return code == 0 && json.Unmarshal([]byte(out), &rs) == nil && len(rs.Runners) == 1 && rs.Runners[0].State == "online"
	})
}

// kill ends a process with -9 and waits until it is gone.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// stop ends a process as an operator would.
func (p *process) stop() {
	select {
	case <-p.done:
		return
	default:
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// try runs the command line and gives what it printed and its exit code.
func (m *mesh) try(args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Env, c.Dir = m.env(), m.dir
	c.WaitDelay = time.Second
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out.String(), errs.String() + err.Error(), -1
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// run is try that must succeed.
func (m *mesh) run(args ...string) string {
	m.t.Helper()
	out, errs, code := m.try(args...)
	if code != 0 {
		m.t.Fatalf("tugline %s: exit %d\n%s\n%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

func (m *mesh) json(into any, args ...string) {
	m.t.Helper()
	out := m.run(args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		m.t.Fatalf("tugline %s: %v in %s", strings.Join(args, " "), err, out)
	}
}

func (m *mesh) job(id string) api.Job {
	m.t.Helper()
	var j api.Job
	m.json(&j, "job", "get", id, "--json")
	return j
}

// detach submits and gives the job's id.
func (m *mesh) detach(args ...string) string {
	m.t.Helper()
	at := 1
	id := strings.TrimSpace(m.run(append(append(append([]string{}, args[:at]...), "--detach"), args[at:]...)...))
	if len(id) != 26 {
		m.t.Fatalf("--detach printed %q, not a job id alone", id)
	}
	return id
}

func (m *mesh) ended(id string, within time.Duration) api.Job {
	m.t.Helper()
	var j api.Job
	m.eventually(within, "job "+id+" ends", func() bool {
		out, _, code := m.try("job", "get", id, "--json")
		return code == 0 && json.Unmarshal([]byte(out), &j) == nil && j.State.Ended()
	})
	return j
}

func (m *mesh) state(id string, want fleet.State, within time.Duration) api.Job {
	m.t.Helper()
	var j api.Job
	m.eventually(within, fmt.Sprintf("job %s is %s", id, want), func() bool {
		out, _, code := m.try("job", "get", id, "--json")
		return code == 0 && json.Unmarshal([]byte(out), &j) == nil && j.State == want
	})
	return j
}

func (m *mesh) eventually(within time.Duration, what string, ok func() bool) {
	m.t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			m.t.Fatalf("not within %s: %s", within, what)
		}
		<-tick.C
	}
}

// processes lists what still carries the mesh's mark, but for this test itself.
func (m *mesh) processes() []string {
	var out []string
	for i := 0; i < 50; i++ { // what was told to end may take a moment
		if out = m.marked(); len(out) == 0 {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return out
}

func (m *mesh) marked() []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(env, []byte("E2E_MESH="+m.dir)) {
			continue
		}
		cmd, _ := os.ReadFile(d + "/cmdline")
		out = append(out, filepath.Base(d)+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
	}
	return out
}

func (m *mesh) endAll() {
	for _, line := range m.marked() {
		var pid int
		fmt.Sscan(line, &pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (m *mesh) git(dir string, args ...string) string {
	m.t.Helper()
	c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=Tester", "-c", "user.email=tester@example.invalid"}, args...)...)
	c.Env = m.env()
	out, err := c.CombinedOutput()
	if err != nil {
		m.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m *mesh) write(path, text string) string {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// supervisors gives the pids of the supervisor processes of the mesh.
func (m *mesh) supervisors() []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmd, _ := os.ReadFile(d + "/cmdline")
		if bytes.Contains(cmd, []byte("\x00supervise\x00"+m.dir)) {
			var pid int
			fmt.Sscan(filepath.Base(d), &pid)
			out = append(out, pid)
		}
	}
	return out
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
