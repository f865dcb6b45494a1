package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// turnsCodex is a program that speaks like the CLI and keeps its session where the
// CLI does. A prompt "write FILE" makes a file in its directory, "hold GATE" waits
// for a file to appear.
const turnsCodex = `#!/bin/sh
case "$1" in
--version) echo "codex-cli 0.171.0"; exit 0;;
login) echo "Logged in using an API key - sk-x" >&2; exit 0;;
esac
id=$(cat /proc/sys/kernel/random/uuid)
next=no
for a in "$@"; do
	[ $next = yes ] && [ "$a" != --json ] && { id=$a; next=done; }
	[ "$a" = resume ] && next=yes
done
dir=$CODEX_HOME/sessions/2026/01/02; rollout=$dir/rollout-x-$id.jsonl
mkdir -p "$dir"
[ $next = done ] && [ ! -e "$rollout" ] && { echo "no rollout found for thread id $id" >&2; exit 1; }
echo '{"type":"turn_context","payload":{"model":"model-of-the-rollout"}}' >> "$rollout"
read -r verb arg
echo '{"type":"thread.started","thread_id":"'$id'"}'
echo '{"type":"turn.started"}'
case $verb in
write) echo "$arg" > "$arg";;
hold) n=0; while [ ! -e "$arg" ]; do sleep 0.1; n=$((n+1)); echo '{"type":"item.completed","item":{"id":"item_'$n'","type":"agent_message","text":"still here"}}'; done;;
esac
echo '{"type":"item.completed","item":{"id":"item_last","type":"agent_message","text":"in '$(pwd)': '$(echo *)'"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'
`

// turnsRunner is a runner with that program; each has a data directory of its own.
func (h *testHub) turnsRunner(name string, rules ...string) *testRunner {
	t := h.t
	t.Helper()
	program := filepath.Join(t.TempDir(), "codex")
	if err := os.WriteFile(program, []byte(turnsCodex), 0o700); err != nil {
		t.Fatal(err)
	}
	owner := allowFile(t, "harnesses: {exec: {}, codex: {path: "+program+"}}\n"+strings.Join(rules, ""))
	r := h.newRunner(func(c *Config) { owner(c); c.Name = name })
	eventually(t, "the harness to be found", func() bool { _, ok := r.harness("codex"); return ok })
	return r
}

func turnsHub(t *testing.T) *testHub {
	t.Helper()
	t.Setenv("CODEX_API_KEY", "sk-0123456789")
	t.Setenv("CODEX_HOME", t.TempDir())
	return newHub(t)
}

func (h *testHub) agentJob(repo *fleet.Repo, prompt string) fleet.JobID {
	h.t.Helper()
	return h.submit(fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Repo: repo}, func(s *state.SubmitJob) { s.Prompt = h.put([]byte(prompt)) })
}

// turn takes the job's newest turn to its end on a runner.
func (h *testHub) turn(j fleet.JobID, r *testRunner) *fleet.Attempt {
	h.t.Helper()
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	return h.attempt(j, f)
}

func (h *testHub) events(j fleet.JobID, a *fleet.Attempt) string {
	h.t.Helper()
	return string(h.stream(j, a.Fence, wire.StreamEvents))
}

// Session and model are at the hub while the run goes on, each told once, and a run
// that was lost can be taken up again in its session.
func TestLostRunIsResumed(t *testing.T) {
	h := turnsHub(t)
	r := h.turnsRunner("box")
	gate := filepath.Join(t.TempDir(), "gate")
	j := h.agentJob(nil, "hold "+gate+"\n")
	f := h.assign(j, r.id)
	eventually(t, "the session to be known while it runs", func() bool { return h.attempt(j, f).SessionID != "" }, func() any { return h.attempt(j, f) })
	eventually(t, "the model to be known while it runs", func() bool { return h.attempt(j, f).Model == "model-of-the-rollout" }, func() any { return h.attempt(j, f) })
	session := h.attempt(j, f).SessionID
	r.killSupervisor(j, f)
	h.ends(j, fleet.Lost)
	r.forgets(f)
	told := 0
	h.mu.Lock()
	for _, c := range h.commands {
		if c, ok := c.(*state.RecordFacts); ok {
			for _, k := range c.Facts {
				if k.Kind == "session" || k.Kind == "model" {
					told++
				}
			}
		}
	}
	h.mu.Unlock()
	if told != 2 {
		t.Errorf("session and model were told in %d facts, want 2", told)
	}

	// Lost pauses follow-ups; a retry that is stopped by a person ends as cancelled, and
	// the next turn goes on in the session of the lost run.
	h.must(&state.CancelJob{Job: j})
	h.ends(j, fleet.Cancelled)
	h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write a"))})
	if a := h.turn(j, r); a.SessionID != session {
		t.Errorf("the next turn is in session %s, want %s", a.SessionID, session)
	}
}

// A follow-up whose session is gone is refused before it begins, and says what to do;
// a fresh one goes on in the same worktree.
func TestFollowUpWithoutItsSessionIsBlocked(t *testing.T) {
	h := turnsHub(t)
	r := h.turnsRunner("box")
	bare, _ := repository(t)
	j := h.agentJob(&fleet.Repo{URL: bare}, "write one")
	first := h.turn(j, r)
	if err := os.RemoveAll(filepath.Join(os.Getenv("CODEX_HOME"), "sessions")); err != nil {
		t.Fatal(err)
	}
	h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write two"))})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Blocked)
	a, reason := h.attempt(j, f), h.job(j).Reason
	if a.AcceptedAt != nil || a.State != fleet.AttemptDeclined || reason.Code != string(fleet.SessionGone) {
		t.Errorf("attempt %+v, reason %+v; want a decline before the accept", a, reason)
	}
	for _, want := range []string{first.SessionID, "tugline job follow-up " + string(j) + " --fresh"} {
		if !strings.Contains(reason.Detail, want) {
			t.Errorf("the reason does not name %q: %s", want, reason.Detail)
		}
	}
	h.must(&state.FollowUp{Job: j, Fresh: true, Prompt: h.put([]byte("write two"))})
	a = h.turn(j, r)
	if a.SessionID == first.SessionID || a.Evidence.CommitCount != 2 || !strings.Contains(strings.Join(a.Notes, " "), "fresh session") {
		t.Errorf("fresh turn: session %s, notes %q, evidence %+v", a.SessionID, a.Notes, a.Evidence)
	}
	if said := h.events(j, a); !strings.Contains(said, "README one two") {
		t.Errorf("events %s", said)
	}
}

// A worktree that somebody deleted is built again at the same path: from the job's
// branch, and where the cache is gone too, from the hub's bundle.
func TestDeletedWorktreeIsBuiltAgain(t *testing.T) {
	h := turnsHub(t)
	r := h.turnsRunner("box")
	bare, base := repository(t)
	j := h.agentJob(&fleet.Repo{URL: bare}, "write one")
	first := h.turn(j, r)
	want := h.events(j, first)
	want = want[strings.Index(want, "in /"):strings.Index(want, ": README")]
	for n, gone := range [][]string{{"work"}, {"work", "repos", "jobs"}} {
		r.deleteTrees(gone...)
		h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write file" + itoa(n)))})
		a := h.turn(j, r)
		if a.SessionID != first.SessionID || a.Evidence.Base != base || a.Evidence.CommitCount != 2+n {
			t.Errorf("without %v: session %s, evidence %+v", gone, a.SessionID, a.Evidence)
		}
		if said := h.events(j, a); !strings.Contains(said, want+": README file0") || !strings.Contains(said, " one") {
			t.Errorf("without %v: events %s; want those of %s", gone, said, want)
		}
	}
}

// deleteTrees empties folders of the runner's worktree store.
func (r *testRunner) deleteTrees(folders ...string) {
	r.t.Helper()
	for _, folder := range folders {
		all, err := filepath.Glob(filepath.Join(r.dir, "trees", folder, "*"))
		if err != nil || len(all) == 0 {
			r.t.Fatalf("nothing to delete in %s: %v", folder, err)
		}
		for _, path := range all {
			if err := os.RemoveAll(path); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// Where neither branch nor bundle is left, a resumed turn is refused with the reason.
func TestWorktreeThatCannotBeBuiltIsBlocked(t *testing.T) {
	h := turnsHub(t)
	r := h.turnsRunner("box")
	bare, _ := repository(t)
	gate := filepath.Join(t.TempDir(), "gate")
	j := h.agentJob(&fleet.Repo{URL: bare}, "hold "+gate)
	f := h.assign(j, r.id)
	eventually(t, "the session to be known", func() bool { return h.attempt(j, f).SessionID != "" })
	r.killSupervisor(j, f)
	h.ends(j, fleet.Lost)
	r.forgets(f)
	r.deleteTrees("work", "repos", "jobs")
	h.must(&state.CancelJob{Job: j})
	h.ends(j, fleet.Cancelled)
	h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write two"))})
	h.assign(j, r.id)
	h.ends(j, fleet.Blocked)
	if d := h.job(j).Reason.Detail; !strings.Contains(d, "worktree") || !strings.Contains(d, "--fresh") {
		t.Errorf("reason %q", d)
	}
	h.must(&state.FollowUp{Job: j, Fresh: true, Prompt: h.put([]byte("write two"))})
	if a := h.turn(j, r); a.Evidence.CommitCount != 1 || !strings.Contains(strings.Join(a.Notes, " "), "begins at the job's base") {
		t.Errorf("fresh turn: notes %q, evidence %+v", a.Notes, a.Evidence)
	}
}

// A fresh follow-up moves a job to another runner, which builds the branch from the
// hub's bundle: also of a repository that came as a bundle itself, and of one in which
// nothing was committed yet.
func TestFreshFollowUpMovesTheJob(t *testing.T) {
	h := turnsHub(t)
	one, two := h.turnsRunner("one"), h.turnsRunner("two")
	bare, base := repository(t)
	sent := filepath.Join(t.TempDir(), "sent.bundle")
	git(t, bare, "bundle", "create", "-q", sent, "HEAD", "main")
	b, err := os.ReadFile(sent)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, first string
		repo        *fleet.Repo
		commits     int
		files       string
	}{
		{"with an address", "write one", &fleet.Repo{URL: bare}, 2, "README one two"},
		{"handed over", "write one", &fleet.Repo{Bundle: h.put(b), BaseCommit: base, CacheKey: base}, 2, "README one two"},
		{"without a commit", "look around", &fleet.Repo{URL: bare}, 1, "README two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			j := h.agentJob(c.repo, c.first)
			a := h.turn(j, one)
			h.must(&state.FollowUp{Job: j, Fresh: true, On: "two", Prompt: h.put([]byte("write two"))})
			if on := h.job(j).Turn().On; on != two.id {
				t.Fatalf("the turn is bound to %q, want %q", on, two.id)
			}
			m := h.turn(j, two)
			if m.SessionID == a.SessionID || m.Evidence.Base != base || m.Evidence.CommitCount != c.commits || !m.Evidence.Descends {
				t.Errorf("session %s after %s, evidence %+v", m.SessionID, a.SessionID, m.Evidence)
			}
			if notes := strings.Join(m.Notes, " "); !strings.Contains(notes, "fresh session") || strings.Contains(notes, "base") {
				t.Errorf("notes %q", m.Notes)
			}
			if said := h.events(j, m); !strings.Contains(said, c.files) || !strings.Contains(said, two.dir) {
				t.Errorf("events %s; want the files %s under %s", said, c.files, two.dir)
			}
			// The next one goes on there, in the new session.
			h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write three"))})
			if n := h.turn(j, two); n.SessionID != m.SessionID {
				t.Errorf("the turn after it is in session %s, want %s", n.SessionID, m.SessionID)
			}
		})
	}
}

// A job without repository that moves says that its files stayed behind.
func TestMovedScratchJobSaysSo(t *testing.T) {
	h := turnsHub(t)
	one, two := h.turnsRunner("one"), h.turnsRunner("two")
	j := h.agentJob(nil, "write one")
	h.turn(j, one)
	h.must(&state.FollowUp{Job: j, Fresh: true, On: "two", Prompt: h.put([]byte("write two"))})
	if a := h.turn(j, two); !strings.Contains(strings.Join(a.Notes, " "), "empty directory") {
		t.Errorf("notes %q", a.Notes)
	}
	// Deleted under a session, it is refused.
	if err := os.RemoveAll(filepath.Join(two.dir, "scratch", string(j))); err != nil {
		t.Fatal(err)
	}
	h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write three"))})
	h.assign(j, two.id)
	h.ends(j, fleet.Blocked)
}

// Two attempts of one job never work side by side: the newer one waits until the
// older one's processes are gone.
func TestNewAttemptWaitsForTheOldOne(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	pid, gate := filepath.Join(t.TempDir(), "pid"), filepath.Join(t.TempDir(), "gate")
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", `if [ -e ` + pid + ` ]; then kill -0 $(cat ` + pid + `) 2>/dev/null && echo together || echo alone; exit; fi
trap "" INT TERM; echo $$ > ` + pid + `; while [ ! -e ` + gate + ` ]; do sleep 0.05; done; sleep 0.3`}})
	f := h.assign(j, r.id)
	eventually(t, "the first attempt to run", func() bool { _, err := os.Stat(pid); return err == nil })
	h.must(&state.LoseAttempt{Job: j, Fence: f, Detail: "silent"})
	h.must(&state.CancelJob{Job: j, Abandon: true})
	h.must(&state.RetryJob{Job: j})
	res := h.must(&state.AssignJob{Job: j, Runner: r.id, Turn: 1, Attempts: 1, Slots: 1000})
	h.srv.Nudge(r.id)
	eventually(t, "the newer attempt to wait", func() bool { return strings.Contains(r.detail(res.Fence), "waits until attempt "+f.String()) }, func() any { return r.heartbeat(false).Attempts })
	if a := h.attempt(j, res.Fence); a.AcceptedAt != nil {
		t.Error("the newer attempt was accepted while the older one ran")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	h.sealed(j, res.Fence)
	if got := h.text(j, res.Fence, fleet.FrameStdout); got != "alone\n" {
		t.Errorf("the newer attempt says %q", got)
	}
}
