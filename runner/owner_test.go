package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/shared/fleet"
)

func TestExampleIsTheDefault(t *testing.T) {
	got, err := ParseOwner([]byte(ExampleOwner))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultOwner()
	want.Hours = Hours{Quiet: []string{}, Updates: []string{}}
	want.Repositories = Repositories{Allow: []string{}, Options: []RepositoryOption{}}
	want.Harnesses, want.EnvNames, want.Origins, want.RescueIgnored = map[string]Harness{}, []string{}, []string{}, []string{}
	want.Provision.Hours = []string{}
	want.SessionHomes, want.SessionDirs = map[string]string{}, []string{}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Floors{})); d != "" {
		t.Errorf("the example is not the default (-default +example):\n%s", d)
	}
	for _, key := range []string{"slots", "paused", "hours", "on_battery", "user_active", "max_load", "min_memory", "memory", "floors", "repositories", "harnesses", "env_names", "origins", "push", "updates", "provision", "release_key",
		"permissions", "allow_file", "min_free_bytes", "git", "transport", "keep_scratch", "keep_workspaces", "keep_rescue", "rescue_ignored", "keep_caches", "disk_limit", "build_output", "docker", "sessions", "session_homes", "session_dirs"} {
		if !strings.Contains(ExampleOwner, "\n"+key+":") {
			t.Errorf("the example does not explain %s", key)
		}
	}
}

func TestOwnerMistakesNameTheLine(t *testing.T) {
	for _, c := range []struct{ file, line, word string }{
		{"slots: 2\nslot: 3\n", "line 2", "unknown key slot"},
		{"slots: many\n", "line 1", "many"},
		{"# x\npush: maybe\n", "line 2", "push"},
		{"permissions: root\n", "line 1", "permissions"},
		{"slots: 17\n", "line 1", "slots"},
		{"slots: 1\non_battery: some\n", "line 2", "some"},
		{"on_battery: 17\n", "line 1", "17"},
		{"user_active: {within: 5m, slots: -2}\n", "line 1", "-2"},
		{"user_active:\n  within: forever\n", "line 2", "within"},
		{"max_load: -1\n", "line 1", "max_load"},
		{"max_load: .nan\n", "line 1", "max_load"},
		{"min_memory: much\n", "line 1", "much"},
		{"memory:\n  keep: 1GiB\n  per_slot: 0\n", "line 3", "per_slot"},
		{"harnesses:\n  codex: {models: ['a b']}\n", "line 2", "models"},
		{"min_free_bytes: lots\n", "line 1", "lots"},
		{"hours:\n  quiet:\n    - 22:00-07:00\n    - Funday\n", "line 4", "Funday"},
		{"hours:\n  loud: []\n", "line 2", "unknown key loud"},
		{"harnesses:\n  codex: {path: bin/codex}\n", "line 2", "absolute"},
		{"harnesses:\n  emacs: {}\n", "line 2", "emacs"},
		{"env_names: ['*']\n", "line 1", "env_names"},
		{"slots: 1\nbuild_output: [out, ../x]\n", "line 2", "../x"},
		{"build_output: ['*']\n", "line 1", "build_output"},
		{"build_output: ['.git']\n", "line 1", "build_output"},
		{"rescue_ignored: ['[']\n", "line 1", "rescue_ignored"},
		{"keep_workspaces: long\n", "line 1", "long"},
		{"keep_rescue: -1h\n", "line 1", "-1h"},
		{"disk_limit: big\n", "line 1", "big"},
		{"git:\n  name: A\n", "line 1", "git"},
		{"slots: 1\nsessions: some\n", "line 2", "sessions"},
		{"session_dirs: [src]\n", "line 1", "absolute"},
		{"session_homes: {codex: lab}\n", "line 1", "absolute"},
		{"session_homes:\n  emacs: /x\n", "line 2", "want codex, claude or opencode"},
		{"session_homes: {opencode: /x/data}\n", "line 1", "opencode has that name"},
		{"repositories:\n  allow: ['[']\n", "line 2", "allow"},
		{"slots: [\n", "line", ""},
		{"slots: 1\n---\nslots: 2\n", "", "more than one"},
	} {
		_, err := ParseOwner([]byte(c.file))
		if err == nil {
			t.Errorf("%q was taken", c.file)
			continue
		}
		if !strings.Contains(err.Error(), c.line) || !strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q, want %q and %q in one line", c.file, err, c.line, c.word)
		}
	}
}

func TestOwnerReadsEverything(t *testing.T) {
	o, err := ParseOwner([]byte("slots: 3\nmin_free_bytes: 2GiB\npermissions: full\nharnesses: {exec: {}, codex: {path: /opt/codex}}\n" +
		"repositories: {allow: ['https://h/*'], options: [{match: 'https://h/big', depth: 9, filter: 'blob:none'}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if o.MinFree != 2<<30 || o.Slots != 3 || o.Permissions != fleet.PermFull || o.Harnesses["codex"].Path != "/opt/codex" || o.Repositories.Options[0].Depth != 9 {
		t.Errorf("got %+v", o)
	}
}

func TestOwnerFileOfOthersIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runner.yaml")
	if o, err := LoadOwner(file); err != nil || o.Slots != 1 {
		t.Errorf("a missing file: %+v, %v", o, err)
	}
	if err := Check(file); err == nil {
		t.Error("Check of a missing file is fine")
	}
	if err := os.WriteFile(file, []byte("slots: 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Check(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("mode 0644: %v, want the mend", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(file); err != nil {
		t.Error(err)
	}
}

func TestQuietHours(t *testing.T) {
	monday := time.Date(2030, 1, 7, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		quiet string
		at    time.Duration // after Monday 00:00
		end   time.Duration // 0: not quiet
	}{
		{"09:00-17:30", 9 * time.Hour, 17*time.Hour + 30*time.Minute},
		{"09:00-17:30", 17*time.Hour + 30*time.Minute, 0},
		{"22:00-07:00", 23 * time.Hour, 31 * time.Hour},
		{"22:00-07:00", 6 * time.Hour, 7 * time.Hour},
		{"22:00-07:00", 12 * time.Hour, 0},
		{"Sun 22:00-07:00", 6 * time.Hour, 7 * time.Hour},
		{"Tue 22:00-07:00", 6 * time.Hour, 0},
		{"Mon", 12 * time.Hour, 24 * time.Hour},
		{"Sat-Mon", 23*time.Hour + 59*time.Minute, 24 * time.Hour},
		{"Tue-Sun", 12 * time.Hour, 0},
		{"Mon 00:00-24:00", 0, 24 * time.Hour},
	} {
		o := Owner{Hours: Hours{Quiet: []string{c.quiet}}}
		end, ok := o.quietUntil(monday.Add(c.at))
		if ok != (c.end != 0) || ok && !end.Equal(monday.Add(c.end)) {
			t.Errorf("%q at %v: until %v, %v; want %v", c.quiet, c.at, end, ok, c.end)
		}
	}
}

// What is shown as in force can be put back into the file.
func TestOwnerIsWrittenAsItIsRead(t *testing.T) {
	for given, want := range map[string]string{
		"72h": "72h", "0s": "0s", "forever": "forever", "90m": "1h30m", "36h0m5s": "36h0m5s", "10m": "10m", "0h20m": "20m", "45s": "45s",
	} {
		o, err := ParseOwner([]byte("slots: 3\nkeep_scratch: " + given + "\nmin_free_bytes: 2GiB\nharnesses: {codex: {path: /opt/codex}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "keep_scratch: "+want+"\n") {
			t.Errorf("%s is written as\n%s", given, b)
		}
		again, err := ParseOwner(b)
		if diff := cmp.Diff(o, again, cmpopts.EquateEmpty(), cmp.AllowUnexported(Floors{})); err != nil || diff != "" {
			t.Errorf("%s cannot be read again: %v (-was +is)\n%s", given, err, diff)
		}
	}
}

// Whatever the file: it is refused in one line, or what is taken from it can be written
// and read again.
func FuzzParseOwner(f *testing.F) {
	for _, seed := range []string{ExampleOwner, "floors: {select: x}", "on_battery: all\nuser_active: {within: 90s, slots: 0}", "max_load: 1e1", "memory: {keep: 1TiB}",
		"floors: &a {start: 1}\nrepositories: {}", "harnesses: {codex: {models: null}}", "floors: [*b]", "min_memory: 0x10"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file string) {
		o, err := ParseOwner([]byte(file))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("refused in more than one line: %q", err)
			}
			return
		}
		if o.Slots < 0 || o.Slots > fleet.MaxSlots || o.OnBattery > fleet.MaxSlots || o.Memory.PerSlot <= 0 || o.Floors.Start < 0 || o.Floors.Start > maxFloor {
			t.Errorf("taken beyond its bounds: %+v", o)
		}
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseOwner(b)
		if diff := cmp.Diff(o, again, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Floors{})); err != nil || diff != "" {
			t.Errorf("cannot be read again: %v (-was +is)\n%s\n%s", err, diff, b)
		}
	})
}
