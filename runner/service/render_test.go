package service

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// homes are directories of users whose names units and property lists have to escape.
var homes = map[string]string{
	"plain":  "/home/ada",
	"spaces": "/home/Ada King",
	"odd":    `/home/100% "ada" \ $HOME ${X} 'q' ;#`,
	"wide":   "/home/ädä 漢字 <a&b>",
}

var environ = []string{"PATH=/opt/a b/bin:/opt/100%/bin", "HTTPS_PROXY=http://proxy:3128", "CODEX_HOME=/srv/codex"}

func laid(init Init, mode Mode, home string) Layout {
	return Lay(init, mode, Folders{Home: home, Data: filepath.Join(home, ".local/share/tugline"), Config: filepath.Join(home, ".config")})
}

func rendered(t *testing.T, l Layout) string {
	t.Helper()
	vars, notes := environment(l, environ)
	if len(notes) > 0 {
		t.Errorf("left out: %q", notes)
	}
	b, err := render(l, vars)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUnitsAndPropertyListsAreAsRecorded(t *testing.T) {
	for _, init := range []Init{Systemd, Launchd} {
		for _, mode := range []Mode{Agent, Daemon} {
			for name, home := range homes {
				if mode == Daemon && name != "plain" {
					continue // it lies at a fixed place
				}
				got := rendered(t, laid(init, mode, home))
				file := filepath.Join("testdata", fmt.Sprintf("%s-%s-%s.txt", init, mode, name))
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(string(want), got); d != "" {
					t.Errorf("%s (-want +got):\n%s", file, d)
				}
			}
		}
	}
}

// settings reads a unit as systemd does: NAME=VALUE, by section; comments left out.
func settings(t *testing.T, unit string) map[string][]string {
	t.Helper()
	got, section := map[string][]string{}, ""
	for _, l := range strings.Split(unit, "\n") {
		switch {
		case l == "" || l[0] == '#':
		case l[0] == '[':
			section = strings.Trim(l, "[]")
		default:
			k, v, ok := strings.Cut(l, "=")
			if !ok {
				t.Fatalf("the line %q is no setting", l)
			}
			got[section+"."+k] = append(got[section+"."+k], v)
		}
	}
	return got
}

// What keeps jobs alive over the runner's end, and the runner over its own, stands in
// both units.
func TestUnitsHaveTheKeysThatMatter(t *testing.T) {
	for _, mode := range []Mode{Agent, Daemon} {
		got := settings(t, rendered(t, laid(Systemd, mode, "/home/ada")))
		want := map[string]string{
			"Unit.StartLimitIntervalSec": "0", "Service.Type": "notify", "Service.NotifyAccess": "main", "Service.Restart": "always", "Service.RestartPreventExitStatus": "78",
			"Service.Delegate": "yes", "Service.OOMPolicy": "continue", "Service.KillMode": "process", "Service.WatchdogSec": "180",
		}
		oom := ""
		if mode == Daemon {
			want["Service.User"], want["Service.OOMScoreAdjust"], want["Install.WantedBy"] = "tugline-runner", "-500", "multi-user.target"
			oom = "-500"
		} else {
			want["Install.WantedBy"] = "default.target"
		}
		for k, v := range want {
			if !slices.Equal(got[k], []string{v}) {
				t.Errorf("%s: %s is %q, want %q", mode, k, got[k], v)
			}
		}
		if is := strings.Join(got["Service.OOMScoreAdjust"], ""); is != oom {
			t.Errorf("%s: OOMScoreAdjust is %q, want %q", mode, is, oom)
		}
		if env := got["Service.Environment"]; !slices.Contains(env, `"PATH=/opt/a b/bin:/opt/100%%/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"`) {
			t.Errorf("%s: the environment is %q", mode, env)
		}
	}
}

// plist reads a property list: dictionaries as maps, arrays as slices, and leaves.
func plist(t *testing.T, text string) map[string]any {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	var value func(xml.StartElement) any
	value = func(at xml.StartElement) any {
		var list []any
		dict, key := map[string]any{}, ""
		var chars bytes.Buffer
		for {
			tok, err := d.Token()
			if err != nil {
				t.Fatalf("in <%s>: %v", at.Name.Local, err)
			}
			switch tok := tok.(type) {
			case xml.CharData:
				chars.Write(tok)
			case xml.StartElement:
				v := value(tok)
				switch {
				case at.Name.Local == "dict" && tok.Name.Local == "key":
					key = v.(string)
					if _, twice := dict[key]; twice {
						t.Fatalf("the key %q stands twice", key)
					}
				case at.Name.Local == "dict":
					if key == "" {
						t.Fatal("a value without a key")
					}
					dict[key], key = v, ""
				case at.Name.Local == "array" || at.Name.Local == "plist":
					list = append(list, v)
				default:
					t.Fatalf("<%s> in <%s>", tok.Name.Local, at.Name.Local)
				}
			case xml.EndElement:
				switch at.Name.Local {
				case "dict":
					return dict
				case "array", "plist":
					return list
				case "true", "false":
					return at.Name.Local == "true"
				case "integer":
					n, err := strconv.Atoi(chars.String())
					if err != nil {
						t.Fatal(err)
					}
					return n
				case "string", "key":
					return chars.String()
				}
				t.Fatalf("<%s> is no part of a property list", at.Name.Local)
			}
		}
	}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			t.Fatal("there is no property list")
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := tok.(xml.StartElement); ok {
			if at.Name.Local != "plist" || len(at.Attr) != 1 || at.Attr[0].Value != "1.0" {
				t.Fatalf("it begins with %+v", at)
			}
			root := value(at).([]any)
			if len(root) != 1 {
				t.Fatalf("%d values at the top", len(root))
			}
			return root[0].(map[string]any)
		}
	}
}

// documented are the keys of launchd.plist(5) that are used, and their types.
var documented = map[string]any{
	"Label": "", "ProgramArguments": []any{}, "EnvironmentVariables": map[string]any{}, "UserName": "", "GroupName": "", "LimitLoadToSessionType": []any{},
	"RunAtLoad": true, "KeepAlive": map[string]any{}, "AbandonProcessGroup": true, "ProcessType": "", "ThrottleInterval": 0, "StandardOutPath": "", "StandardErrorPath": "",
}

func TestPropertyListsAreReadBackAsTheyWereMeant(t *testing.T) {
	for _, mode := range []Mode{Agent, Daemon} {
		for _, home := range homes {
			l := laid(Launchd, mode, home)
			got := plist(t, rendered(t, l))
			for k, v := range got {
				if want, ok := documented[k]; !ok || fmt.Sprintf("%T", want) != fmt.Sprintf("%T", v) {
					t.Errorf("%s is a %T; documented are %v", k, v, documented)
				}
			}
			want := map[string]any{
				"Label": "dev.tugline.runner", "RunAtLoad": true, "KeepAlive": map[string]any{"SuccessfulExit": false}, "AbandonProcessGroup": true,
				"ProgramArguments": []any{l.Prefix + "/current/tugline", "runner", "run", "--data-dir", l.Data},
				"ProcessType":      "Standard", "ThrottleInterval": 10, "StandardOutPath": "/dev/null", "StandardErrorPath": l.Data + "/logs/launchd.log",
			}
			vars := map[string]any{"PATH": "/opt/a b/bin:/opt/100%/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HTTPS_PROXY": "http://proxy:3128", "TUGLINE_SERVICE": "launchd"}
			if mode == Daemon {
				want["UserName"], want["GroupName"] = "_tugline", "_tugline"
				vars["HOME"] = l.Prefix
			} else {
				want["LimitLoadToSessionType"] = []any{"Aqua", "Background"}
				vars["CODEX_HOME"] = "/srv/codex"
			}
			want["EnvironmentVariables"] = vars
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s in %s (-want +got):\n%s", mode, home, d)
			}
		}
	}
}

func TestWhatAUnitCannotHaveIsRefused(t *testing.T) {
	for _, home := range []string{"/home/a\nb", "/home/\xff", "/home/a\x00", "home/ada", "/home/\u0085"} {
		if err := laid(Systemd, Agent, home).check("v1"); !errors.Is(err, fleet.BadRequest) {
			t.Errorf("%q: %v", home, err)
		}
	}
	for _, version := range []string{"", "..", "../x", "a/b", "-v", "a b", strings.Repeat("v", 101)} {
		if err := laid(Systemd, Agent, "/home/ada").check(version); !errors.Is(err, fleet.BadRequest) {
			t.Errorf("version %q: %v", version, err)
		}
	}
	for _, version := range []string{"v1.2.3", "dev", "v0.0.0-20261130-abc+dirty", "dev-0123456789ab"} {
		if err := laid(Systemd, Agent, "/home/ada").check(version); err != nil {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// Of the PATH of whoever installs it the service gets what can be trusted for months, and
// of the environment nothing secret.
func TestWhatTheServiceGetsOfTheEnvironment(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{"/opt/x/bin", "", ".", "bin", "/opt/x/bin/", "/usr/bin", open, "/a\tb"}, ":")
	vars, notes := environment(laid(Systemd, Agent, "/home/ada"), []string{"PATH=" + path, "HTTPS_PROXY=http://ada:geheim@proxy", "NO_PROXY=a,b", "OPENAI_API_KEY=geheim", "SSL_CERT_FILE=a\nb"})
	want := []variable{{"PATH", "/opt/x/bin:/usr/bin:/usr/local/bin:/bin:/usr/sbin:/sbin"}, {"NO_PROXY", "a,b"}}
	if d := cmp.Diff(want, vars); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(notes) != 7 {
		t.Errorf("%d notes: %q", len(notes), notes)
	}
	if strings.Contains(fmt.Sprint(vars, notes), "geheim") {
		t.Errorf("a secret: %q %q", vars, notes)
	}
}

// systemd refuses to start a program by such a path, however it is written: it is said before anything is made.
func TestAPathThatSystemdRefusesIsSaid(t *testing.T) {
	t.Parallel()
	for home, ok := range map[string]bool{`/home/a b % $ ü`: true, `/home/a"b`: false, `/home/o'hara`: false, `/home/a\b`: false} {
		f := Folders{Home: home, Data: home + "/.local/share/tugline", Config: home + "/.config"}
		if err := Lay(Systemd, Agent, f).check("1.0.0"); (err == nil) != ok {
			t.Errorf("%s: %v", home, err)
		}
		if err := Lay(Launchd, Agent, f).check("1.0.0"); err != nil {
			t.Errorf("%s, launchd: %v", home, err)
		}
	}
}
