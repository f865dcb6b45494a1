package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// repository makes a small repository with one commit.
func (m *mesh) repository(name string) string {
	m.t.Helper()
	dir := filepath.Join(m.dir, name)
	m.write(filepath.Join(dir, "README.md"), "# greeter\n")
	m.write(filepath.Join(dir, "greet.sh"), "echo hello\n")
	m.git(dir, "init", "-q", "-b", "main")
	m.git(dir, "add", "-A")
	m.git(dir, "commit", "-q", "-m", "begin")
	return dir
}

func TestLocalRepositoryThereAndBack(t *testing.T) {
	m := up(t)
	repo := m.repository("grüße mit leerzeichen")
	head := m.git(repo, "rev-parse", "HEAD")
	out, errs, code := m.try("exec", "--repo", repo, "--", "sh", "-c",
		`pwd >&2; echo "hello, $1" > greet.sh; printf x > "new
line ü"; git status --short >&2`, "sh", "world")
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	id := m.newest()
	j := m.job(id)
	if j.State != fleet.Succeeded || j.BaseCommit != head || j.Evidence == nil || j.Evidence.CommitCount != 1 ||
		j.Evidence.RunnerCommit == "" || !j.Evidence.BundleChecked || j.HeadCommit == "" {
		t.Errorf("job is %s, base %s (want %s), evidence %+v", j.State, j.BaseCommit, head, j.Evidence)
	}
	if d := m.run("job", "diff", id); !strings.Contains(d, "+hello, world") || !strings.Contains(d, `new\nline`) {
		t.Errorf("the diff lacks the change:\n%s", d)
	}
	m.inDir(repo, "job", "pull", id)
	if got := m.git(repo, "rev-parse", j.Branch); got != j.HeadCommit {
		t.Errorf("after the pull %s is at %s; want %s", j.Branch, got, j.HeadCommit)
	}
	if got := m.git(repo, "rev-parse", "HEAD"); got != head {
		t.Errorf("the pull moved HEAD to %s", got)
	}
}

// newest gives the id of the newest job.
func (m *mesh) newest() string {
	m.t.Helper()
	var list struct{ Jobs []struct{ ID string } }
	m.json(&list, "job", "list", "--json")
	if len(list.Jobs) == 0 {
		m.t.Fatal("no job")
	}
	return list.Jobs[0].ID
}

func (m *mesh) inDir(dir string, args ...string) string {
	m.t.Helper()
	c := exec.Command(binary, args...)
	c.Dir, c.Env = dir, m.env()
	out, err := c.CombinedOutput()
	if err != nil {
		m.t.Fatalf("tugline %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return string(out)
}

func TestDirtyWorkIsHandedOverOnRequest(t *testing.T) {
	m := up(t)
	repo := m.repository("repo")
	m.write(filepath.Join(repo, "greet.sh"), "echo changed\n")
	m.write(filepath.Join(repo, "untracked"), "new\n")
	out, _, code := m.try("exec", "--repo", repo, "--", "sh", "-c", "cat greet.sh; ls untracked 2>/dev/null || echo none")
	if code != 0 || out != "echo hello\nnone\n" {
		t.Errorf("without --include-dirty: exit %d, %q", code, out)
	}
	out, _, code = m.try("exec", "--include-dirty", "--repo", repo, "--", "sh", "-c", "cat greet.sh untracked")
	if code != 0 || out != "echo changed\nnew\n" {
		t.Errorf("with --include-dirty: exit %d, %q", code, out)
	}
	if s := m.git(repo, "status", "--short"); !strings.Contains(s, "M greet.sh") || !strings.Contains(s, "?? untracked") {
		t.Errorf("the user's tree was touched: %q", s)
	}
}

func TestPushAfterTheVerdict(t *testing.T) {
	m := up(t)
	repo := m.repository("repo")
	bare := filepath.Join(m.dir, "bare.git")
	m.git(m.dir, "clone", "-q", "--bare", repo, bare)
	_, errs, code := m.try("exec", "--repo", "file://"+bare, "--push", "work/greeting", "--", "sh", "-c", "echo hi > greet.sh")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	j := m.job(m.newest())
	m.eventually(20*time.Second, "the branch is pushed", func() bool {
		out, err := exec.Command("git", "-C", bare, "rev-parse", "work/greeting").Output()
		return err == nil && strings.TrimSpace(string(out)) == j.HeadCommit
	})
	if _, errs, code := m.try("exec", "--repo", "file://"+bare, "--push", "main", "--", "sh", "-c", "echo no > greet.sh; exit 1"); code != 1 {
		t.Errorf("exit %d\n%s", code, errs)
	}
	if got := m.git(bare, "rev-parse", "main"); got != m.git(repo, "rev-parse", "main") {
		t.Errorf("a failed job was pushed")
	}
}

func TestALongHistory(t *testing.T) {
	m := up(t)
	dir := filepath.Join(m.dir, "long")
	m.git(m.dir, "init", "-q", "-b", "main", dir)
	var in strings.Builder
	for i := range 1200 {
		text := fmt.Sprintf("line %d\n", i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter A <a@example.invalid> %d +0000\ndata %d\n%s", 1700000000+i, len(text), text)
		fmt.Fprintf(&in, "M 100644 inline dir%d/file%d.txt\ndata %d\n%s\n", i%17, i%211, len(text), text)
	}
	c := exec.Command("git", "-C", dir, "fast-import", "--quiet")
	c.Stdin, c.Env = strings.NewReader(in.String()), m.env()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("fast-import: %v\n%s", err, out)
	}
	for i := range 3 {
		out, errs, code := m.try("exec", "--repo", dir, "--", "sh", "-c", "git rev-list --count HEAD; echo more >> dir1/file1.txt")
		if code != 0 || out != "1200\n" {
			t.Errorf("job %d: exit %d, %q\n%s", i, code, out, errs)
		}
	}
}

func TestABadRepositoryIsToldClearly(t *testing.T) {
	m := up(t)
	for _, c := range []struct{ url, want string }{
		{"file://" + m.dir + "/nowhere", "repo_missing"},
		{"https://127.0.0.1:1/x.git", "repo_unreachable"},
	} {
		id := m.detach("exec", "--repo", c.url, "--", "true")
		m.eventually(60*time.Second, "job "+id+" says why", func() bool {
			out, _, _ := m.try("job", "get", id, "--json")
			return strings.Contains(out, c.want)
		})
		m.run("job", "cancel", id)
	}
	_, errs, code := m.try("exec", "--repo", "https://user:secret@example.invalid/x.git", "--", "true")
	if code != 2 || !strings.Contains(errs, "credentials") || strings.Contains(errs, "secret@") {
		t.Errorf("credentials in the URL: exit %d, %s", code, errs)
	}
	if _, errs, code := m.try("exec", "--repo", filepath.Join(m.dir, "nothing-here"), "--", "true"); code != 2 {
		t.Errorf("a path that is not there: exit %d, %s", code, errs)
	}
}
