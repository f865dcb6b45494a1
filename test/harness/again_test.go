//go:build harness

package harness_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
)

// TestAgain has providers fail for a while, and jobs end in ways that are nobody's
// fault but their own.
func TestAgain(t *testing.T) {
	t.Parallel()
	p := newHome(t, harness.Codex, harness.Claude)
	p.Run("hub", "set", "retry_pause", "1s")
	t.Run("blameless", func(t *testing.T) { blameless(p.of(t)) })
	t.Run("side by side", func(t *testing.T) {
		t.Run("comes through", func(t *testing.T) { t.Parallel(); comesThrough(p.of(t), harness.Codex) })
		t.Run("spent", func(t *testing.T) { t.Parallel(); spent(p.of(t), harness.Claude) })
	})
	if soak {
		t.Run("the other way round", func(t *testing.T) {
			t.Run("comes through", func(t *testing.T) { t.Parallel(); comesThrough(p.of(t), harness.Claude) })
			t.Run("spent", func(t *testing.T) { t.Parallel(); spent(p.of(t), harness.Codex) })
		})
	}
	hubKilled(p)
}

// blameless: a failing command, a cancel, a program that is not there and a CLI that
// says nothing more are no fault of a provider. None is tried again either.
func blameless(p *place) {
	for name, check := range map[string]func(*place){
		"command fails": func(p *place) {
			r := p.do(task{cli: harness.Codex, scenario: "command-fails", nonce: "blameless-1", again: 3})
			p.want(r, fleet.NeedsReview, fleet.ClassOK, "no new commit")
			p.once(r.Job)
		},
		"cancel": func(p *place) {
			id := p.start(task{cli: harness.Claude, scenario: "stubborn-command", nonce: "blameless-2", again: 3})
			p.Run("job", "cancel", id)
			j := p.Ended(id, time.Minute)
			if j.State != fleet.Cancelled || j.Budget.Used != 0 {
				p.T.Errorf("job is %s, %d executions; want cancelled, and that it cost nothing", j.State, j.Budget.Used)
			}
		},
		"no program": func(p *place) {
			out, errs, code := p.Try("exec", "--", filepath.Join(p.Dir, "no-such-program"))
			if code == 0 {
				p.T.Errorf("a program that is not there succeeds:\n%s\n%s", out, errs)
			}
		},
		"stalled codex":  func(p *place) { stalls(p, harness.Codex) },
		"stalled claude": func(p *place) { stalls(p, harness.Claude) },
	} {
		p.T.Run(name, func(t *testing.T) { t.Parallel(); check(p.of(t)) })
	}
	p.T.Cleanup(func() {
		for _, provider := range []string{"openai", "anthropic", ""} {
			p.none(provider, "jobs that failed by themselves")
		}
	})
}

func (p *place) once(j api.Job) {
	p.T.Helper()
	if len(j.Attempts) != 1 || j.Budget.Used != 1 {
		p.T.Errorf("job %s has attempts %+v, %d executions; want one", j.ID, j.Attempts, j.Budget.Used)
	}
}

// stalls: a CLI that hangs after its first tool is not said to have failed.
func stalls(p *place, cli harness.CLI) {
	r := p.do(task{cli: cli, scenario: "acted-hang", nonce: "stall-" + string(cli), again: 3, flags: []string{"--idle-timeout", "8s"}})
	p.want(r, fleet.Failed, fleet.ClassStalled, "")
	if r.Reason.Code != "stalled" {
		p.T.Errorf("reason %+v; want the code stalled", r.Reason)
	}
	p.once(r.Job)
}

// comesThrough: a provider fails in two executions, and the third goes on where they were.
func comesThrough(p *place, cli harness.CLI) {
	r := p.do(task{cli: cli, scenario: "down-" + string(cli), nonce: "through-" + string(cli), prompt: "first prompt", again: 3})
	p.want(r, fleet.Succeeded, fleet.ClassOK, "verified")
	p.tried(r, string(cli)+" provider_unavailable", string(cli)+" provider_unavailable", string(cli)+" ok")
	if r.Budget.Of != 4 || len(r.Turns) != 1 || len(r.Transitions) != 0 {
		p.T.Errorf("%d turns, budget of %d, transitions %+v; want 1, 4, none", len(r.Turns), r.Budget.Of, r.Transitions)
	}
	if len(r.Attempts) == 3 { // a pause, then one twice as long
		for i, pause := range []time.Duration{time.Second, 2 * time.Second} {
			if got := r.Attempts[i+1].AssignedAt.Sub(*r.Attempts[i].FinishedAt); got < pause {
				p.T.Errorf("attempt %d was assigned %v after the one before; want a pause of %v", i+2, got, pause)
			}
		}
	}
	p.oneSessionOf(r, "first.txt", "second.txt")
}

// spent: a budget that is used up waits for a person, who gives a whole new one.
func spent(p *place, cli harness.CLI) {
	k := task{cli: cli, scenario: "down-" + string(cli), nonce: "spent-" + string(cli), prompt: "first prompt", again: 1}
	r := p.do(k)
	p.want(r, fleet.Blocked, fleet.ClassProviderUnavailable, "")
	if r.Budget != (api.Executions{Used: 2, Of: 2}) || r.Reason.Code != "budget" {
		p.T.Errorf("budget %+v, reason %+v; want 2 of 2 used, and that said", r.Budget, r.Reason)
	}
	id := string(r.ID)
	if _, errs, code := p.Try("job", "retry", id); code == 0 || !strings.Contains(errs, "--grant") {
		p.T.Errorf("a retry without a new budget: exit %d\n%s", code, errs)
	}
	p.Run("job", "retry", "--grant", id)
	j := p.Ended(id, time.Minute)
	if j.State != fleet.Succeeded || len(j.Attempts) != 3 || j.Budget.Of != 4 {
		p.T.Errorf("job is %s with attempts %+v, budget %+v; want succeeded in the third of 4", j.State, j.Attempts, j.Budget)
	}
}

// hubKilled: what keeps work away, and what a job has used of its budget, outlive the hub.
func hubKilled(p *place) {
	p.Run("hub", "set", "retry_pause", "20s")
	p.want(p.do(task{cli: harness.Claude, scenario: "rate-limit", nonce: "hub-1"}), fleet.Failed, fleet.ClassRateLimited, "")
	p.Run("circuit", "open", "--provider", "anthropic", "--model", "claude-x", "--reason", "to be kept")
	id := p.Detach(p.args(task{cli: harness.Codex, scenario: "down-codex", nonce: "hub-2", prompt: "first prompt", again: 3})...)
	p.Eventually(time.Minute, "job "+id+" waits for its retry", func() bool { j := p.Job(id); return j.State == fleet.Queued && j.Budget.Used == 1 })
	circuits, job := p.circuits(), p.Job(id)
	if len(circuits) < 2 || job.NotBefore == nil {
		p.T.Fatalf("circuits %+v, job %+v; want two and a pause", circuits, job)
	}
	p.Hub.Kill()
	p.StartHub()
	after := p.Job(id)
	if diff := cmp.Diff(circuits, p.circuits()); diff != "" {
		p.T.Errorf("the circuits before and after the kill: -before +after\n%s", diff)
	}
	if diff := cmp.Diff([]any{job.Budget, job.NotBefore, job.Attempts, job.Turns}, []any{after.Budget, after.NotBefore, after.Attempts, after.Turns}); diff != "" {
		p.T.Errorf("the job before and after the kill: -before +after\n%s", diff)
	}
	p.Run("hub", "set", "retry_pause", "1s")
	p.Eventually(time.Minute, "job "+id+" goes on", func() bool { return p.Job(id).Budget.Used >= 2 })
	if j := p.Ended(id, time.Minute); j.State != fleet.Succeeded || j.Budget.Used != 3 {
		p.T.Errorf("job is %s after %d executions; want succeeded in the third", j.State, j.Budget.Used)
	}
}

// TestCredentials: an account that was refused is asked no more until its runner is
// signed in with another one, or a person says that it is repaired.
func TestCredentials(t *testing.T) {
	t.Parallel()
	p := start(t, &place{home: true, gone: true}, []harness.CLI{harness.Codex})
	// Codex's own sign-in, which it keeps in the runner's home.
	home := filepath.Join(p.Dir, "home", ".codex")
	p.Write(filepath.Join(home, "config.toml"), "model = \""+harness.Codex.Model()+"\"\nopenai_base_url = \""+p.model.OpenAIURL("closure", "signed-in")+
		"\"\n\n[analytics]\nenabled = false\n\n[features]\nplugins = false\n")
	account := func() string {
		t.Helper()
		for _, h := range p.runner("r1").Harnesses {
			if h.Name == "codex" {
				return h.Account
			}
		}
		return ""
	}
	signIn := func(key string) {
		t.Helper()
		was := account()
		file := p.Write(filepath.Join(home, "auth.json.new"), `{"auth_mode":"apikey","OPENAI_API_KEY":"`+key+`"}`)
		if err := os.Rename(file, filepath.Join(home, "auth.json")); err != nil {
			t.Fatal(err)
		}
		p.Eventually(time.Minute, "the hub knows of the sign-in", func() bool { now := account(); return now != "" && now != was })
	}
	args := []string{"run", "--harness", "codex", "--retries", "0", "--timeout", "3m", "--repo", p.repo, "Look at greet.sh."}
	signIn("sk-bad-one")
	p.want(p.followed(args...), fleet.Failed, fleet.ClassAuth, "")
	c := p.circuit(fleet.CircuitAuth, "openai")
	if c.State != fleet.CircuitBlocked || c.Until != nil || c.Account == "" || strings.Contains(c.Text, "sk-bad") {
		t.Errorf("circuit %+v; want a blocked one of the account, without its key", c)
	}
	held := p.Detach(args...)
	if why := p.reason(held, "r1", fleet.CircuitRefuses); why.Until != nil || !strings.Contains(why.Change, "other credentials") || !strings.Contains(why.Change, c.Key) {
		t.Errorf("r1 %s; change: %s", why.Detail, why.Change)
	}
	signIn(fakemodel.GoodKey)
	if j := p.Ended(held, 90*time.Second); j.State != fleet.Succeeded || j.Budget.Used != 1 {
		t.Errorf("the held job is %s after a new sign-in, reason %+v; want succeeded", j.State, j.Reason)
	}
	p.none("openai", "a sign-in that works")

	// A person's word lets it be tried once more, whatever the account.
	signIn("sk-bad-two")
	p.want(p.followed(args...), fleet.Failed, fleet.ClassAuth, "")
	c = p.circuit(fleet.CircuitAuth, "openai")
	held = p.Detach(args...)
	p.reason(held, "r1", fleet.CircuitRefuses)
	if _, errs, code := p.Try("circuit", "reset", c.Key); code == 0 || !strings.Contains(errs, "--repaired") {
		t.Errorf("a blocked circuit is reset without a word about what was repaired: exit %d\n%s", code, errs)
	}
	p.Run("circuit", "reset", c.Key, "--repaired", "paid the bill")
	if j := p.Ended(held, time.Minute); j.FailureClass != fleet.ClassAuth {
		t.Errorf("the held job is %s, class %s, after the reset; want that it was tried and refused", j.State, j.FailureClass)
	}
	if again := p.circuit(fleet.CircuitAuth, "openai"); again.ID != c.ID || again.Generation != c.Generation+1 || again.Repaired != "paid the bill" {
		t.Errorf("circuit %+v after %+v; want the same one again, a generation later", again, c)
	}

	// A CLI that can't be started says nothing of its provider.
	p.repair("openai")
	if err := os.Remove(p.program(harness.Codex)); err != nil {
		t.Fatal(err)
	}
	p.want(p.followed(args...), fleet.Failed, fleet.ClassHarnessStartup, "")
	p.none("openai", "a CLI that is not there")
}
