//go:build installers && linux

package installers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/test/mesh"
)

// machine is a Debian that boots with systemd as its first process, in a container with a
// network of its own. What it writes lies on a file system in memory over a tree that it
// only reads.
type machine struct {
	t      *testing.T
	dir    string
	nspawn *exec.Cmd
	said   *os.File
}

// boot starts a machine from the tree of this one, less its services: a fresh Debian would
// take minutes to fetch.
func boot(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "tugline-systemd")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir}
	t.Cleanup(m.stop)
	for _, d := range []string{"memory", "root"} {
		if err := os.Mkdir(m.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, exec.Command("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", m.path("memory")))
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(m.path("memory/"+d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, exec.Command("mount", "-t", "overlay", "-o", "lowerdir=/,upperdir="+m.path("memory/upper")+",workdir="+m.path("memory/work"), "overlay", m.path("root")))
	for _, pattern := range []string{"etc/systemd/system/*", "etc/rc?.d/*", "etc/init.d/*", "etc/tugline", "var/lib/tugline", "usr/local/bin/tugline"} {
		found, _ := filepath.Glob(m.path("root/" + pattern))
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, m.path("root/etc/fstab"), "", 0o644)
	write(t, m.path("root/etc/hostname"), "hub1\n", 0o644)
	must(t, exec.Command("cp", "-r", filepath.Join(root, "installers/hub"), m.path("root/opt/installers")))
	must(t, exec.Command("cp", mesh.Binary(), m.path("root/opt/tugline")))
	if m.said, err = os.Create(m.path("said")); err != nil {
		t.Fatal(err)
	}
	m.power()
	return m
}

// power has the machine start and waits until it is up.
func (m *machine) power() {
	m.t.Helper()
	// Its own temporary directories, for systemd empties them when it starts.
	m.nspawn = exec.Command("systemd-nspawn", "--boot", "--register=no", "--keep-unit", "--private-network", "--console=read-only",
		"--tmpfs=/tmp", "--tmpfs=/var/tmp", "--machine="+filepath.Base(m.dir), "--directory="+m.path("root"))
	m.nspawn.Stdout, m.nspawn.Stderr = m.said, m.said
	m.nspawn.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.nspawn.Start(); err != nil {
		m.t.Fatal(err)
	}
	eventually(m.t, 60*time.Second, "the machine is up", func() bool {
		out, _ := m.in("systemctl", "is-active", "multi-user.target").Output()
		return strings.TrimSpace(string(out)) == "active"
	})
}

// reboot has the machine start anew, as an operator would.
func (m *machine) reboot() {
	m.t.Helper()
	m.in("systemctl", "reboot").Run() // which may cut off the one who asked
	done := make(chan error, 1)
	go func() { done <- m.nspawn.Wait() }()
	select {
	case <-done:
	case <-time.After(90 * time.Second):
		m.t.Fatal("the machine does not go down")
	}
	const again = 133 // how the container says that its machine is to start again
	if code := m.nspawn.ProcessState.ExitCode(); code != again {
		m.t.Fatalf("the machine ended with %d; want a reboot, %d", code, again)
	}
	m.power()
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// leader is the pid of the machine's first process, seen from here.
func (m *machine) leader() string {
	pid := strconv.Itoa(m.nspawn.Process.Pid)
	b, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	for _, child := range strings.Fields(string(b)) {
		if name, _ := os.ReadFile("/proc/" + child + "/comm"); strings.TrimSpace(string(name)) == "systemd" {
			return child
		}
	}
	return ""
}

// in is a command inside, as root.
func (m *machine) in(args ...string) *exec.Cmd {
	at := m.leader()
	if at == "" {
		return exec.Command("false")
	}
	c := exec.Command("nsenter", append([]string{"-t", at, "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"}, args...)...)
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "SYSTEMD_PAGER=", "HOME=/home/nobody"}
	return c
}

func (m *machine) run(args ...string) string {
	m.t.Helper()
	return must(m.t, m.in(args...))
}

// shows reads a property of a unit.
func (m *machine) shows(unit, property string) string {
	out, _ := m.in("systemctl", "show", "-p", property, "--value", unit).Output()
	return strings.TrimSpace(string(out))
}

func (m *machine) stop() {
	if m.nspawn != nil && m.nspawn.Process != nil {
		if m.t.Failed() {
			out, _ := m.in("journalctl", "--no-pager", "-n", "120", "-u", "tugline*").CombinedOutput()
			m.t.Logf("--- the journal:\n%s", tail(string(out)))
		}
		m.nspawn.Process.Signal(syscall.SIGTERM) // it has the machine power off
		done := make(chan struct{})
		go func() { m.nspawn.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			syscall.Kill(-m.nspawn.Process.Pid, syscall.SIGKILL)
			<-done
		}
		m.said.Close()
		if m.t.Failed() {
			m.t.Logf("--- the console:\n%s", tail(read(m.t, m.path("said"))))
		}
	}
	for _, d := range []string{"root", "memory"} {
		syscall.Unmount(m.path(d), 0)
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), m.dir) {
		m.t.Errorf("mounts are left below %s", m.dir)
		return // what is mounted there is not ours to remove
	}
	if err := os.RemoveAll(m.dir); err != nil {
		m.t.Error(err)
	}
}
