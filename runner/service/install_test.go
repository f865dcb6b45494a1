package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is the far side: a systemd and a launchd with one service, as a script of what
// their tools answer.
type machine struct {
	t        *testing.T
	linger   bool
	noLinger bool // it may not be changed
	noUser   bool // there is no manager for the user
	enabled  bool
	active   string // "" is inactive
	reload   bool   // the unit on disk is another than the one that was read
	fails    string // a command that fails, by its beginning
	gui      bool   // somebody is at the screen
	loaded   map[string]bool
	slow     int // launchd still has a service for so many questions after bootout
	ending   int
	changes  []string // commands that changed something
}

func (m *machine) Run(_ context.Context, argv ...string) (string, int, error) {
	line := strings.Join(argv, " ")
	words := slices.DeleteFunc(slices.Clone(argv), func(w string) bool { return w == "--user" })
	if m.fails != "" && strings.HasPrefix(line, m.fails) {
		return "it does not work", 1, nil
	}
	change := func() (string, int, error) {
		m.changes = append(m.changes, line)
		return "", 0, nil
	}
	switch {
	case strings.HasPrefix(line, "loginctl show-user"):
		if m.linger {
			return "yes\n", 0, nil
		}
		return "no\n", 0, nil
	case strings.HasPrefix(line, "loginctl enable-linger"):
		if m.noLinger {
			return "Access denied", 1, nil
		}
		m.linger, m.noUser = true, false
		return change()
	case line == "systemctl --user show-environment":
		if m.noUser {
			return "Failed to connect to bus: No medium found", 1, nil
		}
		return "HOME=/x", 0, nil
	case words[0] == "systemctl" && words[1] == "show":
		switch words[3] {
		case "NeedDaemonReload":
			return map[bool]string{true: "yes", false: "no"}[m.reload], 0, nil
		case "ActiveState":
			if m.active == "" {
				return "inactive", 0, nil
			}
			return m.active, 0, nil
		case "LoadState":
			if m.enabled || m.active != "" {
				return "loaded", 0, nil
			}
			return "not-found", 0, nil
		}
		return "", 0, nil
	case words[0] == "systemctl" && words[1] == "is-enabled":
		if m.enabled {
			return "enabled\n", 0, nil
		}
		return "disabled\n", 1, nil
	case words[0] == "systemctl":
		switch words[1] {
		case "daemon-reload":
			m.reload = false
		case "enable":
			m.enabled = true
		case "start", "restart":
			m.active = "active"
		case "disable":
			m.enabled, m.active = false, ""
		}
		return change()
	case words[0] == "launchctl" && words[1] == "print":
		domain, label := words[2], ""
		if i := strings.Index(domain, "/"+Label); i > 0 {
			domain, label = domain[:i], domain[i:]
		}
		there := !strings.HasPrefix(domain, "gui/") || m.gui
		if label != "" && m.ending > 0 {
			m.ending--
			return domain + " = {", 0, nil
		}
		if there && (label == "" || m.loaded[domain]) {
			return domain + " = {", 0, nil
		}
		return "Could not find service", 113, nil
	case words[0] == "launchctl":
		switch words[1] {
		case "bootstrap":
			if m.ending > 0 {
				return "Bootstrap failed: 5: Input/output error", 5, nil
			}
			m.loaded[words[2]] = true
		case "bootout":
			m.ending = m.slow
			m.loaded[strings.TrimSuffix(words[2], "/"+Label)] = false
		}
		return change()
	}
	m.t.Errorf("nobody answers %q", line)
	return "", 127, nil
}

// installation is a home, a program and a machine.
type installation struct {
	*machine
	home  string
	req   Request
	said  []string
	notes []string
}

func newInstallation(t *testing.T, init Init) *installation {
	t.Helper()
	n := &installation{machine: &machine{t: t, gui: true, loaded: map[string]bool{}}, home: filepath.Join(t.TempDir(), `Ada K 100%`)}
	program := filepath.Join(t.TempDir(), "tugline")
	write(t, program, "the program")
	l := laid(init, Agent, n.home)
	n.req = Request{
		Layout: l, Program: program, Version: "v1", Env: environ, Who: "ada", UID: 501, Control: n.machine,
		Say: func(s string) { n.said = append(n.said, s) }, Note: func(s string) { n.notes = append(n.notes, s) },
		Enrol: func(context.Context) error {
			return os.WriteFile(filepath.Join(l.Data, "identity.json"), []byte("{}"), 0o600)
		},
	}
	return n
}

func (n *installation) install(t *testing.T) (int, error) {
	t.Helper()
	n.said, n.notes, n.changes = nil, nil, nil
	if _, err := os.Stat(filepath.Join(n.req.Layout.Data, "identity.json")); err == nil {
		n.req.Enrol = nil
	}
	return Install(t.Context(), n.req)
}

func (n *installation) installs(t *testing.T) int {
	t.Helper()
	changed, err := n.install(t)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// tree gives everything below a directory: mode, and text or target.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		text := ""
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			text, err = os.Readlink(path)
		case st.Mode().IsRegular():
			b, e := os.ReadFile(path)
			text, err = string(b), e
		}
		got[rel] = fmt.Sprintf("%s %s", st.Mode(), text)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return got
}

func TestInstalledTwiceNothingChanges(t *testing.T) {
	n := newInstallation(t, Systemd)
	n.installs(t)
	user := "systemctl --user "
	want := []string{"loginctl enable-linger ada", user + "daemon-reload", user + "enable " + UnitName, user + "start " + UnitName}
	if d := cmp.Diff(want, n.changes); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
	got := tree(t, n.home)
	for path, begins := range map[string]string{
		".local/share/tugline":                        "drwx------",
		".local/share/tugline/current":                "Lrwxrwxrwx versions/v1",
		".local/share/tugline/versions/v1/tugline":    "-rwxr-xr-x the program",
		".local/share/tugline/runner":                 "drwx------",
		".local/share/tugline/runner/identity.json":   "-rw-------",
		".local/share/tugline/runner/service.json":    "-rw------- {",
		".config/systemd/user/tugline-runner.service": "-rw-r--r-- # A runner",
		".local/bin/tugline":                          "Lrwxrwxrwx " + n.home + "/.local/share/tugline/current/tugline",
	} {
		if !strings.HasPrefix(got[path], begins) {
			t.Errorf("%s is %.60q, want it to begin with %q", path, got[path], begins)
		}
	}
	if changed := n.installs(t); changed != 0 || len(n.said) > 0 || len(n.notes) > 0 || len(n.changes) > 0 {
		t.Errorf("the second time %d changes: %q %q %q", changed, n.said, n.notes, n.changes)
	}
	if d := cmp.Diff(got, tree(t, n.home)); d != "" {
		t.Errorf("the second time changed (-first +second):\n%s", d)
	}

	// What was taken away comes back, and only that.
	if err := os.Remove(n.req.Layout.Link); err != nil {
		t.Fatal(err)
	}
	n.enabled = false
	if changed := n.installs(t); changed != 2 {
		t.Errorf("%d changes: %q, want the link and that it is enabled", changed, n.said)
	}
	if d := cmp.Diff(got, tree(t, n.home)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	rec, err := Installed(n.req.Layout.Data)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Record{Version: 1, Mode: Agent, Init: Systemd, Prefix: n.req.Layout.Prefix, Unit: n.req.Layout.Unit, Link: n.req.Layout.Link, Path: rec.Path, Environment: []string{"PATH=" + rec.Path, "HTTPS_PROXY=http://proxy:3128", "CODEX_HOME=/srv/codex"}, Installed: "v1"}); !cmp.Equal(rec, want) || !strings.HasPrefix(rec.Path, "/opt/a b/bin:") {
		t.Errorf("service.json says %+v, want %+v", rec, want)
	}
	if d := cmp.Diff(n.req.Layout, rec.Layout()); d != "" {
		t.Errorf("the layout of the record (-want +got):\n%s", d)
	}
}

func TestANewerProgramIsSwitchedTo(t *testing.T) {
	for _, init := range []Init{Systemd, Launchd} {
		n := newInstallation(t, init)
		n.slow = 2
		n.installs(t)
		write(t, n.req.Program, "a newer program")
		n.req.Version = "v2"
		n.installs(t)
		want := []string{"systemctl --user restart " + UnitName}
		if init == Launchd {
			want = []string{"launchctl bootout gui/501/" + Label, "launchctl enable gui/501/" + Label, "launchctl bootstrap gui/501 " + n.req.Layout.Unit}
		}
		if d := cmp.Diff(want, n.changes); d != "" {
			t.Errorf("commands (-want +got):\n%s", d)
		}
		if b, err := os.ReadFile(n.req.Layout.Program()); err != nil || string(b) != "a newer program" {
			t.Errorf("the switch leads to %q, %v", b, err)
		}
		if b, err := os.ReadFile(n.req.Layout.OfVersion("v1")); err != nil || string(b) != "the program" {
			t.Errorf("the version from before is %q, %v; it is to fall back to", b, err)
		}
		// The same version built anew counts too.
		write(t, n.req.Program, "another build of it")
		n.installs(t)
		if d := cmp.Diff(want, n.changes); d != "" {
			t.Errorf("commands for another build (-want +got):\n%s", d)
		}
	}
}

func TestPrintWritesNothingAndShowsEveryFile(t *testing.T) {
	for _, init := range []Init{Systemd, Launchd} {
		n := newInstallation(t, init)
		n.req.Print = true
		n.installs(t)
		if got := tree(t, n.home); len(got) > 0 || len(n.changes) > 0 {
			t.Errorf("it wrote %q and ran %q", got, n.changes)
		}
		shown := n.said
		n.req.Print = false
		n.installs(t)
		var brief []string
		for _, s := range shown {
			head, text, _ := strings.Cut(s, ":\n")
			brief = append(brief, head)
			path, isFile := strings.CutPrefix(head, "file ")
			path, _, _ = strings.Cut(path, " (0")
			if !isFile {
				continue
			}
			b, err := os.ReadFile(path)
			if err != nil || indented(string(b)) != text {
				t.Errorf("%s: shown was\n%s\nand written\n%s", path, text, b)
			}
		}
		if d := cmp.Diff(brief, n.said); d != "" {
			t.Errorf("shown and then done are not the same (-shown +done):\n%s", d)
		}
		n.req.Print = true
		if changed := n.installs(t); changed != 0 {
			t.Errorf("of what is in place it would change %q", n.said)
		}
	}
}

func TestACutInstallationIsGoneOnWith(t *testing.T) {
	type cut struct{}
	for _, init := range []Init{Systemd, Launchd} {
		whole := newInstallation(t, init)
		steps := whole.installs(t)
		want := slices.Sorted(maps.Keys(tree(t, whole.home)))
		for at := range steps {
			n := newInstallation(t, init)
			say := n.req.Say
			n.req.Say = func(s string) {
				if say(s); len(n.said) > at {
					panic(cut{})
				}
			}
			func() {
				defer func() {
					if _, ok := recover().(cut); !ok {
						t.Errorf("step %d was not come to", at)
					}
				}()
				n.install(t)
			}()
			n.req.Say = say
			n.installs(t)
			if n.active != "active" && !n.loaded["gui/501"] {
				t.Errorf("cut at step %d and run again, the service does not run", at)
			}
			if d := cmp.Diff(want, slices.Sorted(maps.Keys(tree(t, n.home)))); d != "" {
				t.Errorf("cut at step %d and run again (-want +got):\n%s", at, d)
			}
			if changed := n.installs(t); changed != 0 {
				t.Errorf("cut at step %d, the third run changes %q", at, n.said)
			}
		}
	}
}

func TestAFailedEnrolmentLeavesNoService(t *testing.T) {
	n := newInstallation(t, Systemd)
	refused := errors.New("the ticket was used")
	enrol := n.req.Enrol
	n.req.Enrol = func(context.Context) error { return refused }
	if _, err := n.install(t); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.req.Layout.Unit); !errors.Is(err, fs.ErrNotExist) || n.active != "" || n.enabled {
		t.Errorf("there is a service: %v, %s", err, n.active)
	}
	n.req.Enrol = enrol
	n.installs(t)
}

func TestWhatLingerAndTheManagerNeed(t *testing.T) {
	n := newInstallation(t, Systemd)
	n.noLinger = true
	n.installs(t)
	if len(n.notes) != 1 || !strings.Contains(n.notes[0], "sudo loginctl enable-linger ada") || n.active != "active" {
		t.Errorf("without linger: %q, %s", n.notes, n.active)
	}

	n = newInstallation(t, Systemd)
	n.fails = "systemctl --user start"
	if _, err := n.install(t); err == nil || !strings.Contains(err.Error(), "journalctl --user") {
		t.Errorf("a start that fails: %v", err)
	}
	n.fails = ""
	if changed := n.installs(t); changed != 1 || n.active != "active" {
		t.Errorf("after it %d changes: %q", changed, n.said)
	}

	n = newInstallation(t, Systemd)
	n.noUser = true // until the user lingers
	n.installs(t)
}

func TestAForeignProgramOfThatNameStays(t *testing.T) {
	n := newInstallation(t, Systemd)
	write(t, n.req.Layout.Link, "mine")
	n.installs(t)
	if b, _ := os.ReadFile(n.req.Layout.Link); string(b) != "mine" || len(n.notes) != 1 {
		t.Errorf("it is %q now; %q", b, n.notes)
	}
	if changed := n.installs(t); changed != 0 {
		t.Errorf("the second time %q", n.said)
	}
	n.uninstall(t, false)
	if b, _ := os.ReadFile(n.req.Layout.Link); string(b) != "mine" {
		t.Errorf("after uninstall it is %q", b)
	}
}

func (n *installation) uninstall(t *testing.T, busy bool) Uninstalled {
	t.Helper()
	rec, err := Installed(n.req.Layout.Data)
	if err != nil {
		t.Fatal(err)
	}
	left, err := Uninstall(t.Context(), rec, n.machine, 501, func() (bool, error) {
		if n.active != "" || n.loaded["gui/501"] {
			t.Error("it asks for jobs while the runner runs")
		}
		return busy, nil
	}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestUninstallLeavesWhatJobsLeft(t *testing.T) {
	for _, init := range []Init{Systemd, Launchd} {
		for _, busy := range []bool{false, true} {
			n := newInstallation(t, init)
			n.installs(t)
			kept := filepath.Join(n.req.Layout.Data, "trees", "work", "job", "file")
			write(t, kept, "work")
			left := n.uninstall(t, busy)
			if b, err := os.ReadFile(kept); string(b) != "work" || left.Data != n.req.Layout.Data {
				t.Errorf("the work is %q, %v; said is %q", b, err, left.Data)
			}
			got := tree(t, n.home)
			for _, path := range []string{".config/systemd/user/" + UnitName, "Library/LaunchAgents/" + Label + ".plist", ".local/bin/tugline", ".local/share/tugline/runner/service.json"} {
				if is, there := got[path]; there {
					t.Errorf("%s is left: %s", path, is)
				}
			}
			if _, there := got[".local/share/tugline/versions/v1/tugline"]; there != busy || (left.Programs != "") != busy {
				t.Errorf("with jobs that run: %v; the program is there: %v, said is %q", busy, there, left.Programs)
			}
			if n.enabled || n.active != "" || n.loaded["gui/501"] {
				t.Errorf("the service is still there: %+v", n.machine)
			}
			// And back again, with the same identity.
			n.installs(t)
			if strings.Contains(strings.Join(n.said, "\n"), "enrolment") {
				t.Errorf("it enrolled again: %q", n.said)
			}
		}
	}
}

// Over ssh there is no session at the screen; the agent then goes to the background, and
// moves when there is one.
func TestTheDomainOfLaunchdIsDetected(t *testing.T) {
	n := newInstallation(t, Launchd)
	n.gui = false
	n.installs(t)
	if !n.loaded["user/501"] || len(n.notes) != 1 || !strings.Contains(n.notes[0], "user/501") {
		t.Errorf("over ssh: %v, %q", n.loaded, n.notes)
	}
	n.gui = true
	n.installs(t)
	if !n.loaded["gui/501"] || n.loaded["user/501"] || len(n.notes) != 0 {
		t.Errorf("at the screen: %v, %q", n.loaded, n.notes)
	}
	if changed := n.installs(t); changed != 0 {
		t.Errorf("the second time %q", n.said)
	}
}

func TestARecordOfANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, recordFile(dir), `{"version": 2}`)
	if _, err := Installed(dir); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Error(err)
	}
	if _, err := Installed(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
