package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func sampleSessions() api.Sessions {
	at := func(d time.Duration) time.Time { return noon.Add(-d) }
	return api.Sessions{Runner: "r-1", Name: "studio", CLISessions: fleet.CLISessions{More: true, Notes: []string{"the sessions of claude can't be read: permission denied"}, Sessions: []fleet.CLISession{
		{ID: "01a22b58-e674-74f2-906d-0f431ca24300", Harness: "codex", Dir: "/home/dev/lab", Title: "mend the parser", Model: "gpt-5.5", Started: at(time.Hour), Used: at(5 * time.Minute)},
		{ID: "ses_dd4895263ffed2WO4PLqr0JbTv", Harness: "opencode", Dir: "/home/dev/a long directory that has many words in its name, and more", Title: strings.Repeat("very long ", 20), Used: at(50 * time.Hour)},
		{ID: "a98636ab-62e9-4439-9143-d6f8620541a1", Harness: "claude", Dir: "/home/dev/app\x1b[31m"},
	}}}
}

func TestSessionsAreShown(t *testing.T) {
	s := newShell(t, "")
	all := sampleSessions()
	for _, tty := range []bool{false, true} {
		s.ttyOut = tty
		if err := s.sessionTable(&all, noon); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(s.out)
	}
	all.Waiting, all.AgeMS, all.Sessions, all.More = "runner studio is not connected", 90_000, nil, false
	if err := s.sessionTable(&all, noon); err != nil {
		t.Fatal(err)
	}
	one := api.Session{Name: "studio", CLITranscript: fleet.CLITranscript{CLISession: sampleSessions().Sessions[0], Earlier: true, Messages: []fleet.CLIMessage{
		{Role: "user", Text: "mend the parser\n\n  and \x1b[2Jno more\n"}, {Role: "tool", Text: `exec {"cmd":"ls"}`}, {Role: "assistant", Text: "Done."},
	}}}
	if err := s.showSession(&one, noon); err != nil {
		t.Fatal(err)
	}
	golden(t, "sessions.txt", s.out.String()+"--- on standard error\n"+s.err.String())
	if strings.Contains(s.out.String()+s.err.String(), "\x1b") {
		t.Error("something steers the terminal")
	}
}

// What is asked of the hub, and what becomes of its answers.
func TestSessionCommands(t *testing.T) {
	all := sampleSessions()
	codex, claude := all.Sessions[0].ID, all.Sessions[2].ID
	list := func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, all) }
	away := func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 409, fleet.Offline, "runner studio is not connected")
	}
	var sent string
	give := func(w http.ResponseWriter, r *http.Request) {
		sent = string(readAll(t, r))
		answer(w, 201, api.Job{ID: "01jnew"})
	}
	shown := ""
	show := func(w http.ResponseWriter, r *http.Request) {
		shown = r.URL.RawQuery
		answer(w, 200, api.Session{Name: "studio", CLITranscript: fleet.CLITranscript{CLISession: all.Sessions[0]}})
	}
	here := newShell(t, script(t, map[string]http.HandlerFunc{"GET /v1/runners/studio/sessions": list, "GET /v1/runners/studio/sessions/" + codex: show, "POST /v1/jobs": give}).URL)
	has(t, "the list", here.must("session", "ls", "studio"), codex, "mend the parser")
	has(t, "one", here.must("session", "show", "studio", codex, "--messages", "3"), "gpt-5.5")
	if shown != "messages=3" {
		t.Errorf("asked for %s", shown)
	}
	has(t, "as JSON", here.must("session", "list", "studio", "--json"), `"age_ms"`, `"more"`)
	if out := here.must("session", "resume", "studio", claude, "go on", "-d", "--model", "opus", "--permissions", "read", "--timeout", "10m"); out != "01jnew\n" {
		t.Errorf("printed %q", out)
	}
	if want := `{"kind":"agent","harness":"claude","model":"opus","prompt":"go on","permissions":"read","on":"studio","timeout":"10m0s","session":{"id":"` + claude + `"}}`; !sameJSON(sent, want) {
		t.Errorf("sent %s\nwant %s", sent, want)
	}
	if code := here.do("session", "resume", "studio", "01a22b58-0000-74f2-906d-0f431ca24300", "go on", "-d"); code != exitUsage {
		t.Errorf("a session that is not there: exit %d", code)
	}
	has(t, "the reason", here.err.String(), "has no session", "tugline session list studio", "--harness")

	off := newShell(t, script(t, map[string]http.HandlerFunc{"GET /v1/runners/studio/sessions": away, "POST /v1/jobs": give}).URL)
	if code := off.do("session", "list", "studio"); code == 0 {
		t.Error("a list of a runner that is away, and nothing is known")
	}
	has(t, "the reason", off.err.String(), "is not connected")
	sent = ""
	if code := off.do("session", "resume", "studio", codex, "go on", "-d"); code != exitUsage || sent != "" {
		t.Errorf("a session of which nothing is known: exit %d, sent %q", code, sent)
	}
	has(t, "the reason", off.err.String(), "is not connected", "--harness")
	off.must("session", "resume", "studio", codex, "go on", "-d", "--harness", "codex")
	if want := `{"kind":"agent","harness":"codex","prompt":"go on","on":"studio","session":{"id":"` + codex + `"}}`; !sameJSON(sent, want) {
		t.Errorf("sent %s\nwant %s", sent, want)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
