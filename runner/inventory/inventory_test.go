package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	codexID  = "01a22b58-e674-74f2-906d-0f431ca24300"
	claudeIs = "a98636ab-62e9-4439-9143-d6f8620541a1"
	openID   = "ses_dd4895263ffed2WO4PLqr0JbTv"
	day      = "sessions/2026/11/30/"
)

// machine is a home directory with files of agents.
type machine struct {
	t    *testing.T
	home string
}

func newMachine(t *testing.T) *machine { return &machine{t, t.TempDir()} }

func (m *machine) config() Config { return Config{Env: []string{"HOME=/elsewhere", "HOME=" + m.home}} }

func (m *machine) write(name, text string) string {
	m.t.Helper()
	p := filepath.Join(m.home, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return p
}

func (m *machine) list() fleet.CLISessions {
	m.t.Helper()
	out, err := List(m.t.Context(), m.config())
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// codexRollout is a rollout as the CLI writes it.
func codexRollout(id, dir, prompt, model string, more ...string) string {
	lines := []string{
		`{"timestamp":"2026-11-30T07:26:16.384Z","ordinal":0,"type":"session_meta","payload":{"session_id":"` + id + `","id":"` + id + `","timestamp":"2026-11-30T07:26:16.217Z","cwd":"` + dir + `","originator":"codex_exec","cli_version":"0.171.0","base_instructions":{"text":"` + strings.Repeat("You are a coding agent. ", 900) + `"}}}`,
		`{"timestamp":"2026-11-30T07:26:16.385Z","ordinal":1,"type":"event_msg","payload":{"type":"task_started","model_context_window":258400}}`,
		`{"timestamp":"2026-11-30T07:26:16.463Z","ordinal":2,"type":"response_item","payload":{"type":"message","role":"developer","content":[{"type":"input_text","text":"<skills_instructions>\n## Skills"}]}}`,
		`{"timestamp":"2026-11-30T07:26:16.463Z","ordinal":3,"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>\n  <cwd>` + dir + `</cwd>"}]}}`,
		`{"timestamp":"2026-11-30T07:26:16.467Z","ordinal":5,"type":"turn_context","payload":{"cwd":"` + dir + `","model":"` + model + `"}}`,
		`{"timestamp":"2026-11-30T07:26:16.470Z","ordinal":7,"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":` + quoted(prompt) + `}]}}`,
		`{"timestamp":"2026-11-30T07:26:16.744Z","ordinal":18,"type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"cat hello.txt\"}","call_id":"c1"}}`,
		`{"timestamp":"2026-11-30T07:26:16.922Z","ordinal":21,"type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"hello"}}`,
		`{"timestamp":"2026-11-30T07:26:16.955Z","ordinal":24,"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done: hello.txt now exists."}]}}`,
	}
	return strings.Join(append(lines, more...), "\n") + "\n"
}

func claudeSession(id, dir, prompt string) string {
	head := `"userType":"external","cwd":"` + dir + `","sessionId":"` + id + `","version":"2.1.197"`
	return strings.Join([]string{
		`{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-30T07:35:02.316Z","sessionId":"` + id + `","content":"x"}`,
		`{"parentUuid":null,"isSidechain":false,"isMeta":true,"type":"user","message":{"role":"user","content":"not what was asked"},"timestamp":"2026-11-30T07:35:02.500Z",` + head + `}`,
		`{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"<command-name>/clear</command-name>"},"timestamp":"2026-11-30T07:35:02.600Z",` + head + `}`,
		`{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":` + quoted(prompt) + `},"timestamp":"2026-11-30T07:35:02.610Z",` + head + `}`,
		`{"isSidechain":false,"type":"attachment","attachment":{"type":"skill_listing","content":"- deep-research"},"timestamp":"2026-11-30T07:35:02.700Z",` + head + `}`,
		`{"isSidechain":true,"type":"user","message":{"role":"user","content":"of a sub-agent"},"timestamp":"2026-11-30T07:35:02.750Z",` + head + `}`,
		`{"isSidechain":false,"message":{"content":[{"thinking":"secretly","type":"thinking"}],"model":"claude-sonnet-4-5","role":"assistant"},"type":"assistant","timestamp":"2026-11-30T07:35:02.787Z",` + head + `}`,
		`{"isSidechain":false,"message":{"content":[{"text":"I will create it.","type":"text"}],"model":"claude-sonnet-4-5","role":"assistant"},"type":"assistant","timestamp":"2026-11-30T07:35:02.792Z",` + head + `}`,
		`{"isSidechain":false,"message":{"content":[{"id":"t","input":{"file_path":"hello.txt"},"name":"Write","type":"tool_use"}],"model":"claude-sonnet-4-5","role":"assistant"},"type":"assistant","timestamp":"2026-11-30T07:35:02.800Z",` + head + `}`,
		`{"isSidechain":false,"type":"user","message":{"role":"user","content":[{"tool_use_id":"t","type":"tool_result","content":"File created"}]},"timestamp":"2026-11-30T07:35:03.000Z","cwd":"` + dir + `/below","sessionId":"` + id + `"}`,
		`{"type":"last-prompt","lastPrompt":"x","sessionId":"` + id + `"}`,
	}, "\n") + "\n"
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func (m *machine) codex(id, text string) string {
	return m.write(".codex/"+day+"rollout-2026-11-30T07-26-16-"+id+".jsonl", text)
}

func (m *machine) claude(id, text string) string {
	return m.write(".claude/projects/-home-dev-app/"+id+".jsonl", text)
}

func (m *machine) opencode() {
	base := ".local/share/opencode/storage/"
	m.write(base+"session/6f89d7ee/"+openID+".json", `{"id":"`+openID+`","projectID":"6f89d7ee","directory":"/home/dev/open","title":"Side answer","time":{"created":1796025527708,"updated":1796025568647}}`)
	m.write(base+"session/6f89d7ee/ses_child1.json", `{"id":"ses_child1","parentID":"`+openID+`","directory":"/home/dev/open","title":"of a sub-agent","time":{"created":1796025527708,"updated":1796025568648}}`)
	m.write(base+"message/"+openID+"/msg_1.json", `{"id":"msg_1","sessionID":"`+openID+`","role":"user","time":{"created":1796025527933}}`)
	m.write(base+"part/msg_1/prt_1.json", `{"id":"prt_1","type":"text","text":"\"remember the word plum\""}`)
	m.write(base+"message/"+openID+"/msg_2.json", `{"id":"msg_2","sessionID":"`+openID+`","role":"assistant","modelID":"fake-model","time":{"created":1796025529558}}`)
	m.write(base+"part/msg_2/prt_2.json", `{"id":"prt_2","type":"step-start","snapshot":"fe8a"}`)
	m.write(base+"part/msg_2/prt_3.json", `{"id":"prt_3","type":"text","text":"Just an answer."}`)
	m.write(base+"part/msg_2/prt_4.json", `{"id":"prt_4","type":"tool","tool":"bash","state":{"status":"completed","input":{"command":"ls"}}}`)
}

func TestSessionsOfAllAgents(t *testing.T) {
	m := newMachine(t)
	m.codex(codexID, codexRollout(codexID, "/home/dev/lab", "create hello.txt\nand no more", "gpt-5.5",
		`{"timestamp":"2026-11-30T08:00:00Z","type":"turn_context","payload":{"cwd":"/home/dev/lab","model":"fake-model"}}`))
	m.claude(claudeIs, claudeSession(claudeIs, "/home/dev/app", "  fix the   parser"))
	m.opencode()
	at := func(s string) time.Time {
		d, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := []fleet.CLISession{
		{ID: codexID, Harness: Codex, Dir: "/home/dev/lab", Title: "create hello.txt", Model: "fake-model", Started: at("2026-11-30T07:26:16.217Z"), Used: at("2026-11-30T08:00:00Z")},
		{ID: openID, Harness: Opencode, Dir: "/home/dev/open", Title: "remember the word plum", Model: "fake-model", Started: time.UnixMilli(1796025527708).UTC(), Used: time.UnixMilli(1796025568647).UTC()},
		{ID: claudeIs, Harness: Claude, Dir: "/home/dev/app", Title: "fix the parser", Model: "claude-sonnet-4-5", Started: at("2026-11-30T07:35:02.316Z"), Used: at("2026-11-30T07:35:03Z")},
	}
	slices.SortFunc(want, func(a, b fleet.CLISession) int { return b.Used.Compare(a.Used) })
	got := m.list()
	if !slices.Equal(got.Sessions, want) || got.More || len(got.Notes) > 0 {
		t.Errorf("the list is\n%+v\nwant\n%+v", got, want)
	}
	for id, messages := range map[string][]string{
		codexID:  {"user create hello.txt\nand no more", `tool exec_command {"cmd":"cat hello.txt"}`, "assistant Done: hello.txt now exists."},
		claudeIs: {"user fix the   parser", "assistant I will create it.", `tool Write {"file_path":"hello.txt"}`},
		openID:   {"user remember the word plum", "assistant Just an answer.", `tool bash {"command":"ls"}`},
	} {
		show := func(n int) []string {
			tr, err := Show(t.Context(), m.config(), id, n)
			if err != nil || tr.ID != id || tr.Earlier != (n < len(messages)) {
				t.Errorf("%s shown with %d messages: %+v, %v", id, n, tr, err)
			}
			var out []string
			for _, x := range tr.Messages {
				out = append(out, x.Role+" "+x.Text)
			}
			return out
		}
		if got := show(20); !slices.Equal(got, messages) {
			t.Errorf("messages of %s: %q, want %q", id, got, messages)
		}
		if got := show(1); !slices.Equal(got, messages[len(messages)-1:]) {
			t.Errorf("the last message of %s: %q", id, got)
		}
	}
	if _, err := Find(t.Context(), m.config(), Claude, codexID); !errors.Is(err, fleet.NotFound) {
		t.Errorf("a session of another agent: %v, want not_found", err)
	}
	if s, err := Find(t.Context(), m.config(), Codex, codexID); err != nil || s.Dir != "/home/dev/lab" {
		t.Errorf("found %+v, %v", s, err)
	}
	for _, id := range []string{"", "..", "../../etc/passwd", "ses_", strings.Repeat("a", 500), "01a22b58-e674-74f2-906d-0f431ca24301"} {
		if _, err := Show(t.Context(), m.config(), id, 5); !errors.Is(err, fleet.NotFound) {
			t.Errorf("the session %q is shown: %v", id, err)
		}
	}
}

// The owner names folders, the CLIs' own variables do, and the runner's own work is left out.
func TestFoldersAreWhereTheyAreSaidToBe(t *testing.T) {
	m := newMachine(t)
	m.write("a/"+day+"rollout-x-"+codexID+".jsonl", codexRollout(codexID, "/home/dev/lab", "one", "m"))
	m.write("a/"+indexFile, `{"id":"`+codexID+`","thread_name":"an old name"}`+"\n"+`{"id":"`+codexID+`","thread_name":"The name"}`+"\n{")
	m.write("b/projects/x/"+claudeIs+".jsonl", claudeSession(claudeIs, "/data/runner/scratch/j/work", "two"))
	c := Config{Env: []string{"CODEX_HOME=" + m.home + "/a", "CLAUDE_CONFIG_DIR=/nowhere"}, Homes: map[string]string{Claude: m.home + "/b", Opencode: "relative"}}
	names := func() (out []string) {
		l, err := List(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Sessions {
			out = append(out, s.Title)
		}
		slices.Sort(out)
		return out
	}
	if got := names(); !slices.Equal(got, []string{"The name", "two"}) {
		t.Errorf("sessions %q", got)
	}
	c.Skip = "/data/runner"
	if got := names(); !slices.Equal(got, []string{"The name"}) {
		t.Errorf("with the runner's own left out: %q", got)
	}
	if _, err := Find(t.Context(), c, "", claudeIs); !errors.Is(err, fleet.NotFound) {
		t.Errorf("one of the runner's own is found: %v", err)
	}
	data, link := filepath.Join(m.home, "data"), filepath.Join(m.home, "link")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Symlink(data, link)); err != nil {
		t.Fatal(err)
	}
	m.write("b/projects/x/"+claudeIs+".jsonl", claudeSession(claudeIs, data+"/work", "two"))
	t.Chdir(m.home)
	for _, c.Skip = range []string{data, link, "data", "link/"} {
		if got := names(); !slices.Equal(got, []string{"The name"}) {
			t.Errorf("with the runner's own at %s left out: %q", c.Skip, got)
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	m := newMachine(t)
	secrets := []string{
		"sk-" + "ant-api03-" + strings.Repeat("Ab1_", 8) + "zz", "ghp_0123456789abcdefghij0123", "github_pat_0123456789abcdefghij", "glpat-0123456789abcdefgh",
		"AKIAABCDEFGHIJKLMNOP", "xoxb-0123456789-abcdef", "AIzaSyA0123456789abcdefghijklmnopqrstuv", "npm_0123456789abcdefghij0123456789abcdef",
		"tgl_0123456789abcdefghijkl", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXRoYXQ", "the owner's own word",
	}
	text := "keep this " + strings.Join(secrets, " and ") + ` password = "hunter2hunter2" https://me:pa55word99@example.com/x OPENAI_API_KEY=abcdefgh12345 Authorization: Bearer abcdefghij0123456789` +
		"\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n\x1b[31mred\x00 kept at the end"
	secrets = append(secrets, "hunter2hunter2", "pa55word99", "abcdefgh12345", "abcdefghij0123456789", "b3BlbnNzaC1rZXk", "\x1b", "\x00")
	m.codex(codexID, codexRollout(codexID, "/home/dev/lab", text, "m"))
	m.claude(claudeIs, claudeSession(claudeIs, "/home/dev/lab", strings.Repeat("x", maxTitle-10)+" "+secrets[0]))
	c := m.config()
	c.Hide = func(s string) string { return strings.ReplaceAll(s, "the owner's own word", "****") }
	l, err := List(t.Context(), c)
	if err != nil || len(l.Sessions) != 2 {
		t.Fatal(l, err)
	}
	tr, err := Show(t.Context(), c, codexID, 50)
	if err != nil {
		t.Fatal(err)
	}
	b := fmt.Sprintf("%+v %+v", l, tr)
	for _, s := range append(secrets, "api03") {
		if strings.Contains(b, s) {
			t.Errorf("%q is told: %s", s, b)
		}
	}
	for _, s := range []string{"keep this", "https://me:**********@example.com/x", "kept at the end"} {
		if !strings.Contains(b, s) {
			t.Errorf("%q is not told: %s", s, b)
		}
	}
}

// What is no record of a session, or is broken, costs itself alone.
func TestHostileFiles(t *testing.T) {
	m := newMachine(t)
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }
	good := codexRollout(codexID, "/home/dev/lab", "the good one", "m")
	m.codex(codexID, good)
	outside := filepath.Join(t.TempDir(), "outside.jsonl")
	if err := os.WriteFile(outside, []byte(codexRollout(id(1), "/home/dev/lab", "outside", "m")), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(m.home, ".codex", day)
	name := func(n int) string { return filepath.Join(dir, "rollout-x-"+id(n)+".jsonl") }
	for _, err := range []error{
		os.Symlink(outside, name(1)),
		os.Symlink(filepath.Dir(outside), filepath.Join(m.home, ".codex", "sessions", "2027")),
		os.Symlink(m.home, filepath.Join(dir, "round")),
		syscall.Mkfifo(name(2), 0o600),
		os.Mkdir(name(3), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range []string{
		"", "\n\n\n", "{", strings.Repeat("[", 100_000), strings.Repeat("x", 3<<20), good[:40],
		codexRollout(id(99), "/home/dev/lab", "of another name", "m"),
		codexRollout(id(16), "relative", "x", "m"), codexRollout(id(17), "/home/dev/../x", "x", "m"), codexRollout(id(18), "/"+strings.Repeat("d", 5000), "x", "m"),
		`{"timestamp":"soon","type":"session_meta","payload":[]}`, `{"type":"session_meta","payload":{"id":7,"cwd":{}}}`,
	} {
		m.codex(id(10+i), text)
		m.claude(id(10+i), text)
		m.write(".local/share/opencode/storage/session/p/ses_"+fmt.Sprint(i)+".json", text)
	}
	m.claude(claudeIs, strings.Repeat("\xff\x00{}", 1000)+"\n"+claudeSession(claudeIs, "/home/dev/app", "another good one")+`{"type":"assistant","sessionId":"`+claudeIs+`","message":{"content":7}}`)
	l := m.list()
	var titles []string
	for _, s := range l.Sessions {
		titles = append(titles, s.Title)
	}
	slices.Sort(titles)
	if !slices.Equal(titles, []string{"another good one", "the good one"}) {
		t.Errorf("sessions %q", titles)
	}
	for _, id := range []string{id(1), id(2), id(3), id(99)} {
		if s, err := Find(t.Context(), m.config(), "", id); !errors.Is(err, fleet.NotFound) {
			t.Errorf("%s is found: %+v, %v", id, s, err)
		}
	}
}

// The newest 200 are told, and of long sessions the ends are read.
func TestBounds(t *testing.T) {
	m := newMachine(t)
	now := time.Now().Truncate(time.Second)
	for i := range fleet.MaxSessions + 30 {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012x", i)
		p := m.codex(id, `{"timestamp":"`+now.Add(-time.Duration(i)*time.Minute).UTC().Format(time.RFC3339)+`","type":"session_meta","payload":{"id":"`+id+`","cwd":"/w"}}`+"\n")
		if err := os.Chtimes(p, now, now.Add(-time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	l := m.list()
	if len(l.Sessions) != fleet.MaxSessions || !l.More {
		t.Fatalf("%d sessions, more %v", len(l.Sessions), l.More)
	}
	for i, s := range l.Sessions {
		if want := fmt.Sprintf("00000000-0000-4000-8000-%012x", i); s.ID != want {
			t.Fatalf("session %d is %s, want %s", i, s.ID, want)
		}
	}
	var long strings.Builder
	long.WriteString(codexRollout(codexID, "/w", "the first word", "m"))
	for i := range 20_000 {
		fmt.Fprintf(&long, `{"timestamp":"2026-11-30T08:00:00Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"%d %s"}]}}`+"\n", i, strings.Repeat("y", 300))
	}
	long.WriteString(`{"timestamp":"2026-11-30T09:00:00Z","type":"turn_context","payload":{"model":"last-model"}}` + "\n")
	m.codex(codexID, long.String())
	tr, err := Show(t.Context(), m.config(), codexID, 1000)
	if err != nil || len(tr.Messages) != fleet.MaxSessionShown || !tr.Earlier || tr.Title != "the first word" || tr.Model != "last-model" ||
		!strings.HasPrefix(tr.Messages[fleet.MaxSessionShown-1].Text, "19999 ") || tr.Used.Hour() != 9 {
		t.Errorf("of a long session: %d messages, earlier %v, %+v, %v", len(tr.Messages), tr.Earlier, tr.CLISession, err)
	}
}

// What a look takes of memory does not grow with what lies there: files without an end,
// without lines, of nothing but lines, and of values that are many times larger in memory.
func TestMemoryIsBounded(t *testing.T) {
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }
	meta := func(id string) string {
		return `{"type":"session_meta","payload":{"id":"` + id + `","cwd":"/w"}}` + "\n"
	}
	user := `{"type":"user","sessionId":"` + claudeIs + `","cwd":"/w","message":{"role":"user","content":`
	for name, fill := range map[string]func(m *machine){
		"a file without an end": func(m *machine) {
			for i := range 20 {
				if err := os.Truncate(m.codex(id(i), meta(id(i))), 8<<30); err != nil {
					t.Fatal(err)
				}
			}
		},
		"nothing but lines": func(m *machine) { m.codex(id(1), meta(id(1))+strings.Repeat("\n", 8<<20)) },
		"short lines":       func(m *machine) { m.codex(id(1), meta(id(1))+strings.Repeat("{}\n", 3<<20)) },
		"one long line":     func(m *machine) { m.codex(id(1), meta(id(1))+strings.Repeat("x", 8<<20)) },
		"blocks of nothing": func(m *machine) {
			m.claude(claudeIs, user+`"a"}}`+"\n"+strings.Repeat(user+"["+strings.Repeat("{},", 80_000)+"{}]}}\n", 16))
		},
		"long blocks of nothing": func(m *machine) {
			m.claude(claudeIs, user+`"a"}}`+"\n"+strings.Repeat(user+"["+strings.Repeat("{},", 1_500_000)+"{}]}}\n", 2))
		},
		"a long index": func(m *machine) {
			m.codex(id(1), meta(id(1)))
			m.write(".codex/"+indexFile, strings.Repeat(`{"id":"`+codexID+`","thread_name":"x"}`+"\n", 200_000))
		},
	} {
		m := newMachine(t)
		fill(m)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l := m.list()
		if len(l.Sessions) == 0 {
			t.Errorf("%s: no session is found", name)
			continue
		}
		for _, s := range l.Sessions[:1] {
			if _, err := Show(t.Context(), m.config(), s.ID, 50); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		runtime.ReadMemStats(&after)
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 128 {
			t.Errorf("%s: %d MiB were taken, one after the other", name, used)
		}
	}
}

// FuzzFiles sees that no contents make a look fail, tell control characters or go
// beyond what may be told.
func FuzzFiles(f *testing.F) {
	for _, s := range []string{codexRollout(codexID, "/w", "p", "m"), claudeSession(claudeIs, "/w", "p"),
		`{"id":"` + openID + `","directory":"/w","title":"t","time":{"created":1,"updated":9e30}}`, "{", "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newMachine(t)
		m.codex(codexID, string(b))
		m.claude(claudeIs, string(b))
		m.write(".local/share/opencode/storage/session/p/"+openID+".json", string(b))
		m.write(".local/share/opencode/storage/message/"+openID+"/msg_1.json", string(b))
		m.write(".local/share/opencode/storage/part/msg_1/prt_1.json", string(b))
		m.write(".codex/"+indexFile, string(b))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		defer func() {
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20+500*uint64(len(b)) {
				t.Errorf("%d bytes of memory were taken for %d", used, len(b))
			}
		}()
		for _, s := range m.list().Sessions {
			if len(s.Title) > maxTitle || len(s.Model) > maxModel || !usable(s.Dir) || plain(s.Title+s.Model) != s.Title+s.Model || strings.Contains(s.Title, "\n") {
				t.Errorf("told: %+v", s)
			}
			tr, err := Show(t.Context(), m.config(), s.ID, 5)
			if err != nil {
				t.Errorf("show %s: %v", s.ID, err)
			}
			for _, x := range tr.Messages {
				if len(x.Text) > maxMessage || plain(x.Text) != x.Text {
					t.Errorf("message %+v", x)
				}
			}
		}
	})
}
