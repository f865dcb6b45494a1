package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

const hour = time.Hour

// A keeper is a store whose time is set by the test.
type keeper struct {
	*Store
	t    *testing.T
	at   time.Time
	busy map[fleet.JobID]bool
}

func keeping(t *testing.T, change func(*Config)) *keeper {
	t.Helper()
	k := &keeper{t: t, at: time.Now(), busy: map[fleet.JobID]bool{}}
	k.Store = open(t, func(c *Config) {
		c.Now = func() time.Time { return k.at }
		if change != nil {
			change(c)
		}
	})
	return k
}

func (k *keeper) policy() Policy {
	return Policy{Keeps: testKeeps, Busy: func(j fleet.JobID) bool { return k.busy[j] }}
}

// pass lets time go by and then a pass over everything.
func (k *keeper) pass(after time.Duration) Retained {
	k.t.Helper()
	k.at = k.at.Add(after)
	out, err := k.Retain(k.t.Context(), k.policy())
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// kept gives what is said of the one workspace there is.
func (k *keeper) kept(out Retained) Workspace {
	k.t.Helper()
	if len(out.Kept) != 1 || len(out.Deleted) != 0 {
		k.t.Fatalf("kept %+v, deleted %+v; want one kept", out.Kept, out.Deleted)
	}
	return out.Kept[0]
}

// sh runs a command as a person does.
func sh(t *testing.T, command, home string) {
	t.Helper()
	if res, err := process.Run(t.Context(), process.Cmd{Argv: []string{"sh", "-c", command}, Dir: "/", Env: append(os.Environ(), "HOME="+home, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=/dev/null"), Limit: 1 << 20}); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, res.Stdout)
	}
}

func TestRetainDeletesWhatIsPublished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		publish func(k *keeper, src string, tree *Tree)
	}{
		{"nothing was done", func(*keeper, string, *Tree) {}},
		{"ignored files", func(k *keeper, _ string, tree *Tree) { write(t, tree.Path+"/x.ignored", "x") }},
		{"at the hub", func(k *keeper, _ string, tree *Tree) {
			commitFile(t, tree.Path, "done.txt", "x")
			harvest(t, tree, CommitAuto)
			must(k.Delivered("job1", fence1))
		}},
		{"committed by the runner, at the hub", func(k *keeper, _ string, tree *Tree) {
			write(t, tree.Path+"/done.txt", "x")
			harvest(t, tree, CommitAuto)
			must(k.Delivered("job1", fence1))
		}},
		{"pushed by the runner", func(k *keeper, src string, tree *Tree) {
			commitFile(t, tree.Path, "done.txt", "x")
			res := harvest(t, tree, CommitAuto)
			must(k.Push(t.Context(), "job1", PushRequest{Remote: src, Branch: "result", SHA: res.Tip}))
		}},
		{"pushed by the agent", func(k *keeper, src string, tree *Tree) {
			commitFile(t, tree.Path, "done.txt", "x")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/result")
		}},
		{"merged and fetched by a later job", func(k *keeper, src string, tree *Tree) {
			commitFile(t, tree.Path, "done.txt", "x")
			run(t, src, "fetch", "-q", k.cacheOf(tree).path, tree.Branch+":merged")
			prepare(t, k.Store, Request{URL: src, Job: "job2"})
			k.busy["job2"] = true
		}},
		{"amended, and pushed", func(k *keeper, src string, tree *Tree) {
			commitFile(t, tree.Path, "done.txt", "x")
			run(t, tree.Path, "commit", "-q", "--amend", "-m", "better")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/result")
		}},
	} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.publish(k, src, tree)
		before := run(t, tree.Path, "rev-list", "--reflog", "HEAD")
		branch := run(t, tree.Path, "rev-parse", tree.Branch)
		if out := k.pass(23 * hour); len(out.Deleted) != 0 || !exists(tree.Path) {
			t.Errorf("%s: gone before its time: %+v", c.name, out)
		}
		if out := k.pass(2 * hour); len(out.Deleted) != 1 || exists(tree.Path) || out.Bytes == 0 {
			t.Errorf("%s: not gone: %+v", c.name, out)
			continue
		}
		for _, sha := range strings.Fields(before) {
			if got := run(t, k.cacheOf(tree).path, "for-each-ref", "--count=1", "--contains="+sha); got == "" {
				t.Errorf("%s: commit %s is under no ref", c.name, sha)
			}
		}
		again, err := k.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2})
		if err != nil || again.Path != tree.Path || run(t, again.Path, "rev-parse", "HEAD") != branch {
			t.Errorf("%s: built again: %+v, %v", c.name, again, err)
		}
	}
}

// Commits that are nowhere else hold a workspace without limit. The command that is shown saves them, and then it goes.
func TestRetainKeepsWhatIsNowhereElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(tree *Tree)
		own  int
	}{
		{"on the branch", func(tree *Tree) {
			commitFile(t, tree.Path, "one", "1")
			commitFile(t, tree.Path, "two", "2")
		}, 2},
		{"harvested, and no hub has it", func(tree *Tree) {
			write(t, tree.Path+"/one", "1")
			harvest(t, tree, CommitAuto)
		}, 1},
		{"detached", func(tree *Tree) {
			run(t, tree.Path, "checkout", "-q", "--detach")
			commitFile(t, tree.Path, "one", "1")
		}, 1},
		{"on another branch", func(tree *Tree) {
			run(t, tree.Path, "checkout", "-q", "-b", "mine")
			commitFile(t, tree.Path, "one", "1")
			run(t, tree.Path, "checkout", "-q", tree.Branch)
		}, 1},
		{"under a tag", func(tree *Tree) {
			commitFile(t, tree.Path, "one", "1")
			run(t, tree.Path, "tag", "mine")
			run(t, tree.Path, "reset", "-q", "--hard", "HEAD~1")
		}, 1},
		{"stashed", func(tree *Tree) {
			write(t, tree.Path+"/a.txt", "changed")
			run(t, tree.Path, "stash", "push", "-q")
		}, 2},
		{"stashed without a branch", func(tree *Tree) {
			run(t, tree.Path, "checkout", "-q", "--detach")
			write(t, tree.Path+"/a.txt", "changed")
			run(t, tree.Path, "stash", "push", "-q")
		}, 2},
	} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(tree)
		w := k.kept(k.pass(25 * hour))
		if w.Do != Keep || !w.Until.IsZero() || w.Own != c.own || len(w.Commands) != 1 {
			t.Errorf("%s: %+v", c.name, w)
			continue
		}
		if w = k.kept(k.pass(1000 * hour)); w.Do != Keep || w.Own != c.own {
			t.Errorf("%s, after weeks: %+v", c.name, w)
		}
		sh(t, w.Commands[0], t.TempDir())
		if out := k.pass(hour); len(out.Deleted) == 0 {
			t.Errorf("%s: saved with %s, and still there: %+v", c.name, w.Commands[0], out)
		}
	}
}

// What an agent tells git to ignore in settings that all jobs of a cache share is ignored by nobody who may delete: only
// the repository's own patterns and those of the owner count.
func TestRetainSavesWhatSharedSettingsHide(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(tree *Tree, common string){
		"info/exclude": func(_ *Tree, common string) { write(t, common+"/info/exclude", "*\n") },
		"core.excludesFile": func(tree *Tree, common string) {
			write(t, common+"/patterns", "*\n")
			run(t, tree.Path, "config", "core.excludesFile", common+"/patterns")
		},
	} {
		src := origin(t)
		commitFile(t, src, ".gitignore", "*.o\n")
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		common := k.cacheOf(tree).path
		hide(tree, common)
		write(t, tree.Path+"/notes", "work\n")
		write(t, tree.Path+"/x.o", "built\n")
		if out := k.pass(25 * hour); len(out.Saved) != 1 {
			t.Errorf("%s: %+v", name, out)
			continue
		}
		if got := run(t, common, "ls-tree", "-r", "--name-only", rescueRef("job1", fence1)); !strings.Contains(got, "notes") || strings.Contains(got, "x.o") {
			t.Errorf("%s: saved are %q", name, got)
		}
	}
}

// Files that are not committed go under a rescue ref first, and the workspace stays seven days more.
func TestRetainSavesFilesFirst(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	write(t, tree.Path+"/a.txt", "staged\n")
	run(t, tree.Path, "add", "a.txt")
	write(t, tree.Path+"/a.txt", "edited\n")
	write(t, tree.Path+"/new file", "new\n")
	out := k.pass(25 * hour)
	w := k.kept(out)
	ref := rescueRef("job1", fence1)
	if len(out.Saved) != 1 || w.Rescue != ref || !w.Until.Equal(time.Unix(k.at.Unix(), 0).Add(7*24*hour)) {
		t.Fatalf("got %+v, until %v", w, w.Until)
	}
	c := k.cacheOf(tree).path
	for name, want := range map[string]string{ref + ":a.txt": "edited", ref + ":new file": "new", ref + "^2:a.txt": "staged"} {
		if got := run(t, c, "show", name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if run(t, tree.Path, "status", "--porcelain", "--untracked-files=all") != "MM a.txt\n?? \"new file\"" {
		t.Error("the workspace was changed")
	}
	if len(k.pass(6*24*hour).Saved) != 0 || !exists(tree.Path) {
		t.Error("saved twice, or gone before its time")
	}
	// What is changed later is saved again, and what was saved stays.
	write(t, tree.Path+"/new file", "newer\n")
	if out = k.pass(24 * hour); len(out.Saved) != 1 || !exists(tree.Path) {
		t.Fatalf("the change: %+v", out)
	}
	if run(t, c, "show", ref+":new file") != "newer" || run(t, c, "show", ref+"^3:new file") != "new" {
		t.Error("an earlier rescue is gone")
	}
	sh(t, k.kept(k.pass(hour)).Commands[0], t.TempDir())
	if run(t, src, "show", tree.Branch+"-rescue:new file") != "newer" {
		t.Error("the command did not save the files")
	}
	if out = k.pass(7 * 24 * hour); len(out.Deleted) != 1 || exists(tree.Path) {
		t.Errorf("after seven days: %+v", out)
	}
	if again, err := k.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2}); err != nil || !hasNote(again.Notes, ref) {
		t.Errorf("a follow-up is not told of %s: %+v, %v", ref, again, err)
	}
}

func TestRetainLeavesTheRestAlone(t *testing.T) {
	t.Parallel()
	src := origin(t)
	for _, c := range []struct {
		name string
		do   func(k *keeper, tree *Tree)
		what Action
		why  string
	}{
		{"busy", func(k *keeper, _ *Tree) { k.busy["job1"] = true }, Keep, "a job works"},
		{"large", func(k *keeper, tree *Tree) { write(t, tree.Path+"/x", strings.Repeat("x", 200)) }, Keep, "1 files with 200 bytes"},
		{"a merge", func(k *keeper, tree *Tree) { write(t, tree.rec.Admin+"/MERGE_HEAD", tree.Base) }, Look, "merge is under way"},
		{"a lock", func(k *keeper, tree *Tree) { write(t, tree.rec.Admin+"/index.lock", "") }, Look, "git command"},
		{"a repository", func(k *keeper, tree *Tree) {
			run(t, tree.Path, "init", "-q", "inner")
			commitFile(t, tree.Path+"/inner", "x", "y")
		}, Keep, "git repository of its own"},
		{"an ignored repository", func(k *keeper, tree *Tree) {
			run(t, tree.Path, "init", "-q", "a.ignored/inner")
		}, Keep, "git repository of its own"},
		{"an ignored bare repository", func(k *keeper, tree *Tree) {
			run(t, tree.Path, "init", "-q", "--bare", "a.ignored/inner.git")
		}, Keep, "git repository of its own"},
		{"replaced", func(k *keeper, tree *Tree) {
			must(os.Rename(tree.Path, tree.Path+".old"))
			must(os.Symlink(tree.Path+".old", tree.Path))
		}, Look, "replaced"},
		{"no record", func(k *keeper, tree *Tree) { must(os.Remove(k.recordPath("job1"))) }, Look, "not made by this runner"},
		{"unreadable record", func(k *keeper, tree *Tree) { write(t, k.recordPath("job1"), "{") }, Look, "can't be read"},
	} {
		k := keeping(t, func(cfg *Config) { cfg.UntrackedLimit = 100 })
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(k, tree)
		for range 2 {
			w := k.kept(k.pass(1000 * hour))
			if w.Do != c.what || !strings.Contains(w.Why, c.why) || !w.Until.IsZero() || len(w.Commands) == 0 && !w.Busy {
				t.Errorf("%s: %+v", c.name, w)
			}
		}
		if !exists(tree.Path) {
			t.Errorf("%s: it is gone", c.name)
		}
	}
}

// What is in use holds up itself alone.
func TestRetainGoesOnWhileARepositoryIsBusy(t *testing.T) {
	t.Parallel()
	one, two := origin(t), origin(t)
	k := keeping(t, nil)
	a, b := prepare(t, k.Store, Request{URL: one, Job: "a"}), prepare(t, k.Store, Request{URL: two, Job: "b"})
	h, err := k.lock(t.Context(), a.rec.Cache)
	must(err)
	out := k.pass(25 * hour)
	h.release()
	if !exists(a.Path) || exists(b.Path) || len(out.Kept) != 1 || !strings.Contains(out.Kept[0].Why, "in use") {
		t.Errorf("got %+v", out)
	}
	if k.pass(0); exists(a.Path) {
		t.Error("it is still there")
	}
}

// A job that begins while its workspace is looked at, and a person who writes then, are not overrun.
func TestRetainYieldsToWhoComesBetween(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	k.at = k.at.Add(25 * hour)
	rec, err := k.load("job1")
	must(err)
	e, err := k.examine(t.Context(), rec)
	must(err)
	depart := func(what string) {
		t.Helper()
		h, err := k.lock(t.Context(), rec.Cache)
		must(err)
		defer h.release()
		if gone, _, err := k.depart(t.Context(), rec, e, k.policy()); gone || err != nil || !exists(tree.Path+"/a.txt") || exists(tree.Path+goingSuffix) {
			t.Errorf("%s: gone %v, %v", what, gone, err)
		}
	}
	k.busy["job1"] = true
	depart("a job")
	k.busy["job1"] = false
	write(t, tree.Path+"/late", "x")
	depart("a person")
	must(os.Remove(tree.Path + "/late"))
	harvest(t, tree, CommitAuto)
	depart("a job that has come and gone")
	// A crash in between costs nothing.
	must(os.Rename(tree.Path, tree.Path+goingSuffix))
	if again, err := k.Reopen(t.Context(), "job1"); err != nil || again.Path != tree.Path || !exists(tree.Path+"/a.txt") {
		t.Errorf("after a crash: %+v, %v", again, err)
	}
}

func TestUnfinishedWorkspacesOfAJobGo(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree, other := prepare(t, k.Store, Request{URL: src}), prepare(t, k.Store, Request{URL: src, Job: "job2"})
	if was, err := k.Unfinished(t.Context(), "job1"); was || err != nil || !exists(tree.Path) {
		t.Fatalf("a finished one: %v, %v", was, err)
	}
	must(k.amend("job1", func(r *record) { r.State = statePreparing }))
	if was, err := k.Unfinished(t.Context(), "job1"); !was || err != nil || exists(tree.Path) || !exists(other.Path) {
		t.Errorf("a half-made one: %v, %v", was, err)
	}
	if left := run(t, k.cacheOf(tree).path, "worktree", "list"); strings.Contains(left, "job1") {
		t.Errorf("git still knows %s", left)
	}
	prepare(t, k.Store, Request{URL: src})
}

func TestWorkspacesChangesNothing(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	write(t, tree.Path+"/x", "x")
	files := func() (n int) {
		must(filepath.WalkDir(k.cacheOf(tree).path, func(_ string, _ os.DirEntry, err error) error { n++; return err }))
		return n
	}
	before := files()
	k.at = k.at.Add(25 * hour)
	all, err := k.Workspaces(t.Context(), k.policy())
	if err != nil || len(all) != 1 || all[0].Do != Save || !all[0].Dirty || all[0].URL != src || len(all[0].Commands) != 1 {
		t.Errorf("got %+v, %v", all, err)
	}
	if after := files(); after != before {
		t.Errorf("the cache has %d files, had %d", after, before)
	}
}

func TestRetainWithSubmodules(t *testing.T) {
	t.Parallel()
	lib, src := origin(t), origin(t)
	run(t, src, "submodule", "--quiet", "add", lib, "lib")
	run(t, src, "commit", "-q", "-m", "submodule")
	for _, c := range []struct {
		name string
		do   func(inner string)
		why  string
	}{
		{"as they were", func(string) {}, ""},
		{"not checked out", func(inner string) { must(os.RemoveAll(inner)) }, ""},
		{"edited", func(inner string) { write(t, inner+"/a.txt", "x") }, "has changes"},
		{"with bytes that git does not see", func(inner string) {
			run(t, inner, "config", "core.autocrlf", "input")
			write(t, inner+"/a.txt", "one\r\ntwo\r\n")
			run(t, inner, "add", "a.txt")
		}, "would not store as they are"},
		{"committed", func(inner string) { commitFile(t, inner, "x", "x") }, "commits that no remote has"},
		{"committed and undone", func(inner string) {
			commitFile(t, inner, "x", "x")
			run(t, inner, "reset", "-q", "--hard", "HEAD~1")
		}, "commits that no remote has"},
		{"committed and deleted", func(inner string) {
			commitFile(t, inner, "x", "x")
			must(os.RemoveAll(inner))
			must(os.Mkdir(inner, 0o700))
		}, "commits that no remote has"},
		{"stashed", func(inner string) {
			write(t, inner+"/a.txt", "x")
			run(t, inner, "stash", "push", "-q")
		}, "commits that no remote has"},
	} {
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(tree.Path + "/lib")
		k.pass(25 * hour)            // may have saved what was changed
		out := k.pass(8 * 24 * hour) // and that was kept for its time
		if gone := !exists(tree.Path); gone != (c.why == "") || !gone && !strings.Contains(k.kept(out).Why, c.why) {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
}

// A job takes its workspace up at any moment of its removal: it has it whole, as it was or built anew, and git knows it.
func TestAJobTakesUpWhatIsOnItsWayOut(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	var mu sync.Mutex
	busy := map[fleet.JobID]bool{}
	p := Policy{Keeps: Keeps{Cache: -1}, Busy: func(j fleet.JobID) bool { mu.Lock(); defer mu.Unlock(); return busy[j] }}
	tree := prepare(t, s, Request{URL: src})
	built, found := 0, 0
	for n := 0; n < 24 || built == 0 && n < 300; n++ { // until a pass was quick enough, on any machine
		mu.Lock()
		busy["job1"] = false
		mu.Unlock()
		done := make(chan Retained)
		go func() {
			out, err := s.Retain(t.Context(), p)
			if err != nil {
				t.Error(err)
			}
			done <- out
		}()
		<-time.After(time.Duration(n) * 12 * time.Millisecond) // a moment of the pass, any
		mu.Lock()
		busy["job1"] = true
		mu.Unlock()
		again, err := s.Reopen(t.Context(), "job1")
		if err != nil {
			built++
			if again, err = s.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2}); err != nil {
				t.Fatal(err)
			}
		} else {
			found++
		}
		<-done
		if !exists(again.Path+"/a.txt") || exists(again.Path+goingSuffix) || run(t, again.Path, "status", "--porcelain") != "" {
			t.Fatalf("round %d: the workspace is not whole", n)
		}
		if _, err := s.Reopen(t.Context(), "job1"); err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
	}
	t.Logf("%d times it was built anew, %d times as it was", built, found)
	if tree.Path == "" || built == 0 {
		t.Error("it was never removed")
	}
}

// Files that git ignores go with the workspace, but for those that the owner names.
func TestRetainSavesIgnoredFilesThatAreNamed(t *testing.T) {
	t.Parallel()
	src := origin(t)
	k := keeping(t, func(c *Config) { c.RescueIgnored = []string{"env.ignored", "data/*.ignored"} })
	tree := prepare(t, k.Store, Request{URL: src})
	write(t, tree.Path+"/deep/env.ignored", "secret\n")
	write(t, tree.Path+"/data/x.ignored", "data\n")
	write(t, tree.Path+"/other.ignored", "other\n")
	out := k.pass(25 * hour)
	ref := k.kept(out).Rescue
	if len(out.Saved) != 1 || ref == "" {
		t.Fatalf("%+v", out)
	}
	if got := run(t, k.cacheOf(tree).path, "diff", "--name-only", ref+"^1", ref); got != "data/x.ignored\ndeep/env.ignored" {
		t.Errorf("saved are %q", got)
	}
	if out = k.pass(8 * 24 * hour); len(out.Deleted) != 1 {
		t.Errorf("%+v", out)
	}
}
