//go:build harness

package harness_test

import (
	"slices"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/harness"
)

// TestChoices has providers refuse in the middle of a list of choices.
func TestChoices(t *testing.T) {
	t.Parallel()
	p := newHome(t, harness.All...)
	p.janitor()
	p.Run("hub", "set", "retry_pause", "1s")
	for name, check := range map[string]func(*place){"chain": chain, "account": sameAccount, "session": sameHarness, "acted": neverTakenOver, "limit": goesOn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(p.of(t))
		})
	}
}

// classes gives how each attempt of a job's turn ended, and with what it was made.
func (r result) attempts() (out []string) {
	for _, a := range r.Attempts {
		out = append(out, strings.TrimSuffix(a.Harness+":"+a.Effective, ":")+" "+string(a.Class))
	}
	return out
}

// tried fails the test unless a job's attempts were these, all on one runner.
func (p *place) tried(r result, want ...string) {
	p.T.Helper()
	if got := r.attempts(); !slices.Equal(got, want) {
		p.T.Errorf("job %s was tried by %q; want %q", r.ID, got, want)
	}
	if r.Budget.Used != len(want) {
		p.T.Errorf("%d executions of job %s are counted; want %d", r.Budget.Used, r.ID, len(want))
	}
}

// chain: refused before anything was done, a job goes on with one harness after the other.
func chain(p *place) {
	open := harness.OpenCode.Model()
	k := task{cli: harness.Codex, scenario: "chain", again: 3, flags: []string{"--model", harness.Codex.Model()},
		then: []fleet.Choice{{Harness: "claude"}, {Harness: "opencode", Model: open}}}
	r := p.do(k)
	p.want(r, fleet.Succeeded, fleet.ClassOK, "1 new commit verified")
	p.tried(r, "codex:"+harness.Codex.Model()+" quota_exhausted", "claude model_unavailable", "opencode:"+open+" ok")
	if len(r.Transitions) != 2 {
		p.T.Fatalf("transitions %+v; want two", r.Transitions)
	}
	for i, class := range []fleet.FailureClass{fleet.ClassQuotaExhausted, fleet.ClassModelUnavailable} {
		if m := r.Transitions[i]; m.Class != class || m.Attempt != i+1 || m.To != r.Spec.Fallbacks[i] || len(m.Skipped) != 0 {
			p.T.Errorf("transition %d is %+v", i+1, m)
		}
	}
	if r.Requested != (fleet.Choice{Harness: "codex", Model: harness.Codex.Model()}) || r.Effective != (fleet.Choice{Harness: "opencode", Model: open}) ||
		r.ReportedModel == "" || !strings.HasSuffix(open, r.ReportedModel) {
		p.T.Errorf("requested %+v, effective %+v, reported %q", r.Requested, r.Effective, r.ReportedModel)
	}
	// One job, one checkout: each attempt began from the same commit in the same place.
	if len(r.Turns) != 1 || r.BaseCommit != p.Git(p.repo, "rev-parse", "HEAD") || !p.exists(string(r.ID), "README.md") {
		p.T.Errorf("%d turns, base %s", len(r.Turns), r.BaseCommit)
	}
	out := p.Run("job", "get", string(r.ID))
	for _, want := range []string{"asked for codex:" + harness.Codex.Model(), "effective opencode:" + open, "reported " + r.ReportedModel, "quota exhausted of attempt 1"} {
		if !strings.Contains(out, want) {
			p.T.Errorf("job get lacks %q:\n%s", want, out)
		}
	}
}

// sameAccount: where a quota is used up, no other choice of that account is tried.
func sameAccount(p *place) {
	r := p.do(task{cli: harness.Codex, scenario: "codex-no-quota", again: 3, then: []fleet.Choice{{Harness: "codex", Model: "model-y"}, {Harness: "claude"}}})
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	p.tried(r, "codex quota_exhausted", "claude ok")
	if len(r.Transitions) != 1 || !slices.Equal(r.Transitions[0].Skipped, []fleet.Choice{{Harness: "codex", Model: "model-y"}}) {
		p.T.Errorf("transitions %+v; want one past codex:model-y", r.Transitions)
	}
}

// sameHarness: once something was done, the session goes on with the next model of the
// same harness, past another harness.
func sameHarness(p *place) {
	for _, c := range []struct {
		cli   harness.CLI
		other harness.CLI
		model string
	}{{harness.Codex, harness.Claude, "model-z"}, {harness.Claude, harness.Codex, "claude-opus-4-1"}} {
		if c.cli == harness.Claude && !soak {
			continue
		}
		r := p.do(task{cli: c.cli, scenario: "acted-model-" + string(c.cli), prompt: "first prompt", again: 3,
			then: []fleet.Choice{{Harness: string(c.other)}, {Harness: string(c.cli), Model: c.model}}})
		p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
		p.tried(r, string(c.cli)+" model_unavailable", string(c.cli)+":"+c.model+" ok")
		if len(r.Transitions) != 1 || len(r.Transitions[0].Skipped) != 1 || r.Transitions[0].Skipped[0].Harness != string(c.other) {
			p.T.Errorf("transitions %+v; want one past %s", r.Transitions, c.other)
		}
		p.oneSessionOf(r, "first.txt", "second.txt")
	}
}

// oneSessionOf fails the test unless all attempts of a job's turn were made in one
// session on one runner, and the result has the files of all.
func (p *place) oneSessionOf(r result, files ...string) {
	p.T.Helper()
	for _, a := range r.Turns[len(r.Turns)-1].Attempts {
		if a.SessionID == "" || a.SessionID != r.SessionID || a.Runner != r.RunnerID {
			p.T.Errorf("attempt %d was in session %q on %s; want %q on %s", a.N, a.SessionID, a.Runner, r.SessionID, r.RunnerID)
		}
	}
	diff := p.Run("job", "diff", string(r.ID))
	for _, f := range files {
		if !strings.Contains(diff, "+++ b/"+f) {
			p.T.Errorf("the diff of job %s lacks %s:\n%s", r.ID, f, diff)
		}
	}
}

// neverTakenOver: once something was done, no other harness takes over, whatever happens.
func neverTakenOver(p *place) {
	r := p.do(task{cli: harness.Codex, scenario: "acted-quota", nonce: "acted", prompt: "first prompt", again: 1, then: []fleet.Choice{{Harness: "claude"}}})
	p.want(r, fleet.Blocked, fleet.ClassQuotaExhausted, "")
	p.tried(r, "codex quota_exhausted", "codex quota_exhausted")
	if r.Reason.Code != "budget" || !strings.Contains(r.Reason.Detail, "--grant") || !strings.Contains(r.Reason.Detail, "uota") || len(r.Transitions) != 0 {
		p.T.Errorf("reason %+v, transitions %+v; want the budget, the last error and no transition", r.Reason, r.Transitions)
	}
}

// goesOn: an agent that reached its limit after it did something goes on where it was
// once the limit is gone, and no other one in its place.
func goesOn(p *place) {
	for _, cli := range sampled() {
		if cli == harness.OpenCode {
			continue // it has a limit with no end tried again by itself
		}
		r := p.do(task{cli: cli, scenario: "limit-between", nonce: "limit-" + string(cli), again: 2, then: []fleet.Choice{{Harness: "opencode"}}})
		p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
		if len(r.Attempts) != 2 || !r.Attempts[0].Class.Provider() || len(r.Transitions) != 0 || r.Effective.Harness != string(cli) {
			p.T.Errorf("with %s, attempts %+v, transitions %+v; want two of %s", r.Effective, r.Attempts, r.Transitions, cli)
		}
		p.oneSessionOf(r, "first.txt", "second.txt")
	}
}
