package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestPush(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "remote.git")
	run(t, "/", "clone", "-q", "--bare", origin(t), src)
	run(t, src, "config", "core.hooksPath", filepath.Join(src, "hooks")) // of the server's side
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	first := commitFile(t, tree.Path, "one", "1")
	push := func(branch, sha string) error {
		return tree.Push(t.Context(), PushRequest{Remote: src, Branch: branch, SHA: sha})
	}
	must(push("feature/x", first))
	must(push("feature/x", first)) // again is no error
	second := commitFile(t, tree.Path, "two", "2")
	must(push("feature/x", second))
	if got := run(t, src, "rev-parse", "feature/x"); got != second {
		t.Errorf("the remote has %s, want %s", got, second)
	}
	wantCode(t, push("feature/x", first), fleet.Conflict)

	// Somebody else was there first.
	other := filepath.Join(t.TempDir(), "other")
	run(t, "/", "clone", "-q", src, other)
	theirs := commitFile(t, other, "theirs", "t")
	run(t, other, "push", "-q", "origin", "HEAD:main")
	err := push("main", second)
	wantCode(t, err, fleet.Conflict)
	if got := run(t, src, "rev-parse", "main"); got != theirs {
		t.Errorf("main was overwritten by %s", got)
	}
	// Also one with a configuration that asks for force.
	run(t, tree.Path, "config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
	run(t, tree.Path, "config", "remote.origin.pushurl", "/elsewhere")
	wantCode(t, push("main", second), fleet.Conflict)

	must(os.MkdirAll(filepath.Join(src, "hooks"), 0o700))
	must(os.WriteFile(filepath.Join(src, "hooks/update"), []byte("#!/bin/sh\necho protected >&2\nexit 1\n"), 0o700))
	err = push("locked", second)
	wantCode(t, err, fleet.Conflict)
	if !strings.Contains(err.Error(), "own rules") {
		t.Errorf("got %v", err)
	}
	must(os.Remove(filepath.Join(src, "hooks/update")))

	wantCode(t, push("x", strings.Repeat("ab", 20)), fleet.NotFound)
	for _, branch := range []string{"", "-f", "a..b", "refs/heads/x", "main:other"} {
		wantCode(t, push(branch, second), fleet.BadRequest)
	}
	wantCode(t, push("x", "HEAD"), fleet.BadRequest)
	wantCode(t, tree.Push(t.Context(), PushRequest{Remote: "--receive-pack=x", Branch: "x", SHA: second}), fleet.BadRequest)
	wantCode(t, tree.Push(t.Context(), PushRequest{Remote: src + ".gone", Branch: "x", SHA: second}), fleet.RepoMissing)

	// The worktree is not needed any more.
	harvest(t, tree, CommitAuto)
	if out, err := removeSaved(t, s, "job1"); err != nil || !out.Removed {
		t.Fatalf("got %+v, %v", out, err)
	}
	must(s.Push(t.Context(), "job1", PushRequest{Remote: src, Branch: "late", SHA: second}))
	wantCode(t, s.Push(t.Context(), "job9", PushRequest{Remote: src, Branch: "late", SHA: second}), fleet.NotFound)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	for _, c := range []struct {
		name  string
		agent func(dir string, tree *Tree)
		why   string
	}{
		{"clean", func(dir string, tree *Tree) {}, ""},
		{"ignored files", func(dir string, tree *Tree) { write(t, dir+"/x.ignored", "x") }, ""},
		{"read-only directory", func(dir string, tree *Tree) {
			write(t, dir+"/cache.ignored/f", "x")
			must(os.Chmod(dir+"/cache.ignored", 0o500))
		}, ""},
		{"untracked", func(dir string, tree *Tree) { write(t, dir+"/x", "x") }, "neither committed nor rescued"},
		{"rescued", func(dir string, tree *Tree) {
			write(t, dir+"/x", "x")
			harvest(t, tree, CommitNever)
		}, ""},
		{"changed after the rescue", func(dir string, tree *Tree) {
			write(t, dir+"/x", "x")
			harvest(t, tree, CommitNever)
			write(t, dir+"/x", "y")
		}, "neither committed nor rescued"},
		{"commit under no ref", func(dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "--detach")
			commitFile(t, dir, "lone", "l")
		}, ""},
		{"merge under way", func(dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "-b", "m", "v1")
			commitFile(t, dir, "m", "m")
			run(t, dir, "checkout", "-q", tree.Branch)
			run(t, dir, "merge", "-q", "--no-ff", "--no-commit", "m")
		}, "merge is under way"},
		{"link replaced", func(dir string, tree *Tree) {
			must(os.Remove(dir + "/.git"))
			run(t, dir, "init", "-q")
		}, "link to git was replaced"},
		{"directory replaced", func(dir string, tree *Tree) {
			must(os.Rename(dir, dir+".old"))
			must(os.Symlink(dir+".old", dir))
		}, "replaced by something else"},
		{"gone", func(dir string, tree *Tree) { must(os.RemoveAll(dir)) }, ""},
	} {
		job := fleet.JobID(strings.ReplaceAll(c.name, " ", "-"))
		tree := prepare(t, s, Request{URL: src, Job: job})
		c.agent(tree.Path, tree)
		out, err := removeSaved(t, s, job)
		if err != nil || out.Removed != (c.why == "") || !strings.Contains(out.Why, c.why) {
			t.Errorf("%s: got %+v, %v, want %q", c.name, out, err, c.why)
		}
		if exists(tree.Path) != (c.why != "") {
			t.Errorf("%s: the tree exists: %v", c.name, exists(tree.Path))
		}
		if left := run(t, s.cacheOf(tree).path, "worktree", "list", "--porcelain"); strings.Contains(left, string(job)+"/") != (c.why != "") {
			t.Errorf("%s: git lists %s", c.name, left)
		}
	}
	if out, err := removeSaved(t, s, "never-there"); err != nil || !out.Removed {
		t.Errorf("got %+v, %v", out, err)
	}
	if entries, err := os.ReadDir(filepath.Join(s.dir, "trash")); err != nil || len(entries) != 0 {
		t.Errorf("the trash holds %v, %v", entries, err)
	}
}
