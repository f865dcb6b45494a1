//go:build harness

package harness_test

import (
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
)

// forward gives a job to Codex whose account has used its quota up, with Claude behind
// it: it goes on there at once, in the same turn, and both are told apart in its record.
func forward(p *place) {
	t := p.T
	args := p.args(task{cli: harness.Codex, scenario: "quota", nonce: "forward"})
	claude, err := harness.Setup{CLI: harness.Claude, Home: mkdir(t, p.Dir+"/accounts/forward-claude"), BaseURL: p.model.URL("success", "forward"), Retries: 1}.Env()
	if err != nil {
		t.Fatal(err)
	}
	prompt := args[len(args)-1]
	args = append(args[:len(args)-1], "--retries", "1", "--fallback", "codex:other", "--fallback", "claude", "--env", "ANTHROPIC_BASE_URL="+value(claude, "ANTHROPIC_BASE_URL"), prompt)
	begun := time.Now()
	r := p.followed(args...)
	p.want(r, fleet.Succeeded, fleet.ClassOK, "1 new commit verified")
	if r.Requested.Harness != "codex" || r.Effective.Harness != "claude" || len(r.Transitions) != 1 || len(r.Attempts) != 2 {
		t.Fatalf("asked for %s, run with %s, transitions %+v, attempts %+v", r.Requested, r.Effective, r.Transitions, r.Attempts)
	}
	m := r.Transitions[0]
	if m.Class != fleet.ClassQuotaExhausted || m.From.Harness != "codex" || m.To.Harness != "claude" || len(m.Skipped) != 1 || m.Skipped[0].Model != "other" {
		t.Errorf("transition %+v; want one for a quota, past the other model of the same account", m)
	}
	if a := r.Attempts[0]; a.Harness != "codex" || a.Provider != "openai" || a.Class != fleet.ClassQuotaExhausted {
		t.Errorf("the first attempt is %+v", a)
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("it took %v; a fallback waits for nothing", d)
	}
	if d := p.Run("job", "diff", string(r.ID)); !strings.Contains(d, "+++ b/"+fakemodel.HelloPath) {
		t.Errorf("the diff lacks the file:\n%s", d)
	}
	p.closeCircuits()
}

// goesOn has an agent reach its limit after it wrote a file: nothing else may take over,
// and once the limit is gone the same session goes on in the same worktree.
func goesOn(p *place, cli harness.CLI) {
	t := p.T
	p.Run("hub", "set", fleet.SettingRetryPause, "1s")
	args := p.args(task{cli: cli, scenario: "limit-between", nonce: string(cli) + "-goes-on", flags: []string{"--retries", "2", "--fallback", "opencode"}})
	id := p.Detach(args...)
	p.Eventually(time.Minute, "job "+id+" waits for another try", func() bool {
		j := p.Job(id)
		if j.State.Ended() {
			t.Fatalf("job %s is %s: %+v", id, j.State, j.Reason)
		}
		return j.State == fleet.Queued && len(j.Attempts) == 1
	})
	p.closeCircuits()
	p.Eventually(2*time.Minute, "job "+id+" ends", func() bool { return p.Job(id).State.Ended() })
	r := p.Job(id)
	if r.State != fleet.Succeeded || len(r.Attempts) != 2 || len(r.Transitions) != 0 || r.Effective.Harness != string(cli) || !r.Attempts[0].Class.Provider() {
		t.Fatalf("job %s is %s with %s, attempts %+v, transitions %+v", id, r.State, r.Effective, r.Attempts, r.Transitions)
	}
	d := p.Run("job", "diff", id)
	for _, f := range []string{"first.txt", "second.txt"} {
		if !strings.Contains(d, "+++ b/"+f) {
			t.Errorf("the diff lacks %s:\n%s", f, d)
		}
	}
}
