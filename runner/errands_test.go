package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// questions are what a hub asks runners for in these tests, and what came.
type questions struct {
	mu       sync.Mutex
	open     []wire.Errand
	answers  []wire.ErrandDone
	deafTill int // answers up to this one are not heard, as by a hub that is gone
}

func (q *questions) errands(fleet.RunnerID) []wire.Errand {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]wire.Errand(nil), q.open...)
}

func (q *questions) heard(_ fleet.RunnerID, d wire.ErrandDone) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.answers = append(q.answers, d); len(q.answers) <= q.deafTill {
		return
	}
	for i, x := range q.open {
		if x.ID == d.ID {
			q.open = append(q.open[:i:i], q.open[i+1:]...)
		}
	}
}

func (q *questions) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.answers)
}

// ask has the runner asked, and gives the answer.
func (q *questions) ask(h *testHub, r *testRunner, kind string, body any) (d wire.ErrandDone) {
	h.t.Helper()
	q.mu.Lock()
	x := wire.Errand{ID: fmt.Sprintf("e-%d-%s", len(q.answers), kind), Kind: kind}
	if body != nil {
		x.Body, _ = json.Marshal(body)
	}
	q.open = append(q.open, x)
	q.mu.Unlock()
	h.srv.Nudge(r.id)
	eventually(h.t, "an answer to "+kind, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, a := range q.answers {
			if a.ID == x.ID {
				d = a
				return true
			}
		}
		return false
	})
	return d
}

func (q *questions) put(c *hubsession.Config) { c.Errands, c.OnErrand = q.errands, q.heard }

const labID = "01a22b58-e674-74f2-906d-0f431ca24300"

// labSession leaves a session of Codex with a working directory.
func labSession(t *testing.T, home, id, dir string) {
	t.Helper()
	file := filepath.Join(home, "sessions", "2026", "01", "02", "rollout-x-"+id+".jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"timestamp":"2026-11-30T07:26:16Z","type":"session_meta","payload":{"id":"` + id + `","cwd":"` + dir + `"}}` + "\n" +
		`{"timestamp":"2026-11-30T07:26:18Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"the word is hunter22hunter and KEY is sk-0123456789"}]}}` + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The hub asks with a reply and is answered by a later heartbeat, as the owner allows;
// what it asks for in vain is answered, too.
func TestErrandsAreAnswered(t *testing.T) {
	home := t.TempDir()
	t.Setenv("CODEX_HOME", home)
	t.Setenv("SERVICE_TOKEN", "sk-0123456789")
	for _, name := range []string{"CLAUDE_CONFIG_DIR", "XDG_DATA_HOME"} {
		t.Setenv(name, t.TempDir())
	}
	labSession(t, home, labID, "/home/dev/lab")
	q := &questions{}
	h := newHub(t, q.put)
	owner := allowFile(t, "")
	var dir string
	r := h.newRunner(func(c *Config) {
		owner(c)
		dir = c.Dir
		if err := os.WriteFile(filepath.Join(dir, "secrets.yaml"), []byte("WORD: hunter22hunter\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	var all fleet.CLISessions
	d := q.ask(h, r, wire.ErrandSessions, nil)
	if err := json.Unmarshal(d.Body, &all); err != nil || d.Code != "" || len(all.Sessions) != 1 || all.Sessions[0].Dir != "/home/dev/lab" {
		t.Fatalf("the list: %+v, %s, %v", d, d.Body, err)
	}
	d = q.ask(h, r, wire.ErrandSession, wire.AskSession{ID: labID})
	var one fleet.CLITranscript
	if err := json.Unmarshal(d.Body, &one); err != nil || d.Code != "" || len(one.Messages) != 1 {
		t.Fatalf("the session: %+v, %v", d, err)
	}
	if text := string(d.Body); strings.Contains(text, "hunter22") || strings.Contains(text, "sk-0") || !strings.Contains(text, "the word is") {
		t.Errorf("the owner's secrets are not masked: %s", text)
	}
	for _, c := range []struct {
		kind string
		body any
		code fleet.Code
	}{
		{wire.ErrandSession, wire.AskSession{ID: "../../etc"}, fleet.NotFound},
		{wire.ErrandSession, []int{1}, ""},
		{wire.ErrandSession, nil, ""},
		{"dance", nil, fleet.UnknownCritical},
	} {
		if d := q.ask(h, r, c.kind, c.body); d.Code == "" || c.code != "" && d.Code != c.code || d.Detail == "" || d.Body != nil {
			t.Errorf("%s %v is answered with %+v; want %s", c.kind, c.body, d, c.code)
		}
	}
	for rule, codes := range map[string][2]fleet.Code{"list": {"", fleet.OwnerPolicy}, "off": {fleet.OwnerPolicy, fleet.OwnerPolicy}} {
		if err := os.WriteFile(OwnerFile(dir), []byte("sessions: "+rule+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rule "+rule+" to be in force", func() bool { p, _ := h.srv.PresenceOf(r.id); return p.Sessions == rule })
		if d := q.ask(h, r, wire.ErrandSessions, nil); d.Code != codes[0] {
			t.Errorf("sessions: %s: the list is answered with %+v", rule, d)
		}
		if d := q.ask(h, r, wire.ErrandSession, wire.AskSession{ID: labID}); d.Code != codes[1] {
			t.Errorf("sessions: %s: one is answered with %+v", rule, d)
		}
	}
}

// An answer that nobody heard is given again to whoever asks the same.
func TestErrandIsAskedAgain(t *testing.T) {
	q := &questions{deafTill: 1}
	h := newHub(t, q.put, func(c *hubsession.Config) { c.IdleInterval = 100 * time.Millisecond })
	r := h.newRunner()
	q.ask(h, r, "dance", nil)
	eventually(t, "the same to be answered again", func() bool { return q.count() >= 2 })
}

// Taking errands never waits, however many there are and whoever does them, and no
// heartbeat brings more answers than it may.
func TestErrandsNeverWait(t *testing.T) {
	e, now := newErrands(), time.Now()
	for i := range 20 {
		var es []wire.Errand
		for k := range 3 {
			es = append(es, wire.Errand{ID: fmt.Sprint(3*i + k), Kind: wire.ErrandSessions})
		}
		e.take(append(es, wire.Errand{ID: "long", Body: json.RawMessage(`"` + strings.Repeat("x", wire.MaxErrandBody) + `"`)}), now)
	}
	if n := len(e.asked); n != wire.MaxErrands {
		t.Fatalf("%d are kept, want %d", n, wire.MaxErrands)
	}
	seen := map[string]bool{}
	for range wire.MaxErrands {
		x := <-e.asked
		if seen[x.ID] || x.ID == "long" {
			t.Errorf("%s is to be done again", x.ID)
		}
		seen[x.ID] = true
		e.take([]wire.Errand{x}, now) // it is in work
		e.answer(wire.ErrandDone{ID: x.ID})
	}
	if n := len(e.asked); n > 0 {
		t.Errorf("%d that are in work were taken again", n)
	}
	for rode := 0; rode < wire.MaxErrands; rode += wire.MaxAnswers {
		if !e.waits() {
			t.Fatal("answers are missing")
		}
		ds := e.ride(now)
		if len(ds) != wire.MaxAnswers {
			t.Fatalf("a heartbeat brings %d answers", len(ds))
		}
		x := wire.Errand{ID: ds[0].ID}
		e.take([]wire.Errand{x}, now.Add(errandAgain-1)) // the question has crossed its answer
		if len(e.asked) > 0 {
			t.Errorf("%s is done again at once", x.ID)
		}
		e.take([]wire.Errand{x}, now.Add(errandAgain))
		if len(e.asked) != 1 {
			t.Errorf("%s is not done again for who still asks", x.ID)
		} else {
			<-e.asked
		}
	}
	e = newErrands()
	e.take([]wire.Errand{{ID: "a"}}, now)
	<-e.asked
	e.answer(wire.ErrandDone{ID: "a"})
	e.missed(e.ride(now))
	if e.take([]wire.Errand{{ID: "a"}}, now); len(e.asked) != 1 {
		t.Error("what did not go out is not done again at once")
	}
}

// A job goes on with a session where its owner allows that: in the directory itself, and
// not in one that a link stands for. What is not so is refused before it begins.
func TestJobGoesOnWithASession(t *testing.T) {
	h := turnsHub(t)
	base := t.TempDir()
	allowed, private := filepath.Join(base, "src"), filepath.Join(base, "private")
	app := filepath.Join(allowed, "app")
	for _, dir := range []string{app, private, allowed + "-not"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(allowed, "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }
	for i, dir := range []string{app, private, link, allowed + "-not", filepath.Join(allowed, "gone")} {
		labSession(t, os.Getenv("CODEX_HOME"), id(i), dir)
	}
	r := h.turnsRunner("box", "session_dirs: ["+allowed+"]\n")
	job := func(session string) fleet.JobID {
		t.Helper()
		return h.submit(fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", On: string(r.id), Session: &fleet.SessionRef{ID: session}},
			func(s *state.SubmitJob) { s.Prompt = h.put([]byte("write made")) })
	}
	j := job(id(0))
	if a := h.turn(j, r); a.SessionID != id(0) {
		t.Errorf("it went on in the session %s", a.SessionID)
	}
	if b, err := os.ReadFile(filepath.Join(app, "made")); err != nil || string(b) != "made\n" {
		t.Errorf("made in the session's directory: %q, %v", b, err)
	}
	for _, dir := range []string{"scratch", "worktrees"} {
		if _, err := os.Stat(filepath.Join(r.cfg.Dir, dir, string(j))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made: %v", dir, err)
		}
	}
	for _, c := range []struct {
		session string
		code    fleet.Code
		words   string
	}{
		{id(1), fleet.OwnerPolicy, private},
		{id(2), fleet.OwnerPolicy, "in " + private + ";"},
		{id(3), fleet.OwnerPolicy, "session_dirs"},
		{id(4), fleet.SessionGone, "is gone"},
		{id(9), fleet.SessionGone, "there is no session"},
		{"../../x", fleet.SessionGone, "there is no session"},
	} {
		j := job(c.session)
		f := h.assign(j, r.id)
		h.ends(j, fleet.Blocked)
		if a, why := h.attempt(j, f), h.job(j).Reason; a.AcceptedAt != nil || why.Code != string(c.code) || !strings.Contains(why.Detail, c.words) {
			t.Errorf("session %s: %+v; want %s, %q", c.session, why, c.code, c.words)
		}
	}
	if all, _ := os.ReadDir(private); len(all) > 0 {
		t.Errorf("there is something in the owner's directory: %v", all)
	}
}
