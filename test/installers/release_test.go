//go:build installers && linux

package installers

import (
	"crypto/rand"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"

	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// publish puts signed releases on a machine, below /opt/dist: 1.0.0 and 1.1.0, and a 1.2.0
// that crashes whenever it is to go on. The first is the machine's program. It gives the
// public key.
func publish(t *testing.T, m *machine) string {
	t.Helper()
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for version, flags := range map[string]string{"1.0.0": "", "1.1.0": "", "1.2.0": " -X main.kind=crashes"} {
		flags = "-s -w -X main.version=" + version + flags
		file := filepath.Join(t.TempDir(), "tugline")
		if version == "1.2.0" {
			must(t, exec.Command("go", "build", "-o", file, "-ldflags", flags, "tugline.dev/tugline/runner/update/testdata/app"))
		} else {
			mesh.Build(filepath.Dir(file), "-ldflags", flags)
		}
		text, dir := read(t, file), m.path("root/opt/dist/"+version)
		write(t, dir+"/tugline", text, 0o755)
		write(t, dir+"/tugline.minisig", string(minisign.SignWithComments(priv, []byte(text), update.Comment(version, runtime.GOOS, runtime.GOARCH), "")), 0o644)
		write(t, dir+"/minisign.pub", "untrusted comment: of this test\n"+pub.String()+"\n", 0o644)
	}
	m.run("ln", "-f", "/opt/dist/1.0.0/tugline", "/opt/tugline")
	return pub.String()
}

func (r *installed) show() (got api.Runner) {
	out, _ := r.cli("runner", "get", r.name, "--json").Output()
	json.Unmarshal(out, &got)
	return got
}

// runs waits until the runner is heard to run a version, and sees that its service does.
func (r *installed) runs(t *testing.T, version string) {
	t.Helper()
	eventually(t, 2*time.Minute, r.name+" runs "+version, func() bool { got := r.show(); return got.State == "online" && got.Version == version })
	prefix := filepath.Dir(r.data)
	if exe := strings.TrimSpace(r.run("readlink", "/proc/"+r.property("MainPID")+"/exe")); exe != prefix+"/versions/"+version+"/tugline" {
		t.Errorf("the service of %s runs %s", r.name, exe)
	}
	if to := strings.TrimSpace(r.run("readlink", prefix+"/current")); to != "versions/"+version {
		t.Errorf("the next start of %s takes %s", r.name, to)
	}
}

// watchdog has systemd wait for less time for word of the runner, until the machine starts
// anew.
func (r *installed) watchdog(t *testing.T, d time.Duration) {
	t.Helper()
	dir := "/run/systemd/system"
	if r.mode == "agent" {
		dir = "/run/user/4711/systemd/user"
	}
	must(t, r.as("sh", "-c", `mkdir -p "$1" && printf '[Service]\nWatchdogSec=%s\n' "$2" >"$1/short.conf"`, "sh", dir+"/tugline-runner.service.d", d.String()))
	must(t, r.systemctl("daemon-reload"))
	must(t, r.systemctl("restart", "tugline-runner.service"))
	if got := r.property("WatchdogUSec"); got != d.String() {
		t.Errorf("the watchdog of %s is %s, want %s", r.name, got, d)
	}
	r.online()
}

// withoutHub has a hub be away for a while: no runner is started anew, the job that each
// has is not touched, and what one that ended meanwhile came to is told after it.
func withoutHub(t *testing.T, m *machine, runners []*installed, d time.Duration) {
	t.Helper()
	ids, pids, starts := map[*installed]string{}, map[*installed]string{}, map[*installed]string{}
	for _, r := range runners {
		ids[r] = r.begins("alone-" + r.name)
		pids[r], starts[r] = r.property("MainPID"), r.property("NRestarts")
	}
	m.run("systemctl", "stop", "hub")
	<-time.After(d)
	for _, r := range runners {
		if pid, n := r.property("MainPID"), r.property("NRestarts"); pid != pids[r] || n != starts[r] || r.property("ActiveState") != "active" {
			t.Errorf("%s without its hub: pid %s for %s, started %s times for %s, %s", r.name, pid, pids[r], n, starts[r], r.property("ActiveState"))
		}
		job := strings.TrimSpace(m.run("cat", "/var/jobs/pid-alone-"+r.name))
		m.run("touch", "/var/jobs/go-alone-"+r.name) // it ends without a hub
		eventually(t, 30*time.Second, "the job ends", func() bool { return m.in("test", "-d", "/proc/"+job).Run() != nil })
	}
	m.run("systemctl", "start", "hub")
	m.hubReady()
	for _, r := range runners {
		eventually(t, 2*time.Minute, "what the job came to is told", func() bool { return r.job(ids[r]).State.Ended() })
		if j := r.job(ids[r]); j.State != fleet.Succeeded || j.Attempt != 1 {
			t.Errorf("%s: the job is %s at attempt %d, %+v", r.name, j.State, j.Attempt, j.Reason)
		}
		if out := must(t, r.cli("job", "logs", ids[r])); !strings.Contains(out, "ends") {
			t.Errorf("%s: the job said\n%s", r.name, out)
		}
		if pid := r.property("MainPID"); pid != pids[r] {
			t.Errorf("%s is process %s, was %s", r.name, pid, pids[r])
		}
	}
}

// updated has the hub give the runners another version: to one because it is a canary, to
// the other because somebody asks. Each waits for its job.
func updated(t *testing.T, runners []*installed) {
	t.Helper()
	canary, asked := runners[0], runners[1]
	ids := map[*installed]string{}
	for _, r := range runners {
		r.run("sh", "-c", `printf 'updates: auto\n' >"$1/runner.yaml" && chmod 600 "$1/runner.yaml" && chown "$2" "$1/runner.yaml"`, "sh", r.data, r.user)
		ids[r] = r.begins("update-" + r.name)
	}
	must(t, canary.cli("runner", "ring", canary.name, "canary"))
	must(t, canary.cli("hub", "release", "add", "/opt/dist/1.1.0"))
	must(t, asked.cli("runner", "update", asked.name))
	for _, r := range runners {
		eventually(t, time.Minute, r.name+" waits for its job", func() bool {
			u := r.show().Update
			return u != nil && u.Offered == "1.1.0" && strings.Contains(u.Waits, "no job")
		})
	}
	for _, r := range runners {
		r.goesOn("update-"+r.name, ids[r])
	}
	for _, r := range runners {
		r.runs(t, "1.1.0")
		id := r.begins("after-" + r.name) // under a supervisor of the new version
		must(t, r.systemctl("restart", "tugline-runner.service"))
		r.goesOn("after-"+r.name, id)
	}
}

// crashes has the hub give the runners a version that does not start: the one before comes
// back, and the hub tells it.
func crashes(t *testing.T, runners []*installed) {
	t.Helper()
	canary, asked := runners[0], runners[1]
	must(t, canary.cli("hub", "release", "add", "/opt/dist/1.2.0"))
	must(t, asked.cli("runner", "update", asked.name))
	for _, r := range runners {
		eventually(t, 2*time.Minute, r.name+" takes it back", func() bool {
			u := r.show().Update
			return u != nil && u.State == "rolled_back" && u.To == "1.2.0" && strings.Contains(u.Why, "3 starts in all failed")
		})
		r.runs(t, "1.1.0")
	}
	eventually(t, time.Minute, "people are told", func() bool {
		out, _ := canary.cli("alerts").Output()
		return strings.Contains(string(out), "release 1.2.0 is halted at canary")
	})
}
