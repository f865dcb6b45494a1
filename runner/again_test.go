package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// againCodex is refused by its provider as the prompt says: "act" after a tool was used,
// "deny" before anything was done. A session that is resumed comes through. What it is
// asked stands in prompts, beside its sessions.
const againCodex = `#!/bin/sh
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
: >> "$rollout"
prompt=$(cat)
echo "resumed=$next $prompt" >> "PROMPTS"
echo '{"type":"thread.started","thread_id":"'$id'"}'
echo '{"type":"turn.started"}'
if [ $next = no ]; then
	case $prompt in
	deny*) mkdir half-done;; # git sees nothing of it
	act*) echo half > half-done; echo '{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"make","aggregated_output":"","exit_code":0,"status":"completed"}}';;
	esac
	echo '{"type":"turn.failed","error":{"message":"You'"'"'ve hit your usage limit. Try again when the moon is full."}}'
	exit 1
fi
echo '{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"in '$(pwd)': '$(echo *)'"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'
`

// againClaude is another CLI, which comes through.
const againClaude = `#!/bin/sh
case "$1" in
--version) echo "2.1.0 (Claude Code)"; exit 0;;
esac
prompt=$(cat)
echo "claude $prompt" >> "PROMPTS"
echo '{"type":"system","subtype":"init","session_id":"0b9f2b1e-3b0e-4a3e-9b0e-0b9f2b1e3b0e","model":"m"}'
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"in '$(pwd)': '$(echo *)'"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","usage":{"input_tokens":3,"output_tokens":4}}'
`

// againHub decides with the rules of placement, and its runner has both CLIs.
func againHub(t *testing.T) (h *testHub, r *testRunner, prompts func() string) {
	t.Helper()
	h = turnsHub(t)
	h.mu.Lock()
	h.rules = true
	h.mu.Unlock()
	t.Setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
	bin := t.TempDir()
	place := strings.NewReplacer("PROMPTS", filepath.Join(bin, "prompts"))
	for name, text := range map[string]string{"codex": againCodex, "claude": againClaude} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(place.Replace(text)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	owner := allowFile(t, "harnesses: {exec: {}, codex: {path: "+bin+"/codex}, claude: {path: "+bin+"/claude}}\n")
	r = h.newRunner(owner)
	eventually(t, "the harnesses to be found", func() bool {
		_, codex := r.harness("codex")
		_, claude := r.harness("claude")
		return codex && claude
	})
	return h, r, func() string {
		b, err := os.ReadFile(filepath.Join(bin, "prompts"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func (h *testHub) agent(repo *fleet.Repo, prompt string, fallbacks ...fleet.Choice) fleet.JobID {
	h.t.Helper()
	spec := fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Repo: repo, Fallbacks: fallbacks}
	if len(fallbacks) == 0 {
		spec.Retries = new(int) // a person's retry alone
	}
	return h.submit(spec,
		func(s *state.SubmitJob) { s.Prompt = h.put([]byte(prompt)) })
}

// retried gives a job that has failed another try, as a person does who has seen to
// what kept it from its provider.
func (h *testHub) retried(j fleet.JobID) {
	h.t.Helper()
	for _, c := range h.View().Circuits() {
		h.must(&state.ResetCircuit{ID: c.ID, Reason: "more was paid for", Repaired: "the quota"})
	}
	h.must(&state.RetryJob{Job: j})
}

// A turn that its provider refused after it had begun to work goes on where it was: in
// the same directory, in the same session, and is told not to begin again.
func TestRefusedTurnGoesOnInItsSession(t *testing.T) {
	for _, where := range []string{"in a repository", "in a directory of its own"} {
		t.Run(where, func(t *testing.T) {
			h, r, prompts := againHub(t)
			var repo *fleet.Repo
			if where == "in a repository" {
				bare, _ := repository(t)
				repo = &fleet.Repo{URL: bare}
			}
			j := h.agent(repo, "act on it")
			f := h.assign(j, r.id)
			h.ends(j, fleet.Failed)
			h.sealed(j, f)
			a := h.attempt(j, f)
			if a.Failure != fleet.ClassQuotaExhausted || !a.Acted || !a.Responded || a.Account == "" || a.SessionID == "" ||
				!strings.HasPrefix(a.StatedEnd, "Try again when the moon is full") {
				t.Fatalf("the refused attempt is %+v", a)
			}
			h.retried(j)
			g := h.assign(j, r.id)
			h.ends(j, fleet.Succeeded)
			h.sealed(j, g)
			b := h.attempt(j, g)
			if b.SessionID != a.SessionID || !b.Responded || b.Account != a.Account {
				t.Errorf("the next attempt is %+v", b)
			}
			if said := h.events(j, b); !strings.Contains(said, "half-done") {
				t.Errorf("it is not in the directory of the first: %s", said)
			}
			if notes := strings.Join(b.Notes, "; "); !strings.Contains(notes, "goes on in the directory of an earlier attempt at the turn, in its session") {
				t.Errorf("notes %q", notes)
			}
			said := strings.Split(prompts(), "resumed=")
			if len(said) != 3 || said[1] != "no act on it\n" || !strings.HasPrefix(said[2], "done You were interrupted") || !strings.HasSuffix(said[2], "\n\nact on it\n") {
				t.Errorf("prompts %q", said)
			}
			if repo != nil && (b.Evidence.Base != a.Evidence.Base || b.Evidence.Stat.Files != 1) {
				t.Errorf("evidence %+v, of the first %+v", b.Evidence, a.Evidence)
			}
		})
	}
}

// Another CLI of the job's list begins in the directory of the one that was refused,
// with the prompt as it was given.
func TestNextChoiceBeginsInTheSameWorktree(t *testing.T) {
	h, r, prompts := againHub(t)
	bare, _ := repository(t)
	j := h.agent(&fleet.Repo{URL: bare}, "deny it", fleet.Choice{Harness: "claude"})
	f := h.assign(j, r.id)
	eventually(t, "the job to be queued for its next choice", func() bool { return h.job(j).State == fleet.Queued && h.job(j).Turn().Choice == 1 }, func() any { return h.job(j) })
	h.sealed(j, f)
	if a := h.attempt(j, f); a.Acted || a.Responded || a.Failure != fleet.ClassQuotaExhausted {
		t.Fatalf("the refused attempt is %+v", a)
	}
	g := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, g)
	b := h.attempt(j, g)
	if b.Harness != "claude" || b.Account == h.attempt(j, f).Account {
		t.Errorf("the next attempt is %+v", b)
	}
	if said := h.events(j, b); !strings.Contains(said, "half-done") {
		t.Errorf("it is not in the directory of the first: %s", said)
	}
	if said := prompts(); said != "resumed=no deny it\nclaude deny it\n" {
		t.Errorf("prompts %q", said)
	}
}

// What the turn is to go on in is gone. A worktree is built again from the commits that the hub has.
// A directory of the job's own is not to be had again: with a session the turn is
// refused, for the agent would go by what is not there; without one it begins anew.
func TestTurnWhoseDirectoryIsGone(t *testing.T) {
	for _, c := range []struct {
		prompt string
		repo   bool
		want   fleet.State
	}{{"act on it", true, fleet.Succeeded}, {"deny it", true, fleet.Succeeded}, {"act on it", false, fleet.Blocked}, {"deny it", false, fleet.Succeeded}} {
		t.Run(fmt.Sprint(c.prompt, " repository ", c.repo), func(t *testing.T) {
			h, r, _ := againHub(t)
			var repo *fleet.Repo
			if c.repo {
				bare, _ := repository(t)
				repo = &fleet.Repo{URL: bare}
			}
			var next []fleet.Choice
			if c.prompt == "deny it" {
				next = append(next, fleet.Choice{Harness: "claude"})
			}
			j := h.agent(repo, c.prompt, next...)
			f := h.assign(j, r.id)
			eventually(t, "the first attempt to end", func() bool { return h.attempt(j, f).State == fleet.AttemptFinished })
			h.sealed(j, f)
			r.forgets(f)
			if c.repo {
				r.deleteTrees("work", "repos")
			} else if err := os.RemoveAll(r.scratch(j)); err != nil {
				t.Fatal(err)
			}
			if h.job(j).State != fleet.Queued {
				h.retried(j)
			}
			g := h.assign(j, r.id)
			h.ends(j, c.want)
			b := h.attempt(j, g)
			if c.want == fleet.Blocked {
				if b.State != fleet.AttemptDeclined || h.job(j).Reason.Code != string(fleet.SessionGone) {
					t.Errorf("the attempt is %s, the job %+v", b.State, h.job(j).Reason)
				}
				return
			}
			h.sealed(j, g)
			if said := h.events(j, b); strings.Contains(said, "half-done") != (c.repo && c.prompt == "act on it") {
				t.Errorf("it goes on in %s", said)
			}
		})
	}
}

// A provider has responded is told once, also by a runner that was started again in
// between.
func TestFirstResponseIsToldOnce(t *testing.T) {
	h := turnsHub(t)
	r := h.turnsRunner("box")
	gate := filepath.Join(t.TempDir(), "gate")
	j := h.agentJob(nil, "hold "+gate+"\n")
	h.assign(j, r.id)
	told := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		seqs := map[uint64]bool{} // one that is sent again, for its acknowledgement was not durable, is the same
		for _, c := range h.commands {
			if c, ok := c.(*state.RecordFacts); ok {
				for _, k := range c.Facts {
					if k.Kind == "responded" {
						seqs[k.Seq] = true
					}
				}
			}
		}
		return len(seqs)
	}
	eventually(t, "the first response to be told while it runs", func() bool { return told() == 1 })
	r.end()
	r = h.restart(r.cfg)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	if n := told(); n != 1 {
		t.Errorf("it is told %d times", n)
	}
}
