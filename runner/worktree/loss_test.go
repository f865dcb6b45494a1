package worktree

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// Whatever state agents and people leave repositories in, and whenever the passes come: no commit and no uncommitted
// byte is lost. Each is afterwards still in the workspace, in a ref of the cache, or with the remote.
func TestNothingIsEverLost(t *testing.T) {
	t.Parallel()
	lib, src := origin(t), origin(t)
	run(t, src, "submodule", "--quiet", "add", lib, "lib")
	run(t, src, "commit", "-q", "-m", "submodule")
	run(t, src, "config", "receive.denyCurrentBranch", "ignore")
	f := flag.Lookup("rapid.checks")
	few := f.Value.String() == f.DefValue
	if few { // some seconds each; `make soak` has more
		checks := "10"
		if testing.Short() {
			checks = "4"
		}
		must(flag.Set("rapid.checks", checks))
	}
	done := map[Action]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt, src, lib)
		for range rapid.IntRange(1, 6).Draw(rt, "acts") {
			name := rapid.SampledFrom(actNames).Draw(rt, "act")
			w.act(name)
		}
		w.prepare() // one that nobody has confused
		if rapid.Bool().Draw(rt, "dirty") {
			acts["untracked"](w, w.jobs[len(w.jobs)-1])
		}
		for range 3 {
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 25, 24 * 8, 24 * 15}).Draw(rt, "hours")) * time.Hour)
			w.pass(done)
		}
		w.followUps()
	})
	for _, a := range []Action{Keep, Save, Delete, Look} {
		if done[a] == 0 && !few { // few may miss one by chance
			t.Errorf("no state led to %q: %v", a, done)
		}
	}
	t.Logf("decided: %v", done)
}

type world struct {
	t       *testing.T
	rt      *rapid.T
	s       *Store
	src     string
	remotes []string
	now     time.Time
	jobs    []*Tree
	n       int
	busy    map[fleet.JobID]bool
	atHub   map[string]bool // objects
	hubSums map[string]bool // of contents
}

func newWorld(t *testing.T, rt *rapid.T, src, lib string) *world {
	dir, err := os.MkdirTemp(t.TempDir(), "w")
	must(err)
	rt.Cleanup(func() { _ = removeAll(dir) })
	w := &world{t: t, rt: rt, src: src, remotes: []string{src, lib}, now: time.Now(), busy: map[fleet.JobID]bool{}, atHub: map[string]bool{}, hubSums: map[string]bool{}}
	w.s = open(t, func(c *Config) {
		c.Dir, c.UntrackedLimit, c.Now = filepath.Join(dir, "store"), 10_000, func() time.Time { return w.now }
	})
	w.prepare()
	return w
}

func (w *world) prepare() {
	w.n++
	w.jobs = append(w.jobs, prepare(w.t, w.s, Request{URL: w.src, Job: fleet.JobID(fmt.Sprintf("job%d", w.n)), BaseCommit: run(w.t, w.src, "rev-parse", "HEAD")}))
}

// git runs git as an agent would; what it refuses in the present state is no failure.
func (w *world) git(tree *Tree, args ...string) {
	_, _ = tryRun(w.t, tree.Path, append([]string{"-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "advice.all=false"}, args...)...)
}

func (w *world) put(tree *Tree, name string, size int) {
	w.n++
	path := filepath.Join(tree.Path, name)
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.Remove(path)
	_ = os.WriteFile(path, []byte(fmt.Sprintf("%d of %s %s\n", w.n, w.s.dir, strings.Repeat("x", size))), 0o644)
}

func (w *world) commit(tree *Tree) {
	w.put(tree, fmt.Sprintf("f%d", w.n%3), 0)
	w.git(tree, "add", "-A")
	w.git(tree, "commit", "-q", "-m", fmt.Sprint("commit ", w.n))
}

var acts = map[string]func(w *world, t *Tree){
	"another job":    func(w *world, _ *Tree) { w.prepare() },
	"commit":         func(w *world, t *Tree) { w.commit(t) },
	"edit":           func(w *world, t *Tree) { w.put(t, "a.txt", 0) },
	"untracked":      func(w *world, t *Tree) { w.put(t, "dir/new", 0) },
	"too large":      func(w *world, t *Tree) { w.put(t, "large", 20_000) },
	"ignored":        func(w *world, t *Tree) { w.put(t, "x.ignored", 0) },
	"stage and edit": func(w *world, t *Tree) { w.put(t, "a.txt", 0); w.git(t, "add", "a.txt"); w.put(t, "a.txt", 0) },
	"stage and undo": func(w *world, t *Tree) {
		w.put(t, "s", 0)
		w.git(t, "add", "s")
		_ = os.Remove(filepath.Join(t.Path, "s"))
	},
	"stage and delete all": func(w *world, t *Tree) {
		w.put(t, "staged", 0)
		w.git(t, "add", "staged")
		_ = os.RemoveAll(t.Path)
	},
	"remove a file": func(w *world, t *Tree) { _ = os.Remove(filepath.Join(t.Path, "a.txt")) },
	"branch":        func(w *world, t *Tree) { w.git(t, "checkout", "-q", "-b", fmt.Sprint("side", w.n)); w.commit(t) },
	"and back":      func(w *world, t *Tree) { w.git(t, "checkout", "-q", t.Branch) },
	"detach":        func(w *world, t *Tree) { w.git(t, "checkout", "-q", "--detach"); w.commit(t) },
	"amend": func(w *world, t *Tree) {
		w.commit(t)
		w.git(t, "commit", "-q", "--amend", "-m", fmt.Sprint("amended ", w.n))
	},
	"reset": func(w *world, t *Tree) { w.commit(t); w.git(t, "reset", "-q", "--hard", "HEAD~1") },
	"stash": func(w *world, t *Tree) {
		w.put(t, "a.txt", 0)
		w.put(t, "st", 0)
		w.git(t, "stash", "push", "-q", "-u")
	},
	"tag and reset": func(w *world, t *Tree) {
		w.commit(t)
		w.git(t, "tag", fmt.Sprint("tag", w.n))
		w.git(t, "reset", "-q", "--hard", "HEAD~1")
	},
	"delete the branch": func(w *world, t *Tree) {
		w.git(t, "checkout", "-q", "--detach")
		w.git(t, "branch", "-q", "-D", t.Branch)
	},
	"merge under way": func(w *world, t *Tree) {
		w.conflict(t)
		w.git(t, "merge", "-q", "other")
	},
	"rebase under way": func(w *world, t *Tree) {
		w.conflict(t)
		w.git(t, "rebase", "-q", "other")
	},
	"cherry-pick under way": func(w *world, t *Tree) {
		w.conflict(t)
		w.git(t, "cherry-pick", "other")
	},
	"bisect": func(w *world, t *Tree) {
		w.commit(t)
		w.commit(t)
		w.git(t, "bisect", "start", "HEAD", "HEAD~2")
	},
	"repository inside": func(w *world, t *Tree) { w.nested(t, "inner") },
	"ignored repository": func(w *world, t *Tree) {
		w.nested(t, "deep.ignored/inner")
	},
	"worktree inside": func(w *world, t *Tree) {
		w.git(t, "worktree", "add", "-q", "-b", fmt.Sprint("wt", w.n), "wt.ignored/x")
	},
	"submodule edit": func(w *world, t *Tree) { w.put(t, "lib/a.txt", 0) },
	"submodule commit": func(w *world, t *Tree) {
		w.commit(&Tree{Path: filepath.Join(t.Path, "lib")})
	},
	"submodule commit undone": func(w *world, t *Tree) {
		lib := &Tree{Path: filepath.Join(t.Path, "lib")}
		w.commit(lib)
		w.git(lib, "reset", "-q", "--hard", "HEAD~1")
	},
	"submodule deleted": func(w *world, t *Tree) { _ = os.RemoveAll(filepath.Join(t.Path, "lib")) },
	"assume unchanged":  func(w *world, t *Tree) { w.git(t, "update-index", "--assume-unchanged", "a.txt"); w.put(t, "a.txt", 0) },
	"unreadable":        func(w *world, t *Tree) { w.put(t, "secret", 0); _ = os.Chmod(filepath.Join(t.Path, "secret"), 0) },
	"lock left":         func(w *world, t *Tree) { _ = os.WriteFile(filepath.Join(t.rec.Admin, "index.lock"), nil, 0o600) },
	"own .git": func(w *world, t *Tree) {
		_ = os.Remove(filepath.Join(t.Path, ".git"))
		w.git(t, "init", "-q")
		w.commit(t)
	},
	"damaged index": func(w *world, t *Tree) {
		_ = os.WriteFile(filepath.Join(t.rec.Admin, "index"), []byte("damaged"), 0o600)
	},
	"damaged HEAD": func(w *world, t *Tree) {
		_ = os.WriteFile(filepath.Join(t.rec.Admin, "HEAD"), []byte("damaged"), 0o600)
	},
	"push": func(w *world, t *Tree) {
		w.git(t, "push", "-q", "origin", fmt.Sprintf("HEAD:refs/heads/%s-%d-%s", t.Job, w.n, hash([]byte(w.s.dir))[:8]))
	},
	"harvest": func(w *world, t *Tree) { _, _ = t.Harvest(w.t.Context(), HarvestRequest{Fence: fence1}) },
	"harvest and rescue": func(w *world, t *Tree) {
		_, _ = t.Harvest(w.t.Context(), HarvestRequest{Fence: fence1, Commit: CommitNever})
	},
	"result at the hub": func(w *world, t *Tree) { w.deliver(t) },
	"job on its commit": func(w *world, t *Tree) {
		w.commit(t)
		w.n++
		sha, _ := w.s.workspace(t.rec).git.commit(w.t.Context(), w.s.dir, "HEAD")
		if next, err := w.s.Prepare(w.t.Context(), Request{URL: w.src, Job: fleet.JobID(fmt.Sprintf("job%d", w.n)), Fence: fence1, BaseCommit: sha}); err == nil {
			w.jobs = append(w.jobs, next)
		}
	},
	"files of Git LFS": func(w *world, t *Tree) {
		w.n++
		text := fmt.Sprintf("%d of %s\n", w.n, w.s.dir)
		oid := hash([]byte(text))
		path := lfsAt(w.s.cacheOf(t).path, oid)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		_ = os.WriteFile(path, []byte(text), 0o644)
		_ = os.WriteFile(filepath.Join(t.Path, "p.bin"), []byte(fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid, len(text))), 0o644)
		w.commit(t)
	},
	"carriage returns": func(w *world, t *Tree) {
		w.git(t, "config", "core.autocrlf", "input")
		w.put(t, "a.txt", 0)
		w.returns(t, "a.txt")
	},
	"carriage returns, committed": func(w *world, t *Tree) {
		w.git(t, "config", "core.autocrlf", "input")
		w.put(t, "cr", 0)
		w.returns(t, "cr")
		w.commit(t)
	},
	"forged refs": func(w *world, t *Tree) {
		w.commit(t)
		for _, ref := range []string{"refs/tugline/input/", "refs/tugline/extra/x/", "refs/tugline/base/"} {
			w.git(t, "update-ref", ref+string(t.Job), "HEAD")
		}
	},
	"forged refs of the remote": func(w *world, t *Tree) {
		w.commit(t)
		w.git(t, "update-ref", "refs/remotes/origin/forged", "HEAD")
		w.git(t, "symbolic-ref", "refs/remotes/origin/symbolic", "refs/heads/"+t.Branch)
	},
	"interrupted on its way out": func(w *world, t *Tree) {
		if !exists(t.Path + goingSuffix) {
			_ = os.Rename(t.Path, t.Path+goingSuffix)
		}
	},
	"busy":          func(w *world, t *Tree) { w.busy[t.Job] = !w.busy[t.Job] },
	"a pass":        func(w *world, t *Tree) { w.pass(map[Action]int{}) },
	"a day, a pass": func(w *world, t *Tree) { w.now = w.now.Add(25 * time.Hour); w.pass(map[Action]int{}) },
}

// actNames are in order: rapid repeats a failure by its draws.
var actNames = slices.Sorted(maps.Keys(acts))

func (w *world) act(name string) {
	acts[name](w, w.jobs[rapid.IntRange(0, len(w.jobs)-1).Draw(w.rt, "job")])
}

// deliver has the hub acknowledge a job's result, which then has what is in its bundle.
func (w *world) deliver(t *Tree) {
	res, err := t.Harvest(w.t.Context(), HarvestRequest{Fence: fence1})
	if err != nil || res.BundlePath == "" {
		return
	}
	must(w.s.Delivered(t.Job, fence1))
	cache := w.s.cacheOf(t).path
	for l := range strings.Lines(run(w.t, cache, "rev-list", "--objects", res.Tip, "^"+res.Base)) {
		sha, _, _ := strings.Cut(strings.TrimSpace(l), " ")
		w.atHub[sha] = true
	}
	maps.Copy(w.hubSums, w.contents([]string{cache}, w.atHub))
}

// returns ends the lines of a file by carriage returns too.
func (w *world) returns(t *Tree, name string) {
	path := filepath.Join(t.Path, name)
	if b, err := os.ReadFile(path); err == nil {
		_ = os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "\n", "\r\n")), 0o644)
	}
}

// conflict makes a branch that changes the same line.
func (w *world) conflict(t *Tree) {
	w.git(t, "checkout", "-q", "-B", "other", t.Base)
	w.put(t, "a.txt", 0)
	w.git(t, "commit", "-q", "-am", "other")
	w.git(t, "checkout", "-q", "-B", t.Branch, t.Base)
	w.put(t, "a.txt", 0)
	w.git(t, "commit", "-q", "-am", "mine")
}

func (w *world) nested(t *Tree, at string) {
	inner := &Tree{Path: filepath.Join(t.Path, at)}
	_ = os.MkdirAll(inner.Path, 0o755)
	w.git(inner, "init", "-q")
	w.commit(inner)
}

func hash(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// An inventory is what there is: commits, and contents of files that git does not ignore.
type inventory struct {
	commits map[string]string // to where they were seen
	files   map[string]string
}

// take lists what a workspace holds.
func (w *world) take(tree *Tree) inventory {
	inv := inventory{map[string]string{}, map[string]string{}}
	index := func(repo string, of ...string) {
		staged, _ := tryRun(w.t, repo, append(of, "ls-files", "--stage")...)
		for l := range strings.Lines(staged) {
			if f := strings.Fields(l); len(f) > 3 && f[0] != "160000" {
				if out, err := tryRun(w.t, repo, "cat-file", "blob", f[1]); err == nil {
					inv.files[hash([]byte(out+"\n"))] = repo + " staged " + f[3]
				}
			}
		}
	}
	note := func(repo string) {
		out, _ := tryRun(w.t, repo, "rev-list", "--all", "--reflog", "HEAD")
		for l := range strings.Lines(out) {
			inv.commits[strings.TrimSpace(l)] = repo
		}
		index(repo)
	}
	// The log of a workspace whose link was replaced is still there, and other workspaces of its cache see it.
	if isDir(tree.rec.Admin) {
		if been, err := w.s.workspace(tree.rec).visited(); err == nil {
			for sha := range been {
				inv.commits[sha] = tree.Path
			}
		}
	}
	if !isDir(tree.Path) {
		if isDir(tree.rec.Admin) {
			index(w.s.cacheOf(tree).path, "--git-dir="+tree.rec.Admin)
		}
		return inv
	}
	_ = filepath.WalkDir(tree.Path, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.Name() == ".git":
			note(filepath.Dir(path))
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type().IsRegular() && !strings.Contains(path, ".ignored"), strings.Contains(path, "inner/"):
			if b, err := os.ReadFile(path); err == nil {
				inv.files[hash(b)] = path
			} else if d.Type().IsRegular() {
				inv.files["unreadable "+path] = path
			}
		}
		return nil
	})
	return inv
}

// pass makes an inventory, lets a pass go over everything, and looks for each thing of it.
func (w *world) pass(done map[Action]int) {
	w.t.Helper()
	before := map[fleet.JobID]inventory{}
	for _, t := range w.jobs {
		if going := t.Path + goingSuffix; isDir(going) && !exists(t.Path) {
			must(os.Rename(going, t.Path))
			before[t.Job] = w.take(t)
			must(os.Rename(t.Path, going))
			continue
		}
		before[t.Job] = w.take(t)
	}
	contents, _ := filepath.Glob(filepath.Join(w.s.dir, "repos", "*", "g*.git", "lfs", "objects", "*", "*", "*"))
	out, err := w.s.Retain(w.t.Context(), Policy{Keeps: testKeeps, Busy: func(j fleet.JobID) bool { return w.busy[j] }})
	if err != nil {
		w.rt.Fatalf("a pass failed: %v", err)
	}
	done[Delete] += len(out.Deleted)
	done[Save] += len(out.Saved)
	for _, k := range out.Kept {
		done[k.Do]++
	}
	for _, path := range contents { // none of them was ever pushed
		if !exists(path) {
			w.rt.Fatalf("the content %s of Git LFS is lost; decided: %+v", path, out)
		}
	}
	// What refs of the caches, the remote and the hub have.
	have := maps.Clone(w.atHub)
	caches, _ := filepath.Glob(filepath.Join(w.s.dir, "repos", "*", "g*.git"))
	for _, repo := range append(slices.Clone(caches), w.remotes...) {
		for l := range strings.Lines(run(w.t, repo, "rev-list", "--objects", "--all")) {
			sha, _, _ := strings.Cut(strings.TrimSpace(l), " ")
			have[sha] = true
		}
		if slices.Contains(w.remotes, repo) {
			continue
		}
		for l := range strings.Lines(func() string { out, _ := tryRun(w.t, repo, "log", "-g", "--format=%H", "refs/stash", "--"); return out }()) {
			for o := range strings.Lines(run(w.t, repo, "rev-list", "--objects", strings.TrimSpace(l))) {
				sha, _, _ := strings.Cut(strings.TrimSpace(o), " ")
				have[sha] = true
			}
		}
	}
	after := inventory{map[string]string{}, map[string]string{}} // of all: they share stashes and logs
	for _, t := range w.jobs {
		now := w.take(t)
		maps.Copy(after.commits, now.commits)
		maps.Copy(after.files, now.files)
	}
	var blobs map[string]bool
	for _, t := range w.jobs {
		for sha, where := range before[t.Job].commits {
			if _, ok := after.commits[sha]; !ok && !have[sha] {
				w.rt.Fatalf("commit %s of %s is lost; decided: %+v", sha, where, out)
			}
		}
		for sum, where := range before[t.Job].files {
			if _, ok := after.files[sum]; ok {
				continue
			}
			if blobs == nil {
				blobs = w.contents(caches, have)
			}
			if !blobs[sum] {
				w.rt.Fatalf("the content of %s is lost; decided: %+v", where, out)
			}
		}
	}
}

// contents gives the sums of all files that objects hold.
func (w *world) contents(repos []string, have map[string]bool) map[string]bool {
	sums := maps.Clone(w.hubSums)
	for _, remote := range w.remotes {
		repos = append(repos, filepath.Join(remote, ".git"))
	}
	for _, repo := range repos {
		for sha := range have {
			if out, err := w.s.git.in(repo).run(w.t.Context(), call{dir: "/", args: []string{"cat-file", "blob", sha}}); err == nil {
				sums[hash([]byte(out))] = true
			}
		}
	}
	return sums
}

// followUps takes up every job again, as a later turn does.
func (w *world) followUps() {
	for _, t := range w.jobs {
		again, err := w.s.Rebuild(w.t.Context(), Request{Job: t.Job, Fence: fence2, URL: w.src})
		if isDir(t.Path) || err == nil && again.Path == t.Path {
			continue // as it is, or built anew
		}
		if !strings.Contains(fmt.Sprint(err), "is not on this runner any more") {
			w.rt.Fatalf("job %s can't go on: %v", t.Job, err)
		}
	}
}
