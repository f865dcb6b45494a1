//go:build installers && linux

package installers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/test/mesh"
)

func TestUnitsAreInOrder(t *testing.T) {
	dir := t.TempDir()
	units, _ := filepath.Glob(filepath.Join(root, "installers/hub/tugline-hub*.*"))
	var copies []string
	for _, u := range units {
		to := filepath.Join(dir, filepath.Base(u))
		// The program is not installed here, and that it is not is no fault of the unit.
		write(t, to, strings.ReplaceAll(read(t, u), "/usr/local/bin/tugline", mesh.Binary()), 0o644)
		copies = append(copies, to)
	}
	if len(copies) != 3 {
		t.Fatalf("the units are %q", copies)
	}
	if out := must(t, exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, copies...)...)); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
}

// TestServiceOfTheSystem takes a node through its life as a service.
func TestServiceOfTheSystem(t *testing.T) {
	t.Parallel()
	m := boot(t)
	ready := func() {
		t.Helper()
		eventually(t, 60*time.Second, "the hub is ready", func() bool {
			return m.in("tugline", "hub", "ready", "--data-dir", "/var/lib/tugline/hub").Run() == nil
		})
	}
	if out := m.run("/opt/installers/install.sh", "/opt/tugline"); !strings.Contains(out, "enable --now tugline-hub") {
		t.Errorf("install.sh does not say what is next:\n%s", out)
	}
	if out := m.run("/opt/installers/install.sh", "/opt/tugline"); out != "" {
		t.Errorf("run again install.sh changed something:\n%s", out)
	}
	const env = "/etc/tugline/hub.env"
	write(t, m.path("root"+env), "TUGLINE_HUB_FLAGS=--listen 127.0.0.1:7440 --mesh-listen 127.0.0.1:7441 --bootstrap\n", 0o600)
	m.run("systemctl", "enable", "--now", "tugline-hub")
	ready()
	write(t, m.path("root"+env), "", 0o600)

	pid := m.shows("tugline-hub", "MainPID")
	if user := strings.TrimSpace(m.run("stat", "-c", "%U", "/proc/"+pid)); user != "tugline" {
		t.Errorf("the hub runs as %s", user)
	}
	if mode := strings.TrimSpace(m.run("stat", "-c", "%U %a", "/var/lib/tugline/hub")); mode != "tugline 700" {
		t.Errorf("its directory is %s; want tugline 700", mode)
	}

	// Killed, it comes back by itself.
	m.run("kill", "-9", pid)
	eventually(t, 30*time.Second, "the hub is started again", func() bool {
		now := m.shows("tugline-hub", "MainPID")
		return now != pid && now != "0" && m.shows("tugline-hub", "NRestarts") == "1"
	})
	ready()

	m.run("systemctl", "start", "tugline-hub-backup.service")
	m.run("systemctl", "enable", "--now", "tugline-hub-backup.timer")
	backups := strings.Fields(m.run("sh", "-c", "ls /var/lib/tugline/backups/*"))
	if len(backups) != 1 {
		t.Fatalf("the backups are %q; want one", backups)
	}
	m.run("tugline", "hub", "backup", "verify", backups[0])

	// The machine starts again, and with it the hub and the timer.
	m.reboot()
	ready()
	if got := m.shows("tugline-hub-backup.timer", "ActiveState"); got != "active" {
		t.Errorf("after the start of the machine the timer is %s", got)
	}

	// Another program of the same kind stands for a newer one.
	b, err := os.ReadFile(mesh.Binary())
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.path("root/opt/newer"), string(b)+"newer", 0o755)
	if out := m.run("/opt/installers/install.sh", "/opt/newer"); !strings.Contains(out, "systemctl restart tugline-hub") {
		t.Errorf("install.sh does not say that the service runs the version from before:\n%s", out)
	}
	m.run("systemctl", "restart", "tugline-hub")
	ready()
	m.run("cmp", "/opt/newer", "/proc/"+m.shows("tugline-hub", "MainPID")+"/exe")

	standsDown(t, m)
	ready()

	if out := m.run("/opt/installers/uninstall.sh"); !strings.Contains(out, "/var/lib/tugline") {
		t.Errorf("uninstall.sh does not say where the data are:\n%s", out)
	}
	m.run("test", "-e", "/var/lib/tugline/hub/node.json")
	m.run("test", "-e", backups[0])
	if got := m.shows("tugline-hub", "LoadState"); got != "not-found" {
		t.Errorf("after uninstall.sh the unit is %s", got)
	}
	m.run("/opt/installers/uninstall.sh")
}

// standsDown has the service end with 78: it is not started again.
func standsDown(t *testing.T, m *machine) {
	t.Helper()
	const dropIn = "/etc/systemd/system/tugline-hub.service.d/end.conf"
	write(t, m.path("root"+dropIn), "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit 78'\n", 0o644)
	m.run("systemctl", "daemon-reload")
	m.in("systemctl", "restart", "tugline-hub").Run() // which may have seen its end
	eventually(t, 30*time.Second, "the service has ended", func() bool { return m.shows("tugline-hub", "ActiveState") == "failed" })
	if status := m.shows("tugline-hub", "ExecMainStatus"); status != "78" {
		t.Errorf("it ended with %s; want 78", status)
	}
	before := m.shows("tugline-hub", "NRestarts")
	<-time.After(4 * time.Second) // longer than RestartSec
	if state, n := m.shows("tugline-hub", "ActiveState"), m.shows("tugline-hub", "NRestarts"); state != "failed" || n != before {
		t.Errorf("4 s later it is %s, started again %s times (before: %s); want that it is left alone", state, n, before)
	}
	m.run("rm", "-r", filepath.Dir(dropIn))
	m.run("systemctl", "daemon-reload")
	m.run("systemctl", "start", "tugline-hub")
}
