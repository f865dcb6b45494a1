package worktree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestPrepare(t *testing.T) {
	t.Parallel()
	src := origin(t)
	run(t, src, "update-ref", "refs/pull/3/head", "v1^{commit}")
	s := open(t, nil)
	head, v1 := run(t, src, "rev-parse", "HEAD"), run(t, src, "rev-parse", "v1^{commit}")

	t.Run("refs", func(t *testing.T) {
		for i, c := range []struct{ ref, base string }{
			{"", head}, {"HEAD", head}, {"main", head}, {"refs/heads/main", head}, {"side", v1}, {"v1", v1}, {"refs/tags/v1", v1},
			{"refs/pull/3/head", v1}, {head, head}, {v1[:9], v1},
		} {
			tree := prepare(t, s, Request{URL: src, Ref: c.ref, Job: fleet.JobID(fmt.Sprintf("ref%d", i))})
			if tree.Base != c.base {
				t.Errorf("ref %q: got base %s, want %s", c.ref, tree.Base, c.base)
			}
		}
		for _, ref := range []string{"nope", "refs/heads/nope", "refs/pull/9/head", strings.Repeat("ab", 20), "deadbeef"} {
			_, err := s.Prepare(t.Context(), Request{URL: src, Ref: ref, Job: "refx", Fence: fence1})
			wantCode(t, err, fleet.RefMissing)
		}
		_, err := s.Prepare(t.Context(), Request{URL: src, BaseCommit: strings.Repeat("ab", 20), Job: "refx", Fence: fence1})
		wantCode(t, err, fleet.RefMissing)
	})

	t.Run("refused", func(t *testing.T) {
		for _, req := range []Request{
			{URL: "-oProxyCommand=x"}, {URL: "--upload-pack=x"}, {URL: "ext::sh -c x"}, {URL: "relative/path"}, {URL: "http://example.com/x"},
			{URL: "git://example.com/x"}, {URL: "https://user:secret@example.com/x"}, {URL: "https://token@example.com/x"}, {URL: "ssh://-x/y"},
			{URL: "file://host/x"}, {URL: "https:///x"}, {URL: "a\nb"}, {URL: ""}, {Key: "a/b"},
			{URL: src, Ref: "-x"}, {URL: src, Ref: "a..b"}, {URL: src, Ref: "a b"}, {URL: src, ExtraRefs: []string{"--all"}},
			{URL: src, BaseCommit: "main"}, {URL: src, BaseCommit: "-x"}, {URL: src, Branch: "-b"}, {URL: src, Branch: "refs/heads/x"},
			{URL: src, Depth: -1}, {URL: src, Filter: "blob:none --x"}, {URL: src, Bundle: "rel"},
			{URL: src, Job: "../x"}, {URL: src, Job: "-x"}, {URL: src, Job: "a/b"}, {URL: src, Job: "x.lock"},
		} {
			if req.Job == "" {
				req.Job = "refused"
			}
			req.Fence = fence1
			_, err := s.Prepare(t.Context(), req)
			if !errors.Is(err, fleet.BadRequest) {
				t.Errorf("%+v: got %v, want bad_request", req, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a password: %v", err)
			}
		}
		if exists(filepath.Join(s.dir, "work", "refused")) {
			t.Error("a refused request left a directory")
		}
		closed := open(t, func(c *Config) { c.AllowFile = false })
		for _, url := range []string{src, "file://" + src} {
			_, err := closed.Prepare(t.Context(), Request{URL: url, Job: "x", Fence: fence1})
			wantCode(t, err, fleet.OwnerPolicy)
		}
	})

	t.Run("missing repository", func(t *testing.T) {
		_, err := s.Prepare(t.Context(), Request{URL: filepath.Join(t.TempDir(), "nothing"), Job: "x", Fence: fence1})
		wantCode(t, err, fleet.RepoMissing)
	})

	t.Run("cache layout", func(t *testing.T) {
		tree := prepare(t, s, Request{URL: src, Job: "layout", ExtraRefs: []string{"refs/pull/3/head", "side"}})
		c := s.cacheOf(tree)
		refs := run(t, c.path, "for-each-ref", "--format=%(refname)")
		for _, want := range []string{"refs/remotes/origin/main", "refs/remotes/origin/side", "refs/tags/v1", "refs/heads/tugline/layout", "refs/tugline/base/layout", "refs/tugline/extra/layout/pull/3/head"} {
			if !strings.Contains(refs+"\n", want+"\n") {
				t.Errorf("%s is missing in:\n%s", want, refs)
			}
		}
		if strings.Contains(refs, "refs/heads/main") {
			t.Error("a fetch wrote a local branch")
		}
		if exists(filepath.Join(c.path, "FETCH_HEAD")) {
			t.Error("FETCH_HEAD was written")
		}
		for _, key := range []string{"gc.auto", "maintenance.auto"} {
			if got := run(t, tree.Path, "config", "--local", "--get", key); got != "0" && got != "false" {
				t.Errorf("%s is %q", key, got)
			}
		}
		if got := run(t, tree.Path, "config", "--get", "remote.origin.url"); got != src {
			t.Errorf("origin is %q", got)
		}
	})
}

func TestPrepareAgain(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	first := prepare(t, s, Request{URL: src})
	write(t, filepath.Join(first.Path, "work.txt"), "unsaved\n")
	again := prepare(t, s, Request{URL: src})
	if again.Path != first.Path || !exists(filepath.Join(again.Path, "work.txt")) {
		t.Error("the same fence did not give the same tree")
	}
	commitFile(t, again.Path, "done.txt", "x")
	done := run(t, again.Path, "rev-parse", "HEAD")

	newer := prepare(t, s, Request{URL: src, Fence: fence2})
	if newer.Path != first.Path {
		t.Errorf("got path %s, want %s", newer.Path, first.Path)
	}
	if exists(filepath.Join(newer.Path, "work.txt")) || run(t, newer.Path, "rev-parse", "HEAD") != newer.Base {
		t.Error("the newer attempt does not begin at the base")
	}
	if got := s.show(t, newer, rescueRef("job1", fence1), "work.txt"); got != "unsaved" {
		t.Errorf("rescued %q", got)
	}
	if got := run(t, s.cacheOf(newer).path, "rev-parse", fmt.Sprintf("refs/tugline/kept/job1/%s/before-%.12s", fence2, done)); got != done {
		t.Errorf("the earlier branch is kept as %s, want %s", got, done)
	}

	// What can't be saved is not deleted.
	run(t, newer.Path, "init", "-q", "inner")
	commitFile(t, filepath.Join(newer.Path, "inner"), "x", "y")
	_, err := s.Prepare(t.Context(), Request{URL: src, Job: "job1", Fence: fleet.Fence{Epoch: 1, Index: 11}})
	wantCode(t, err, fleet.Conflict)
	if !exists(filepath.Join(newer.Path, "inner/x")) {
		t.Error("a repository inside the tree was deleted")
	}

	// A foreign directory at the job's path is not touched.
	write(t, filepath.Join(s.dir, "work/job2/demo repo/mine.txt"), "x")
	_, err = s.Prepare(t.Context(), Request{URL: src, Job: "job2", Fence: fence1})
	wantCode(t, err, fleet.Conflict)
	if out, err := removeSaved(t, s, "job2"); err != nil || out.Removed {
		t.Errorf("remove: got %+v, %v", out, err)
	}
}

// A crash between the making of the tree and its readiness leaves a tree in which nobody worked.
func TestPrepareAfterCrash(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	rec := tree.rec
	rec.State = statePreparing
	if err := s.save(rec); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(tree.Path, "a.txt")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reopen(t.Context(), "job1"); !errors.Is(err, fleet.NotFound) {
		t.Errorf("reopen of a half-made tree: %v", err)
	}
	again := prepare(t, s, Request{URL: src})
	if !exists(filepath.Join(again.Path, "a.txt")) {
		t.Error("the half-made tree was taken as it was")
	}
	// The tree is deleted behind git's back, and registered still.
	if err := os.RemoveAll(again.Path); err != nil {
		t.Fatal(err)
	}
	prepare(t, s, Request{URL: src})
}

func TestPrepareInParallel(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	other, err := Open(Config{Dir: s.dir, AllowFile: true})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			store := s
			if i%2 == 1 {
				store = other
			}
			tree, err := store.Prepare(t.Context(), Request{URL: src, Job: fleet.JobID(fmt.Sprintf("p%d", i)), Fence: fence1})
			if err != nil {
				errs[i] = fmt.Errorf("%w: %s", err, causes(err))
				return
			}
			write(t, filepath.Join(tree.Path, fmt.Sprintf("f%d", i)), "x")
			res, err := tree.Harvest(t.Context(), HarvestRequest{Fence: fence1})
			if err == nil && (res.CommitCount != 1 || res.Stat.Files != 1) {
				err = fmt.Errorf("job %d: got %+v", i, res)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareEmptyRepository(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "empty.git")
	run(t, "/", "init", "-q", "--bare", src)
	run(t, src, "config", "core.hooksPath", "/dev/null") // of the server's side
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	if tree.Base != "" || !hasNote(tree.Notes, "no commit yet") || filepath.Base(tree.Path) != "empty" {
		t.Fatalf("got %+v", tree)
	}
	res := harvest(t, tree, CommitAuto)
	if res.Tip != "" || res.CommitCount != 0 || res.BundlePath != "" || !res.Descends {
		t.Fatalf("nothing done: got %+v", res)
	}
	write(t, filepath.Join(tree.Path, "first.txt"), "x\n")
	res = harvest(t, tree, CommitAuto)
	if res.RunnerCommit == "" || res.CommitCount != 1 || !res.Descends || res.Stat.Files != 1 {
		t.Fatalf("got %+v", res)
	}
	if got := run(t, tree.Path, "status", "--porcelain", "-uall"); got != "" {
		t.Errorf("after the harvest git shows %q", got)
	}
	if err := tree.Push(t.Context(), PushRequest{Remote: src, Branch: "main", SHA: res.Tip}); err != nil {
		t.Fatal(err)
	}
	back := t.TempDir()
	run(t, back, "init", "-q")
	if _, err := FetchBundle(t.Context(), back, res.BundlePath, "", "got"); err != nil {
		t.Fatal(err)
	}
	if out, err := removeSaved(t, s, "job1"); err != nil || !out.Removed {
		t.Fatalf("got %+v, %v", out, err)
	}
	if again, err := s.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2}); err != nil || !exists(filepath.Join(again.Path, "first.txt")) {
		t.Fatalf("rebuild: %+v, %v", again, err)
	}
}

func TestPrepareShallowAndPartial(t *testing.T) {
	t.Parallel()
	src := origin(t)
	run(t, src, "config", "uploadpack.allowFilter", "true")
	old := run(t, src, "rev-parse", "v1^{commit}")
	s := open(t, nil)
	url := "file://" + src
	shallow := prepare(t, s, Request{URL: url, Depth: 1, Ref: "main"})
	if got := run(t, shallow.Path, "rev-list", "--count", "HEAD"); got != "1" {
		t.Fatalf("depth 1 gave %s commits", got)
	}
	commitFile(t, shallow.Path, "new.txt", "x")
	if res := harvest(t, shallow, CommitAuto); res.CommitCount != 1 || !res.Descends || res.BundlePath == "" {
		t.Fatalf("got %+v", res)
	}
	if tree := prepare(t, s, Request{URL: url, Depth: 1, BaseCommit: old, Job: "old"}); tree.Base != old {
		t.Errorf("got base %s, want %s", tree.Base, old)
	}
	whole := prepare(t, s, Request{URL: url, Ref: "main", Job: "whole"})
	if got := run(t, whole.Path, "rev-list", "--count", "HEAD"); got == "1" {
		t.Error("a job that wants all history got a shallow tree")
	}

	p := open(t, nil)
	partial := prepare(t, p, Request{URL: url, Filter: "blob:none"})
	if got := run(t, partial.Path, "config", "--get", "remote.origin.partialclonefilter"); got != "blob:none" {
		t.Errorf("filter is %q", got)
	}
	if !exists(filepath.Join(partial.Path, "a.txt")) {
		t.Error("the files of a partial clone are not there")
	}
	write(t, filepath.Join(partial.Path, "n.txt"), "n")
	if res := harvest(t, partial, CommitAuto); res.CommitCount != 1 || res.PatchPath == "" {
		t.Fatalf("got %+v", res)
	}
}

func TestPrepareFromBundle(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	local, err := Inspect(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "in.bundle")
	info, err := Bundle(t.Context(), src, BundleRequest{Out: out})
	if err != nil || info.Head != local.HeadSHA || len(info.Prerequisites) != 0 {
		t.Fatalf("got %+v, %v", info, err)
	}
	tree := prepare(t, s, Request{Key: local.RootCommit, Bundle: out, BaseCommit: info.Head})
	if tree.Base != info.Head {
		t.Fatalf("got base %s, want %s", tree.Base, info.Head)
	}
	tips, err := s.Tips(t.Context(), "", local.RootCommit, 10)
	if err != nil || len(tips) == 0 || tips[0] != info.Head {
		t.Fatalf("got tips %v, %v", tips, err)
	}

	// The next hand-over sends only what is new.
	commitFile(t, src, "more.txt", "more")
	write(t, filepath.Join(src, "dirty.txt"), "dirty")
	next, err := Bundle(t.Context(), src, BundleRequest{Out: out, Haves: append(tips, strings.Repeat("ab", 20)), IncludeDirty: true})
	if err != nil || len(next.Prerequisites) != 1 || next.Prerequisites[0] != info.Head {
		t.Fatalf("got %+v, %v", next, err)
	}
	tree2 := prepare(t, s, Request{Key: local.RootCommit, Bundle: out, Job: "job2"})
	if tree2.Base != next.Head || !exists(filepath.Join(tree2.Path, "dirty.txt")) {
		t.Fatalf("got %+v, want base %s with dirty.txt", tree2, next.Head)
	}

	// Another runner lacks what it builds on, unless it can fetch it.
	fresh := open(t, nil)
	_, err = fresh.Prepare(t.Context(), Request{Key: local.RootCommit, Bundle: out, Job: "job3", Fence: fence1})
	wantCode(t, err, fleet.InputMissing)
	if tree := prepare(t, fresh, Request{URL: src, Bundle: out, Job: "job4"}); tree.Base != next.Head {
		t.Errorf("got base %s, want %s", tree.Base, next.Head)
	}
	write(t, out, "no bundle at all")
	_, err = fresh.Prepare(t.Context(), Request{URL: src, Bundle: out, Job: "job5", Fence: fence1})
	wantCode(t, err, fleet.BadRequest)
	_, err = fresh.Prepare(t.Context(), Request{URL: src, Bundle: out + ".gone", Job: "job5", Fence: fence1})
	wantCode(t, err, fleet.InputMissing)
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	commitFile(t, tree.Path, "done.txt", "x")
	res := harvest(t, tree, CommitAuto)
	if again, err := s.Reopen(t.Context(), "job1"); err != nil || again.Path != tree.Path || again.Base != tree.Base {
		t.Fatalf("reopen: %+v, %v", again, err)
	}
	for _, how := range []string{"removed", "deleted by hand"} {
		if how == "removed" {
			if out, err := removeSaved(t, s, "job1"); err != nil || !out.Removed || out.Bytes == 0 {
				t.Fatalf("%s: %+v, %v", how, out, err)
			}
		} else if err := os.RemoveAll(tree.Path); err != nil {
			t.Fatal(err)
		}
		_, err := s.Reopen(t.Context(), "job1")
		wantCode(t, err, fleet.NotFound)
		again, err := s.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2})
		if err != nil || again.Path != tree.Path || again.Base != tree.Base || !exists(filepath.Join(again.Path, "done.txt")) {
			t.Fatalf("%s: %+v, %v", how, again, err)
		}
	}
	// On a runner that never had it, the bundle is enough.
	other := open(t, nil)
	again, err := other.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2, URL: src, BaseCommit: res.Base, Bundle: res.BundlePath})
	if err != nil {
		t.Fatal(err, causes(err))
	}
	if got := run(t, again.Path, "rev-parse", "HEAD"); got != res.Tip || again.Base != res.Base {
		t.Errorf("got tip %s base %s, want %s %s", got, again.Base, res.Tip, res.Base)
	}
	if res2 := harvest(t, again, CommitAuto); res2.CommitCount != 1 || res2.Tip != res.Tip {
		t.Errorf("got %+v", res2)
	}
	// So it is where the cache was damaged meanwhile.
	if out, err := removeSaved(t, s, "job1"); err != nil || !out.Removed {
		t.Fatalf("%+v, %v", out, err)
	}
	must(filepath.WalkDir(filepath.Join(s.cacheOf(tree).path, "objects"), func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			must(os.Chmod(p, 0o600))
			must(os.WriteFile(p, []byte("garbage"), 0o600))
		}
		return err
	}))
	again, err = s.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2, URL: src, BaseCommit: res.Base, Bundle: res.BundlePath})
	if err != nil || again.Path != tree.Path || run(t, again.Path, "rev-parse", "HEAD") != res.Tip {
		t.Fatalf("%+v, %v", again, err)
	}
	_, err = open(t, nil).Rebuild(t.Context(), Request{Job: "job1", Fence: fence2, URL: src})
	wantCode(t, err, fleet.NotFound)
}
