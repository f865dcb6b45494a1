package runner

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// git runs git in a directory.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	res, err := process.Run(context.Background(), process.Cmd{Argv: append([]string{"git"}, args...), Dir: dir, Env: append(os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@x")})
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// repository makes a bare one with one commit.
func repository(t *testing.T) (bare, base string) {
	t.Helper()
	work := t.TempDir()
	bare = filepath.Join(t.TempDir(), "r.git")
	git(t, work, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "first")
	git(t, work, "clone", "-q", "--bare", work, bare)
	return bare, git(t, work, "rev-parse", "HEAD")
}

func allowFile(t *testing.T, more string) func(*Config) {
	dir := t.TempDir()
	if err := os.WriteFile(OwnerFile(dir), []byte("allow_file: true\ngit: {name: R, email: r@x}\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Dir = dir }
}

func (h *testHub) blob(d fleet.Digest) []byte {
	h.t.Helper()
	f, _, err := h.blobs.Open(d)
	if err != nil {
		h.t.Fatalf("blob %s: %v", d, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// A job in a repository: worktree, commit of what was left, evidence, blobs, push
// under a permit, and a follow-up that goes on in the same worktree.
func TestRepositoryJobWithPushAndFollowUp(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner(allowFile(t, ""))
	bare, base := repository(t)
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", "echo $TUGLINE_BRANCH; pwd; echo more >> README; cat count 2>/dev/null; echo x >> count"},
		Repo: &fleet.Repo{URL: bare}, Push: "result"})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	a := h.attempt(j, f)
	e := a.Evidence
	if e == nil || e.Base != base || e.Tip == "" || e.Tip == base || !e.Descends || e.CommitCount != 1 || e.RunnerCommit != e.Tip || e.Stat.Files != 2 {
		t.Fatalf("evidence %+v", e)
	}
	if a.BaseCommit != base {
		t.Errorf("base told at the accept %q, want %s", a.BaseCommit, base)
	}
	eventually(t, "the bundle to arrive", func() bool { _, err := h.blobs.Stat(e.Bundle); return err == nil })
	eventually(t, "the patch to arrive", func() bool { _, err := h.blobs.Stat(e.Patch); return err == nil })
	if b := h.blob(e.Bundle); !strings.HasPrefix(string(b), "# v2 git bundle\n-"+base) {
		t.Errorf("the bundle begins %.80q", b)
	}
	if p := string(h.blob(e.Patch)); !strings.Contains(p, "+more") {
		t.Errorf("patch %q", p)
	}
	eventually(t, "the push", func() bool { p := h.attempt(j, f).Pushes; return len(p) == 1 && p[0].Result == "pushed" })
	if got := git(t, bare, "rev-parse", "result"); got != e.Tip {
		t.Errorf("the remote branch is at %s, want %s", got, e.Tip)
	}
	r.forgets(f)
	first := h.text(j, f, fleet.FrameStdout)
	if !strings.HasPrefix(first, "tugline/"+string(j)+"\n") {
		t.Errorf("output %q", first)
	}
}

// fakeCodex is a program that speaks like the CLI: it appends its prompt to a file,
// and tells how many lines that has.
const fakeCodex = `#!/bin/sh
case "$1" in
--version) echo "codex-cli 0.171.0"; exit 0;;
login) echo "Logged in using an API key - sk-x" >&2; exit 0;;
esac
id=0199a213-81c0-7800-8aa1-bbab2a035a53
resumed=no
for a in "$@"; do [ "$a" = resume ] && resumed=yes; done
mkdir -p "$CODEX_HOME/sessions/2026/01/02"; : > "$CODEX_HOME/sessions/2026/01/02/rollout-x-$id.jsonl"
cat >> prompts; echo >> prompts
echo '{"type":"thread.started","thread_id":"'$id'"}'
echo '{"type":"turn.started"}'
echo '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"resumed '$resumed', '$(grep -c . prompts)' prompts in '$(pwd)'"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'
`

// A follow-up resumes the same session in the same worktree, and its usage is its own.
func TestFollowUpGoesOnInTheSameWorktree(t *testing.T) {
	h := newHub(t)
	program := filepath.Join(t.TempDir(), "codex")
	if err := os.WriteFile(program, []byte(fakeCodex), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CODEX_API_KEY", "sk-0123456789")
	t.Setenv("CODEX_HOME", t.TempDir())
	r := h.newRunner(allowFile(t, "harnesses: {exec: {}, codex: {path: "+program+"}}\n"))
	eventually(t, "the harness to be found", func() bool { _, ok := r.harness("codex"); return ok })
	bare, base := repository(t)
	j := h.submit(fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Repo: &fleet.Repo{URL: bare}}, func(s *state.SubmitJob) { s.Prompt = h.put([]byte("do this")) })
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	a := h.attempt(j, f)
	if a.SessionID == "" || a.Failure != fleet.ClassOK || a.Usage == nil || a.Usage.InputTokens != 100 || a.Evidence.CommitCount != 1 {
		t.Fatalf("first turn %+v usage %+v evidence %+v", a, a.Usage, a.Evidence)
	}
	said := string(h.stream(j, f, wire.StreamEvents))
	if !strings.Contains(said, "resumed no, 1 prompts in ") {
		t.Errorf("events %s", said)
	}
	h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("and that"))})
	g := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, g)
	b := h.attempt(j, g)
	if b.SessionID != a.SessionID || b.Evidence.Base != base || b.Evidence.CommitCount != 2 {
		t.Errorf("second turn %+v evidence %+v", b, b.Evidence)
	}
	want := strings.Replace(said[strings.Index(said, "resumed"):], "no, 1", "yes, 2", 1)
	if got := string(h.stream(j, g, wire.StreamEvents)); !strings.Contains(got, want[:strings.Index(want, `"`)]) {
		t.Errorf("events %s, want %s", got, want)
	}
}

// The push of rejected work is given up at once; the work is kept.
func TestRejectedWorkIsNotPushed(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.verdict = func(*fleet.Job, *wire.Finished) *fleet.Verdict {
		return &fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"no"}}
	}
	r := h.newRunner(allowFile(t, ""))
	bare, _ := repository(t)
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", "echo more >> README"}, Repo: &fleet.Repo{URL: bare}, Push: "result"})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Failed)
	r.forgets(f)
	if n := proposed[*state.GrantPush](h); n != 0 {
		t.Errorf("%d refused permits were put into the log", n)
	}
	if out := git(t, bare, "branch", "--list", "result"); out != "" {
		t.Errorf("refused work was pushed: %s", out)
	}
	if e := h.attempt(j, f).Evidence; e == nil || e.CommitCount != 1 {
		t.Errorf("the work is not kept: %+v", e)
	}
}

// Work that needs review is pushed when a person accepts it.
func TestWorkIsPushedOnceAPersonAcceptsIt(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.verdict = func(*fleet.Job, *wire.Finished) *fleet.Verdict {
		return &fleet.Verdict{Decision: fleet.Ask, By: "gate", Reasons: []string{"look at it"}}
	}
	r := h.newRunner(allowFile(t, ""))
	bare, _ := repository(t)
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", "echo more >> README"}, Repo: &fleet.Repo{URL: bare}, Push: "result"})
	f := h.assign(j, r.id)
	h.ends(j, fleet.NeedsReview)
	h.sealed(j, f)
	eventually(t, "the runner to ask", func() bool { return strings.Contains(r.detail(f), "permit to push") })
	h.must(&state.SettleJob{Job: j, Accept: true})
	h.srv.Nudge(r.id)
	eventually(t, "the push", func() bool { p := h.attempt(j, f).Pushes; return len(p) == 1 && p[0].Result == "pushed" })
	if got := git(t, bare, "rev-parse", "result"); got != h.attempt(j, f).Evidence.Tip {
		t.Errorf("the remote branch is at %s", got)
	}
	r.forgets(f)
}

// detail is what the runner says of an attempt now.
func (r *testRunner) detail(f fleet.Fence) string {
	for _, v := range r.heartbeat(false).Attempts {
		if v.Fence == f {
			return v.Detail
		}
	}
	return ""
}

// Inputs come as blobs, and a directory without repository is empty for a new job.
func TestInputsAreFetched(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	argv := h.put([]byte(`["/bin/sh","-c","ls -A; pwd; echo note > \"$TUGLINE_CLOSURE_FILE\""]`))
	j := h.submit(fleet.Spec{ArgvBlob: argv})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if got, want := h.text(j, f, fleet.FrameStdout), filepath.Join(r.dir, "scratch", string(j), "work")+"\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if e := h.attempt(j, f).Evidence; e == nil || !e.NoRepo || e.Closure != "note" {
		t.Errorf("evidence %+v", e)
	}

	j = h.submit(fleet.Spec{ArgvBlob: fleet.Digest(strings.Repeat("ab", 32))})
	f = h.assign(j, r.id)
	eventually(t, "the decline", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
	if a := h.attempt(j, f); a.Code != fleet.InputMissing {
		t.Errorf("declined with %s %q", a.Code, a.Detail)
	}
}

// Files in the artifacts directory are told with the result and come to the hub.
func TestArtifactsComeToTheHub(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner(allowFile(t, ""))
	bare, _ := repository(t)
	script := `echo more >> README; mkdir "$TUGLINE_ARTIFACTS/sub"; echo hello > "$TUGLINE_ARTIFACTS/sub/report.txt"; echo all > "$TUGLINE_SCRATCH/artifacts/log"; ln -s /etc/passwd "$TUGLINE_ARTIFACTS/p"`
	for name, repo := range map[string]*fleet.Repo{"with a repository": {URL: bare}, "without": nil} {
		j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", script}, Repo: repo})
		f := h.assign(j, r.id)
		h.ends(j, fleet.Succeeded)
		h.sealed(j, f)
		e := h.attempt(j, f).Evidence
		if len(e.Artifacts) != 2 || e.Artifacts[0].Name != "log" || e.Artifacts[1].Name != "sub/report.txt" || len(e.Notes) != 1 {
			t.Fatalf("%s: artifacts %+v, notes %q", name, e.Artifacts, e.Notes)
		}
		if got := string(h.blob(e.Artifacts[1].Digest)); got != "hello\n" {
			t.Errorf("%s: the hub has %q", name, got)
		}
	}
}

// What was left uncommitted and is not part of the result comes to the hub beside it,
// with the values of secrets masked in the patch.
func TestRescuedChangesComeToTheHub(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner(allowFile(t, ""))
	bare, _ := repository(t)
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", `echo "left $A_TOKEN" > left`}, Env: map[string]string{"A_TOKEN": "tok-0123456789"},
		Repo: &fleet.Repo{URL: bare}, Commit: "never"})
	f := h.assign(j, r.id)
	eventually(t, "the end", func() bool { return h.attempt(j, f).Evidence != nil })
	h.sealed(j, f)
	e := h.attempt(j, f).Evidence
	if len(e.Artifacts) != 2 || e.Artifacts[0].Name != "rescue.patch" || e.Artifacts[1].Name != "rescue.bundle" || e.RescueRef == "" {
		t.Fatalf("artifacts %+v, rescue %q, notes %q", e.Artifacts, e.RescueRef, e.Notes)
	}
	if got := string(h.blob(e.Artifacts[0].Digest)); !strings.Contains(got, "+left **************\n") {
		t.Errorf("the patch %q", got)
	}
	if got := string(h.blob(e.Artifacts[1].Digest)); !strings.HasPrefix(got, "# v2 git bundle\n") || !strings.Contains(got, e.RescueRef) {
		t.Errorf("the bundle begins with %.200q", got)
	}
}

// The owner's account at a git server serves the runner's own fetches; without it the
// job is declined.
func TestFetchesUseTheOwnersAccount(t *testing.T) {
	h := newHub(t)
	bare, base := repository(t)
	git(t, bare, "update-server-info")
	files := http.FileServer(http.Dir(filepath.Dir(bare)))
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if u, p, _ := q.BasicAuth(); u != "build" || p != "pw-0123456" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, q)
	}))
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSL_CAINFO", ca)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "")
	}
	r := h.newRunner()
	spec := fleet.Spec{Argv: []string{"/bin/cat", "README"}, Repo: &fleet.Repo{URL: srv.URL + "/" + filepath.Base(bare)}}

	j := h.submit(spec)
	f := h.assign(j, r.id)
	eventually(t, "the decline", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
	if a := h.attempt(j, f); a.Code != fleet.RepoAuth {
		t.Errorf("declined with %s %q, want %s", a.Code, a.Detail, fleet.RepoAuth)
	}

	account := strings.TrimPrefix(srv.URL, "https://") + ": {username: build, password: pw-0123456}\n"
	if err := os.WriteFile(filepath.Join(r.dir, "git-credentials.yaml"), []byte(account), 0o600); err != nil {
		t.Fatal(err)
	}
	j = h.submit(spec)
	f = h.assign(j, r.id)
	eventually(t, "the end", func() bool { a := h.attempt(j, f); return a.Evidence != nil || a.State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
	if a := h.attempt(j, f); a.BaseCommit != base {
		t.Errorf("the attempt began at %q, want %s: %s %s", a.BaseCommit, base, a.Code, a.Detail)
	}
}

// An agent that pushes by itself gets a password only through its attempt's permit.
func TestAgentAsksForCredentials(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	owner := allowFile(t, "push: agent\n")
	r := h.newRunner(func(c *Config) {
		owner(c)
		c.Logger = testLogger("RUNNER_LOG")
		if err := os.WriteFile(filepath.Join(c.Dir, "git-credentials.yaml"), []byte("git.example: {username: u, password: pw-0123456}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	bare, _ := repository(t)
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c",
		`printf 'protocol=https\nhost=git.example\npath=x/y.git\n\n' | git credential fill > got; wc -c < got; sed -n 's/^username=//p' got; cat got`},
		Repo: &fleet.Repo{URL: bare}})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	out := h.text(j, f, fleet.FrameStdout)
	if !strings.Contains(out, "\nu\n") || !strings.Contains(out, "password=**********") || strings.Contains(out, "pw-0123456") {
		t.Errorf("output %q (stderr %q), want the account with a masked password", out, h.text(j, f, fleet.FrameStderr))
	}
	a := h.attempt(j, f)
	if len(a.Pushes) != 1 || a.Pushes[0].Remote != "https://git.example/x/y.git" {
		t.Errorf("permits %+v", a.Pushes)
	}
	if n := a.Evidence.Notes; len(n) == 0 || !strings.Contains(strings.Join(n, " "), "masked in the patch") {
		t.Errorf("notes %q", n)
	}
}

func TestPlainRequestsCarryAWholeJob(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner(func(c *Config) { c.Transport = "http" })
	p, _ := h.srv.PresenceOf(r.id)
	if p.Transport != "http" {
		t.Fatalf("transport %q", p.Transport)
	}
	j, f := h.run(r.id, "/bin/sh", "-c", "echo hello; sleep 0.1; echo more")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if got := h.text(j, f, fleet.FrameStdout); got != "hello\nmore\n" {
		t.Errorf("output %q", got)
	}
	r.forgets(f)
}

// Credentials that are replaced while a job runs are those that git is given from then on.
func TestCredentialsAreThoseOfTheMoment(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	owner := allowFile(t, "push: agent\n")
	var file string
	say := func(user string) {
		if err := os.WriteFile(file, []byte("git.example: {username: "+user+", password: pw-0123456}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := h.newRunner(func(c *Config) {
		owner(c)
		file = filepath.Join(c.Dir, "git-credentials.yaml")
		say("one")
	})
	bare, _ := repository(t)
	gate := filepath.Join(t.TempDir(), "gate")
	j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c",
		`ask() { printf 'protocol=https\nhost=git.example\npath=x/y.git\n\n' | git credential fill | sed -n 's/^username=//p'; }; ask; touch began; until [ -e ` + gate + ` ]; do sleep 0.05; done; ask`},
		Repo: &fleet.Repo{URL: bare}})
	f := h.assign(j, r.id)
	eventually(t, "the job to have asked", func() bool {
		found, _ := filepath.Glob(filepath.Join(r.dir, "trees", "work", "*", "*", "began"))
		more, _ := filepath.Glob(filepath.Join(r.dir, "trees", "work", "*", "began"))
		return len(found)+len(more) > 0
	})
	say("two")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if out := h.text(j, f, fleet.FrameStdout); out != "one\ntwo\n" {
		t.Errorf("git was given %q", out)
	}
}
