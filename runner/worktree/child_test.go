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

// child is a second runner process: it prepares the jobs that its environment names.
func child(dir string) int {
	s, err := Open(Config{Dir: dir, AllowFile: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, job := range strings.Fields(os.Getenv("WORKTREE_TEST_JOBS")) {
		req := Request{URL: os.Getenv("WORKTREE_TEST_URL"), Job: fleet.JobID(job), Fence: fence1}
		if _, err := s.Prepare(context.Background(), req); err != nil {
			fmt.Fprintln(os.Stderr, err, causes(err))
			return 1
		}
	}
	return 0
}

func runChild(ctx context.Context, dir, url, jobs string, env ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = process.Run(ctx, process.Cmd{Argv: []string{self}, Grace: time.Millisecond, Env: append(os.Environ(),
		append(env, "WORKTREE_TEST_CHILD="+dir, "WORKTREE_TEST_JOBS="+jobs, "WORKTREE_TEST_URL="+url)...)})
	return err
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	done := make(chan error, 2)
	for _, jobs := range []string{"c1 c2 c3", "c4 c5 c6"} {
		go func() { done <- runChild(t.Context(), s.dir, src, jobs) }()
	}
	err := errors.Join(<-done, <-done)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		tree, err := s.Reopen(t.Context(), fleet.JobID(fmt.Sprintf("c%d", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := run(t, tree.Path, "status", "--porcelain", "--branch", "-uall"); got != "## "+tree.Branch {
			t.Errorf("job c%d: git shows %q", i+1, got)
		}
	}
	if all, err := s.generations(cacheID(src)); err != nil || len(all) != 1 {
		t.Errorf("got generations %v, %v, want one", all, err)
	}
}

// A runner is killed in the middle of a fetch; its git is left alone and hangs, and locks of a git that died lie around.
// The next runner does the job all the same.
func TestKilledInAFetch(t *testing.T) {
	t.Parallel()
	src := origin(t)
	dir, err := os.MkdirTemp("", "worktree-killed-")
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	begun, hang := filepath.Join(dir, "begun"), filepath.Join(dir, "hang")
	write(t, hang, "")
	t.Cleanup(func() { _ = os.Remove(hang) })
	hook := filepath.Join(dir, "hook")
	must(os.WriteFile(hook, []byte("#!/bin/sh\ntouch '"+begun+"'\nwhile [ -e '"+hang+"' ]; do sleep 0.05; done\nexit 1\n"), 0o700))
	config := filepath.Join(dir, "gitconfig")
	write(t, config, "[user]\n\tname = A\n\temail = a@x\n[uploadpack]\n\tpackObjectsHook = "+hook+"\n")

	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	ended := make(chan error, 1)
	store := filepath.Join(dir, "store")
	go func() { ended <- runChild(ctx, store, src, "job1", "GIT_CONFIG_GLOBAL="+config) }()
	waitFor(t, "the fetch", func() bool { return exists(begun) })
	kill()
	<-ended

	s := open(t, func(c *Config) { c.Dir = store })
	all, err := s.generations(cacheID(src))
	if err != nil || len(all) != 1 {
		t.Fatalf("got generations %v, %v", all, err)
	}
	cache := filepath.Join(s.dir, "repos", cacheID(src), "g1.git")
	old := time.Now().Add(-time.Minute)
	for _, name := range []string{"packed-refs.lock", "refs/remotes/origin/main.lock", "refs/tugline/base/job1.lock"} {
		write(t, filepath.Join(cache, name), "")
		must(os.Chtimes(filepath.Join(cache, name), old, old))
	}
	must(os.WriteFile(filepath.Join(cache, "objects/pack/tmp_pack_x"), []byte("PACK"), 0o600))
	tree := prepare(t, s, Request{URL: src})
	write(t, filepath.Join(tree.Path, "n"), "n")
	if res := harvest(t, tree, CommitAuto); res.CommitCount != 1 {
		t.Fatalf("got %+v", res)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not happen", what)
		}
	}
}
