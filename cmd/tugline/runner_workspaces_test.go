package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// What is kept on a machine is told by its data directory alone, with a command that does
// save it.
func TestRunnerWorkspaces(t *testing.T) {
	s := newShell(t, "")
	dir, src := filepath.Join(t.TempDir(), "it's data"), t.TempDir()
	git := func(at string, args ...string) string {
		t.Helper()
		res, err := process.Run(t.Context(), process.Cmd{
			Argv: append([]string{"git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false"}, args...), Dir: at, Env: os.Environ(), Limit: 1 << 20,
		})
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	git(src, "init", "-q")
	git(src, "commit", "-q", "--allow-empty", "-m", "first")
	if code := s.do("runner", "workspaces", "--data-dir", dir); code != exitFailed || !strings.Contains(s.err.String(), "--data-dir names another place") {
		t.Errorf("a directory that is not there: exit %d, %s", code, s.err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if code := s.do("runner", "workspaces", "--data-dir", dir); code != 0 || s.out.String() != "nothing is kept here\n" {
		t.Errorf("an empty directory: exit %d, %s", code, s.out)
	}
	long := time.Now().Add(-48 * time.Hour)
	store, err := worktree.Open(worktree.Config{Dir: filepath.Join(dir, "trees"), AllowFile: true, Now: func() time.Time { return long }})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := store.Prepare(t.Context(), worktree.Request{Job: "j1", Fence: fleet.Fence{Epoch: 1, Index: 1}, URL: src})
	if err != nil {
		t.Fatal(err)
	}
	git(tree.Path, "commit", "-q", "--allow-empty", "-m", "mine")
	if err := os.WriteFile(filepath.Join(dir, "runner.yaml"), []byte("keep_workspaces: 0s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.do("runner", "workspaces", "--data-dir", dir); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err)
	}
	text := s.out.String()
	for _, want := range []string{"job j1  kept: 1 commits of it are neither with the remote nor at the hub", tree.Path, "save it: git -C '", "cache of " + src, "kept: 1 worktrees stand on it"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not told:\n%s", want, text)
		}
	}
	if code := s.do("runner", "workspaces", "--data-dir", dir, "--json"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err)
	}
	var kept struct {
		Workspaces []keptWorkspace
		Caches     []keptCache
	}
	if err := json.Unmarshal([]byte(s.out.String()), &kept); err != nil || len(kept.Workspaces) != 1 || len(kept.Caches) != 1 {
		t.Fatalf("%v: %s", err, s.out)
	}
	w := kept.Workspaces[0]
	if w.Job != "j1" || w.Next != "keep" || w.Until != nil || w.Own != 1 || len(w.Save) != 1 {
		t.Errorf("told %+v", w)
	}
	if res, err := process.Run(t.Context(), process.Cmd{Argv: []string{"sh", "-c", w.Save[0]}, Dir: "/", Env: os.Environ(), Limit: 1 << 20}); err != nil {
		t.Fatalf("%s: %v\n%s", w.Save[0], err, res.Stdout)
	}
	if got := git(src, "log", "-1", "--format=%s", "tugline/j1"); got != "mine" {
		t.Errorf("the command saved %q", got)
	}
	if code := s.do("runner", "workspaces", "--data-dir", dir); code != 0 || !strings.Contains(s.out.String(), "job j1  to be deleted: it is clean, and its commits are published") {
		t.Errorf("after that: exit %d, %s", code, s.out)
	}
}

func TestRunnerDisk(t *testing.T) {
	s := newShell(t, "")
	dir := t.TempDir()
	for path, n := range map[string]int{"trees/work/j/repo/a": 1 << 20, "trees/work/j/repo/out.d/b": 4 << 20, "trees/repos/x/g1.git/pack": 2 << 20, "attempts/j/1-1/output": 3 << 20} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "runner.yaml"), []byte("build_output: [out.d]\ndisk_limit: 20MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.do("runner", "disk", "--data-dir", dir, "--json"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err)
	}
	var d struct {
		Usage []fleet.ClassUsage
		Own   int64
		Limit int64
	}
	if err := json.Unmarshal([]byte(s.out.String()), &d); err != nil {
		t.Fatal(err)
	}
	least := map[string]int64{"build": 4 << 20, "logs": 3 << 20, "caches": 2 << 20, "worktrees": 1 << 20}
	for _, u := range d.Usage {
		if want, ok := least[u.Class]; ok && (u.Bytes < want || u.Bytes > want+1<<20) {
			t.Errorf("%s takes %d, want about %d", u.Class, u.Bytes, want)
		}
		delete(least, u.Class)
	}
	if len(least) > 0 || d.Limit != 20<<20 || d.Own < 10<<20 {
		t.Errorf("not told: %v; %+v", least, d)
	}
	if code := s.do("runner", "disk", "--data-dir", dir); code != 0 || !strings.Contains(s.out.String(), "at most 20.0 MiB") || !strings.Contains(s.out.String(), "first to go where the disk is short") {
		t.Errorf("exit %d: %s", code, s.out)
	}
}
