//go:build installers && linux

package installers

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// installed is a runner as a service of a machine.
type installed struct {
	*machine
	name, mode string
	user, data string
	hub        []string // the environment of somebody who uses the hub
	key        string   // public, that releases are signed by
}

// as is a command of whoever installs the runner.
func (r *installed) as(args ...string) *exec.Cmd {
	if r.mode == "daemon" {
		return r.in(args...)
	}
	return r.in(append([]string{"setpriv", "--reuid=ada", "--regid=ada", "--init-groups", "env", "-i", "HOME=/home/ada", "USER=ada", "LANG=C.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR=/run/user/4711"}, args...)...)
}

func (r *installed) systemctl(words ...string) *exec.Cmd {
	if r.mode == "agent" {
		words = append([]string{"--user"}, words...)
	}
	return r.as(append([]string{"systemctl"}, words...)...)
}

// property reads one of the unit.
func (r *installed) property(name string) string {
	out, _ := r.systemctl("show", "-p", name, "--value", "tugline-runner.service").Output()
	return strings.TrimSpace(string(out))
}

// cli is the command line of somebody who uses the hub.
func (r *installed) cli(args ...string) *exec.Cmd {
	return r.in(append(append([]string{"env", "-C", "/opt"}, r.hub...), append([]string{"/opt/tugline"}, args...)...)...)
}

func (r *installed) job(id string) (j api.Job) {
	out, _ := r.cli("job", "get", id, "--json").Output()
	json.Unmarshal(out, &j)
	return j
}

func (r *installed) online() {
	r.t.Helper()
	eventually(r.t, 90*time.Second, r.name+" is online", func() bool {
		var got api.Runner
		out, _ := r.cli("runner", "get", r.name, "--json").Output()
		return json.Unmarshal(out, &got) == nil && got.State == "online"
	})
}

// begins starts a job on the runner that leaves work behind and waits for a file.
func (r *installed) begins(name string) (id string) {
	r.t.Helper()
	r.run("rm", "-f", "/var/jobs/go-"+name)
	words := strings.Fields(must(r.t, r.cli("exec", "--detach", "--require", "mode="+r.mode, "--repo", "/opt/repo", "--",
		"sh", "-c", `echo begins >began; echo $$ >"/var/jobs/pid-$1"; while [ ! -e "/var/jobs/go-$1" ]; do sleep 0.1; done; echo ends`, "sh", name)))
	id = words[len(words)-1] // before it stands what was sent
	eventually(r.t, 60*time.Second, "the job runs", func() bool {
		if j := r.job(id); j.State.Ended() {
			out, _ := r.cli("job", "logs", id).CombinedOutput()
			r.t.Fatalf("the job %s has ended, %s: %+v\n%s", name, j.State, j.Reason, out)
		}
		return r.job(id).State == fleet.Running && r.in("test", "-s", "/var/jobs/pid-"+name).Run() == nil
	})
	return id
}

// goesOn sees that the job of before is still the same process, and has it end well.
func (r *installed) goesOn(name, id string) {
	r.t.Helper()
	pid := strings.TrimSpace(r.run("cat", "/var/jobs/pid-"+name))
	r.run("test", "-d", "/proc/"+pid)
	r.run("touch", "/var/jobs/go-"+name)
	eventually(r.t, 60*time.Second, "the job ends", func() bool { return r.job(id).State.Ended() })
	if j := r.job(id); j.State != fleet.Succeeded || j.Attempt != 1 {
		r.t.Errorf("%s: the job is %s at attempt %d, %+v; want succeeded at 1", name, j.State, j.Attempt, j.Reason)
	}
}

func (r *installed) install(ticket string, flags ...string) (string, error) {
	if ticket != "" {
		flags = append(flags, "--ticket", "-")
	}
	c := r.as(append([]string{"/opt/tugline", "runner", "install", "--mode", r.mode}, flags...)...)
	c.Stdin = strings.NewReader(ticket + "\n")
	out, err := c.CombinedOutput()
	return string(out), err
}

// served is a machine with a hub and a repository, the person ada, and a runner in each
// mode, not installed yet. The hub is of release 1.0.0, which is signed and known to it.
func served(t *testing.T) (m *machine, runners []*installed) {
	t.Helper()
	m = boot(t)
	p := publish(t, m)
	write(t, m.path("root/etc/systemd/system/hub.service"), `[Service]
ExecStart=/opt/tugline hub run --data-dir /var/lib/hub --listen 0.0.0.0:7440 --public-url https://localhost:7440 --bootstrap
[Install]
WantedBy=multi-user.target
`, 0o644)
	m.run("mkdir", "-m", "777", "/var/jobs")
	m.run("systemctl", "enable", "--now", "hub")
	m.hubReady()
	hub := []string{"TUGLINE_HUB=https://localhost:7440", "TUGLINE_CA_FILE=/var/lib/hub/ca.pem", "TUGLINE_TOKEN=" + strings.TrimSpace(m.run("cat", "/var/lib/hub/operator.token"))}
	m.run("sh", "-c", "git init -q /opt/repo && git -C /opt/repo -c user.name=t -c user.email=t@t commit -q --allow-empty -m first")
	m.run("useradd", "--uid", "4711", "--create-home", "ada")
	m.run("loginctl", "enable-linger", "ada")
	runners = []*installed{
		{name: "own", mode: "daemon", user: "tugline-runner", data: "/var/lib/tugline-runner/runner"},
		{name: "adas", mode: "agent", user: "ada", data: "/home/ada/.local/share/tugline/runner"},
	}
	for _, r := range runners {
		r.machine, r.hub, r.key = m, hub, p
	}
	must(t, runners[0].cli("hub", "release", "add", "/opt/dist/1.0.0"))
	return m, runners
}

func (m *machine) hubReady() {
	m.t.Helper()
	eventually(m.t, 60*time.Second, "the hub is ready", func() bool {
		return m.in("/opt/tugline", "hub", "ready", "--data-dir", "/var/lib/hub").Run() == nil
	})
}

// TestARunnerAsAService takes a runner through its life as a service, in both modes.
func TestARunnerAsAService(t *testing.T) {
	t.Parallel()
	m, runners := served(t)
	for _, r := range runners {
		r.puts(t)
		id := r.begins("restart-" + r.name)
		r.memory(t, "restart-"+r.name)
		must(t, r.systemctl("restart", "tugline-runner.service"))
		r.goesOn("restart-"+r.name, id)
		r.killed(t)
		r.newer(t)
	}
	// With a watchdog that would bite twice by then; the one of the unit takes the long form of this.
	for _, r := range runners {
		r.watchdog(t, 10*time.Second)
	}
	withoutHub(t, m, runners, 25*time.Second)

	m.reboot()
	for _, r := range runners {
		r.online()
	}
	updated(t, runners)
	crashes(t, runners)
	for _, r := range runners {
		r.taken(t)
	}
	ofAPackage(t, m, runners[0].hub)
}

// puts installs the runner.
func (r *installed) puts(t *testing.T) {
	t.Helper()
	if out := must(t, r.as("/opt/tugline", "runner", "install", "--mode", r.mode, "--print")); !strings.Contains(out, "RestartPreventExitStatus=78") || !strings.Contains(out, r.data) {
		t.Errorf("--print shows\n%s", out)
	}
	if _, err := r.machine.in("test", "-e", filepath.Dir(r.data)).Output(); err == nil {
		t.Errorf("--print made %s", filepath.Dir(r.data))
	}
	if out, err := r.install("tug1_wrong"); err == nil || r.property("LoadState") != "not-found" {
		t.Errorf("with a ticket that is none the unit is %s, and it said\n%s", r.property("LoadState"), out)
	}
	var k api.Ticket
	if err := json.Unmarshal([]byte(must(t, r.cli("hub", "ticket", "--json"))), &k); err != nil {
		t.Fatal(err)
	}
	var out string
	var err error
	if flags := []string{"--name", r.name, "--label", "mode=" + r.mode}; r.mode == "daemon" {
		out, err = r.install(k.Ticket, flags...)
	} else { // by the line that the hub prints
		if !strings.HasPrefix(k.Install, "curl -fsSk --pinnedpubkey 'sha256//") {
			t.Fatalf("the line to paste is %s", k.Install)
		}
		r.run("systemctl", "restart", "hub") // which has another certificate then
		r.hubReady()
		var b []byte
		b, err = r.as("sh", "-c", k.Install+" "+strings.Join(flags, " ")).CombinedOutput()
		out = string(b)
	}
	if err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	if !strings.Contains(out, r.mode+": ") || !strings.Contains(out, "runner "+r.name+" is installed and runs") {
		t.Errorf("install said\n%s", out)
	}
	if want := "the program was checked: signed for 1.0.0 on " + runtime.GOOS + "-" + runtime.GOARCH + " by " + r.key; !strings.Contains(out, want) {
		t.Errorf("install does not say %q:\n%s", want, out)
	}
	r.online()
	pid := r.property("MainPID")
	for _, k := range []struct{ what, want, is string }{
		{"state", "active", r.property("ActiveState")},
		{"watchdog", "3min", r.property("WatchdogUSec")},
		{"kill mode", "process", r.property("KillMode")},
		{"user", r.user, strings.TrimSpace(r.run("stat", "-c", "%U", "/proc/"+pid))},
		{"data directory", r.user + " 700", strings.TrimSpace(r.run("stat", "-c", "%U %a", r.data))},
		{"identity", r.user + " 600", strings.TrimSpace(r.run("stat", "-c", "%U %a", r.data+"/identity.json"))},
	} {
		if k.is != k.want {
			t.Errorf("%s: %s is %q, want %q", r.mode, k.what, k.is, k.want)
		}
	}
	if exe := strings.TrimSpace(r.run("readlink", "/proc/"+pid+"/exe")); !strings.HasPrefix(exe, filepath.Dir(r.data)+"/versions/") {
		t.Errorf("the service runs %s", exe)
	}
	verify := []string{"systemd-analyze", "verify", "--man=no", r.property("FragmentPath")}
	if r.mode == "agent" {
		verify = append(verify, "--user")
	}
	if out := must(t, r.as(verify...)); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	var seen struct {
		Findings []struct{ Check, Level, Detail string }
	}
	looks := []string{"/opt/tugline", "runner", "doctor", "--mode", r.mode, "--json"}
	if r.mode == "daemon" {
		looks = append([]string{"setpriv", "--reuid=" + r.user, "--regid=" + r.user, "--clear-groups", "env", "HOME=/var/lib/tugline-runner"}, looks...)
	}
	found, err := r.as(looks...).Output()
	if err != nil || json.Unmarshal(found, &seen) != nil {
		t.Errorf("doctor: %v\n%s", err, found)
	}
	for _, check := range []string{"service", "permissions", "enrolled", "hub", "clock", "git", "disk"} {
		if !slices.ContainsFunc(seen.Findings, func(f struct{ Check, Level, Detail string }) bool { return f.Check == check && f.Level != "fail" }) {
			t.Errorf("doctor says nothing good of %s:\n%s", check, found)
		}
	}
	out, err = r.install("", "--name", r.name)
	if err != nil || !strings.Contains(out, "nothing changed: runner "+r.name+" is installed") || r.property("MainPID") != pid {
		t.Errorf("a second time: %v, pid %s for %s\n%s", err, r.property("MainPID"), pid, out)
	}
}

// memory sees which of the processes goes first where memory is short.
func (r *installed) memory(t *testing.T, name string) {
	t.Helper()
	at := func(pid string) string { return strings.TrimSpace(r.run("cat", "/proc/"+pid+"/oom_score_adj")) }
	own, job := at(r.property("MainPID")), at(strings.TrimSpace(r.run("cat", "/var/jobs/pid-"+name)))
	// A machine in a container may not spare anybody, and systemd passes over that.
	if asked := r.property("OOMScoreAdjust"); r.mode == "daemon" && asked != "-500" {
		t.Errorf("the unit asks for %s, want -500", asked)
	}
	n, _ := strconv.Atoi(own) // a user's manager gives its services more than 0
	if want := strconv.Itoa(max(n, 0) + 100); job != want {
		t.Errorf("%s: the job has %s, want %s beside the runner's %s", r.mode, job, want, own)
	}
}

// killed sees that systemd starts the runner again.
func (r *installed) killed(t *testing.T) {
	t.Helper()
	pid := r.property("MainPID")
	r.run("kill", "-9", pid)
	eventually(t, 30*time.Second, "the runner is started again", func() bool {
		now := r.property("MainPID")
		return now != pid && now != "0" && r.property("ActiveState") == "active"
	})
	r.online()
}

// newer installs another program of the same kind, which stands for a newer one, while a
// job runs.
func (r *installed) newer(t *testing.T) {
	t.Helper()
	write(t, r.path("root/opt/newer"), read(t, r.path("root/opt/tugline"))+"newer", 0o755)
	id, before := r.begins("newer-"+r.name), r.property("MainPID")
	must(t, r.as("/opt/newer", "runner", "install", "--mode", r.mode))
	pid := r.property("MainPID")
	if pid == before {
		t.Error("the service still runs the program from before")
	}
	r.run("cmp", "/opt/newer", "/proc/"+pid+"/exe")
	r.goesOn("newer-"+r.name, id)
	must(t, r.as("/opt/tugline", "runner", "install", "--mode", r.mode))
}

// taken takes the service away while a job runs, puts it back, has the hub send the
// runner away, and takes it away for good.
func (r *installed) taken(t *testing.T) {
	t.Helper()
	uninstall := func() string {
		return must(t, r.as("/opt/tugline", "runner", "uninstall", "--mode", r.mode))
	}
	name := "away-" + r.name
	id := r.begins(name)
	out := uninstall()
	if !strings.Contains(out, r.data) || !strings.Contains(out, "Jobs still run here") {
		t.Errorf("uninstall said\n%s", out)
	}
	if got := r.property("LoadState"); got != "not-found" {
		t.Errorf("after it the unit is %s", got)
	}
	r.run("sh", "-c", `test "$(find "$1" -name began -exec cat {} +)" = begins`, "sh", r.data+"/trees/work/"+id) // what the job wrote
	if out, err := r.install(""); err != nil || strings.Contains(out, "enrolment") {
		t.Fatalf("back again: %v\n%s", err, out)
	}
	r.goesOn(name, id)

	must(t, r.cli("runner", "revoke", r.name))
	eventually(t, 60*time.Second, "the runner has gone", func() bool { return r.property("ActiveState") == "failed" })
	if status := r.property("ExecMainStatus"); status != "78" {
		t.Errorf("it ended with %s; want 78", status)
	}
	before := r.property("NRestarts")
	<-time.After(4 * time.Second) // longer than RestartSec
	if state, n := r.property("ActiveState"), r.property("NRestarts"); state != "failed" || n != before {
		t.Errorf("4 s later it is %s, started again %s times (before: %s)", state, n, before)
	}
	r.run("test", "-s", r.data+"/stood-down")

	out = uninstall()
	if !strings.Contains(out, "The service is gone") || strings.Contains(out, "Jobs still run") {
		t.Errorf("uninstall said\n%s", out)
	}
	r.run("test", "-s", r.data+"/identity.json")
	r.run("sh", "-c", `test ! -e "$1/versions" && test ! -e "$1/current" && test ! -e "$1/update.json"`, "sh", filepath.Dir(r.data))
	if out := uninstall(); !strings.Contains(out, "nothing changed") {
		t.Errorf("a second time it said\n%s", out)
	}
}
