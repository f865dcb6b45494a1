package worktree

import (
	"os"
	"testing"
)

// A job may begin at a commit that another job has made and that is nowhere else: that its base is known tells nothing of
// it, and neither does a bundle at the hub that builds on it.
func TestABaseOfAnotherJobIsNotPublished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(k *keeper, src string, one, two *Tree)
		own  int // of the second job; none: it goes
	}{
		{"nothing was done", func(*keeper, string, *Tree, *Tree) {}, 1},
		{"a result at the hub", func(k *keeper, _ string, _, two *Tree) {
			commitFile(t, two.Path, "y", "y")
			harvest(t, two, CommitAuto)
			must(k.Delivered("job2", fence1))
		}, 2},
		{"the first one's result at the hub", func(k *keeper, _ string, one, _ *Tree) {
			harvest(t, one, CommitAuto)
			must(k.Delivered("job1", fence1))
		}, 0},
		{"both results at the hub", func(k *keeper, _ string, one, two *Tree) {
			commitFile(t, two.Path, "y", "y")
			for _, tree := range []*Tree{two, one} {
				harvest(t, tree, CommitAuto)
				must(k.Delivered(tree.Job, fence1))
			}
		}, 0},
		{"pushed", func(k *keeper, src string, _, two *Tree) {
			commitFile(t, two.Path, "y", "y")
			res := harvest(t, two, CommitAuto)
			must(k.Push(t.Context(), "job2", PushRequest{Remote: src, Branch: "two", SHA: res.Tip}))
		}, 0},
	} {
		src := origin(t)
		k := keeping(t, nil)
		one := prepare(t, k.Store, Request{URL: src})
		x := commitFile(t, one.Path, "x", "x")
		two := prepare(t, k.Store, Request{URL: src, Job: "job2", BaseCommit: x})
		c.do(k, src, one, two)
		cache := k.cacheOf(one).path
		must(os.RemoveAll(one.Path)) // by hand
		out := k.pass(25 * hour)
		if gone := !exists(two.Path); gone != (c.own == 0) || !gone && k.rest(out).Own != c.own {
			t.Errorf("%s: %+v", c.name, out)
		}
		must(os.RemoveAll(two.Path))
		for range 3 {
			k.pass(400 * hour)
		}
		if exists(cache) != (c.own > 0) {
			t.Errorf("%s: the cache is there: %v", c.name, exists(cache))
		}
	}
}

// rest gives what is said of the one workspace that stays.
func (k *keeper) rest(out Retained) Workspace {
	k.t.Helper()
	if len(out.Kept) != 1 {
		k.t.Fatalf("kept %+v; want one", out.Kept)
	}
	return out.Kept[0]
}

// Refs by which this package remembers what came from elsewhere are in a repository where agents write: they prove nothing.
func TestRefsOfAnAgentProveNothing(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"refs/tugline/input/job1", "refs/tugline/extra/job1/x", "refs/tugline/base/job1", "refs/tugline/input/other"} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		x := commitFile(t, tree.Path, "x", "x")
		run(t, tree.Path, "update-ref", ref, x)
		if w := k.kept(k.pass(25 * hour)); w.Do != Keep || w.Own != 1 {
			t.Errorf("%s: %+v", ref, w)
		}
		run(t, tree.Path, "reset", "-q", "--hard", "HEAD~1")
		run(t, tree.Path, "reflog", "expire", "--expire=now", "--all")
		for range 3 {
			k.pass(400 * hour)
		}
		if _, err := tryRun(t, k.cacheOf(tree).path, "cat-file", "-e", x); exists(tree.Path) || err != nil {
			t.Errorf("%s: the workspace is there: %v; the commit: %v", ref, exists(tree.Path), err)
		}
	}
}

// What only a ref of the remote, a tag or another branch reaches when a workspace goes is under a ref of its job: the next
// fetch, or the next job, may move these.
func TestWhatOthersMayMoveIsKeptByTheJob(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(tree *Tree, x string){
		"a ref of the remote": func(tree *Tree, x string) { run(t, tree.Path, "update-ref", "refs/remotes/origin/x", x) },
		"a symbolic one": func(tree *Tree, x string) {
			run(t, tree.Path, "update-ref", "refs/heads/mine", x)
			run(t, tree.Path, "symbolic-ref", "refs/remotes/origin/x", "refs/heads/mine")
		},
	} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		cache := k.cacheOf(tree).path
		run(t, tree.Path, "checkout", "-q", "--detach")
		x := commitFile(t, tree.Path, "x", "x")
		hide(tree, x)
		if out := k.pass(25 * hour); len(out.Deleted) != 1 {
			t.Errorf("%s: %+v", name, out)
		}
		other := prepare(t, k.Store, Request{URL: src, Job: "job2", Ref: "side"})
		if got := run(t, cache, "for-each-ref", "--format=%(refname)", "refs/remotes"); got != "refs/remotes/origin/main\nrefs/remotes/origin/side" {
			t.Errorf("%s: after a fetch there are %s", name, got)
		}
		_, _ = tryRun(t, other.Path, "branch", "-q", "-D", "mine")
		must(os.RemoveAll(other.Path))
		for range 3 {
			k.pass(400 * hour)
		}
		if _, err := tryRun(t, cache, "cat-file", "-e", x); err != nil {
			t.Errorf("%s: the commit is lost: %v", name, err)
		}
	}
}

// Of a workspace that somebody has deleted by hand, what was staged is still in its index, and is kept as what was left
// behind is.
func TestWhatWasStagedOutlivesItsFiles(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	write(t, tree.Path+"/staged", "x\n")
	run(t, tree.Path, "add", "staged")
	must(os.RemoveAll(tree.Path))
	if out := k.pass(25 * hour); len(out.Deleted) != 1 {
		t.Fatalf("%+v", out)
	}
	cache := k.cacheOf(tree).path
	kept := run(t, cache, "for-each-ref", "--format=%(refname)", "refs/tugline/kept/job1")
	if kept == "" || run(t, cache, "show", kept+"^1:staged") != "x" {
		t.Errorf("kept is %q", kept)
	}
	if out := k.pass(400 * hour); len(out.Evicted) != 1 {
		t.Errorf("it is kept for ever: %+v", out)
	}
}
