//go:build harness

package harness_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
	"tugline.dev/tugline/test/mesh"
)

// place is a hub, a runner that finds the real CLIs, and the model they talk to.
type place struct {
	*mesh.Mesh
	model *fakemodel.Server
	repo  string
	home  bool // each CLI has one address, in its runner's home, and its script from the prompt
	gone  bool // each CLI is a file of the place, which a test may take away
}

// badKey is what the owner's store on the runner has under the name of every key.
const badKey = "sk-bad-0123456789"

// atOnce is how many jobs the runner of a place takes: half of the time a CLI waits.
const atOnce = 3

// newPlace starts everything. Each job brings the address of its own run of the model.
func newPlace(t *testing.T) *place { return start(t, &place{}, harness.All) }

// newHome starts everything with some CLIs. They are set up once for all jobs, so that
// all of them have one account.
func newHome(t *testing.T, clis ...harness.CLI) *place { return start(t, &place{home: true}, clis) }

func start(t *testing.T, p *place, clis []harness.CLI) *place {
	t.Helper()
	p.Mesh, p.model = mesh.New(t), startModel(t)
	p.Slots = atOnce
	for _, own := range ownScripts {
		if err := p.model.Add(own.name, own.script); err != nil {
			t.Fatal(err)
		}
	}
	p.Config, p.Vars = p.account("r1", filepath.Join(p.Dir, "home"), fakemodel.GoodKey, clis)
	secrets := p.Write(filepath.Join(p.Dir, "runner", "secrets.yaml"),
		fmt.Sprintf("%s: %s\n%s: %s\n", harness.Codex.KeyVar(), badKey, harness.Claude.KeyVar(), badKey))
	if err := os.Chmod(secrets, 0o600); err != nil {
		t.Fatal(err)
	}
	p.StartHub()
	p.StartRunner()
	p.Online()
	p.finds("r1", len(clis))
	p.repo = p.Repository("repo")
	return p
}

// account sets a runner's home up and gives the rest of its runner.yaml and of its
// environment. The CLIs are where runner.yaml says, their account is in the runner's own
// home and environment, as a user's would be.
func (p *place) account(runner, home, key string, clis []harness.CLI) (config string, vars []string) {
	p.T.Helper()
	base := p.model.URL("text-only", "nobody")
	if p.home {
		base = p.model.URL(fakemodel.Prompted, runner)
		vars = append(vars, "ANTHROPIC_BASE_URL="+base, "CLAUDE_CODE_MAX_RETRIES=1")
	}
	var b strings.Builder
	b.WriteString("permissions: full\nharnesses:\n  exec: {}\n")
	for _, cli := range clis {
		path, err := cli.Path()
		if err != nil {
			p.T.Fatal(err)
		}
		if p.gone {
			path = p.Write(p.program(cli), fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", path))
		}
		fmt.Fprintf(&b, "  %s: {path: %q}\n", cli, path)
		env, err := harness.Setup{CLI: cli, Home: mkdir(p.T, home), BaseURL: base, Key: "-", Retries: 1}.Env()
		if err != nil {
			p.T.Fatal(err)
		}
		if cli == harness.OpenCode {
			p.Write(filepath.Join(home, ".config", "opencode", "opencode.json"), value(env, "OPENCODE_CONFIG_CONTENT"))
		}
	}
	// E2E_MESH marks the processes of jobs too, so that none can be left unseen.
	fmt.Fprintf(&b, "env_names: [%s, E2E_MESH]\n", harness.Codex.KeyVar())
	return b.String(), append(vars, harness.Codex.KeyVar()+"="+key, harness.Claude.KeyVar()+"="+key)
}

// program is where a CLI is that may be taken away.
func (p *place) program(cli harness.CLI) string { return filepath.Join(p.Dir, "bin", string(cli)) }

// finds waits until a runner has found its CLIs.
func (p *place) finds(runner string, clis int) {
	p.T.Helper()
	p.Eventually(2*time.Minute, "the runner "+runner+" finds the CLIs", func() bool {
		return len(p.runner(runner).Harnesses) == 1+clis
	})
}

// startModel starts the scripted model. Its complaints fail the test, but for the one
// that must come: opencode may only read, and so offers no tool that writes.
func startModel(t *testing.T) *fakemodel.Server {
	t.Helper()
	s, err := fakemodel.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, c := range s.Complaints() {
			if !strings.Contains(c, "opencode-read: no tool of the client") {
				t.Errorf("model server: %s", c)
			}
		}
	})
	return s
}

func (p *place) runner(name string) api.Runner {
	p.T.Helper()
	var r api.Runner
	p.JSON(&r, "runner", "get", name, "--json")
	return r
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// value gives one variable of an environment.
func value(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// of gives the same place for one subtest.
func (p *place) of(t *testing.T) *place {
	m := *p.Mesh
	m.T = t
	q := *p
	q.Mesh = &m
	return &q
}

// task is one job of a CLI with one scenario.
type task struct {
	cli      harness.CLI
	scenario string
	nonce    string // "" is made of CLI and scenario
	repo     string // "" is that of the place, "-" is none
	prompt   string
	flags    []string
	badKey   bool
	retries  int // of the CLI; 0 is one
	again    int // automatic executions more; 0 is none
	then     []fleet.Choice
}

func (k task) run() string {
	if k.nonce != "" {
		return k.nonce
	}
	return string(k.cli) + "-" + k.scenario
}

// args is the command line that gives the task. What must differ from job to job
// goes along as the job's environment; keys never do.
func (p *place) args(k task) []string {
	p.T.Helper()
	args := []string{"run", "--harness", string(k.cli), "--timeout", "3m", "--retries", fmt.Sprint(k.again)}
	for _, c := range k.then {
		args = append(args, "--fallback", strings.TrimSuffix(c.Harness+":"+c.Model, ":"))
	}
	if !p.home {
		args = append(args, p.env(k)...)
	}
	switch k.repo {
	case "":
		args = append(args, "--repo", p.repo)
	case "-":
	default:
		args = append(args, "--repo", k.repo)
	}
	if k.badKey {
		args = append(args, "--secret", k.cli.KeyVar())
	}
	if k.prompt == "" {
		k.prompt = "Create hello.txt."
	}
	if p.home {
		k.prompt += " " + fakemodel.Prompt(k.scenario, k.run())
	}
	return append(append(args, k.flags...), k.prompt)
}

// env is what tells the CLI of a task of its scenario, as flags of its job.
func (p *place) env(k task) (flags []string) {
	p.T.Helper()
	env, err := harness.Setup{
		CLI: k.cli, Home: mkdir(p.T, filepath.Join(p.Dir, "accounts", k.run())),
		BaseURL: p.model.URL(k.scenario, k.run()), Retries: max(k.retries, 1),
	}.Env()
	if err != nil {
		p.T.Fatal(err)
	}
	for _, name := range []string{"CODEX_HOME", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_MAX_RETRIES", "OPENCODE_CONFIG_CONTENT"} {
		if v := value(env, name); v != "" {
			flags = append(flags, "--env", name+"="+v)
		}
	}
	return flags
}

// result is a followed job.
type result struct {
	api.Job
	nonce        string // of its task, where do has given it
	code         int
	stdout, errs string
}

// summaryRE finds the job's id in what a followed job ends with.
var summaryRE = regexp.MustCompile(`(?m)^job ([0-9a-z]{26}) `)

// do gives a task, follows it to its end and reads its record.
func (p *place) do(k task) result {
	p.T.Helper()
	r := p.followed(p.args(k)...)
	r.nonce = k.run()
	return r
}

func (p *place) followed(args ...string) result {
	p.T.Helper()
	begun := time.Now()
	r := result{}
	r.stdout, r.errs, r.code = p.Try(args...)
	id := summaryRE.FindStringSubmatch(r.errs)
	if id == nil {
		p.T.Fatalf("tugline %s: exit %d and no summary\n%s\n%s", strings.Join(args, " "), r.code, r.stdout, r.errs)
	}
	r.Job = p.Job(id[1])
	p.T.Logf("%s %s: %s, exit %d after %v", r.Harness, args[len(args)-1], r.State, r.code, time.Since(begun).Round(100*time.Millisecond))
	return r
}

// start gives a task without following it, and returns once its CLI has run a
// command that left fakemodel.StartedPath behind.
func (p *place) start(k task) string {
	p.T.Helper()
	args := p.args(k)
	id := p.Detach(args...)
	p.Eventually(60*time.Second, "the command of job "+id+" runs", func() bool { return p.exists(id, fakemodel.StartedPath) })
	return id
}

// exists says whether a job's worktree has a file.
func (p *place) exists(id, name string) bool {
	_, err := os.Stat(filepath.Join(p.Dir, "runner", "trees", "work", id, "repo", name))
	return err == nil
}

// want fails the test, with all that the job said, unless it ended as told.
func (p *place) want(r result, state fleet.State, class fleet.FailureClass, reason string) {
	p.T.Helper()
	code := map[fleet.State]int{fleet.Succeeded: 0, fleet.Failed: 1, fleet.Cancelled: 3, fleet.NeedsReview: 6, fleet.Blocked: 7}[state]
	reasons := ""
	if r.Verdict != nil {
		reasons = strings.Join(r.Verdict.Reasons, "; ")
	}
	if r.State == state && r.code == code && r.FailureClass == class && strings.Contains(reasons, reason) {
		return
	}
	p.T.Errorf("job %s is %s, exit %d, class %q, reasons %q; want %s, %d, %q and a reason with %q\n%s\n%s", r.ID, r.State, r.code,
		r.FailureClass, reasons, state, code, class, reason, r.stdout, r.errs)
	p.T.Logf("its raw output:\n%s", p.Run("job", "logs", string(r.ID), "--raw"))
}

// events gives the recorded events of a job's turn; 0 is the newest.
func (p *place) events(id fleet.JobID, turn int) []fleet.Event {
	p.T.Helper()
	var out []fleet.Event
	p.Eventually(20*time.Second, "the record of job "+string(id)+" is whole", func() bool { return p.Job(string(id)).Log.Sealed })
	for _, line := range strings.Split(strings.TrimSpace(p.Run("job", "logs", string(id), "--json", "--turn", fmt.Sprint(turn))), "\n") {
		var e fleet.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.T.Fatalf("an event of job %s: %v in %s", id, err, line)
		}
		out = append(out, e)
	}
	return out
}

func event(events []fleet.Event, ok func(fleet.Event) bool) *fleet.Event {
	if i := slices.IndexFunc(events, ok); i >= 0 {
		return &events[i]
	}
	return nil
}

// told is every event as text, for a failure's message.
func told(events []fleet.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.Write(e.Line())
	}
	return b.String()
}

// piped runs the command line with a text on its standard input.
func (p *place) piped(in string, args ...string) string {
	p.T.Helper()
	res, err := process.Run(p.T.Context(), process.Cmd{Argv: append([]string{mesh.Binary()}, args...), Dir: p.Dir, Env: p.Env(), Stdin: strings.NewReader(in)})
	if err != nil {
		p.T.Fatalf("tugline %s: %v\n%s\n%s", strings.Join(args, " "), err, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}
