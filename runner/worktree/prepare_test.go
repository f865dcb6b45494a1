package worktree

import (
	"os"
	"path/filepath"
	"testing"
)

func child(dir string) int { return 0 }

func TestPrepareAndHarvest(t *testing.T) {
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	head := run(t, src, "rev-parse", "HEAD")
	if tree.Base != head || tree.Branch != "tugline/job1" {
		t.Fatalf("got base %s branch %s, want %s tugline/job1", tree.Base, tree.Branch, head)
	}
	if got := run(t, tree.Path, "symbolic-ref", "HEAD"); got != "refs/heads/tugline/job1" {
		t.Errorf("HEAD is %s", got)
	}
	if got := run(t, tree.Path, "status", "--porcelain", "-uall"); got != "" {
		t.Errorf("a fresh tree has changes: %q", got)
	}
	write(t, filepath.Join(tree.Path, "a.txt"), "one\ntwo\nthree\n")
	write(t, filepath.Join(tree.Path, "new/b.txt"), "b\n")
	write(t, filepath.Join(tree.Path, "c.ignored"), "b\n")
	res := harvest(t, tree, CommitAuto)
	if res.RunnerCommit == "" || res.Tip != res.RunnerCommit || !res.Descends || res.CommitCount != 1 || res.LeftUncommitted || res.RescueRef != "" {
		t.Fatalf("got %+v", res)
	}
	if res.Stat != (Stat{Files: 2, Insertions: 2}) {
		t.Errorf("got %+v, want 2 files with 2 insertions", res.Stat)
	}
	if got := run(t, tree.Path, "status", "--porcelain", "-uall"); got != "" {
		t.Errorf("after the harvest git shows %q", got)
	}
	back := filepath.Join(t.TempDir(), "back")
	run(t, "/", "clone", "-q", src, back)
	got, err := FetchBundle(t.Context(), back, res.BundlePath, "tugline/job1", "result")
	if err != nil || got.SHA != res.Tip || !got.Created {
		t.Fatalf("fetch bundle: %+v, %v", got, err)
	}
	run(t, back, "apply", "--check", res.PatchPath)
	if _, err := os.Stat(filepath.Join(tree.Path, "c.ignored")); err != nil {
		t.Error(err)
	}
	out, err := s.Remove(t.Context(), "job1")
	if err != nil || !out.Removed {
		t.Fatalf("remove: %+v, %v", out, err)
	}
}
