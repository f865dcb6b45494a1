package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/runner/service"
)

var update = flag.Bool("update", false, "write the golden files")

// ordered are versions as git describes them, and as packages have them; each is older
// than the next one.
var ordered = [][2]string{
	{"v1.3.0", "1.3.0"},
	{"v1.3.0-12-gabc1234", "1.3.0+12.gabc1234"},
	{"1.4.0-rc.1", "1.4.0~rc.1"},
	{"v1.4.0-rc.1-3-gabc1234-dirty", "1.4.0~rc.1+3.gabc1234+dirty"},
	{"v1.4.0-rc.2", "1.4.0~rc.2"},
	{"v1.4.0", "1.4.0"},
	{"v1.4.0-1-gabc1234", "1.4.0+1.gabc1234"},
	{"v1.10.0", "1.10.0"},
}

func TestVersions(t *testing.T) {
	for _, v := range ordered {
		if got := versionOf(v[0]); got != v[1] {
			t.Errorf("%s is %s, want %s", v[0], got, v[1])
		}
	}
	for v, want := range map[string]string{"dev": "0.0.0+dev", "4a374e6-dirty": "0.0.0+4a374e6.dirty"} {
		if got := versionOf(v); got != want {
			t.Errorf("%s is %s, want %s", v, got, want)
		}
	}
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		return // where there is none, test/installers has asked one
	}
	for i := 1; i < len(ordered); i++ {
		if err := exec.Command(dpkg, "--compare-versions", ordered[i-1][1], "lt", ordered[i][1]).Run(); err != nil {
			t.Errorf("dpkg has %s not before %s", ordered[i-1][1], ordered[i][1])
		}
	}
}

func TestFilesSayWhoLooksAfterTheProgram(t *testing.T) {
	root := t.TempDir()
	if err := files(filepath.Join(root, "files")); err != nil {
		t.Fatal(err)
	}
	for _, manager := range []string{"deb", "rpm"} {
		b, err := os.ReadFile(filepath.Join(root, "files", manager+".json"))
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(root, manager, "lib/tugline")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "package.json"), b, 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := service.PackageOf(filepath.Join(root, manager, "bin/tugline"))
		if want := (service.Package{Manager: manager, Program: "/usr/bin/tugline"}); err != nil || p != want {
			t.Errorf("the program takes it for %+v, %v, want %+v", p, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "files", service.UnitName)); err != nil {
		t.Error(err)
	}
}

// release has programs of every platform.
func release(t *testing.T) string {
	dir := t.TempDir()
	for _, p := range []string{"darwin-arm64", "darwin-amd64", "linux-arm64", "linux-amd64"} {
		if err := os.WriteFile(filepath.Join(dir, "tugline-"+p), []byte("the program of "+p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFormula(t *testing.T) {
	dir := release(t)
	var got bytes.Buffer
	if err := run([]string{"formula", "v1.4.0", "https://example.com/tugline/v1.4.0/", dir}, &got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "tugline.rb")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
	for name, args := range map[string][]string{
		"no release":       {"dev", "https://example.com"},
		"commits after it": {"v1.4.0-3-gabc1234", "https://example.com"},
		"not https":        {"v1.4.0", "http://example.com"},
		"another command":  {"v1.4.0", `https://example.com/"; system "x`},
	} {
		if err := run(append([]string{"formula"}, append(args, dir)...), &got); err == nil {
			t.Errorf("%s: a formula was made", name)
		}
	}
	if err := run([]string{"formula", "v1.4.0", "https://example.com", t.TempDir()}, &got); err == nil {
		t.Error("a formula was made without programs")
	}
	for _, args := range [][]string{nil, {"version"}, {"nothing", "x"}} {
		if err := run(args, &got); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

// Scripts of packages run under whatever /bin/sh is, and name no machine's places but
// those of the runner.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("*.sh")
	if err != nil || len(scripts) != 4 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, shell := range []string{"/bin/sh", "/bin/dash"} {
		for _, s := range scripts {
			if out, err := exec.Command(shell, "-n", s).CombinedOutput(); err != nil && !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("%s -n %s: %v\n%s", shell, s, err, out)
			}
		}
	}
	if at, err := exec.LookPath("shellcheck"); err == nil {
		if out, err := exec.Command(at, scripts...).CombinedOutput(); err != nil {
			t.Errorf("shellcheck: %v\n%s", err, out)
		}
	}
	// What a package manager says to them, and what they must not touch by it: without a
	// systemd that runs there is nothing that they do but say something.
	for _, c := range []struct {
		script string
		args   []string
	}{
		{"preremove.sh", []string{"upgrade", "1.5.0"}}, {"preremove.sh", []string{"1"}}, {"postremove.sh", []string{"upgrade", "1.5.0"}},
		{"postremove.sh", []string{"1"}}, {"postinstall.sh", []string{"abort-upgrade", "1.4.0"}}, {"postinstall.sh", []string{"triggered"}},
	} {
		cmd := exec.Command("/bin/sh", append([]string{c.script}, c.args...)...)
		cmd.Env = []string{"PATH=/nowhere"} // nothing is called
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s %q: %v\n%s", c.script, c.args, err, out)
		}
	}
}
