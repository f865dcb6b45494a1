package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/service"
	"tugline.dev/tugline/shared/api"
)

// tools are answers of a machine's service manager.
type tools map[string]string

func (s tools) Run(_ context.Context, argv ...string) (string, int, error) {
	out, ok := s[strings.Join(argv, " ")]
	if !ok {
		return "", 1, nil
	}
	return out, 0, nil
}

// level gives the level of a check, the first of that name; "" where there is none.
func (f *findings) level(check string) (level, detail string) {
	for _, l := range f.Findings {
		if l.Check == check {
			return l.Level, l.Detail
		}
	}
	return "", ""
}

func TestTheDoctorLooksAtTheService(t *testing.T) {
	// Away from the user's own PATH an agent is found only by what the service was given.
	bin, data := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "codex"), []byte("#!/bin/sh\necho codex-cli 9.9.9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	rec, err := json.Marshal(service.Record{Version: 1, Mode: service.Agent, Init: service.Systemd, Prefix: filepath.Dir(data), Path: bin + ":/usr/bin:/bin", Installed: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "service.json"), rec, 0o600); err != nil {
		t.Fatal(err)
	}
	show := "systemctl --user show -p ActiveState --value " + service.UnitName
	linger := "loginctl show-user ada --property=Linger --value"
	look := func(answers tools) *findings {
		d := &runnerDoctor{data: data, mode: service.Agent, env: []string{"HOME=" + t.TempDir(), "PATH=/nowhere"}, who: "ada", uid: 501, control: answers}
		return d.look(t.Context())
	}

	f := look(tools{show: "active", linger: "yes"})
	for check, want := range map[string]string{"service": levelOK, "linger": levelOK, "permissions": levelOK, "enrolled": levelFail, "git": levelOK} {
		if got, detail := f.level(check); got != want {
			t.Errorf("%s is %q, want %q: %s", check, got, want, detail)
		}
	}
	if _, detail := f.level("codex"); !strings.Contains(detail, bin+"/codex 9.9.9") {
		t.Errorf("of the agent in the service's PATH it says %q", detail)
	}

	f = look(tools{show: "inactive", linger: "no"})
	for _, check := range []string{"service", "linger"} {
		if got, detail := f.level(check); got != levelFail {
			t.Errorf("%s is %q: %s", check, got, detail)
		}
	}

	if err := service.StoodDown(data, "the runner was revoked"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "identity.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	f = look(tools{show: "active", linger: "yes"})
	if level, detail := f.level("service"); level != levelFail || !strings.Contains(detail, "revoked") {
		t.Errorf("of a runner that was sent away it says %s, %q", level, detail)
	}
	if level, detail := f.level("permissions"); level != levelFail || !strings.Contains(detail, "identity.json is 0644") {
		t.Errorf("of a key that all may read it says %s, %q", level, detail)
	}
	for _, l := range f.Findings {
		if (l.Level == levelOK) != (l.Mend == "") {
			t.Errorf("%s: level %s and the mend %q", l.Check, l.Level, l.Mend)
		}
	}
}

func TestTheClockOfADoctor(t *testing.T) {
	for ahead, want := range map[time.Duration]string{0: levelOK, -5 * time.Second: levelOK, 6 * time.Second: levelWarn, -time.Minute: levelWarn, -time.Hour: levelFail} {
		var f findings
		f.clock(ahead)
		if got, detail := f.level("clock"); got != want {
			t.Errorf("%s ahead is %s, want %s: %s", ahead, got, want, detail)
		}
	}
}

func TestTheDoctorOfAHub(t *testing.T) {
	offset, ready := time.Duration(0), http.StatusOK
	srv := script(t, map[string]http.HandlerFunc{
		"GET /readyz": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(offset).UTC().Format(http.TimeFormat))
			w.WriteHeader(ready)
		},
		"GET /v1/status": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, api.Status{Version: "v1", Runners: 3, Online: 2, Warnings: []string{"floor_select is no size"}})
		},
		"GET /v1/members": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, api.Members{Members: []api.Member{{ID: "n-1", Role: "voter", Health: "ok"}, {ID: "n-2", Role: "voter", Health: "disk_full"}}})
		},
		"GET /v1/binaries/linux/amd64": func(http.ResponseWriter, *http.Request) {},
		"GET /v1/binaries/": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
		},
	})
	s := newShell(t, srv.URL)
	if code := s.do("hub", "doctor"); code != 0 {
		t.Errorf("exit %d\n%s%s", code, s.out, s.err)
	}
	has(t, "the doctor", s.out.String(), "takes writes", "2 runners online of 3", "floor_select is no size", "n-2: disk_full", "no program for darwin/amd64, darwin/arm64, linux/arm64", "→ ")
	offset, ready = time.Hour, http.StatusServiceUnavailable
	if code := s.do("hub", "doctor", "--json"); code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	var f findings
	if err := json.Unmarshal([]byte(s.out.String()), &f); err != nil || f.Worst != levelFail {
		t.Fatalf("%v, %+v", err, f)
	}
	for _, check := range []string{"clock", "reach"} {
		if got, detail := f.level(check); got != levelFail {
			t.Errorf("%s is %q: %s", check, got, detail)
		}
	}
}

// launchd starts a program again unless it ends with 0.
func TestARunnerThatWasSentAwayEndsAsItsServiceManagerHasIt(t *testing.T) {
	away := fail(exitStandDown, "the runner was revoked")
	for launchd, want := range map[bool]int{false: exitStandDown, true: 0} {
		s, dir := newShell(t, ""), t.TempDir()
		if code := exitCode(s.stoodDown(away, dir, launchd)); code != want {
			t.Errorf("under launchd %v: exit code %d, want %d", launchd, code, want)
		}
		if note := service.Away(dir); !strings.Contains(note, "was revoked") {
			t.Errorf("under launchd %v: the note is %q", launchd, note)
		}
		other := t.TempDir()
		if code := exitCode(s.stoodDown(fail(exitFailed, "x"), other, launchd)); code != exitFailed || service.Away(other) != "" {
			t.Errorf("another end has the code %d and the note %q", code, service.Away(other))
		}
	}
}
