//go:build harness

package harness_test

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/harness"
)

// cancelled stops jobs in the middle of a command, one of which ignores all signals
// but the last.
func cancelled(p *place, cli harness.CLI) {
	scenarios := []string{"long-command", "stubborn-command"}
	if cli == harness.OpenCode && !soak {
		scenarios = scenarios[1:]
	}
	for _, scenario := range scenarios {
		p.T.Run(scenario, func(t *testing.T) {
			t.Parallel()
			p := p.of(t)
			id := p.start(task{cli: cli, scenario: scenario})
			begun := time.Now()
			p.Run("job", "cancel", id)
			j := p.Ended(id, 60*time.Second)
			t.Logf("%s %s: ended %v after the cancel", cli, scenario, time.Since(begun).Round(100*time.Millisecond))
			if j.State != fleet.Cancelled || j.FailureClass != fleet.ClassCancelled && j.FailureClass != "" {
				t.Errorf("job is %s, class %q; want cancelled", j.State, j.FailureClass)
			}
			for _, left := range p.Marked() {
				if strings.Contains(left, string(cli)+"-"+scenario) || strings.Contains(left, "/"+id+"/") {
					t.Errorf("survived the cancel: %s", left)
				}
			}
		})
	}
}

// queued gives follow-ups to a job that runs, and one more when it has ended.
func queued(p *place, cli harness.CLI) {
	t := p.T
	k := task{cli: cli, scenario: "turns", prompt: "first prompt"}
	id := p.Detach(p.args(k)...)
	if err := p.model.Wait(t.Context(), k.scenario, k.run(), 1); err != nil {
		t.Fatal(err)
	}
	p.Run("job", "follow-up", "--detach", id, "second prompt")
	if j := p.Job(id); j.FollowUps != 1 || j.Turn != 1 {
		t.Errorf("%d follow-ups are queued behind turn %d; want 1 behind 1", j.FollowUps, j.Turn)
	}
	p.Eventually(90*time.Second, "turn 2 of job "+id+" ends", func() bool { j := p.Job(id); return j.Turn == 2 && j.State.Ended() })
	first := p.Job(id)
	r := p.followed("job", "follow-up", id, "third prompt")
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	p.oneSession(r, 3, "first.txt", "second.txt", "third.txt")
	if r.SessionID != first.SessionID || r.Runner != first.Runner {
		t.Errorf("session %s on %s, then %s on %s; want the same", first.SessionID, first.Runner, r.SessionID, r.Runner)
	}
}

// oneSession checks that the turns of a job were taken in order, each by one attempt
// in the same session, and that the result has the files of all.
func (p *place) oneSession(r result, turns int, files ...string) {
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

// TestRunnerKilled ends the runner with -9 in the middle of turns and between them.
func TestRunnerKilled(t *testing.T) {
	p := newPlace(t)
	ids := map[harness.CLI]string{}
	for _, cli := range harness.All {
		k := task{cli: cli, scenario: "turns", prompt: "first prompt"}
		ids[cli] = p.Detach(p.args(k)...)
	}
	for _, cli := range harness.All {
		if err := p.model.Wait(t.Context(), "turns", task{cli: cli, scenario: "turns"}.run(), 1); err != nil {
			t.Fatal(err)
		}
		if s := p.Job(ids[cli]).State; s != fleet.Running {
			t.Errorf("%s is %s in the middle of its turn, want running", cli, s)
		}
		if cli == harness.Codex || cli == harness.Claude { // each CLI has its turn in the time between
			continue
		}
	}
	p.Runner.Kill()
	p.StartRunner()
	p.Online()
	for _, cli := range harness.All {
		j := p.Ended(ids[cli], 60*time.Second)
		if j.State != fleet.Succeeded || j.Attempt != 1 || len(j.Turns[0].Attempts) != 1 {
			t.Errorf("%s is %s in attempt %d after the runner came back, reason %+v; want succeeded in the first", cli, j.State, j.Attempt, j.Reason)
		}
	}
	p.Runner.Kill()
	p.StartRunner()
	p.Online()
	for _, cli := range harness.All {
		t.Run(string(cli), func(t *testing.T) {
			t.Parallel()
			p := p.of(t)
			r := p.followed("job", "follow-up", ids[cli], "second prompt")
			p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
			p.oneSession(r, 2, "first.txt", "second.txt")
		})
	}
}
