package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// The tests run with a git configuration of their own, hostile where a user's may be: hooks that fail everywhere.
func TestMain(m *testing.M) {
	if dir := os.Getenv("WORKTREE_TEST_CHILD"); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(func() int {
		home, err := os.MkdirTemp("", "worktree-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(home)
		hooks := filepath.Join(home, "hooks")
		must(os.Mkdir(hooks, 0o700))
		for _, name := range []string{"pre-commit", "post-checkout", "post-commit", "reference-transaction", "pre-push", "post-index-change", "commit-msg"} {
			must(os.WriteFile(filepath.Join(hooks, name), []byte("#!/bin/sh\necho hook "+name+" ran >&2\ntouch "+home+"/hook-ran\nexit 1\n"), 0o700))
		}
		config := fmt.Sprintf("[user]\n\tname = Ada Test\n\temail = ada@example.com\n[core]\n\thooksPath = %s\n[commit]\n\tgpgSign = true\n[init]\n\tdefaultBranch = main\n[diff]\n\tnoprefix = true\n[status]\n\tshowUntrackedFiles = no\n[fetch]\n\tshowForcedUpdates = false\n", hooks)
		must(os.WriteFile(filepath.Join(home, "gitconfig"), []byte(config), 0o600))
		must(os.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, "gitconfig")))
		must(os.Setenv("GIT_CONFIG_NOSYSTEM", "1"))
		hookMark = filepath.Join(home, "hook-ran")
		code := m.Run()
		if _, err := os.Stat(hookMark); err == nil {
			fmt.Fprintln(os.Stderr, "a hook was run")
			return 1
		}
		return code
	}())
}

var hookMark string

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// run runs git the way a person or an agent would, but without hooks and signatures.
func run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryRun(t, dir, args...)
	if err != nil {
		t.Fatalf("git %v in %s: %v", args, dir, err)
	}
	return out
}

func tryRun(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	argv := append([]string{"git", "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "protocol.file.allow=always"}, args...)
	res, err := process.Run(t.Context(), process.Cmd{Argv: argv, Dir: dir, Env: os.Environ(), Limit: 16 << 20})
	return strings.TrimSuffix(string(res.Stdout), "\n"), err
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// commitFile writes, adds and commits one file and gives the commit.
func commitFile(t testing.TB, dir, name, content string) string {
	t.Helper()
	write(t, filepath.Join(dir, name), content)
	run(t, dir, "add", "--", name)
	run(t, dir, "commit", "-q", "-m", "change "+name)
	return run(t, dir, "rev-parse", "HEAD")
}

// origin makes a repository with two commits, a branch and a tag.
func origin(t testing.TB) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(err)
	dir := filepath.Join(base, "demo repo")
	run(t, filepath.Dir(dir), "init", "-q", dir)
	run(t, dir, "config", "core.hooksPath", "/dev/null") // of the server's side
	write(t, filepath.Join(dir, ".gitignore"), "*.ignored\n")
	run(t, dir, "add", ".gitignore")
	commitFile(t, dir, "a.txt", "one\n")
	run(t, dir, "tag", "-a", "-m", "first", "v1")
	run(t, dir, "branch", "side")
	commitFile(t, dir, "a.txt", "one\ntwo\n")
	return dir
}

func open(t testing.TB, change func(*Config)) *Store {
	t.Helper()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "store"), AllowFile: true}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var fence1, fence2 = fleet.Fence{Epoch: 1, Index: 7}, fleet.Fence{Epoch: 1, Index: 9}

func prepare(t testing.TB, s *Store, req Request) *Tree {
	t.Helper()
	if req.Job == "" {
		req.Job = "job1"
	}
	if req.Fence.IsZero() {
		req.Fence = fence1
	}
	tree, err := s.Prepare(t.Context(), req)
	if err != nil {
		t.Fatalf("prepare: %v\n%s", err, causes(err))
	}
	return tree
}

func harvest(t testing.TB, tree *Tree, mode string) Result {
	t.Helper()
	res, err := tree.Harvest(t.Context(), HarvestRequest{Fence: fence1, Commit: mode})
	if err != nil {
		t.Fatalf("harvest: %v\n%s", err, causes(err))
	}
	return res
}

// causes shows what git said below a fault.
func causes(err error) string {
	var f *Fault
	if errors.As(err, &f) && f.Cause != nil {
		return f.Cause.Error()
	}
	return ""
}

func wantCode(t testing.TB, err error, code fleet.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("got %v (%s), want code %s", err, causes(err), code)
	}
}

func hasNote(notes []string, part string) bool {
	for _, n := range notes {
		if strings.Contains(n, part) {
			return true
		}
	}
	return false
}

// show gives the content of a file in a commit.
func (s *Store) show(t testing.TB, tree *Tree, commit, name string) string {
	t.Helper()
	out, err := s.cacheOf(tree).git.line(t.Context(), "/", "show", commit+":"+name)
	if err != nil {
		t.Fatalf("show %s in %s: %v", name, commit, err)
	}
	return out
}

func (s *Store) cacheOf(tree *Tree) *cache {
	return s.cacheAt(tree.rec.Cache, tree.rec.Generation, tree.rec.URL)
}

func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

type removal struct {
	Removed bool
	Bytes   int64
	Why     string
}

// removeSaved removes a workspace if all of it is in refs of the cache, published or not, as a newer attempt of its job
// does.
func removeSaved(t testing.TB, s *Store, job fleet.JobID) (removal, error) {
	t.Helper()
	rec, err := s.load(job)
	if err != nil || rec == nil {
		return removal{Removed: err == nil && !exists(filepath.Join(s.dir, "work", string(job)))}, err
	}
	h, err := s.lock(t.Context(), rec.Cache)
	must(err)
	defer h.release()
	e, err := s.examine(t.Context(), rec)
	if err != nil {
		return removal{}, err
	}
	if why := e.unsaved(); !e.Gone && !e.Half && why != "" {
		return removal{Why: why}, nil
	}
	gone, n, err := s.remove(t.Context(), rec, rec.Path, nil)
	return removal{Removed: gone, Bytes: n}, err
}
