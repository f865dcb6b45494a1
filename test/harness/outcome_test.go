//go:build harness

package harness_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
)

// TestWholePath gives jobs to the real CLIs through one hub and one runner.
func TestWholePath(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.janitor()
	t.Run("list", func(t *testing.T) { p.of(t).listed() })
	for _, cli := range harness.All {
		t.Run(string(cli), func(t *testing.T) {
			t.Parallel()
			for name, check := range map[string]func(*place, harness.CLI){
				"success": success, "environment": keysKept, "cancel": cancelled, "queue": queued, "wait": waits, "idle": idleWait,
				"own-repository": ownRepository, "gone": gone,
			} {
				if name == "idle" && cli != harness.Codex || name == "gone" && cli == harness.OpenCode {
					continue // the others give up by themselves; opencode has all its sessions in one file
				}
				t.Run(name, func(t *testing.T) { t.Parallel(); check(p.of(t), cli) })
			}
			for _, c := range cases {
				if !c.of(cli) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p := p.of(t)
					k := c.task
					k.cli, k.nonce = cli, string(cli)+"-"+c.name
					r := p.do(k)
					p.want(r, c.state, c.class, c.reason)
					if c.check != nil {
						c.check(p, r)
					}
				})
			}
		})
	}
}

// ending is a way for a turn to end.
type ending struct {
	name   string
	task   task
	only   []harness.CLI // these CLIs have it; none is all
	sample []harness.CLI // these are tried in every run, beside those of sampled
	state  fleet.State
	class  fleet.FailureClass
	reason string // part of a reason of the verdict
	check  func(*place, result)
}

func (c ending) of(cli harness.CLI) bool {
	if len(c.only) > 0 && !slices.Contains(c.only, cli) {
		return false
	}
	return slices.Contains(sampled(), cli) || slices.Contains(c.sample, cli)
}

var cases = []ending{
	{name: "commit", task: task{scenario: "commit"}, only: []harness.CLI{harness.Claude, harness.OpenCode},
		state: fleet.Succeeded, class: fleet.ClassOK, reason: "1 new commit verified", check: ownCommit},
	{name: "full", task: task{scenario: "commit", flags: []string{"--permissions", "full"}},
		state: fleet.Succeeded, class: fleet.ClassOK, reason: "1 new commit verified", check: func(p *place, r result) {
			ownCommit(p, r)
			if r.Permissions != fleet.PermFull {
				p.T.Errorf("permissions %q; want full", r.Permissions)
			}
		}},
	{name: "text-only", task: task{scenario: "text-only"}, state: fleet.NeedsReview, class: fleet.ClassOK, reason: "no new commit"},
	{name: "no-repository", task: task{scenario: "text-only", repo: "-"}, only: []harness.CLI{harness.Codex},
		state: fleet.NeedsReview, class: fleet.ClassOK, reason: "no repository"},
	{name: "command-fails", task: task{scenario: "command-fails"}, sample: []harness.CLI{harness.OpenCode},
		state: fleet.NeedsReview, class: fleet.ClassOK, reason: "no new commit", check: failedCommand},
	{name: "closure", task: task{scenario: "closure"}, state: fleet.Succeeded, class: fleet.ClassOK, reason: "greet.sh greets already"},
	{name: "daemon", task: task{scenario: "daemon"}, state: fleet.Succeeded, class: fleet.ClassOK, check: nothingLeft},
	{name: "daemon-full", task: task{scenario: "daemon", flags: []string{"--permissions", "full"}}, only: []harness.CLI{harness.Codex},
		state: fleet.Succeeded, class: fleet.ClassOK, check: nothingLeft},
	{name: "read", task: task{scenario: "success", flags: []string{"--permissions", "read"}},
		state: fleet.NeedsReview, class: fleet.ClassOK, reason: "no new commit", check: readOnly},

	{name: "rate-limit", task: task{scenario: "rate-limit"}, state: fleet.Failed, class: fleet.ClassRateLimited},
	{name: "rate-limit-once", task: task{scenario: "rate-limit-once"}, state: fleet.Succeeded, class: fleet.ClassOK},
	{name: "quota", task: task{scenario: "quota"}, sample: []harness.CLI{harness.OpenCode}, state: fleet.Failed, class: fleet.ClassQuotaExhausted},
	{name: "refusal-text", task: task{scenario: "refusal-text"}, sample: []harness.CLI{harness.OpenCode}, state: fleet.Failed, class: fleet.ClassQuotaExhausted,
		check: func(p *place, r result) {
			if r.ExitCode == nil || *r.ExitCode != 0 {
				p.T.Errorf("the CLI ended with %v; the point of the case is a refusal with exit code 0", r.ExitCode)
			}
		}},
	{name: "usage-limit", task: task{scenario: "usage-limit"}, only: []harness.CLI{harness.Codex, harness.OpenCode},
		state: fleet.Failed, class: fleet.ClassQuotaExhausted, check: resetTold},
	{name: "upgrade-plan", task: task{scenario: "upgrade-plan"}, state: fleet.Failed, class: fleet.ClassQuotaExhausted},
	{name: "model-missing", task: task{scenario: "model-missing"}, sample: []harness.CLI{harness.OpenCode}, state: fleet.Failed, class: fleet.ClassModelUnavailable},
	{name: "wrong-key", task: task{scenario: "success", badKey: true}, sample: []harness.CLI{harness.OpenCode}, state: fleet.Failed, class: fleet.ClassAuth},
	{name: "overloaded", task: task{scenario: "overloaded"}, only: []harness.CLI{harness.Codex, harness.Claude},
		state: fleet.Failed, class: fleet.ClassProviderUnavailable},
	{name: "context-overflow", task: task{scenario: "context-overflow"}, only: []harness.CLI{harness.Codex, harness.Claude},
		state: fleet.Failed, class: fleet.ClassTaskFailed},
	{name: "disconnect-once", task: task{scenario: "disconnect-once"}, state: fleet.Succeeded, class: fleet.ClassOK},
	{name: "truncate-once", task: task{scenario: "truncate-once"}, state: fleet.Succeeded, class: fleet.ClassOK},
	{name: "truncate-between", task: task{scenario: "truncate-between"}, only: []harness.CLI{harness.Codex}, state: fleet.Succeeded, class: fleet.ClassOK},
	{name: "truncate-between", task: task{scenario: "truncate-between"}, only: []harness.CLI{harness.Claude},
		state: fleet.Failed, class: fleet.ClassProviderUnavailable, reason: "broke off"},
}

func (p *place) listed() {
	p.T.Helper()
	for _, h := range p.runner("r1").Harnesses {
		if h.Name != "exec" && (h.Version == "" || h.SignedIn != "yes" || !filepath.IsAbs(h.Path) || len(h.Capabilities) == 0) {
			p.T.Errorf("the runner tells of %+v; want path, version, capabilities, and that it is signed in", h)
		}
	}
}

// success is a task that goes well, with all that must be recorded of it.
func success(p *place, cli harness.CLI) {
	t := p.T
	model := cli.Model()
	r := p.do(task{cli: cli, scenario: "success", nonce: string(cli) + "-good", flags: []string{"--model", model}})
	p.want(r, fleet.Succeeded, fleet.ClassOK, "1 new commit verified")
	e := r.Evidence
	if e == nil || e.CommitCount != 1 || e.RunnerCommit == "" || e.RunnerCommit != e.Tip || !e.Descends || !e.BundleChecked || e.Stat.Files != 1 ||
		e.Base != p.Git(p.repo, "rev-parse", "HEAD") || r.HeadCommit != e.Tip || r.BaseCommit != e.Base {
		t.Errorf("evidence %+v of base %s, head %s; want one verified commit of the runner", e, r.BaseCommit, r.HeadCommit)
	}
	if r.Usage.Input <= 0 || r.Usage.Output <= 0 {
		t.Errorf("usage %+v; want tokens in and out", r.Usage)
	}
	// What opencode reports has its provider's name before it, or not.
	if r.Model != model || r.ReportedModel != model && !strings.HasSuffix(model, "/"+r.ReportedModel) || r.ReportedModel == "" {
		t.Errorf("model asked for %q, reported %q; want %q twice", r.Model, r.ReportedModel, model)
	}
	if r.SessionID == "" || r.Permissions != fleet.PermWorkspace || r.Turn != 1 || r.Attempt != 1 {
		t.Errorf("session %q, permissions %q, turn %d, attempt %d; want a session, workspace, 1, 1", r.SessionID, r.Permissions, r.Turn, r.Attempt)
	}
	events := p.events(r.ID, 0)
	for what, ok := range map[string]func(fleet.Event) bool{
		"a file_change of hello.txt that is completed": func(e fleet.Event) bool {
			return e.Type == fleet.EventFileChange && e.Status == fleet.StatusCompleted && len(e.Changes) == 1 &&
				filepath.Base(e.Changes[0].Path) == fakemodel.HelloPath && e.Changes[0].Kind == "add" && e.ID != "" && !e.At.IsZero()
		},
		"a command_execution that ended with 0": func(e fleet.Event) bool {
			return e.Type == fleet.EventCommandExecution && e.Status == fleet.StatusCompleted && e.ExitCode != nil && *e.ExitCode == 0 &&
				strings.Contains(e.Command, "cat "+fakemodel.HelloPath) && strings.Contains(e.Output, fakemodel.HelloText)
		},
		"the closing message": func(e fleet.Event) bool {
			return e.Type == fleet.EventAgentMessage && e.Text == "Done: hello.txt is there."
		},
		"the usage": func(e fleet.Event) bool {
			return e.Type == fleet.EventUsage && e.Usage != nil && e.Usage.OutputTokens > 0
		},
	} {
		if event(events, ok) == nil {
			t.Errorf("no event is %s:\n%s", what, told(events))
		}
	}
	if d := p.Run("job", "diff", string(r.ID)); !strings.Contains(d, "+++ b/"+fakemodel.HelloPath) || !strings.Contains(d, "+hello from the agent") {
		t.Errorf("the diff lacks the file:\n%s", d)
	}
	if !strings.Contains(r.stdout, "Done: hello.txt is there.") || !strings.Contains(r.stdout, fakemodel.HelloPath) {
		t.Errorf("what the follower saw lacks the message or the file:\n%s", r.stdout)
	}
	first := ""
	for _, q := range p.model.Requests("success", string(cli)+"-good") {
		if q.Kind == fakemodel.Scripted && first == "" {
			first = q.Text()
		}
	}
	if !strings.Contains(first, "Create hello.txt.") {
		t.Error("the first request does not carry the prompt")
	}
	p.parsed(cli, r)
}

// parsed gives the recorded stream to `harness parse`, which must tell the same.
func (p *place) parsed(cli harness.CLI, r result) {
	p.T.Helper()
	out := p.piped(p.Run("job", "logs", string(r.ID), "--raw"), "harness", "parse", string(cli))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, `"type":"outcome"`) || !strings.Contains(last, `"class":"ok"`) || !strings.Contains(last, r.SessionID) {
		p.T.Errorf("harness parse ends with %s; want the outcome ok of session %s", last, r.SessionID)
	}
	if !strings.Contains(out, `"type":"file_change"`) || !strings.Contains(out, `"type":"command_execution"`) {
		p.T.Errorf("harness parse tells no file change or command:\n%s", out)
	}
}

// ownRepository works in the repository that this test belongs to.
func ownRepository(p *place, cli harness.CLI) {
	root := p.Git(".", "rev-parse", "--show-toplevel")
	head, refs := p.Git(root, "rev-parse", "HEAD"), p.Git(root, "for-each-ref", "--format=%(refname)")
	r := p.do(task{cli: cli, scenario: "success", nonce: string(cli) + "-own", repo: root})
	p.want(r, fleet.Succeeded, fleet.ClassOK, "1 new commit verified")
	// Others may commit to it meanwhile: the base is the commit of then, or a later one.
	if r.BaseCommit != head {
		p.Git(root, "merge-base", "--is-ancestor", head, r.BaseCommit)
	}
	if now := p.Git(root, "for-each-ref", "--format=%(refname)"); now != refs {
		p.T.Errorf("the repository's refs were\n%s\nand are\n%s", refs, now)
	}
	if d := p.Run("job", "diff", string(r.ID)); strings.Count(d, "diff --git") != 1 || !strings.Contains(d, "+++ b/"+fakemodel.HelloPath) {
		p.T.Errorf("the diff is not of hello.txt alone:\n%s", d)
	}
}

func ownCommit(p *place, r result) {
	e := r.Evidence
	if e.RunnerCommit != "" || len(e.Commits) != 1 || e.Commits[0].Subject != "Add hello.txt" || !strings.HasPrefix(e.Commits[0].Author, "Agent") {
		p.T.Errorf("commits %+v, of them the runner's %q; want the agent's one", e.Commits, e.RunnerCommit)
	}
}

func failedCommand(p *place, r result) {
	events := p.events(r.ID, 0)
	if event(events, func(e fleet.Event) bool {
		return e.Type == fleet.EventCommandExecution && e.ExitCode != nil && *e.ExitCode == 3 && strings.Contains(e.Output, "to-stdout") &&
			strings.Contains(e.Output, "to-stderr")
	}) == nil {
		p.T.Errorf("no command_execution with exit code 3 and both its outputs:\n%s", told(events))
	}
}

func readOnly(p *place, r result) {
	if r.Permissions != fleet.PermRead || r.Evidence.CommitCount != 0 || r.Evidence.RescueRef != "" || p.exists(string(r.ID), fakemodel.HelloPath) {
		p.T.Errorf("permissions %q, evidence %+v; want that nothing was written", r.Permissions, r.Evidence)
	}
}

func nothingLeft(p *place, r result) {
	mark := "tugline-child-" + r.nonce + " " // with its argument; the other job of a daemon runs beside it
	for _, left := range p.Marked() {
		if strings.Contains(left, mark) {
			p.T.Errorf("the daemon survived its job: %s", left)
		}
	}
	sandboxed := r.Harness == string(harness.Codex) && r.Permissions != fleet.PermFull // Codex's sandbox ends it itself
	if !sandboxed && r.Evidence.Swept == 0 {
		p.T.Errorf("evidence %+v; want that a process was swept", r.Evidence)
	}
}

func resetTold(p *place, r result) {
	want := time.Unix(fakemodel.LimitResetsAt, 0).Truncate(time.Minute)
	if r.Harness == string(harness.OpenCode) { // it hears of a wait, not of a time
		want = r.FinishedAt.Add(time.Hour)
	}
	if r.ResetAt == nil || r.ResetAt.Sub(want).Abs() > time.Minute {
		p.T.Errorf("reset_at is %v; want about %v", r.ResetAt, want.UTC())
	}
}

// keysKept looks which variables reach the agent's own commands.
func keysKept(p *place, cli harness.CLI) {
	r := p.do(task{cli: cli, scenario: "environment"})
	events := p.events(r.ID, 0)
	e := event(events, func(e fleet.Event) bool { return e.Type == fleet.EventCommandExecution && e.ExitCode != nil })
	if e == nil {
		p.T.Fatalf("no command was run:\n%s", told(events))
	}
	names := strings.Fields(e.Output)
	for _, want := range []string{"PATH", "HOME", "TUGLINE_JOB_ID", "TUGLINE_CLOSURE_FILE"} {
		if !slices.Contains(names, want) {
			p.T.Errorf("the command lacks %s: %s", want, e.Output)
		}
	}
	for _, name := range names {
		for _, part := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD"} {
			if strings.Contains(name, part) {
				p.T.Errorf("the command sees %s", name)
			}
		}
	}
}
