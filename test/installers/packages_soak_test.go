//go:build installers && soak && linux

package installers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tugline.dev/tugline/runner/service"
)

// tree is a root of this machine's files that is written to in memory, without a systemd
// that runs.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"memory", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(args ...string) string {
		at := args[len(args)-1]
		must(t, exec.Command("mount", args...))
		t.Cleanup(func() {
			if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return at
	}
	memory := mount("-t", "tmpfs", "-o", "mode=755,size=128m", "tmpfs", filepath.Join(dir, "memory"))
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(memory, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := mount("-t", "overlay", "-o", "lowerdir=/,upperdir="+memory+"/upper,workdir="+memory+"/work", "overlay", filepath.Join(dir, "root"))
	for _, d := range []string{"run/systemd", "var/lib/rpm", "var/lib/tugline-runner", "usr/lib/tugline"} {
		if err := os.RemoveAll(filepath.Join(root, d)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestSoakRPM puts a .rpm in, in again, newer, and out, below a root of its own.
func TestSoakRPM(t *testing.T) {
	root := tree(t)
	program := anyProgram(t)
	one, two := pack(t, "rpm", "v1.4.0", program), pack(t, "rpm", "v1.5.0", program)
	golden(t, "rpm.txt", must(t, exec.Command("rpm", "-qp", "--qf", `[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]`, one)))
	rpm := func(args ...string) string {
		t.Helper()
		return must(t, exec.Command("rpm", append([]string{"--root", root}, args...)...))
	}
	rpm("--initdb")
	for _, again := range []string{"--nodeps", "--replacepkgs"} {
		if out := rpm("-Uvh", "--nodeps", again, one); !strings.Contains(out, "sudo tugline runner install --ticket -") {
			t.Errorf("rpm -U said\n%s", out)
		}
	}
	if passwd := read(t, filepath.Join(root, "etc/passwd")); !strings.Contains(passwd, "tugline-runner:") {
		t.Error("the user of the service is not there")
	}
	work := filepath.Join(root, "var/lib/tugline-runner")
	if _, err := os.Stat(work); err == nil {
		t.Error("the package made the runner's directory")
	}
	write(t, filepath.Join(work, "runner/identity.json"), "{}", 0o600)
	write(t, filepath.Join(work, "runner/trees/work/1/file"), "what a job left", 0o600)
	if out := rpm("-Uvh", "--nodeps", two); strings.Contains(out, "--ticket") || strings.Contains(out, "left is") {
		t.Errorf("an upgrade said\n%s", out)
	}
	if got := rpm("-q", "tugline"); !strings.HasPrefix(got, "tugline-1.5.0-1.") {
		t.Errorf("installed is %s", got)
	}
	rpm("-V", "--nodeps", "tugline")
	if out := rpm("-e", "tugline"); !strings.Contains(out, "/var/lib/tugline-runner/runner/trees/work") {
		t.Errorf("rpm -e said\n%s", out)
	}
	if got := read(t, filepath.Join(work, "runner/trees/work/1/file")); got != "what a job left" {
		t.Errorf("what a job left is now %q", got)
	}
	for _, gone := range []string{"usr/bin/tugline", "usr/lib/tugline", "usr/lib/systemd/system/tugline-runner.service"} {
		if _, err := os.Lstat(filepath.Join(root, gone)); err == nil {
			t.Errorf("/%s is still there", gone)
		}
	}
}

// known are what Debian's checker says that is so on purpose.
var known = []string{
	"no-changelog", "no-copyright-file", "no-manual-page", // it is no part of Debian
	"statically-linked-binary",
	"maintainer-script-calls-systemctl",      // only where systemd runs
	"command-with-path-in-maintainer-script", // said to people, where another one comes first in their PATH
	"malformed-deb-archive",                  // zstd, which dpkg reads and Debian's archive does not take
}

// TestSoakLint has Debian's checker look at a package.
func TestSoakLint(t *testing.T) {
	c := exec.Command("make", "-s", "build") // as it is shipped, not as it is tested
	c.Dir = root
	must(t, c)
	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "none", pack(t, "deb", "v1.4.0", filepath.Join(root, "bin/tugline"))).Output()
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(out)) {
		if f := strings.Fields(l); len(f) < 3 || f[0] != "N:" && !slices.Contains(known, f[2]) {
			t.Error(strings.TrimSpace(l))
		}
	}
	if !strings.Contains(string(out), "no-manual-page") {
		t.Errorf("it said nothing of what it was known to say:\n%s", out)
	}
}

// TestSoakFormula has Ruby read a formula, and run it with words that stand for Homebrew's.
func TestSoakFormula(t *testing.T) {
	release := t.TempDir()
	for _, p := range []string{"darwin-arm64", "darwin-amd64", "linux-arm64", "linux-amd64"} {
		write(t, filepath.Join(release, "tugline-"+p), "the program of "+p, 0o755)
	}
	c := exec.Command("go", "run", "./installers/packages", "formula", "v1.4.0", "https://example.com/v1.4.0", release)
	c.Dir = root
	formula := filepath.Join(t.TempDir(), "tugline.rb")
	text, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	write(t, formula, string(text), 0o644)
	must(t, exec.Command("ruby", "-c", "-W2", formula))
	stand, err := filepath.Abs("testdata/formula.rb")
	if err != nil {
		t.Fatal(err)
	}
	plist, unit, err := service.FormulaFiles()
	if err != nil {
		t.Fatal(err)
	}
	places := strings.NewReplacer("#{opt_bin}", "/opt/homebrew/opt/tugline/bin", "#{var}", "/opt/homebrew/var", "#{HOMEBREW_PREFIX}", "/opt/homebrew")
	for _, p := range [][4]string{{"macos", "arm", "darwin-arm64", "dev.tugline.runner"}, {"linux", "intel", "linux-amd64", "tugline-runner"}} {
		at, build := t.TempDir(), t.TempDir()
		write(t, filepath.Join(build, "tugline-"+p[2]), "the program", 0o755)
		c := exec.Command("ruby", "-W2", stand, formula, at, p[0], p[1])
		c.Dir = build
		out := must(t, c)
		for _, want := range []string{"url https://example.com/v1.4.0/tugline-" + p[2] + "\n", "version 1.4.0\n", "service " + p[3] + "\n", "tugline runner install --ticket -"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
		if got := read(t, filepath.Join(at, "dev.tugline.runner.plist")); got != places.Replace(string(plist)) {
			t.Errorf("the property list is\n%s", got)
		}
		if got := read(t, filepath.Join(at, "tugline-runner.service")); got != places.Replace(string(unit)) {
			t.Errorf("the unit is\n%s", got)
		}
		p, err := service.PackageOf(filepath.Join(at, "bin/tugline"))
		if want := (service.Package{Manager: "brew", Program: "/opt/homebrew/opt/tugline/bin/tugline"}); err != nil || p != want {
			t.Errorf("the program takes it for %+v, %v, want %+v", p, err, want)
		}
	}
}
