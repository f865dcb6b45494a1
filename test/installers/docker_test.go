//go:build installers && linux

package installers

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// daemon is a Docker daemon in namespaces of its own: its networks, mounts and processes
// end with it, and the fixed ports of the compose file are nobody else's.
type daemon struct {
	t       *testing.T
	dir     string
	inside  string // pid of a process inside
	process *exec.Cmd
	said    *os.File
}

func startDocker(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "tugline-docker")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir}
	if d.said, err = os.Create(filepath.Join(dir, "said")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stop)
	d.start()
	return d
}

// start starts the daemon, also anew after kill, and waits until it answers.
func (d *daemon) start() {
	d.t.Helper()
	d.process = exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", `
set -e
mount -t tmpfs tmpfs /run
ip link set lo up
echo up > "$1/up"
exec dockerd --data-root "$1/data" --exec-root /run/docker --pidfile /run/docker.pid -H "unix://$1/docker.sock" --bridge none --log-level warn --cgroup-parent "$2"
`, "sh", d.dir, d.cgroup())
	d.process.Stdout, d.process.Stderr = d.said, d.said
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	pid := strconv.Itoa(d.process.Process.Pid)
	eventually(d.t, 40*time.Second, "the Docker daemon answers", func() bool {
		b, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		d.inside = strings.TrimSpace(string(b))
		c := exec.Command("docker", "version")
		c.Env = d.env()
		return d.inside != "" && c.Run() == nil
	})
}

// kill ends the daemon and all that it started at once, as a crash does.
func (d *daemon) kill() {
	d.process.Process.Kill() // and with it, for --kill-child, the first process of the namespace and so all of it
	d.process.Wait()
	eventually(d.t, 10*time.Second, "the daemon's processes are gone", func() bool { return len(d.left()) == 0 })
}

func (d *daemon) cgroup() string { return "/" + filepath.Base(d.dir) }

func (d *daemon) env() []string {
	return append(os.Environ(), "DOCKER_HOST=unix://"+d.dir+"/docker.sock", "COMPOSE_PROJECT_NAME=")
}

// stop ends the daemon and all that it started by their own process tree, and sees that
// nothing is left.
func (d *daemon) stop() {
	d.kill()
	d.said.Close()
	if d.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(d.dir, "said"))
		d.t.Logf("--- the Docker daemon said:\n%s", tail(string(b)))
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, _ := filepath.Glob(pattern + d.cgroup())
		for _, dir := range dirs {
			removeGroups(dir)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	if bytes.Contains(mounts, []byte(d.dir)) {
		d.t.Errorf("mounts are left below %s", d.dir)
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Error(err)
	}
}

// removeGroups removes a control group that is empty, with those below.
func removeGroups(dir string) {
	below, _ := filepath.Glob(dir + "/*/")
	for _, b := range below {
		removeGroups(b)
	}
	os.Remove(dir)
}

// left lists processes that name the daemon's directory.
func (d *daemon) left() (out []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(d.dir)) {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// docker runs the client, which speaks through a socket in a directory.
func (d *daemon) docker(args ...string) string {
	d.t.Helper()
	c := exec.Command("docker", args...)
	c.Env = d.env()
	return must(d.t, c)
}

// cluster runs cluster.sh beside the daemon.
func (d *daemon) cluster(args ...string) string {
	d.t.Helper()
	c := exec.Command(filepath.Join(root, "installers/hub/cluster.sh"), args...)
	c.Env = append(d.env(), "TUGLINE_IMAGE=tugline-under-test")
	return must(d.t, c)
}

// healthy waits until Docker itself says so of the nodes.
func (d *daemon) healthy(nodes ...string) {
	d.t.Helper()
	for _, n := range nodes {
		eventually(d.t, 90*time.Second, n+" is healthy", func() bool {
			c := exec.Command("docker", "inspect", "-f", "{{.State.Health.Status}}", d.container(n))
			c.Env = d.env()
			out, err := c.Output()
			return err == nil && strings.TrimSpace(string(out)) == "healthy"
		})
	}
}

// container finds the one of a service, whatever the tool called it.
func (d *daemon) container(service string) string {
	d.t.Helper()
	id := strings.TrimSpace(d.docker("ps", "-a", "-q", "--filter", "label=com.docker.compose.service="+service))
	if id == "" || strings.Contains(id, "\n") {
		d.t.Fatalf("the containers of %s are %q; want one", service, id)
	}
	return id
}

// tugline is the command line in the daemon's network, where the ports of the compose file
// are.
func (d *daemon) tugline(env []string, args ...string) *exec.Cmd {
	c := exec.Command("nsenter", append([]string{"-t", d.inside, "-n", mesh.Binary()}, args...)...)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(d.dir, "home"), "USER=tester", "LANG=C.UTF-8"}, env...)
	c.Dir = d.dir
	return c
}

func TestClusterOfContainers(t *testing.T) {
	t.Parallel() // it waits most of the time, as do the others
	d := startDocker(t)
	build := exec.Command("make", "-C", root, "image", "IMAGE=tugline-under-test")
	build.Env = d.env()
	must(t, build)

	d.cluster("up")
	d.healthy("hub1", "hub2", "hub3")
	for name, to := range map[string]string{"operator.token": "token", "ca.pem": "ca.pem"} {
		d.docker("cp", d.container("hub1")+":/data/"+name, filepath.Join(d.dir, to))
	}
	token := strings.TrimSpace(read(t, filepath.Join(d.dir, "token")))
	env := func(hub string) []string {
		return []string{"TUGLINE_HUB=" + hub, "TUGLINE_TOKEN=" + token, "TUGLINE_CA_FILE=" + filepath.Join(d.dir, "ca.pem")}
	}
	second := env("https://localhost:7450,https://localhost:7460")
	voters := func(n int) {
		t.Helper()
		eventually(t, 60*time.Second, strconv.Itoa(n)+" nodes vote", func() bool {
			var m api.Members
			out, err := d.tugline(second, "hub", "members", "--json").Output()
			voters := 0
			if err != nil || json.Unmarshal(out, &m) != nil {
				return false
			}
			for _, x := range m.Members {
				if x.Role == "voter" && x.Health == "ok" {
					voters++
				}
			}
			return m.Leader != "" && voters == n
		})
	}
	voters(3)
	state := func(id string) (j api.Job) {
		out, _ := d.tugline(second, "job", "get", id, "--json").Output()
		json.Unmarshal(out, &j)
		return j
	}

	// A runner outside, which any node may lead to all others.
	write(t, filepath.Join(d.dir, "runner", "runner.yaml"), "slots: 1\n", 0o600)
	os.Chmod(filepath.Join(d.dir, "runner"), 0o700)
	var k api.Ticket
	if err := json.Unmarshal([]byte(must(t, d.tugline(second, "hub", "ticket", "--json"))), &k); err != nil {
		t.Fatal(err)
	}
	runner := d.tugline(nil, "runner", "run", "--data-dir", filepath.Join(d.dir, "runner"), "--name", "outside", "--ticket", k.Ticket)
	log, err := os.Create(filepath.Join(d.dir, "runner.log"))
	if err != nil {
		t.Fatal(err)
	}
	runner.Stdout, runner.Stderr = log, log
	runner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		runner.Process.Signal(syscall.SIGTERM)
		runner.Wait()
		log.Close()
		if t.Failed() {
			t.Logf("--- the runner said:\n%s", tail(read(t, log.Name())))
		}
	})

	// A job given to the second node goes on while the first one dies.
	seen := filepath.Join(d.dir, "seen")
	id := strings.TrimSpace(must(t, d.tugline(second, "exec", "--detach", "--", "sh", "-c", `echo begin; while [ ! -e "$1" ]; do sleep 0.1; done; echo end`, "sh", seen)))
	eventually(t, 60*time.Second, "the job runs", func() bool { return state(id).State == fleet.Running })
	d.docker("kill", d.container("hub1"))
	write(t, seen, "", 0o644)
	eventually(t, 60*time.Second, "the job ends", func() bool { return state(id).State.Ended() })
	whole := func(hub string) {
		t.Helper()
		eventually(t, 30*time.Second, hub+" serves the job's output", func() bool {
			out, _ := d.tugline(env(hub), "job", "logs", id).Output()
			return string(out) == "begin\nend\n"
		})
		if j := state(id); j.State != fleet.Succeeded || j.Attempt != 1 {
			t.Errorf("the job is %s at attempt %d; want succeeded at 1", j.State, j.Attempt)
		}
	}
	whole("https://localhost:7450")

	d.cluster("up")
	d.healthy("hub1")
	voters(3)
	whole("https://localhost:7440")

	d.cluster("down")
	if out := d.docker("ps", "-q"); out != "" {
		t.Errorf("after down these run: %s", out)
	}
	d.cluster("up")
	voters(3)
	whole("https://localhost:7460")

	running := d.container("hub2")
	d.cluster("up")
	if now := d.container("hub2"); now != running {
		t.Error("up, run again, made the containers anew")
	}
	d.cluster("upgrade")
	if now := d.container("hub2"); now == running {
		t.Error("upgrade left the container of before")
	}
	voters(3)
	whole("https://localhost:7440")

	refused := exec.Command(filepath.Join(root, "installers/hub/cluster.sh"), "destroy")
	refused.Env = d.env()
	if err := refused.Run(); err == nil {
		t.Error("destroy without --yes destroyed")
	}
	d.cluster("destroy", "--yes")
	for what, out := range map[string]string{"containers": d.docker("ps", "-a", "-q"), "volumes": d.docker("volume", "ls", "-q"),
		"networks": d.docker("network", "ls", "-q", "--filter", "type=custom")} {
		if out != "" {
			t.Errorf("destroy left %s: %s", what, out)
		}
	}
}
