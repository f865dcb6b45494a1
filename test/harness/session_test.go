//go:build harness

package harness_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
)

// byHand has one turn with a CLI as a person has it on the machine of the runner, with
// the same account and in a directory of their own.
func (p *place) byHand(ctx context.Context, cli harness.CLI, dir, prompt string) (session string, err error) {
	setup := harness.Setup{CLI: cli, Home: filepath.Join(p.Dir, "home"), BaseURL: p.model.URL(fakemodel.Prompted, "r1"), Key: fakemodel.GoodKey, Retries: 1}
	argv, err := setup.Argv("")
	if err != nil {
		return "", err
	}
	env, err := setup.Env()
	if err != nil {
		return "", err
	}
	res, err := process.Run(ctx, process.Cmd{Argv: argv, Dir: dir, Env: env, Stdin: strings.NewReader(prompt)})
	id := sessionRE.FindSubmatch(res.Stdout)
	if err != nil || id == nil {
		return "", errors.Join(err, errors.New("the CLI says\n"+string(res.Stdout)+string(res.Stderr)))
	}
	return string(id[1]), nil
}

// TestSessionsOfPeople: what people did with the CLIs on the machine is found there, and a
// job that waits for the machine goes on with it, through the same CLI and in the same
// directory. The model itself refuses a turn that lacks what was said before.
func TestSessionsOfPeople(t *testing.T) {
	t.Parallel()
	p := newHome(t, harness.All...)
	type work struct {
		cli          harness.CLI
		dir, session string
		mark, job    string
		err          error
	}
	var all []*work
	var hands sync.WaitGroup
	for _, cli := range harness.All {
		w := &work{cli: cli, dir: mkdir(t, filepath.Join(p.Dir, "src", string(cli))), mark: fakemodel.Prompt("resume", "hand-"+string(cli))}
		all = append(all, w)
		hands.Go(func() {
			w.session, w.err = p.byHand(t.Context(), cli, w.dir, "Write first.txt for "+string(cli)+". "+w.mark)
		})
	}
	hands.Wait()
	for _, w := range all {
		if w.err != nil {
			t.Fatalf("%s: %v", w.cli, w.err)
		}
	}

	list := p.Run("session", "list", "r1")
	for _, w := range all {
		found := false
		for line := range strings.Lines(list) {
			found = found || strings.Contains(line, w.session) && strings.Contains(line, string(w.cli)) && strings.Contains(line, w.dir)
		}
		if !found {
			t.Errorf("the session %s of %s in %s is not in the list:\n%s", w.session, w.cli, w.dir, list)
		}
		shown := p.Run("session", "show", "r1", w.session)
		for _, word := range []string{w.dir, w.cli.Model()[strings.Index(w.cli.Model(), "/")+1:], "Write first.txt for " + string(w.cli), "Turn one is done"} {
			if !strings.Contains(shown, word) {
				t.Errorf("%s: want %q in\n%s", w.cli, word, shown)
			}
		}
	}

	// The machine goes away. What people ask for waits.
	p.Runner.Stop()
	p.Eventually(20*time.Second, "the runner is away", func() bool { return p.runner("r1").State != "online" })
	rules, err := os.OpenFile(filepath.Join(p.Dir, "runner", "runner.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rules.WriteString("session_dirs: [" + filepath.Join(p.Dir, "src") + "]\n")
	if err := errors.Join(err, rules.Close()); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		w.job = strings.TrimSpace(p.Run("session", "resume", "r1", w.session, "Write second.txt. "+w.mark, "--detach"))
	}
	for _, w := range all {
		p.Eventually(20*time.Second, "the job of "+string(w.cli)+" waits for the runner", func() bool {
			var e api.Explanation
			p.JSON(&e, "job", "explain", w.job, "--json")
			return len(e.Runners) == 1 && e.Runners[0].Code == fleet.Offline
		})
	}

	p.StartRunner()
	for _, w := range all {
		j := p.Ended(w.job, 2*time.Minute)
		// What was changed in a person's own directory is theirs to look at.
		if j.State != fleet.NeedsReview || j.FailureClass != fleet.ClassOK || j.SessionID != w.session || j.Harness != string(w.cli) || j.Attempt != 1 {
			t.Errorf("the job of %s is %s (%s), class %s, in attempt %d, session %s; want needs_review, ok, in the first, session %s", w.cli, j.State, j.Reason.Detail, j.FailureClass, j.Attempt, j.SessionID, w.session)
			t.Logf("its raw output:\n%s", p.Run("job", "logs", w.job, "--raw"))
			continue
		}
		for name, want := range map[string]string{"first.txt": "written in turn one\n", "second.txt": "written in turn two\n"} {
			if b, err := os.ReadFile(filepath.Join(w.dir, name)); err != nil || string(b) != want {
				t.Errorf("%s: %s holds %q (%v), want %q", w.cli, name, b, err, want)
			}
		}
		if n := p.model.Served("resume", "hand-"+string(w.cli)); n != 4 {
			t.Errorf("the script of %s answered %d requests, want 4", w.cli, n)
		}
		if found, _ := filepath.Glob(filepath.Join(p.Dir, "runner", "trees", "work", w.job)); len(found) > 0 {
			t.Errorf("%s worked in a worktree: %q", w.cli, found)
		}
		if shown := p.Run("session", "show", "r1", w.session); !strings.Contains(shown, "Turn two is done") {
			t.Errorf("%s: the session has not what the job did:\n%s", w.cli, shown)
		}
	}
}
