package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// lab is a program that speaks like an agent's CLI, and keeps beside itself what it was
// called with. It takes a session up only where its rollout is.
const lab = `#!/bin/sh
case "$1" in
--version) echo "codex-cli 0.171.0"; exit 0;;
login) echo "Logged in using an API key - sk-x" >&2; exit 0;;
esac
for a in "$@"; do [ "$before" = --json ] && id=$a; before=$a; done
ls "$HOME"/.codex/sessions/2026/11/30/rollout-*"$id".jsonl >/dev/null || exit 1
read -r prompt
echo "$(pwd) $* < $prompt" >> "$0.calls"
echo "$prompt" > made.txt
echo "it was a question" > "$TUGLINE_CLOSURE_FILE"
echo '{"type":"thread.started","thread_id":"'$id'"}'
echo '{"type":"turn.started"}'
echo '{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"done in '$(pwd)'"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'
`

const (
	workID    = "01a22b58-e674-74f2-906d-0f431ca24300"
	privateID = "01a22b58-e674-74f2-906d-0f431ca24301"
)

// rollout leaves a session as the CLI does.
func rollout(m *mesh.Mesh, id, dir, prompt string) {
	m.T.Helper()
	m.Write(filepath.Join(m.Dir, "home/.codex/sessions/2026/11/30/rollout-2026-11-30T07-26-16-"+id+".jsonl"), strings.Join([]string{
		`{"timestamp":"2026-11-30T07:26:16Z","type":"session_meta","payload":{"id":"` + id + `","timestamp":"2026-11-30T07:26:16Z","cwd":"` + dir + `"}}`,
		`{"timestamp":"2026-11-30T07:26:17Z","type":"turn_context","payload":{"cwd":"` + dir + `","model":"gpt-5.5"}}`,
		`{"timestamp":"2026-11-30T07:26:18Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"` + prompt + `"}]}}`,
		`{"timestamp":"2026-11-30T07:26:19Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is mended; the key ghp_0123456789abcdefghij0123 was in it."}]}}`,
	}, "\n")+"\n")
}

// resumed gives the job that goes on with a session.
func resumed(m *mesh.Mesh, id, prompt string, more ...string) string {
	m.T.Helper()
	return strings.TrimSpace(m.Run(append([]string{"session", "resume", "r1", id, prompt, "--detach"}, more...)...))
}

// Sessions on a machine are told when they are asked for, as its owner allows, and while
// the machine is away as they were; a reply to one is a job that waits for the machine and
// goes on in the session's own directory, where the owner allows that.
func TestSessionsOfAMachine(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	src, private := filepath.Join(m.Dir, "src", "app"), filepath.Join(m.Dir, "private")
	for _, dir := range []string{src, private} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := m.Write(filepath.Join(m.Dir, "bin", "codex"), lab)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	rollout(m, workID, src, "mend the parser")
	rollout(m, privateID, private, "write a letter")
	m.Vars = []string{"CODEX_API_KEY=sk-0123456789"}
	m.Config = "harnesses: {exec: {}, codex: {path: " + program + "}}\nsession_dirs: [" + filepath.Dir(src) + "]\n"
	m.StartHub()
	m.StartRunner()
	m.Online()

	// The machine is there.
	has := func(what, text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s: want %q in\n%s", what, w, text)
			}
		}
	}
	list := m.Run("session", "list", "r1")
	has("the list", list, workID, "codex", src, "mend the parser", privateID, private, "write a letter")
	shown := m.Run("session", "show", "r1", workID)
	has("the session", shown, "gpt-5.5", src, "user", "mend the parser", "assistant", "It is mended")
	if strings.Contains(shown, "ghp_") {
		t.Errorf("a secret is told:\n%s", shown)
	}
	if _, stderr, code := m.Try("session", "show", "r1", "01a22b58-e674-74f2-906d-0f431ca24309"); code == 0 || !strings.Contains(stderr, "there is no session") {
		t.Errorf("a session that is not there: exit %d, %s", code, stderr)
	}

	// It is away.
	m.Runner.Stop()
	m.Eventually(20*time.Second, "the runner is away", func() bool {
		_, stderr, code := m.Try("session", "show", "r1", workID)
		return code != 0 && strings.Contains(stderr, "is not connected")
	})
	stdout, stderr, code := m.Try("session", "list", "r1")
	if code != 0 || stdout != list {
		t.Errorf("the list of a machine that is away: exit %d\n%s%s", code, stdout, stderr)
	}
	has("the list of a machine that is away", stderr, "is not connected", "this list is of", "ago")
	var all api.Sessions
	m.JSON(&all, "session", "list", "r1", "--json")
	if all.AgeMS <= 0 || all.Waiting == "" || len(all.Sessions) != 2 {
		t.Errorf("the same as JSON: %+v", all)
	}
	// What was asked for by a job waits with it: the CLI of the session is known of the list.
	id := resumed(m, workID, "go on with it")
	m.Eventually(30*time.Second, "the job waits for the runner", func() bool {
		e := explained(m, id)
		return len(e.Runners) == 1 && e.Runners[0].Code == fleet.Offline
	})
	if j := m.Job(id); j.State != fleet.Queued || j.Harness != "codex" || j.Spec.Session == nil {
		t.Errorf("the job is %s of %s: %+v", j.State, j.Harness, j.Spec)
	}

	// It comes back.
	m.StartRunner()
	j := m.Ended(id, time.Minute)
	if j.State != fleet.Succeeded || j.SessionID != workID {
		t.Fatalf("the job is %s (%s) in session %s", j.State, j.Reason.Detail, j.SessionID)
	}
	made := filepath.Join(src, "made.txt")
	if b, err := os.ReadFile(made); err != nil || string(b) != "go on with it\n" {
		t.Errorf("what was made in the session's directory: %q, %v", b, err)
	}
	calls := func() string {
		b, _ := os.ReadFile(program + ".calls")
		return string(b)
	}
	has("the call", calls(), src+" exec ", "-C "+src, "resume --json "+workID+" - < go on with it")
	has("the events", m.Run("job", "get", id, "--json"), "goes on with the session "+workID, "without a worktree")
	for _, below := range []string{"worktrees", "scratch"} {
		if found, _ := filepath.Glob(filepath.Join(m.Dir, "runner", below, "*")); len(found) > 0 {
			t.Errorf("the runner has made %s", found)
		}
	}
	// A later turn goes on there, too.
	m.Run("job", "follow-up", "--detach", id, "and once more")
	m.Eventually(time.Minute, "the later turn has ended", func() bool { j = m.Job(id); return j.Turn == 2 && j.State.Ended() })
	if b, _ := os.ReadFile(made); j.State != fleet.Succeeded || string(b) != "and once more\n" || strings.Count(calls(), "resume --json "+workID) != 2 {
		t.Errorf("the later turn is %s (%s) and made %q; the calls:\n%s", j.State, j.Reason.Detail, b, calls())
	}

	// The owner allows no other directory, until he does.
	id = resumed(m, privateID, "what is in it?")
	j = m.State(id, fleet.Blocked, time.Minute)
	has("the reason", string(j.Reason.Code)+" "+j.Reason.Detail, string(fleet.OwnerPolicy), private, "session_dirs")
	file := filepath.Join(m.Dir, "runner", "runner.yaml")
	plain, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rules := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules(strings.Replace(string(plain), "session_dirs: [", "session_dirs: ["+private+", ", 1))
	m.Eventually(time.Minute, "what the owner allows now is done", func() bool {
		j = m.Job(id)
		if j.State == fleet.Blocked {
			m.Try("job", "retry", id) // the file may not be read yet
		}
		return j.State == fleet.Succeeded
	})

	// He tells nothing of them any more, and lets nobody go on with them.
	rules(string(plain) + "sessions: list\n")
	m.Eventually(30*time.Second, "what was said is not told", func() bool {
		_, stderr, code := m.Try("session", "show", "r1", workID)
		return code != 0 && strings.Contains(stderr, "sessions: list")
	})
	has("the list", m.Run("session", "list", "r1"), workID)
	rules(string(plain) + "sessions: off\n")
	m.Eventually(30*time.Second, "nothing is told", func() bool {
		stdout, stderr, code := m.Try("session", "list", "r1")
		return code != 0 && stdout == "" && strings.Contains(stderr, "sessions: off")
	})
	before := calls()
	j = m.State(resumed(m, workID, "and now?", "--harness", "codex"), fleet.Blocked, time.Minute)
	has("the reason", string(j.Reason.Code)+" "+j.Reason.Detail, string(fleet.OwnerPolicy), "sessions: off")
	if calls() != before {
		t.Errorf("the CLI was started: %s", strings.TrimPrefix(calls(), before))
	}
}

// A question about a machine is answered also while the hub node that leads is lost: the
// next one is asked, and the runner by it.
func TestSessionsOutliveALeader(t *testing.T) {
	t.Parallel()
	c := mesh.NewCluster(t, 3)
	rollout(c.Mesh, workID, c.Dir, "mend the parser")
	c.StartRunner()
	c.Online()
	list := c.Run("session", "list", "r1")
	if !strings.Contains(list, workID) {
		t.Fatalf("the list is %s", list)
	}
	// Somebody asks all the time, and is answered each time.
	answers, stop := make(chan string), make(chan struct{})
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(stop)
	asking.Go(func() {
		for {
			out, errs, code := c.Try("session", "show", "r1", workID)
			if code != 0 {
				out = errs
			}
			select {
			case answers <- out:
			case <-stop:
				return
			}
		}
	})
	answered := func() {
		t.Helper()
		select {
		case a := <-answers:
			if !strings.Contains(a, "mend the parser") {
				t.Errorf("the answer is %s", a)
			}
		case <-time.After(time.Minute):
			t.Fatal("there is no answer")
		}
	}
	answered()
	c.Leader().Kill()
	for range 5 {
		answered()
	}
	if got := c.Run("session", "list", "r1"); got != list {
		t.Errorf("the list is then %s", got)
	}
}
