package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

func TestLocalRepositoryThereAndBack(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	repo := m.Repository("grüße mit leerzeichen")
	head := m.Git(repo, "rev-parse", "HEAD")
	out, errs, code := m.Try("exec", "--repo", repo, "--", "sh", "-c",
		`pwd >&2; echo "hello, $1" > greet.sh; printf x > "new
line ü"; git status --short >&2`, "sh", "world")
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	id := m.Newest()
	j := m.Job(id)
	if j.State != fleet.Succeeded || j.BaseCommit != head || j.Evidence == nil || j.Evidence.CommitCount != 1 ||
		j.Evidence.RunnerCommit == "" || !j.Evidence.BundleChecked || j.HeadCommit == "" {
		t.Errorf("job is %s, base %s (want %s), evidence %+v", j.State, j.BaseCommit, head, j.Evidence)
	}
	if d := m.Run("job", "diff", id); !strings.Contains(d, "+hello, world") || !strings.Contains(d, `new\nline`) {
		t.Errorf("the diff lacks the change:\n%s", d)
	}
	m.InDir(repo, "job", "pull", id)
	if got := m.Git(repo, "rev-parse", j.Branch); got != j.HeadCommit {
		t.Errorf("after the pull %s is at %s; want %s", j.Branch, got, j.HeadCommit)
	}
	if got := m.Git(repo, "rev-parse", "HEAD"); got != head {
		t.Errorf("the pull moved HEAD to %s", got)
	}
}

func TestDirtyWorkIsHandedOverOnRequest(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	repo := m.Repository("repo")
	m.Write(filepath.Join(repo, "greet.sh"), "echo changed\n")
	m.Write(filepath.Join(repo, "untracked"), "new\n")
	out, _, code := m.Try("exec", "--repo", repo, "--", "sh", "-c", "cat greet.sh; ls untracked 2>/dev/null || echo none")
	if code != 0 || out != "echo hello\nnone\n" {
		t.Errorf("without --include-dirty: exit %d, %q", code, out)
	}
	out, _, code = m.Try("exec", "--include-dirty", "--repo", repo, "--", "sh", "-c", "cat greet.sh untracked")
	if code != 0 || out != "echo changed\nnew\n" {
		t.Errorf("with --include-dirty: exit %d, %q", code, out)
	}
	if s := m.Git(repo, "status", "--short"); !strings.Contains(s, "M greet.sh") || !strings.Contains(s, "?? untracked") {
		t.Errorf("the user's tree was touched: %q", s)
	}
}

func TestPushAfterTheVerdict(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	repo := m.Repository("repo")
	bare := filepath.Join(m.Dir, "bare.git")
	m.Git(m.Dir, "clone", "-q", "--bare", repo, bare)
	_, errs, code := m.Try("exec", "--repo", "file://"+bare, "--push", "work/greeting", "--", "sh", "-c", "echo hi > greet.sh")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	j := m.Job(m.Newest())
	if got := m.Git(bare, "rev-parse", "work/greeting"); got != j.HeadCommit {
		t.Errorf("after exit 0 the branch is at %s; want %s", got, j.HeadCommit)
	}
	if want := "pushed " + j.HeadCommit[:10] + " to work/greeting"; !strings.Contains(errs, want) {
		t.Errorf("want %q in:\n%s", want, errs)
	}
	// Another's work is on the branch now: what does not descend from it is refused.
	_, errs, code = m.Try("exec", "--repo", "file://"+bare, "--push", "work/greeting", "--", "sh", "-c", "echo other > greet.sh")
	if code != 1 || !strings.Contains(errs, "push refused: ") || !strings.Contains(errs, "succeeded") {
		t.Errorf("a push that git refuses: exit %d\n%s", code, errs)
	}
	refused := m.Newest()
	if out := m.Run("job", "get", refused); !strings.Contains(out, "push refused: ") || m.Job(refused).State != fleet.Succeeded {
		t.Errorf("the job says:\n%s", out)
	}
	if got := m.Git(bare, "rev-parse", "work/greeting"); got != j.HeadCommit {
		t.Errorf("the refused push moved the branch to %s", got)
	}
	if _, errs, code := m.Try("exec", "--repo", "file://"+bare, "--push", "main", "--", "sh", "-c", "echo no > greet.sh; exit 1"); code != 1 {
		t.Errorf("exit %d\n%s", code, errs)
	}
	if got := m.Git(bare, "rev-parse", "main"); got != m.Git(repo, "rev-parse", "main") {
		t.Errorf("a failed job was pushed")
	}
}

func TestALongHistory(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	dir := filepath.Join(m.Dir, "long")
	m.Git(m.Dir, "init", "-q", "-b", "main", dir)
	var in strings.Builder
	for i := range 1200 {
		text := fmt.Sprintf("line %d\n", i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter A <a@example.invalid> %d +0000\ndata %d\n%s", 1700000000+i, len(text), text)
		fmt.Fprintf(&in, "M 100644 inline dir%d/file%d.txt\ndata %d\n%s\n", i%17, i%211, len(text), text)
	}
	c := exec.Command("git", "-C", dir, "fast-import", "--quiet")
	c.Stdin, c.Env = strings.NewReader(in.String()), m.Env()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("fast-import: %v\n%s", err, out)
	}
	for i := range 3 {
		out, errs, code := m.Try("exec", "--repo", dir, "--", "sh", "-c", "git rev-list --count HEAD; echo more >> dir1/file1.txt")
		if code != 0 || out != "1200\n" {
			t.Errorf("job %d: exit %d, %q\n%s", i, code, out, errs)
		}
	}
}

func TestABadRepositoryIsToldClearly(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	for _, c := range []struct{ url, want string }{
		{"file://" + m.Dir + "/nowhere", "repo_missing"},
		{"https://127.0.0.1:1/x.git", "repo_unreachable"},
	} {
		id := m.Detach("exec", "--repo", c.url, "--", "true")
		m.Eventually(60*time.Second, "job "+id+" says why", func() bool {
			out, _, _ := m.Try("job", "get", id, "--json")
			return strings.Contains(out, c.want)
		})
		m.Run("job", "cancel", id)
	}
	_, errs, code := m.Try("exec", "--repo", "https://user:secret@example.invalid/x.git", "--", "true")
	if code != 2 || !strings.Contains(errs, "credentials") || strings.Contains(errs, "secret@") {
		t.Errorf("credentials in the URL: exit %d, %s", code, errs)
	}
	if _, errs, code := m.Try("exec", "--repo", filepath.Join(m.Dir, "nothing-here"), "--", "true"); code != 2 {
		t.Errorf("a path that is not there: exit %d, %s", code, errs)
	}
}

func TestOnlyWhatTheRunnerLacksIsSent(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	repo := m.Repository("repo")
	for i, want := range []string{"sending the repository", "the runner has this commit already"} {
		out, errs, code := m.Try("exec", "--on", "r1", "--repo", repo, "--", "cat", "greet.sh")
		if code != 0 || out != "echo hello\n" || !strings.Contains(errs, want) {
			t.Errorf("hand-over %d: exit %d, %q, want %q in:\n%s", i, code, out, want, errs)
		}
	}
	m.Write(filepath.Join(repo, "more.txt"), "more\n")
	m.Git(repo, "add", "-A")
	m.Git(repo, "commit", "-q", "-m", "more")
	out, errs, code := m.Try("exec", "--on", "r1", "--repo", repo, "--", "cat", "more.txt")
	if code != 0 || out != "more\n" {
		t.Errorf("a later commit: exit %d, %q\n%s", code, out, errs)
	}
}
