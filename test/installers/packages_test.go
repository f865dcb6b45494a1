//go:build installers && linux

package installers

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/test/mesh"
)

var renew = flag.Bool("update", false, "write the golden files")

// packing is held while packages are made: their tools are built first.
var packing sync.Mutex

// pack makes a package of a program and gives its file.
func pack(t *testing.T, kind, version, program string) string {
	t.Helper()
	packing.Lock()
	defer packing.Unlock()
	out := t.TempDir()
	must(t, exec.Command(filepath.Join(root, "installers/packages/build.sh"), version, program, out, kind+"/"+runtime.GOARCH))
	made, err := filepath.Glob(filepath.Join(out, "tugline*."+kind))
	if err != nil || len(made) != 1 {
		t.Fatalf("%d packages were made, %v", len(made), err)
	}
	return made[0]
}

// anyProgram is one that does nothing.
func anyProgram(t *testing.T) string {
	at := filepath.Join(t.TempDir(), "tugline")
	write(t, at, "#!/bin/sh\n", 0o755)
	return at
}

// golden compares with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *renew {
		write(t, file, got, 0o644)
	}
	if want := read(t, file); got != want {
		t.Errorf("%s is\n%s\nwant\n%s", file, got, want)
	}
}

// TestWhatIsInADeb holds names, modes and owners of the files against a list.
func TestWhatIsInADeb(t *testing.T) {
	t.Parallel()
	deb := pack(t, "deb", "v1.4.0", anyProgram(t))
	listed := regexp.MustCompile(`(?m)^(\S+ \S+) +\d+ \S+ \S+ (.*)$`).ReplaceAllString(must(t, exec.Command("dpkg-deb", "-c", deb)), "$1 $2")
	golden(t, "deb.txt", listed)
	if v := must(t, exec.Command("dpkg-deb", "-f", deb, "Package", "Version")); v != "Package: tugline\nVersion: 1.4.0-1\n" {
		t.Errorf("it says it is\n%s", v)
	}
}

// ofAPackage takes the runner of a package through its life: put in, enrolled, used while a
// job runs over an upgrade and over a removal, and purged.
func ofAPackage(t *testing.T, m *machine, hub []string) {
	t.Helper()
	m.run("rm", "-r", "/var/lib/tugline-runner")
	b, err := os.ReadFile(mesh.Binary())
	if err != nil {
		t.Fatal(err)
	}
	for version, text := range map[string]string{"1.4.0": string(b), "1.5.0": string(b) + "newer"} {
		program := filepath.Join(t.TempDir(), "tugline")
		write(t, program, text, 0o755)
		write(t, m.path("root/opt/"+version+".deb"), read(t, pack(t, "deb", "v"+version, program)), 0o644)
	}
	r := &installed{machine: m, name: "boxed", mode: "daemon", user: "tugline-runner", data: "/var/lib/tugline-runner/runner", hub: hub}
	const work = "/var/lib/tugline-runner"

	// Put in, twice: the service is off, and it says what comes next.
	for range 2 {
		if out := m.run("dpkg", "-i", "/opt/1.4.0.deb"); !strings.Contains(out, "sudo tugline runner install --ticket -") {
			t.Errorf("dpkg -i said\n%s", out)
		}
		if at, state := r.property("FragmentPath"), r.property("ActiveState"); !strings.HasSuffix(at, "/lib/systemd/system/tugline-runner.service") || state != "inactive" || r.property("UnitFileState") != "disabled" {
			t.Errorf("the unit %s is %s and %s", at, state, r.property("UnitFileState"))
		}
	}
	if _, err := m.in("test", "-e", work).Output(); err == nil {
		t.Errorf("the package made %s", work)
	}
	if out := m.run("systemd-analyze", "verify", "--man=no", r.property("FragmentPath")); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	m.run("systemctl", "start", "tugline-runner") // nothing is enrolled, so that it is left alone
	if state := r.property("ActiveState"); state != "inactive" {
		t.Errorf("started before it was enrolled it is %s", state)
	}

	// Enrolled, where it lies; a second time nothing changes.
	var k api.Ticket
	if err := json.Unmarshal([]byte(must(t, r.cli("hub", "ticket", "--json"))), &k); err != nil {
		t.Fatal(err)
	}
	install := func(args ...string) string {
		c := m.in(append([]string{"tugline", "runner", "install"}, args...)...)
		c.Stdin = strings.NewReader(k.Ticket + "\n")
		return must(t, c)
	}
	if out := install("--ticket", "-", "--name", r.name, "--label", "mode=daemon"); !strings.Contains(out, "tugline-runner.service.d/environment.conf") || strings.Contains(out, "versions") {
		t.Errorf("install said\n%s", out)
	}
	r.online()
	pid := r.property("MainPID")
	if out := install("--name", r.name); !strings.Contains(out, "nothing changed") || r.property("MainPID") != pid {
		t.Errorf("a second time it said\n%s", out)
	}
	m.run("sh", "-c", `test ! -e "$1/versions" && test ! -e "$1/current" && test ! -e /usr/local/bin/tugline`, "sh", work)
	m.run("cmp", "/usr/bin/tugline", "/proc/"+pid+"/exe")
	if out := must(t, r.cli("runner", "get", r.name)); !strings.Contains(out, "managed by deb") {
		t.Errorf("runner get says\n%s", out)
	}
	if out, err := m.in("tugline", "runner", "update", "--approve").CombinedOutput(); err == nil || !strings.Contains(string(out), "managed by deb") {
		t.Errorf("runner update --approve: %v\n%s", err, out)
	}
	if out, _ := m.in("tugline", "runner", "doctor", "--mode", "daemon").CombinedOutput(); !strings.Contains(string(out), "managed by deb") {
		t.Errorf("runner doctor says\n%s", out)
	}
	m.run("dpkg", "--verify", "tugline")

	// An upgrade restarts it, and the job goes on.
	id := r.begins("upgrade")
	m.run("dpkg", "-i", "/opt/1.5.0.deb")
	now := r.property("MainPID")
	if now == pid {
		t.Error("the service still runs the program from before")
	}
	m.run("cmp", "/usr/bin/tugline", "/proc/"+now+"/exe")
	r.goesOn("upgrade", id)

	// Taken away under a job and put back, it goes on with it.
	id = r.begins("removal")
	if out := m.run("dpkg", "-r", "tugline"); !strings.Contains(out, work+"/runner/trees/work") {
		t.Errorf("dpkg -r said\n%s", out)
	}
	if got := r.property("ActiveState"); got != "inactive" {
		t.Errorf("after it the service is %s", got)
	}
	m.run("sh", "-c", `test -s "$1/identity.json" && test "$(find "$1/trees/work/$2" -name began -exec cat {} +)" = begins`, "sh", r.data, id)
	if out := m.run("dpkg", "-i", "/opt/1.5.0.deb"); strings.Contains(out, "--ticket") {
		t.Errorf("put back it asks for a ticket:\n%s", out)
	}
	install()
	r.online()
	r.goesOn("removal", id)

	if out := m.run("dpkg", "--purge", "tugline"); !strings.Contains(out, work+"/runner/trees/work") {
		t.Errorf("dpkg --purge said\n%s", out)
	}
	m.run("sh", "-c", `test -s "$1/identity.json" && test -d "$1/trees/work/$2"`, "sh", r.data, id)
	m.run("sh", "-c", "test ! -e /usr/bin/tugline && test ! -e /usr/lib/tugline && test ! -e /etc/systemd/system/tugline-runner.service.d")
	if out, err := m.in("dpkg", "-s", "tugline").CombinedOutput(); err == nil {
		t.Errorf("dpkg still knows of it:\n%s", out)
	}

	// A copy takes its place with the same data, and a package that of the copy.
	m.run("/opt/tugline", "runner", "install", "--mode", "daemon")
	if at := r.property("FragmentPath"); at != "/etc/systemd/system/tugline-runner.service" {
		t.Errorf("with a copy the unit is %s", at)
	}
	if out := m.run("dpkg", "-i", "/opt/1.5.0.deb"); !strings.Contains(out, "sudo /usr/bin/tugline runner install") {
		t.Errorf("beside a copy dpkg -i said\n%s", out)
	}
	m.run("/usr/bin/tugline", "runner", "install")
	if at := r.property("FragmentPath"); !strings.HasSuffix(at, "/lib/systemd/system/tugline-runner.service") || r.property("UnitFileState") != "enabled" {
		t.Errorf("with a package again the unit is %s, %s", at, r.property("UnitFileState"))
	}
	m.run("cmp", "/usr/bin/tugline", "/proc/"+r.property("MainPID")+"/exe")
	r.online()
}
