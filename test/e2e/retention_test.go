package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// sessionCodex speaks like the CLI and keeps its sessions where the CLI does. Its prompt
// is a command.
const sessionCodex = `#!/bin/sh
case "$1" in
--version) echo "codex-cli 0.171.0"; exit 0;;
login) echo "Logged in using an API key - sk-x" >&2; exit 0;;
esac
id=019c5b8e-0000-7000-8000-$(date +%N | cut -c1-9)$(($$ % 900 + 100))
next=no
for a in "$@"; do
	[ $next = yes ] && [ "$a" != --json ] && { id=$a; next=done; }
	[ "$a" = resume ] && next=yes
done
mkdir -p "$CODEX_HOME/sessions/2026/01/02"
echo '{"type":"turn_context","payload":{"model":"m"}}' >> "$CODEX_HOME/sessions/2026/01/02/rollout-x-$id.jsonl"
echo '{"type":"thread.started","thread_id":"'$id'"}'
echo '{"type":"turn.started"}'
sh >&2
echo '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"done"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":0,"output_tokens":1}}'
`

// The workspace of a job whose work the hub has goes in its time, and a follow-up goes on
// all the same. What is nowhere else, or is not committed, is kept and listed with the
// command that saves it.
func TestRetention(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	program := m.Write(filepath.Join(m.Dir, "codex"), sessionCodex)
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	m.Config = "keep_workspaces: 2s\nharnesses: {exec: {}, codex: {path: " + program + "}}\n"
	m.Vars = []string{"CODEX_HOME=" + filepath.Join(m.Dir, "codex-home"), "CODEX_API_KEY=sk-0123456789"}
	m.StartHub()
	m.StartRunner()
	m.Online()
	bare := filepath.Join(m.Dir, "bare.git")
	m.Git(m.Dir, "clone", "-q", "--bare", m.Repository("repo"), bare)
	data := filepath.Join(m.Dir, "runner")
	type listed struct {
		Workspaces []struct {
			Job, Path, Next, Why, Until string
			Own                         int    `json:"own_commits"`
			Ref                         string `json:"rescue_ref"`
			Save                        []string
		}
	}
	list := func() (all listed) {
		t.Helper()
		m.JSON(&all, "runner", "workspaces", "--data-dir", data, "--json")
		return all
	}
	there := func(id string) bool {
		_, err := os.Stat(filepath.Join(data, "trees", "work", id))
		return err == nil
	}
	job := func(flags []string, prompt string) string {
		t.Helper()
		args := append([]string{"run", "--harness", "codex", "--repo", "file://" + bare}, flags...)
		id := m.Detach(append(args, prompt)...)
		if j := m.Ended(id, time.Minute); j.State != fleet.Succeeded && j.State != fleet.NeedsReview {
			t.Fatalf("job %s (%s): %s", id, prompt, j.State)
		}
		return id
	}
	const as = "git -c user.name=A -c user.email=a@example.com "
	done := job(nil, "echo one > one")
	branch := job(nil, "git checkout -q -b mine && "+as+"commit -q --allow-empty -m mine && git checkout -q - && echo x > x")
	dirty := job([]string{"--commit", "never"}, "echo two > two")

	m.Eventually(time.Minute, "the workspace of a job that is done to go", func() bool { return !there(done) })
	found := map[string]int{}
	m.Eventually(time.Minute, "the others to be kept beyond their time", func() bool {
		kept := 0
		for i, w := range list().Workspaces {
			found[w.Job] = i
			if w.Job == branch && w.Until == "" && w.Next == "keep" || w.Job == dirty && w.Ref != "" && w.Until != "" {
				kept++
			}
		}
		return kept == 2
	})
	all := list().Workspaces
	if len(all) != 2 || !there(branch) || !there(dirty) {
		t.Fatalf("listed are %+v", all)
	}
	if w := all[found[branch]]; w.Own != 1 || len(w.Save) != 1 || !strings.Contains(w.Save[0], "git -C ") {
		t.Errorf("of the branch: %+v", w)
	}
	if w := all[found[dirty]]; w.Own != 0 || len(w.Save) != 1 || !strings.Contains(w.Save[0], w.Ref) {
		t.Errorf("of what is not committed: %+v", w)
	}
	m.Eventually(time.Minute, "the hub to be told", func() bool {
		return strings.Contains(m.Run("runner", "get", "r1"), "1 workspace holds what is nowhere else")
	})

	m.Run("job", "follow-up", "--detach", done, "cat one && echo more > more")
	m.Eventually(time.Minute, "the follow-up to end", func() bool { j := m.Job(done); return j.Turn == 2 && j.State.Ended() })
	if j := m.Job(done); j.State != fleet.Succeeded || j.Evidence == nil {
		t.Errorf("the follow-up is %s (%s)", j.State, j.Reason.Detail)
	}
	if d := m.Run("job", "diff", done); !strings.Contains(d, "+one") || !strings.Contains(d, "+more") {
		t.Errorf("after both turns the diff is\n%s", d)
	}
	m.Eventually(time.Minute, "the workspace to go again", func() bool { return !there(done) })

	// What the command saves is published, and goes.
	m.Git(all[found[branch]].Path, "push", "-q", "origin", "mine")
	m.Eventually(time.Minute, "the branch's workspace to go once it is pushed", func() bool {
		m.Write(filepath.Join(data, "runner.yaml"), "slots: 2\nallow_file: true\n"+m.Config+"# "+time.Now().String()+"\n")
		return !there(branch)
	})
	if !there(dirty) {
		t.Error("what is not committed is gone before its time")
	}
}
