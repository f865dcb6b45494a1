package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packagedAt is a program that a package brought, below a root of its own.
func packagedAt(t *testing.T, mode Mode) (*installation, string) {
	t.Helper()
	n := newInstallation(t, Systemd)
	root := t.TempDir()
	program := filepath.Join(root, "usr/bin/tugline")
	write(t, program, "the program of a package")
	write(t, filepath.Join(root, "usr/lib/systemd/system", UnitName), "a unit of a package")
	l := n.req.Layout
	if mode == Daemon {
		l.Mode, l.Prefix, l.Data = Daemon, filepath.Join(root, "var/lib/tugline-runner"), n.req.Layout.Data
	}
	l = l.By(Package{Manager: "deb", Program: program})
	if mode == Daemon {
		if l.Unit != packagedUnit || l.DropIn != unitDropIn {
			t.Errorf("the unit is %s and its drop-in %s", l.Unit, l.DropIn)
		}
		l.Unit, l.DropIn = filepath.Join(root, packagedUnit), filepath.Join(root, unitDropIn)
	}
	n.req.Layout, n.req.Program = l, program
	return n, root
}

// What a package brought is used where it lies, and stays as it is.
func TestAPackageIsUsedInPlace(t *testing.T) {
	for _, mode := range []Mode{Agent, Daemon} {
		n, root := packagedAt(t, mode)
		before := tree(t, filepath.Join(root, "usr"))
		n.installs(t)
		if changed := n.installs(t); changed != 0 {
			t.Errorf("%s: the second time %d changes: %q", mode, changed, n.said)
		}
		if d := cmp.Diff(before, tree(t, filepath.Join(root, "usr"))); d != "" {
			t.Errorf("%s: the package's files (-before +after):\n%s", mode, d)
		}
		l := n.req.Layout
		for _, at := range []string{filepath.Join(l.Prefix, "versions"), filepath.Join(l.Prefix, "current"), filepath.Join(n.home, ".local/bin")} {
			if _, err := os.Lstat(at); err == nil {
				t.Errorf("%s: it made %s", mode, at)
			}
		}
		unit, err := os.ReadFile(l.unit())
		if err != nil {
			t.Fatal(err)
		}
		path := `Environment="PATH=/opt/a b/bin:/opt/100%%/bin:`
		start := "ExecStart=" + l.Binary + " runner run --data-dir "
		if got := string(unit); !strings.Contains(got, path) || strings.Contains(got, start) != (mode == Agent) {
			t.Errorf("%s: %s is\n%s", mode, l.unit(), got)
		}
		rec, err := Installed(l.Data)
		if err != nil || rec.ManagedBy != "deb" || rec.Program != l.Binary || rec.DropIn != l.DropIn {
			t.Errorf("%s: the record is %+v, %v", mode, rec, err)
		}
		rec.Prefix = l.Prefix
		left, err := Uninstall(t.Context(), rec, n.machine, 501, func() (bool, error) { return false, nil }, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(l.unit()); err == nil {
			t.Errorf("%s: %s is still there", mode, l.unit())
		}
		if !slices.ContainsFunc(left.Kept, func(s string) bool { return strings.Contains(s, l.Binary) && strings.Contains(s, "deb") }) {
			t.Errorf("%s: what is left, %q, does not name the package", mode, left.Kept)
		}
		if d := cmp.Diff(before, tree(t, filepath.Join(root, "usr"))); d != "" || n.enabled {
			t.Errorf("%s: after the end the service is enabled: %v; the package's files (-before +after):\n%s", mode, n.enabled, d)
		}
	}
}

func TestAPackageThatIsNotWholeIsRefused(t *testing.T) {
	n, _ := packagedAt(t, Daemon)
	if err := os.Remove(n.req.Layout.Unit); err != nil {
		t.Fatal(err)
	}
	if _, err := n.install(t); err == nil || !strings.Contains(err.Error(), "install it again") {
		t.Errorf("without the unit: %v", err)
	}
}

// An installation takes the place of one of the other kind, and keeps what jobs need.
func TestAPackageAndACopyTakeEachOthersPlace(t *testing.T) {
	n, _ := packagedAt(t, Agent)
	package_ := n.req
	own := n.req
	own.Layout = laid(Systemd, Agent, n.home)
	n.req = own
	n.installs(t)
	versions := tree(t, filepath.Join(own.Layout.Prefix, "versions"))

	n.req = package_
	n.installs(t)
	if _, err := os.Lstat(own.Layout.Link); err == nil {
		t.Errorf("%s still leads to the copy", own.Layout.Link)
	}
	if d := cmp.Diff(versions, tree(t, filepath.Join(own.Layout.Prefix, "versions"))); d != "" || len(versions) < 2 {
		t.Errorf("the versions (-before +after):\n%s", d)
	}
	if last := n.changes[len(n.changes)-1]; !strings.Contains(last, "restart") {
		t.Errorf("the last command is %q", last)
	}
	if changed := n.installs(t); changed != 0 {
		t.Errorf("the second time %d changes: %q", changed, n.said)
	}

	n.req = own
	n.installs(t)
	if is, err := os.Readlink(own.Layout.Link); err != nil || is != own.Layout.Program() {
		t.Errorf("back at the copy the link is %q, %v", is, err)
	}
}

// A unit of ours in the machine's directory would hide the package's.
func TestAUnitBesideThePackagesIsTakenAway(t *testing.T) {
	n, root := packagedAt(t, Daemon)
	w := &work{Request: n.req, uid: -1, gid: -1}
	own := filepath.Join(root, "etc/systemd/system", UnitName)
	write(t, own, "a unit of before")
	if err := os.MkdirAll(n.req.Layout.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	was := n.req.Layout
	was.ManagedBy, was.Binary, was.DropIn, was.Unit = "", "", "", own
	b, err := was.record("v0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordFile(was.Data), b, 0o600); err != nil {
		t.Fatal(err)
	}
	// The places are not those of a daemon, so that root touches nothing by them.
	if err := w.supersede(t.Context()); err == nil {
		t.Error("a record of other places was followed")
	}
	w.Layout.Mode = Agent
	n.enabled = true
	if err := w.supersede(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own); err == nil || !slices.Contains(n.changes, "systemctl --user disable "+UnitName) || !w.restart {
		t.Errorf("the unit is there: %v; commands %q", err == nil, n.changes)
	}
}

func TestWhoLooksAfterAProgram(t *testing.T) {
	dir := t.TempDir()
	exe, marker := filepath.Join(dir, "bin/tugline"), filepath.Join(dir, "lib/tugline/package.json")
	for text, want := range map[string]Package{
		`{"manager":"brew","program":"/opt/homebrew/opt/tugline/bin/tugline"}`: {"brew", "/opt/homebrew/opt/tugline/bin/tugline"},
		`{"manager":"deb","program":"tugline"}`:                                {},
		`{"manager":"pacman","program":"/usr/bin/tugline"}`:                    {},
		`{`: {},
	} {
		write(t, marker, text)
		got, err := PackageOf(exe)
		if got != want || (err == nil) != (want.Manager != "") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if err == nil && got.UpdatedBy() == "" {
			t.Errorf("nothing updates %+v", got)
		}
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	if got, err := PackageOf(exe); err != nil || got != (Package{}) {
		t.Errorf("without a marker: %+v, %v", got, err)
	}
}

// golden compares with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// The units of packages come from the same templates, with the same keys.
func TestFilesOfPackages(t *testing.T) {
	unit, err := PackagedUnit()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "package-systemd.txt", unit)
	own := settings(t, rendered(t, laid(Systemd, Daemon, "/")))
	got := settings(t, string(unit))
	if is := got["Unit.ConditionPathExists"]; !slices.Equal(is, []string{"/var/lib/tugline-runner/runner/identity.json"}) {
		t.Errorf("it waits for %q to be there", is)
	}
	delete(got, "Unit.ConditionPathExists")
	for _, k := range []string{"Service.Environment", "Service.ExecStart"} {
		delete(own, k)
		delete(got, k)
	}
	if d := cmp.Diff(own, got); d != "" {
		t.Errorf("the unit of the package has other settings than that of an installation (-own +package):\n%s", d)
	}
	property, unit, err := FormulaFiles()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "formula-launchd.txt", property)
	golden(t, "formula-systemd.txt", unit)
	p := plist(t, string(property))
	want := map[string]any{"KeepAlive": map[string]any{"SuccessfulExit": false}, "AbandonProcessGroup": true, "RunAtLoad": true, "Label": Label, "StandardErrorPath": "#{var}/log/tugline.log"}
	for k, v := range want {
		if !cmp.Equal(p[k], v) {
			t.Errorf("%s is %v, want %v", k, p[k], v)
		}
	}
	for k := range p {
		if _, ok := documented[k]; !ok {
			t.Errorf("%s is no documented key", k)
		}
	}
}
