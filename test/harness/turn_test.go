//go:build harness

package harness_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/harness"
)

// cancelled stops jobs in the middle of a command, one of which ignores all signals
// but the last.
func cancelled(p *place, cli harness.CLI) {
	scenarios := []string{"interrupted", "stubborn-command"}
	if cli == harness.OpenCode && !soak {
		scenarios = scenarios[1:]
	}
	if cli == harness.Codex { // once more without the sandbox that ends everything by itself
		scenarios = append(scenarios, "stubborn-command-full")
	}
	for _, name := range scenarios {
		p.T.Run(name, func(t *testing.T) {
			t.Parallel()
			p := p.of(t)
			scenario, full := strings.CutSuffix(name, "-full")
			k := task{cli: cli, scenario: scenario, nonce: string(cli) + "-" + name}
			k.prompt = "first prompt of " + k.run()
			if full {
				k.flags = []string{"--permissions", "full"}
			}
			id := p.start(k)
			// The command must be seen while it runs, or that it is gone would mean nothing.
			p.Eventually(10*time.Second, "the command's processes are seen", func() bool {
				return strings.Contains(strings.Join(p.left(k, id), "\n"), "tugline-child-"+k.run())
			})
			p.promptUnseen(k)
			begun := time.Now()
			p.Run("job", "cancel", id)
			j := p.Ended(id, 60*time.Second)
			t.Logf("%s %s: ended %v after the cancel", cli, name, time.Since(begun).Round(100*time.Millisecond))
			if j.State != fleet.Cancelled || j.FailureClass != fleet.ClassCancelled && j.FailureClass != "" {
				t.Errorf("job is %s, class %q; want cancelled", j.State, j.FailureClass)
			}
			for _, left := range p.left(k, id) {
				t.Errorf("survived the cancel: %s", left)
			}
			if scenario != "interrupted" {
				return
			}
			if j.SessionID == "" {
				t.Fatal("a cancelled turn has no session to go on from")
			}
			r := p.followed("job", "follow-up", id, "second prompt")
			p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
			if d := p.Run("job", "diff", id); r.SessionID != j.SessionID || !strings.Contains(d, "+++ b/second.txt") {
				t.Errorf("session %s, then %s; diff:\n%s", j.SessionID, r.SessionID, d)
			}
		})
	}
}

// promptUnseen looks whether anybody could read a task's prompt in the list of
// processes while its CLI runs.
func (p *place) promptUnseen(k task) {
	p.T.Helper()
	seen := false
	for _, line := range p.Marked() {
		if strings.Contains(line, k.prompt) {
			p.T.Errorf("the prompt is on a command line: %s", line)
		}
		seen = seen || strings.Contains(line, string(k.cli)) && !strings.Contains(line, "tugline-"+k.run()) && !strings.Contains(line, "tugline-child-")
	}
	if !seen {
		p.T.Error("the CLI is not among the processes; nothing is shown")
	}
}

// left lists the processes of a task's commands and of its CLI.
func (p *place) left(k task, id string) (out []string) {
	for _, line := range p.Marked() {
		if strings.Contains(line, "tugline-"+k.run()+" ") || strings.Contains(line, "tugline-child-"+k.run()+" ") || strings.Contains(line, "/"+id+"/") {
			out = append(out, line)
		}
	}
	return out
}

// queued gives follow-ups to a job that runs, and one more when it has ended.
func queued(p *place, cli harness.CLI) {
	t := p.T
	k := task{cli: cli, scenario: "turns", prompt: "first prompt"}
	id := p.Detach(p.args(k)...)
	if err := p.model.Wait(t.Context(), k.scenario, k.run(), 1); err != nil {
		t.Fatal(err)
	}
	for n, prompt := range []string{"second prompt", "third prompt"} {
		p.Run("job", "follow-up", "--detach", id, prompt)
		if j := p.Job(id); j.FollowUps != n+1 || j.Turn != 1 {
			t.Errorf("%d follow-ups are queued behind turn %d; want %d behind 1", j.FollowUps, j.Turn, n+1)
		}
	}
	p.model.Release(k.scenario, k.run())
	p.Eventually(2*time.Minute, "turn 3 of job "+id+" ends", func() bool { j := p.Job(id); return j.Turn == 3 && j.State.Ended() })
	first := p.Job(id)
	p.oneSession(first, 3, "first.txt", "second.txt", "third.txt")
	if cli == harness.OpenCode && !soak {
		return // it is slow; what follows is done with it where its runner is killed
	}
	r := p.followed("job", "follow-up", id, "fourth prompt")
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	p.oneSession(r.Job, 4, "first.txt", "second.txt", "third.txt", "fourth.txt")
	if r.SessionID != first.SessionID || r.Runner != first.Runner {
		t.Errorf("session %s on %s, then %s on %s; want the same", first.SessionID, first.Runner, r.SessionID, r.Runner)
	}
}

// oneSession checks that the turns of a job were taken in order, each by one attempt
// in the same session, and that the result has the files of all.
func (p *place) oneSession(r api.Job, turns int, files ...string) {
	p.T.Helper()
	if len(r.Turns) != turns {
		p.T.Fatalf("the job has %d turns, want %d", len(r.Turns), turns)
	}
	for i, tu := range r.Turns {
		if len(tu.Attempts) != 1 || tu.State != fleet.Succeeded || tu.Attempts[0].SessionID != r.SessionID || tu.Attempts[0].Usage == nil {
			p.T.Errorf("turn %d is %s with attempts %+v; want one, in session %s, with its usage", i+1, tu.State, tu.Attempts, r.SessionID)
		}
	}
	diff := p.Run("job", "diff", string(r.ID))
	for _, f := range files {
		if !strings.Contains(diff, "+++ b/"+f) {
			p.T.Errorf("the diff of the job lacks %s:\n%s", f, diff)
		}
	}
}

// gone takes away what a follow-up goes on from: first the worktree, which is built
// again, then the CLI's own session, which can't be.
func gone(p *place, cli harness.CLI) {
	t := p.T
	k := task{cli: cli, scenario: "gone", prompt: "first prompt"}
	r := p.do(k)
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	id, session := string(r.ID), r.SessionID
	if err := os.RemoveAll(filepath.Join(p.Dir, "runner", "trees", "work", id)); err != nil {
		t.Fatal(err)
	}
	r = p.followed("job", "follow-up", id, "second prompt")
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	p.oneSession(r.Job, 2, "first.txt", "second.txt")

	removed := 0
	for _, dir := range []string{filepath.Join(p.Dir, "accounts", k.run()), filepath.Join(p.Dir, "home", ".claude", "projects")} {
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(d.Name(), session) && os.Remove(path) == nil {
				removed++
			}
			return nil
		})
	}
	if removed == 0 {
		t.Fatal("no file of the session was found")
	}
	_, errs, code := p.Try("job", "follow-up", id, "third prompt")
	if code == 0 || !strings.Contains(errs, "--fresh") {
		t.Errorf("a follow-up whose session is gone: exit %d; want a refusal that names --fresh:\n%s", code, errs)
	}
	r = p.followed("job", "follow-up", "--fresh", id, "third prompt again")
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	if d := p.Run("job", "diff", id); r.SessionID == session || !strings.Contains(d, "+++ b/third.txt") || !strings.Contains(d, "+++ b/first.txt") {
		t.Errorf("session %s after %s; want a new one; diff:\n%s", r.SessionID, session, d)
	}
}

// TestRunnerKilled ends the runner with -9 in the middle of turns, and once more
// between two of them.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	of := func(cli harness.CLI) task {
		return task{cli: cli, scenario: "turns", nonce: string(cli) + "-killed", prompt: "first prompt"}
	}
	ids := map[harness.CLI]string{}
	for _, cli := range harness.All {
		ids[cli] = p.Detach(p.args(of(cli))...)
	}
	// opencode takes several seconds to begin; it is killed at by itself.
	for _, inTurn := range [][]harness.CLI{{harness.Codex, harness.Claude}, {harness.OpenCode}} {
		for _, cli := range inTurn {
			if err := p.model.Wait(t.Context(), "turns", of(cli).run(), 1); err != nil {
				t.Fatal(err)
			}
		}
		p.killRunner()
		for _, cli := range inTurn {
			if n := p.model.Served("turns", of(cli).run()); n != 1 {
				t.Errorf("%s had asked its model %d times when the runner was killed; want once, in the middle of its turn", cli, n)
			}
			p.model.Release("turns", of(cli).run())
		}
	}
	for _, cli := range harness.All {
		j := p.Ended(ids[cli], 60*time.Second)
		if j.State != fleet.Succeeded || j.Attempt != 1 || len(j.Turns[0].Attempts) != 1 {
			t.Errorf("%s is %s in attempt %d after the runner came back, reason %+v; want succeeded in the first", cli, j.State, j.Attempt, j.Reason)
		}
		events := p.events(j.ID, 0)
		if event(events, func(e fleet.Event) bool { return e.Type == fleet.EventAgentMessage && e.Text == "Turn one is done." }) == nil {
			t.Errorf("the events of %s lack what was said after the kill:\n%s", cli, told(events))
		}
	}
	p.killRunner()
	for _, cli := range harness.All {
		t.Run(string(cli), func(t *testing.T) {
			t.Parallel()
			p := p.of(t)
			r := p.followed("job", "follow-up", ids[cli], "second prompt")
			p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
			p.oneSession(r.Job, 2, "first.txt", "second.txt")
		})
	}
}

// killRunner ends the runner with -9 and starts it again.
func (p *place) killRunner() {
	p.T.Helper()
	p.Runner.Kill()
	p.StartRunner()
	p.Online()
}
