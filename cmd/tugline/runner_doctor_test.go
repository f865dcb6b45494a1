package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/service"
)

// doctored is a machine that a doctor looks at.
type doctored struct {
	t               *testing.T
	bin, data, home string
	env             []string
}

func newDoctored(t *testing.T) *doctored {
	t.Helper()
	d := &doctored{t: t, bin: t.TempDir(), data: filepath.Join(t.TempDir(), "runner"), home: t.TempDir()}
	if err := os.Mkdir(d.data, 0o700); err != nil {
		t.Fatal(err)
	}
	d.env = []string{"HOME=" + d.home, "PATH=" + d.bin}
	return d
}

// program puts a shell script into the PATH, or elsewhere.
func (d *doctored) program(path, text string) string {
	d.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.bin, path)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		d.t.Fatal(err)
	}
	return path
}

func (d *doctored) write(name, text string, mode os.FileMode) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.data, name), []byte(text), mode); err != nil {
		d.t.Fatal(err)
	}
}

func (d *doctored) look() *findings {
	d.t.Helper()
	w := &runnerDoctor{data: d.data, mode: service.Agent, env: d.env, who: "ada", uid: 501, control: tools{}}
	f := w.look(d.t.Context())
	for _, l := range f.Findings {
		if (l.Level == levelOK) != (l.Mend == "") {
			d.t.Errorf("%s: level %s and the mend %q", l.Check, l.Level, l.Mend)
		}
	}
	return f
}

// expect holds the worst of a check against what it is to be.
func (f *findings) expect(t *testing.T, check, level, says string) {
	t.Helper()
	if got, detail := f.level(check); got != level || !strings.Contains(detail, says) {
		t.Errorf("%s is %q, %q; want %q, which says %q", check, got, detail, level, says)
	}
}

func TestTheDoctorOfAMachineThatLacksEverything(t *testing.T) {
	f := newDoctored(t).look()
	f.expect(t, "service", levelWarn, "no service is installed")
	f.expect(t, "enrolled", levelFail, "no runner that is enrolled")
	f.expect(t, "git", levelFail, "does not run")
	f.expect(t, "agents", levelWarn, "no agent is found")
	f.expect(t, "codex", levelOK, "not found in the service's PATH")
	f.expect(t, "docker", levelOK, "none")
	f.expect(t, "runner.yaml", levelOK, "updates: ask")
	if f.Worst != levelFail {
		t.Errorf("the worst is %s", f.Worst)
	}
}

// What runner.yaml names is looked at, and its programs are run as the service runs them.
func TestTheDoctorFollowsTheOwnersRules(t *testing.T) {
	d := newDoctored(t)
	elsewhere := d.program(filepath.Join(t.TempDir(), "codex-next"), `[ "$HOME" = "`+d.home+`" ] && [ "$PATH" = "`+d.bin+`" ] && echo codex-cli 7.7.7`)
	d.program("codex", "echo codex-cli 1.0.0")
	d.program("opencode", "echo 1.0.0")
	d.write("runner.yaml", "harnesses: {codex: {path: "+elsewhere+"}, claude: {path: /nowhere/claude}}\nsession_homes: {codex: "+d.home+"}\nsession_dirs: [/nowhere/at/all]\n", 0o600)
	f := d.look()
	f.expect(t, "codex", levelWarn, elsewhere+" 7.7.7, not signed in")
	f.expect(t, "claude", levelFail, "/nowhere/claude")
	f.expect(t, "opencode", levelOK, "not among the harnesses of runner.yaml")
	f.expect(t, "runner.yaml", levelWarn, "session_dirs: stat /nowhere/at/all")

	d.write("runner.yaml", "harnesses: {codex: {}, claude: {}}\npaused: I am on a journey\nmin_free_bytes: 900TiB\n", 0o600)
	d.program("codex", "exit 3")
	f = d.look()
	f.expect(t, "codex", levelWarn, "does not run")
	f.expect(t, "claude", levelWarn, "runner.yaml allows it")
	f.expect(t, "runner.yaml", levelWarn, "I am on a journey")
	f.expect(t, "disk", levelFail, "nothing new is taken below 900")

	d.write("runner.yaml", "slots: many\n", 0o600)
	d.look().expect(t, "runner.yaml", levelFail, "many")
	if err := os.Chmod(filepath.Join(d.data, "runner.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	f = d.look()
	f.expect(t, "runner.yaml", levelFail, "chmod 600")
	f.expect(t, "permissions", levelFail, "runner.yaml is 0644")
}

// An enrolled runner whose hub is not there: each way is told with its mend, and that the
// clock can't be held against anything.
func TestTheDoctorWithoutAHub(t *testing.T) {
	d := newDoctored(t)
	id, err := json.Marshal(map[string]any{
		"version": 1, "sign_seed": make([]byte, 32), "box_pub": make([]byte, 32), "box_priv": make([]byte, 32), "runner": "r1", "name": "box", "cluster": "c-test",
		"hubs": []string{"http://127.0.0.1:1", "http://no-such-name.invalid:7440"}, "plain": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.write("identity.json", string(id), 0o600)
	for _, name := range append([]string{"NO_PROXY", "no_proxy"}, proxyVariables...) {
		t.Setenv(name, "") // the doctor changes them
	}
	f := d.look()
	f.expect(t, "enrolled", levelOK, "as box")
	f.expect(t, "hub", levelFail, "127.0.0.1:1: connection")
	f.expect(t, "clock", levelWarn, "which was not reached")
	if got, detail := f.level("hub by proxy"); got != "" {
		t.Errorf("without a proxy one was looked for: %s", detail)
	}
	d.env = append(d.env, "HTTP_PROXY=http://127.0.0.1:2")
	f = d.look()
	f.expect(t, "hub", levelWarn, "127.0.0.1:1")
	f.expect(t, "hub by proxy", levelFail, "")
}

// A directory that can't be read is told, with what to do, and is no crash.
func TestTheDoctorOfADirectoryThatCannotBeRead(t *testing.T) {
	d := newDoctored(t)
	d.write("service.json", "{", 0o600)
	d.write("identity.json", "no identity", 0o600)
	f := d.look()
	f.expect(t, "service", levelFail, "service.json")
	f.expect(t, "enrolled", levelFail, "identity.json")
}
