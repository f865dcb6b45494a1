// Package mesh starts the real binary for tests: a hub and a runner as processes of
// their own, in a directory and an environment of their own, and finds whatever they
// leave behind.
package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

var binary string

// Main builds the binary, runs the tests of a package, and exits.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "tugline-mesh")
	if err != nil {
		panic(err)
	}
	binary = Build(dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Build builds the binary in a directory and gives its path; flags are those of go
// build. Nothing is linked that only a debugger reads. Where it can't be built nothing
// can be tested, and the process exits.
func Build(dir string, flags ...string) string {
	program := filepath.Join(dir, "tugline")
	build := exec.Command("go", slices.Concat([]string{"build", "-o", program, "-ldflags", "-s -w"}, flags, []string{"tugline.dev/tugline/cmd/tugline"})...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build tugline:", err)
		os.Exit(1)
	}
	return program
}

// Binary is the path of the binary that Main built.
func Binary() string { return binary }

// Mesh is one hub and one runner as processes of their own.
type Mesh struct {
	T      *testing.T
	Dir    string
	Listen string // of the hub
	Public string // what runners are told; the same unless a line is put between, or the hub ends TLS
	Hub    *Process
	Runner *Process
	Extra  []string // of the runner's command line
	Slots  int
	Config string   // of runner.yaml, behind what every runner here has
	Vars   []string // of the runner's environment, behind what everything here has
	Ticket []string // of the making of the runner's ticket
	Hubs   string   // what the command line is told of hubs, where it is not the one
	Secret string   // the operator's token, where the hub's directory may go
}

// New prepares a mesh and starts nothing. What runs at the end is stopped, its
// words are shown if the test failed, and no process of it may be left.
func New(t *testing.T) *Mesh {
	t.Helper()
	m := &Mesh{T: t, Dir: t.TempDir(), Slots: 2}
	m.Listen = freePort(t)
	m.Public = "http://" + m.Listen
	t.Cleanup(func() {
		for _, p := range []*Process{m.Runner, m.Hub} {
			if p != nil {
				p.Stop()
				if t.Failed() {
					t.Logf("--- %s said:\n%s", p.name, Tail(p.Said(), 8000))
				}
			}
		}
		NoneLeft(t, m.marks()...)
	})
	return m
}

// Up starts hub and runner and waits until the runner is online.
func Up(t *testing.T) *Mesh {
	t.Helper()
	m := New(t)
	m.StartHub()
	m.StartRunner()
	m.Online()
	return m
}

func (m *Mesh) Launch(name string, args ...string) *Process {
	m.T.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(m.Env(), m.Vars...)
	p, err := Start(name, cmd)
	if err != nil {
		m.T.Fatal(err)
	}
	return p
}

// Env is a clean environment with a home of its own, marked so that what the mesh
// starts can be found again.
func (m *Mesh) Env() []string {
	home := filepath.Join(m.Dir, "home")
	os.MkdirAll(home, 0o755)
	hub := "http://" + m.Listen
	if strings.HasPrefix(m.Public, "https:") { // the hub ends TLS itself
		hub = m.Public
	}
	if m.Hubs != "" {
		hub = m.Hubs
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "TZ=UTC", "USER=tester", "LOGNAME=tester",
		"GIT_CONFIG_NOSYSTEM=1", "E2E_MESH=" + m.Dir, "TUGLINE_HUB=" + hub, "TUGLINE_TOKEN=" + m.Token()}
	if strings.HasPrefix(hub, "https:") {
		env = append(env, "TUGLINE_CA_FILE="+filepath.Join(m.Dir, "hub", "ca.pem"))
	}
	return env
}

func (m *Mesh) Token() string {
	if m.Secret != "" {
		return m.Secret
	}
	b, _ := os.ReadFile(filepath.Join(m.Dir, "hub", "operator.token"))
	return strings.TrimSpace(string(b))
}

func (m *Mesh) StartHub() {
	m.T.Helper()
	args := []string{"hub", "run", "--data-dir", filepath.Join(m.Dir, "hub"), "--listen", m.Listen, "--bootstrap"}
	if m.Public != "http://"+m.Listen {
		args = append(args, "--public-url", m.Public)
	}
	m.Hub = m.Launch("hub", args...)
	m.Eventually(15*time.Second, "the hub is ready", func() bool {
		if !m.Hub.Runs() {
			m.T.Fatalf("the hub ended:\n%s", m.Hub.Said())
		}
		out, _, code := m.Try("hub", "status", "--json")
		return code == 0 && strings.Contains(out, `"leader"`)
	})
}

func (m *Mesh) StartRunner() {
	m.T.Helper()
	dir := filepath.Join(m.Dir, "runner")
	args := []string{"runner", "run", "--data-dir", dir, "--name", "r1", "--slots", fmt.Sprint(m.Slots)}
	if _, err := os.Stat(filepath.Join(dir, "identity.json")); err != nil {
		os.MkdirAll(dir, 0o700)
		if err := os.WriteFile(filepath.Join(dir, "runner.yaml"), []byte(fmt.Sprintf("slots: %d\nallow_file: true\n%s", m.Slots, m.Config)), 0o600); err != nil {
			m.T.Fatal(err)
		}
		var k api.Ticket
		m.JSON(&k, append([]string{"hub", "ticket", "--json"}, m.Ticket...)...)
		args = append(args, "--ticket", k.Ticket)
	}
	m.Runner = m.Launch("runner", append(args, m.Extra...)...)
}

func (m *Mesh) Online() {
	m.T.Helper()
	m.Eventually(20*time.Second, "the runner is online", func() bool {
		var rs api.Runners
		out, _, code := m.Try("runner", "list", "--json")
		return code == 0 && json.Unmarshal([]byte(out), &rs) == nil && len(rs.Runners) == 1 && rs.Runners[0].State == "online"
	})
}

// Try runs the command line and gives what it printed and its exit code.
func (m *Mesh) Try(args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Env, c.Dir = m.Env(), m.Dir
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

// Run is try that must succeed.
func (m *Mesh) Run(args ...string) string {
	m.T.Helper()
	out, errs, code := m.Try(args...)
	if code != 0 {
		m.T.Fatalf("tugline %s: exit %d\n%s\n%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

func (m *Mesh) JSON(into any, args ...string) {
	m.T.Helper()
	out := m.Run(args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		m.T.Fatalf("tugline %s: %v in %s", strings.Join(args, " "), err, out)
	}
}

func (m *Mesh) Job(id string) api.Job {
	m.T.Helper()
	var j api.Job
	m.JSON(&j, "job", "get", id, "--json")
	return j
}

// Detach submits and gives the job's id.
func (m *Mesh) Detach(args ...string) string {
	m.T.Helper()
	at := 1
	id := strings.TrimSpace(m.Run(append(append(append([]string{}, args[:at]...), "--detach"), args[at:]...)...))
	if len(id) != 26 {
		m.T.Fatalf("--detach printed %q, not a job id alone", id)
	}
	return id
}

func (m *Mesh) Ended(id string, within time.Duration) api.Job {
	m.T.Helper()
	var j api.Job
	m.Eventually(within, "job "+id+" ends", func() bool {
		out, _, code := m.Try("job", "get", id, "--json")
		return code == 0 && json.Unmarshal([]byte(out), &j) == nil && j.State.Ended()
	})
	return j
}

func (m *Mesh) State(id string, want fleet.State, within time.Duration) api.Job {
	m.T.Helper()
	var j api.Job
	m.Eventually(within, fmt.Sprintf("job %s is %s", id, want), func() bool {
		out, _, code := m.Try("job", "get", id, "--json")
		return code == 0 && json.Unmarshal([]byte(out), &j) == nil && j.State == want
	})
	return j
}

func (m *Mesh) Eventually(within time.Duration, what string, ok func() bool) {
	m.T.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			m.T.Fatalf("not within %s: %s", within, what)
		}
		<-tick.C
	}
}

// marks are the words in the environment of whatever the mesh starts. Jobs do not get
// the mark, but the home.
func (m *Mesh) marks() []string { return []string{"E2E_MESH=" + m.Dir, "HOME=" + m.Dir + "/"} }

// Marked lists what of the mesh runs.
func (m *Mesh) Marked() []string { return marked(m.marks()) }

func (m *Mesh) Git(dir string, args ...string) string {
	m.T.Helper()
	c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=Tester", "-c", "user.email=tester@example.invalid"}, args...)...)
	c.Env = m.Env()
	out, err := c.CombinedOutput()
	if err != nil {
		m.T.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m *Mesh) Write(path, text string) string {
	m.T.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		m.T.Fatal(err)
	}
	return path
}

// Supervisors gives the pids of the supervisor processes of the mesh.
func (m *Mesh) Supervisors() []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmd, _ := os.ReadFile(d + "/cmdline")
		if bytes.Contains(cmd, []byte("\x00supervise\x00"+m.Dir)) {
			var pid int
			fmt.Sscan(filepath.Base(d), &pid)
			out = append(out, pid)
		}
	}
	return out
}

// Repository makes a small repository with one commit.
func (m *Mesh) Repository(name string) string {
	m.T.Helper()
	dir := filepath.Join(m.Dir, name)
	m.Write(filepath.Join(dir, "README.md"), "# greeter\n")
	m.Write(filepath.Join(dir, "greet.sh"), "echo hello\n")
	m.Git(dir, "init", "-q", "-b", "main")
	m.Git(dir, "add", "-A")
	m.Git(dir, "commit", "-q", "-m", "begin")
	return dir
}

// Newest gives the id of the newest job.
func (m *Mesh) Newest() string {
	m.T.Helper()
	var list struct{ Jobs []struct{ ID string } }
	m.JSON(&list, "job", "list", "--json")
	if len(list.Jobs) == 0 {
		m.T.Fatal("no job")
	}
	return list.Jobs[0].ID
}

// InDir is Run in another directory.
func (m *Mesh) InDir(dir string, args ...string) string {
	m.T.Helper()
	c := exec.Command(binary, args...)
	c.Dir, c.Env = dir, m.Env()
	out, err := c.CombinedOutput()
	if err != nil {
		m.T.Fatalf("tugline %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return string(out)
}
