//go:build harness

package harness_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
)

// bench is one CLI with a home, a repository and a model server of its own.
type bench struct {
	t     *testing.T
	model *fakemodel.Server
	setup harness.Setup
	repo  string
}

func newBench(t *testing.T, cli harness.CLI, scenario string) *bench {
	t.Helper()
	b := &bench{t: t, model: fakemodel.Start(t), repo: t.TempDir()}
	b.setup = harness.Setup{CLI: cli, Home: t.TempDir(), BaseURL: b.model.URL(scenario, "n1"), Key: fakemodel.GoodKey}
	git := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.setup.Home}
	for _, argv := range [][]string{
		{"git", "init", "-q", "-b", "main"},
		{"git", "-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "first"},
	} {
		if _, err := process.Run(t.Context(), process.Cmd{Argv: argv, Dir: b.repo, Env: git}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// turn runs the CLI once and returns what it printed and its exit code.
func (b *bench) turn(session, prompt string) (process.Result, int) {
	b.t.Helper()
	argv, err := b.setup.Argv(session)
	if err != nil {
		b.t.Fatal(err)
	}
	env, err := b.setup.Env()
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	begun := time.Now()
	res, err := process.Run(ctx, process.Cmd{Argv: argv, Dir: b.repo, Env: env, Stdin: strings.NewReader(prompt)})
	if exit := (*process.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("%v\nstdout:\n%s\nstderr:\n%s", err, res.Stdout, res.Stderr)
	}
	b.t.Logf("%s %q: exit %d after %v", b.setup.CLI, prompt, res.ExitCode, time.Since(begun).Round(time.Millisecond))
	return res, res.ExitCode
}

// sampled is every CLI that is quick, or all.
func sampled() []harness.CLI {
	if soak {
		return harness.All
	}
	return []harness.CLI{harness.Codex, harness.Claude}
}

func (b *bench) wantFile(name, want string, res process.Result) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.repo, name))
	if err != nil || string(got) != want {
		b.t.Errorf("%s holds %q (%v), want %q\nstdout:\n%s\nstderr:\n%s", name, got, err, want, res.Stdout, res.Stderr)
	}
}

func TestRealSuccess(t *testing.T) {
	for _, cli := range harness.All {
		t.Run(string(cli), func(t *testing.T) {
			b := newBench(t, cli, "success")
			res, code := b.turn("", "Create hello.txt.")
			b.wantFile(fakemodel.HelloPath, fakemodel.HelloText, res)
			if code != 0 || !strings.Contains(string(res.Stdout), "Done: hello.txt is there.") {
				t.Errorf("exit code %d, want 0 and the closing words\nstdout:\n%s\nstderr:\n%s", code, res.Stdout, res.Stderr)
			}
			if n := b.model.Served("success", "n1"); n != 3 {
				t.Errorf("the script answered %d requests, want 3", n)
			}
			first := ""
			for _, r := range b.model.Requests("success", "n1") {
				if r.Kind == fakemodel.Scripted && first == "" {
					first = r.Text()
				}
				if r.Kind == fakemodel.Scripted && r.Key != fakemodel.GoodKey {
					t.Errorf("a request carried the key %q, want %q", r.Key, fakemodel.GoodKey)
				}
			}
			if !strings.Contains(first, "Create hello.txt.") {
				t.Error("the first request does not carry the prompt")
			}
		})
	}
}

// Where a session id stands in the streams of the CLIs.
var sessionRE = regexp.MustCompile(`"(?:thread_id|session_id|sessionID)":"([^"]+)"`)

func TestRealResume(t *testing.T) {
	for _, cli := range sampled() {
		t.Run(string(cli), func(t *testing.T) {
			b := newBench(t, cli, "resume")
			res, code := b.turn("", "Write first.txt.")
			b.wantFile("first.txt", "written in turn one\n", res)
			id := sessionRE.FindSubmatch(res.Stdout)
			if code != 0 || id == nil {
				t.Fatalf("exit code %d, want 0 and a session id\nstdout:\n%s\nstderr:\n%s", code, res.Stdout, res.Stderr)
			}
			// The server itself refuses a second turn that lacks the first one's history.
			res, code = b.turn(string(id[1]), "Write second.txt.")
			b.wantFile("second.txt", "written in turn two\n", res)
			if code != 0 || !strings.Contains(string(res.Stdout), "Turn two is done.") {
				t.Errorf("exit code %d, want 0 and the closing words\nstdout:\n%s\nstderr:\n%s", code, res.Stdout, res.Stderr)
			}
		})
	}
}

func TestRealWrongKey(t *testing.T) {
	for _, cli := range sampled() {
		t.Run(string(cli), func(t *testing.T) {
			b := newBench(t, cli, "success")
			b.setup.Key = "sk-bad"
			res, code := b.turn("", "Create hello.txt.")
			if code == 0 || !strings.Contains(string(res.Stdout), "401") {
				t.Errorf("exit code %d, want a failure that tells of status 401\nstdout:\n%s\nstderr:\n%s", code, res.Stdout, res.Stderr)
			}
			if n := b.model.Served("success", "n1"); n != 0 {
				t.Errorf("the script answered %d requests, want none", n)
			}
		})
	}
}
