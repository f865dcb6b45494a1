package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func TestDecideCache(t *testing.T) {
	old := decideAt.Add(-400 * time.Hour)
	for _, c := range []struct {
		name  string
		e     CacheEvidence
		keeps func(*Keeps)
		do    Action
		until time.Time
	}{
		{"unused for long", CacheEvidence{LastUse: old}, nil, Delete, time.Time{}},
		{"to the minute", CacheEvidence{LastUse: decideAt.Add(-336 * time.Hour)}, nil, Delete, time.Time{}},
		{"used lately", CacheEvidence{LastUse: decideAt.Add(-335 * time.Hour)}, nil, Keep, decideAt.Add(time.Hour)},
		{"busy", CacheEvidence{Busy: true, LastUse: old}, nil, Keep, time.Time{}},
		{"with a worktree", CacheEvidence{Worktrees: 1, LastUse: old}, nil, Keep, time.Time{}},
		{"with commits of its own", CacheEvidence{Only: []string{"x"}, LastUse: old}, nil, Keep, time.Time{}},
		{"with contents of its own", CacheEvidence{Contents: 1, LastUse: old}, nil, Keep, time.Time{}},
		{"with a young rescue", CacheEvidence{Waits: decideAt.Add(time.Hour), LastUse: old}, nil, Keep, decideAt.Add(time.Hour)},
		{"with an old rescue", CacheEvidence{Waits: decideAt.Add(-time.Hour), LastUse: old}, nil, Delete, time.Time{}},
		{"with an old rescue, kept for ever", CacheEvidence{Waits: decideAt.Add(-time.Hour), LastUse: old}, func(k *Keeps) { k.Rescue = -1 }, Keep, time.Time{}},
		{"kept for ever", CacheEvidence{LastUse: old}, func(k *Keeps) { k.Cache = -1 }, Keep, time.Time{}},
		{"set aside", CacheEvidence{Quarantined: "broken", LastUse: old}, nil, Look, time.Time{}},
		{"unclear", CacheEvidence{Unclear: "x", LastUse: old}, nil, Look, time.Time{}},
	} {
		k := testKeeps
		if c.keeps != nil {
			c.keeps(&k)
		}
		if got := DecideCache(c.e, k, decideAt); got.Do != c.do || !got.Until.Equal(c.until) || got.Why == "" {
			t.Errorf("%s: %+v; want %s until %s", c.name, got, c.do, c.until)
		}
	}
}

// A cache goes when nothing used it for two weeks and nothing in it is here alone. A job that comes then has a new one.
func TestCachesAreEvicted(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	commitFile(t, tree.Path, "done", "x")
	res, err := tree.Harvest(t.Context(), HarvestRequest{Fence: fence1, Out: t.TempDir()})
	must(err)
	must(k.Delivered("job1", fence1))
	c := k.cacheOf(tree).path
	if out := k.pass(25 * hour); len(out.Deleted) != 1 || len(out.Caches) != 1 || out.Caches[0].Repository != src {
		t.Fatalf("%+v", out)
	}
	if out := k.pass(335 * hour); len(out.Evicted) != 0 || !exists(c) {
		t.Fatalf("gone before its time: %+v", out)
	}
	if out := k.pass(2 * hour); len(out.Evicted) != 1 || exists(c) || exists(k.recordPath("job1")) {
		t.Fatalf("not gone: %+v", out)
	}
	if names, err := Caches(k.dir, 8); err != nil || len(names) != 0 {
		t.Errorf("it is still told: %v, %v", names, err)
	}
	if entries, err := os.ReadDir(filepath.Join(k.dir, "trash")); err != nil || len(entries) != 0 {
		t.Errorf("the trash holds %v, %v", entries, err)
	}
	again, err := k.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2, URL: src, BaseCommit: res.Base, Bundle: res.BundlePath})
	if err != nil || again.Path != tree.Path || run(t, again.Path, "rev-parse", "HEAD") != res.Tip {
		t.Errorf("a follow-up: %+v, %v", again, err)
	}
	prepare(t, k.Store, Request{URL: src, Job: "job2"})
}

// R34: no worktree, and every ref is published or past its time.
func TestCachesStayWithWhatIsHereAlone(t *testing.T) {
	t.Parallel()
	src := origin(t)
	for _, c := range []struct {
		name string
		do   func(k *keeper, tree *Tree)
		stay int // passes of 400 h that it stays
		why  string
	}{
		{"a branch", func(k *keeper, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			_, err := removeSaved(t, k.Store, "job1")
			must(err)
		}, 3, "1 refs"},
		{"HEAD alone", func(k *keeper, tree *Tree) {
			run(t, tree.Path, "checkout", "-q", "--detach")
			commitFile(t, tree.Path, "x", "x")
			_, err := removeSaved(t, k.Store, "job1")
			must(err)
		}, 3, "1 refs"},
		{"two stashes", func(k *keeper, tree *Tree) {
			for _, s := range []string{"1", "2"} {
				write(t, tree.Path+"/a.txt", s)
				run(t, tree.Path, "stash", "push", "-q")
			}
			_, err := removeSaved(t, k.Store, "job1")
			must(err)
		}, 3, "refs"},
		{"an agent's own ref", func(k *keeper, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			run(t, tree.Path, "update-ref", "refs/mine/x", "HEAD")
			run(t, tree.Path, "reset", "-q", "--hard", "HEAD~1")
		}, 3, "1 refs"},
		{"a rescue", func(k *keeper, tree *Tree) {
			write(t, tree.Path+"/x", "x")
			harvest(t, tree, CommitNever)
			_, err := removeSaved(t, k.Store, "job1")
			must(err)
		}, 0, ""},
		{"a rescue of commits", func(k *keeper, tree *Tree) {
			run(t, tree.Path, "checkout", "-q", "--detach")
			commitFile(t, tree.Path, "y", "y")
			write(t, tree.Path+"/x", "x")
			k.saveNow(tree)
			_, err := removeSaved(t, k.Store, "job1")
			must(err)
		}, 3, "refs"},
		{"a worktree that an agent made elsewhere", func(k *keeper, tree *Tree) {
			run(t, tree.Path, "worktree", "add", "-q", "--detach", filepath.Join(t.TempDir(), "wt"))
		}, 3, "1 worktrees"},
		{"a tag of the remote", func(*keeper, *Tree) {}, 0, ""},
	} {
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(k, tree)
		k.pass(25 * hour)
		for n := range 3 {
			out := k.pass(400 * hour)
			if stays := len(out.Caches) == 1 && len(out.Evicted) == 0; stays != (n < c.stay) && (n == 0 || c.stay > 0) || stays && !strings.Contains(out.Caches[0].Why, c.why) {
				t.Errorf("%s, pass %d: %+v", c.name, n, out)
			}
		}
	}
}

// saveNow puts the files of a workspace under its rescue ref.
func (k *keeper) saveNow(tree *Tree) {
	k.t.Helper()
	h, err := k.lock(k.t.Context(), tree.rec.Cache)
	must(err)
	defer h.release()
	must(k.saveFiles(k.t.Context(), tree.rec))
}

func TestARescueHoldsACacheForItsTime(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	k.at = k.at.Add(1000 * hour)
	write(t, tree.Path+"/x", "x")
	k.saveNow(tree)
	if _, err := removeSaved(t, k.Store, "job1"); err != nil {
		t.Fatal(err)
	}
	p := k.policy()
	p.Cache = 0 // as under pressure
	k.at = k.at.Add(167 * hour)
	if out, err := k.Retain(t.Context(), p); err != nil || len(out.Caches) != 1 || out.Caches[0].Until.IsZero() {
		t.Fatalf("%+v, %v", out, err)
	}
	k.at = k.at.Add(2 * hour)
	if out, err := k.Retain(t.Context(), p); err != nil || len(out.Evicted) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

// A cache is packed with no worktree on it, at most once a week, and loses nothing that a ref or a log of one reaches.
func TestCachesArePacked(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	write(t, tree.Path+"/a.txt", "stashed\n")
	run(t, tree.Path, "stash", "push", "-q")
	write(t, tree.Path+"/a.txt", "stashed too\n")
	run(t, tree.Path, "stash", "push", "-q")
	commitFile(t, tree.Path, "dropped", "x")
	run(t, tree.Path, "reset", "-q", "--hard", "HEAD~1")
	c := k.cacheOf(tree).path
	if out := k.pass(25 * hour); out.Packed != 0 {
		t.Fatal("packed below a live worktree")
	}
	if out, err := removeSaved(t, k.Store, "job1"); err != nil || !out.Removed {
		t.Fatal(out, err)
	}
	all := run(t, c, "rev-list", "--objects", "--all", "--reflog")
	junk, err := k.git.in(c).run(t.Context(), call{dir: c, stdin: strings.NewReader("junk\n"), args: []string{"hash-object", "-w", "--stdin"}})
	must(err)
	k.at = k.at.Add(1000 * hour) // whatever has no ref is old
	if out := k.pass(0); out.Packed != 1 {
		t.Fatalf("%+v", out)
	}
	if now := run(t, c, "rev-list", "--objects", "--all", "--reflog"); now != all {
		t.Errorf("objects are gone: %s, was %s", now, all)
	}
	if _, err := tryRun(t, c, "cat-file", "-e", strings.TrimSpace(junk)); err == nil {
		t.Error("what nothing refers to is still there after two weeks")
	}
	if loose, _ := filepath.Glob(filepath.Join(c, "objects", "??", "*")); len(loose) != 0 {
		t.Errorf("%d objects are not packed", len(loose))
	}
	run(t, c, "fsck", "--strict")
	if out := k.pass(1000 * hour); out.Packed != 0 {
		t.Error("packed again although nothing has used it")
	}
	again, err := k.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, again.Path, "show", "stash@{1}:a.txt"); got != "stashed" {
		t.Errorf("an older stash holds %q", got)
	}
}

// A cache that was set aside is listed and never goes by itself.
func TestQuarantineStaysAndIsListed(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	must(os.Remove(filepath.Join(k.cacheOf(tree).path, "HEAD")))
	next := prepare(t, k.Store, Request{URL: src, Job: "job2"})
	must(os.RemoveAll(tree.Path))
	for _, job := range []fleet.JobID{"job1", "job2"} {
		must(k.amend(job, func(r *record) { r.State = stateRemoved }))
	}
	must(os.RemoveAll(next.Path))
	must(unregister(k.cacheOf(next).path, next.Path))
	out := k.pass(2000 * hour)
	if len(out.Evicted) != 1 || len(out.Caches) != 1 || out.Caches[0].Do != Look || !strings.Contains(out.Caches[0].Why, "set aside") || !exists(k.cacheOf(tree).path) {
		t.Errorf("%+v", out)
	}
	all, err := k.AllCaches(t.Context(), k.policy())
	if err != nil || len(all) != 1 || all[0].Quarantined == "" {
		t.Errorf("listed: %+v, %v", all, err)
	}
	if names, err := Caches(k.dir, 8); err != nil || len(names) != 0 {
		t.Errorf("it is told as a cache: %v, %v", names, err)
	}
	if third := prepare(t, k.Store, Request{URL: src, Job: "job3"}); third.rec.Generation != "g2.git" {
		t.Errorf("a later job uses %s", third.rec.Generation)
	}
}

// A ref of a remote proves nothing by itself: an agent may have made it, and what was pushed once may be gone. The remote
// is asked before the last copy goes.
func TestCachesStayWithWhatTheRemoteDoesNotHave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(src string, tree *Tree)
		goes bool
	}{
		{"a ref that the agent made", func(_ string, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			run(t, tree.Path, "update-ref", "refs/remotes/origin/x", "HEAD")
		}, false},
		{"pushed elsewhere", func(_ string, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			other := t.TempDir()
			run(t, other, "init", "-q", "--bare")
			run(t, other, "config", "core.hooksPath", "/dev/null")
			run(t, tree.Path, "remote", "set-url", "origin", other)
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/x")
		}, false},
		{"pushed, and deleted there", func(src string, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/x")
			run(t, src, "branch", "-q", "-D", "x")
		}, false},
		{"pushed, and the remote is away", func(src string, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/x")
			must(os.Rename(src, src+"-away"))
		}, false},
		{"a tag of a commit that HEAD never was at", func(_ string, tree *Tree) {
			made := run(t, tree.Path, "commit-tree", "-m", "beside", "-p", "HEAD", "HEAD^{tree}")
			run(t, tree.Path, "tag", "mine", made)
		}, false},
		{"such a tag, annotated", func(_ string, tree *Tree) {
			made := run(t, tree.Path, "commit-tree", "-m", "beside", "-p", "HEAD", "HEAD^{tree}")
			run(t, tree.Path, "tag", "-a", "-m", "mine", "mine", made)
		}, false},
		{"such a tag, pushed", func(_ string, tree *Tree) {
			made := run(t, tree.Path, "commit-tree", "-m", "beside", "-p", "HEAD", "HEAD^{tree}")
			run(t, tree.Path, "tag", "-a", "-m", "mine", "mine", made)
			run(t, tree.Path, "push", "-q", "origin", "mine")
		}, true},
		{"pushed", func(_ string, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/x")
		}, true},
		{"pushed, and the branch went on", func(src string, tree *Tree) {
			commitFile(t, tree.Path, "x", "x")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/x")
			run(t, src, "checkout", "-q", "x")
			commitFile(t, src, "y", "y")
		}, true},
	} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(src, tree)
		if out := k.pass(25 * hour); len(out.Deleted) != 1 {
			t.Errorf("%s: %+v", c.name, out)
		}
		for range 2 {
			out := k.pass(400 * hour)
			if gone := !exists(k.cacheOf(tree).path); gone != c.goes {
				t.Errorf("%s: gone is %v: %+v", c.name, gone, out)
			}
		}
	}
}
