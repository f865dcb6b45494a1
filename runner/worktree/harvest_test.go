package worktree

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// Each case is something that an agent leaves, and what must come of it in the mode auto and in the mode never.
func TestHarvest(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	type want struct {
		commits int
		runner  bool // the runner commits
		rescue  bool
		left    bool
		rewrote bool // does not descend
		note    string
		rescued map[string]string // files in the rescue
		tip     map[string]string // files at the tip
	}
	clean := want{}
	back := filepath.Join(t.TempDir(), "back")
	run(t, "/", "clone", "-q", "--shared", src, back)
	for _, c := range []struct {
		name        string
		agent       func(t *testing.T, dir string, tree *Tree)
		auto, never want
	}{
		{"nothing", func(t *testing.T, dir string, tree *Tree) {}, clean, clean},
		{"ignored only", func(t *testing.T, dir string, tree *Tree) { write(t, dir+"/x.ignored", "x") }, clean, clean},
		{"commits", func(t *testing.T, dir string, tree *Tree) {
			commitFile(t, dir, "one", "1")
			commitFile(t, dir, "two", "2")
		}, want{commits: 2}, want{commits: 2}},
		{"changed, untracked, deleted, staged", func(t *testing.T, dir string, tree *Tree) {
			write(t, dir+"/a.txt", "changed")
			write(t, dir+"/deep/new.txt", "new")
			must(os.Remove(dir + "/.gitignore"))
			write(t, dir+"/staged.txt", "staged")
			run(t, dir, "add", "staged.txt")
			write(t, dir+"/forced.ignored", "kept")
			run(t, dir, "add", "-f", "forced.ignored")
		}, want{commits: 1, runner: true, tip: map[string]string{"a.txt": "changed", "deep/new.txt": "new", "staged.txt": "staged", "forced.ignored": "kept"}},
			want{rescue: true, left: true, rescued: map[string]string{"a.txt": "changed", "deep/new.txt": "new", "staged.txt": "staged", "forced.ignored": "kept"}}},
		{"commit and more", func(t *testing.T, dir string, tree *Tree) {
			commitFile(t, dir, "one", "1")
			write(t, dir+"/two", "2")
		}, want{commits: 2, runner: true}, want{commits: 1, rescue: true, left: true, rescued: map[string]string{"one": "1", "two": "2"}}},
		{"detached", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "--detach")
			commitFile(t, dir, "one", "1")
			write(t, dir+"/two", "2")
		}, want{commits: 2, runner: true, note: "detached HEAD", tip: map[string]string{"one": "1", "two": "2"}},
			want{commits: 1, rescue: true, left: true, note: "detached HEAD"}},
		{"own branch", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "-b", "feature-"+string(tree.Job))
			commitFile(t, dir, "one", "1")
		}, want{commits: 1, note: `branch "feature-`, tip: map[string]string{"one": "1"}}, want{commits: 1, note: `branch "feature-`}},
		{"looked at another commit", func(t *testing.T, dir string, tree *Tree) {
			commitFile(t, dir, "one", "1")
			run(t, dir, "checkout", "-q", "v1")
		}, want{commits: 1, note: "without commits of its own"}, want{commits: 1, note: "without commits of its own"}},
		{"diverged", func(t *testing.T, dir string, tree *Tree) {
			commitFile(t, dir, "one", "1")
			run(t, dir, "checkout", "-q", "-b", "other-"+string(tree.Job), tree.Base)
			commitFile(t, dir, "two", "2")
			write(t, dir+"/three", "3")
		}, want{commits: 1, rescue: true, left: true, note: "not part of tugline/", rescued: map[string]string{"two": "2", "three": "3"}},
			want{commits: 1, rescue: true, left: true, note: "not part of tugline/", rescued: map[string]string{"two": "2", "three": "3"}}},
		{"merge", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "-b", "topic-"+string(tree.Job), "v1")
			commitFile(t, dir, "topic", "t")
			run(t, dir, "checkout", "-q", tree.Branch)
			commitFile(t, dir, "one", "1")
			run(t, dir, "merge", "-q", "-m", "merge", "topic-"+string(tree.Job))
		}, want{commits: 3, tip: map[string]string{"topic": "t", "one": "1"}}, want{commits: 3}},
		{"merge without its commit", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "-b", "half-"+string(tree.Job), "v1")
			commitFile(t, dir, "topic", "t")
			run(t, dir, "checkout", "-q", tree.Branch)
			run(t, dir, "merge", "-q", "--no-commit", "--no-ff", "half-"+string(tree.Job))
		}, want{commits: 2, runner: true, note: "merge was under way", tip: map[string]string{"topic": "t"}},
			want{rescue: true, left: true, note: "merge was under way", rescued: map[string]string{"topic": "t"}}},
		{"conflict", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "-b", "clash-"+string(tree.Job), "v1")
			commitFile(t, dir, "a.txt", "theirs\n")
			run(t, dir, "checkout", "-q", tree.Branch)
			if _, err := tryRun(t, dir, "merge", "-q", "clash-"+string(tree.Job)); err == nil {
				t.Error("the merge was meant to conflict")
			}
		}, want{rescue: true, left: true, note: "unresolved conflicts"}, want{rescue: true, left: true, note: "unresolved conflicts"}},
		{"rebase under way", func(t *testing.T, dir string, tree *Tree) {
			commitFile(t, dir, "a.txt", "one\nmine\n")
			run(t, dir, "branch", "upstream-"+string(tree.Job), tree.Base)
			run(t, dir, "checkout", "-q", "upstream-"+string(tree.Job))
			commitFile(t, dir, "a.txt", "one\nother\n")
			run(t, dir, "checkout", "-q", tree.Branch)
			if _, err := tryRun(t, dir, "rebase", "-q", "upstream-"+string(tree.Job)); err == nil {
				t.Error("the rebase was meant to conflict")
			}
		}, want{commits: 1, rescue: true, left: true, note: "rebase was under way"}, want{commits: 1, rescue: true, left: true, note: "rebase was under way"}},
		{"history replaced", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "--orphan", "fresh-"+string(tree.Job))
			run(t, dir, "commit", "-q", "-m", "all anew")
		}, want{commits: 1, rewrote: true, note: "does not descend"}, want{commits: 1, rewrote: true, note: "does not descend"}},
		{"branch rewound and rewritten", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "reset", "-q", "--hard", "v1")
			commitFile(t, dir, "one", "1")
		}, want{commits: 1, rewrote: true, note: "does not descend"}, want{commits: 1, rewrote: true}},
		{"unborn branch with files", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "--orphan", "void-"+string(tree.Job))
			write(t, dir+"/one", "1")
		}, want{commits: 1, runner: true, tip: map[string]string{"one": "1", "a.txt": "one\ntwo"}}, want{rescue: true, left: true}},
		{"branch deleted", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "--detach")
			run(t, dir, "branch", "-q", "-D", tree.Branch)
			commitFile(t, dir, "one", "1")
		}, want{commits: 1, note: "made again"}, want{commits: 1, note: "made again"}},
		{"branch deleted under HEAD", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "update-ref", "-d", tree.rec.branchRef())
		}, want{note: "made again"}, want{note: "made again"}},
		{"locks left behind", func(t *testing.T, dir string, tree *Tree) {
			write(t, tree.rec.Admin+"/index.lock", "")
			write(t, tree.rec.Admin+"/HEAD.lock", "")
			write(t, filepath.Join(filepath.Dir(filepath.Dir(tree.rec.Admin)), tree.rec.branchRef()+".lock"), "")
			write(t, dir+"/one", "1")
		}, want{commits: 1, runner: true, note: "cut off"}, want{rescue: true, left: true, note: "cut off"}},
		{"index damaged", func(t *testing.T, dir string, tree *Tree) {
			write(t, tree.rec.Admin+"/index", "DIRC garbage")
			write(t, dir+"/one", "1")
		}, want{commits: 1, runner: true, note: "index was damaged"}, want{rescue: true, left: true}},
		{"git directory of the tree deleted", func(t *testing.T, dir string, tree *Tree) {
			must(os.RemoveAll(tree.rec.Admin))
			must(os.Remove(dir + "/.git"))
			write(t, dir+"/one", "1")
		}, want{commits: 1, runner: true, tip: map[string]string{"one": "1", "a.txt": "one\ntwo"}}, want{rescue: true, left: true}},
		{"link replaced by a hostile repository", func(t *testing.T, dir string, tree *Tree) {
			must(os.Remove(dir + "/.git"))
			run(t, dir, "init", "-q")
			run(t, dir, "config", "core.fsmonitor", "touch "+hookMark)
			run(t, dir, "config", "filter.x.clean", "touch "+hookMark)
			write(t, dir+"/.gitattributes", "* filter=x\n")
			write(t, dir+"/one", "1")
		}, want{commits: 1, runner: true, tip: map[string]string{"one": "1", "a.txt": "one\ntwo"}}, want{rescue: true, left: true}},
		{"odd names and kinds", func(t *testing.T, dir string, tree *Tree) {
			for _, name := range oddNames {
				write(t, filepath.Join(dir, name), "odd")
			}
			must(os.Symlink("/etc/hostname", dir+"/link"))
			must(os.Symlink("missing", dir+"/dangling"))
			must(os.WriteFile(dir+"/tool.sh", []byte("#!/bin/sh\n"), 0o755))
			must(os.Chmod(dir+"/a.txt", 0o755))
			must(syscall.Mkfifo(dir+"/pipe", 0o600))
		}, want{commits: 1, runner: true}, want{rescue: true, left: true}},
		{"file becomes directory and back", func(t *testing.T, dir string, tree *Tree) {
			must(os.Remove(dir + "/a.txt"))
			write(t, dir+"/a.txt/inner", "i")
		}, want{commits: 1, runner: true, tip: map[string]string{"a.txt/inner": "i"}}, want{rescue: true, left: true}},
		{"changes hidden by marks", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "update-index", "--assume-unchanged", "a.txt")
			run(t, dir, "update-index", "--skip-worktree", ".gitignore")
			write(t, dir+"/a.txt", "hidden")
			write(t, dir+"/.gitignore", "hidden too")
		}, want{commits: 1, runner: true, tip: map[string]string{"a.txt": "hidden", ".gitignore": "hidden too"}}, want{rescue: true, left: true}},
		{"repository inside", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "init", "-q", "inner")
			commitFile(t, dir+"/inner", "code", "c")
			write(t, dir+"/inner/.gitignore", "skip\n")
			write(t, dir+"/inner/skip", "s")
			run(t, dir, "init", "-q", "inner/deeper")
			write(t, dir+"/inner/deeper/unborn", "u")
		}, want{commits: 1, runner: true, note: "other git repositories", tip: map[string]string{"inner/code": "c", "inner/deeper/unborn": "u"}},
			want{rescue: true, left: true, rescued: map[string]string{"inner/code": "c", "inner/deeper/unborn": "u"}}},
		{"replaced history is not believed", func(t *testing.T, dir string, tree *Tree) {
			run(t, dir, "checkout", "-q", "--orphan", "lie-"+string(tree.Job))
			run(t, dir, "commit", "-q", "-m", "no parent")
			lie := run(t, dir, "rev-parse", "HEAD")
			parented := run(t, dir, "commit-tree", "-p", tree.Base, "-m", "parent", "HEAD^{tree}")
			run(t, dir, "replace", "-f", lie, parented)
		}, want{commits: 1, rewrote: true}, want{commits: 1, rewrote: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			job := fleet.JobID(strings.NewReplacer(" ", "-", ",", "").Replace(c.name))
			tree := prepare(t, s, Request{URL: src, Job: job})
			c.agent(t, tree.Path, tree)
			before := listing(t, tree.Path)
			var notes []string
			for _, mode := range []string{CommitNever, CommitAuto} {
				w := c.never
				if mode == CommitAuto {
					w = c.auto
				}
				res := harvest(t, tree, mode)
				notes = append(notes, res.Notes...)
				if res.CommitCount != w.commits || len(res.Commits) != w.commits {
					t.Errorf("%s: got %d commits %v, want %d", mode, res.CommitCount, res.Commits, w.commits)
				}
				if (res.RunnerCommit != "") != w.runner || (res.RescueRef != "") != w.rescue || res.LeftUncommitted != w.left || res.Descends == w.rewrote {
					t.Errorf("%s: got %+v\nwant %+v", mode, res, w)
				}
				if w.note != "" && !hasNote(notes, w.note) {
					t.Errorf("%s: no note says %q: %q", mode, w.note, notes)
				}
				if (res.BundlePath != "") != (w.commits > 0) {
					t.Errorf("%s: bundle %q with %d commits", mode, res.BundlePath, w.commits)
				}
				if w.rescue {
					checkRescue(t, back, s, tree, res)
				}
				for name, content := range w.tip {
					if got := s.show(t, tree, res.Tip, name); got != content {
						t.Errorf("%s: %s at the tip is %q, want %q", mode, name, got, content)
					}
				}
				for name, content := range w.rescued {
					if got := s.show(t, tree, res.RescueRef, name); got != content {
						t.Errorf("%s: %s in the rescue is %q, want %q", mode, name, got, content)
					}
				}
				if w.commits > 0 && mode == CommitAuto {
					checkBundle(t, back, res, string(job))
				}
				if w.runner {
					checkRunnerCommit(t, s, tree, res)
				}
			}
			if diff := cmp.Diff(before, listing(t, tree.Path)); diff != "" {
				t.Errorf("the harvest changed the files of the worktree:\n%s", diff)
			}
		})
	}
}

var oddNames = []string{"with space", "new\nline", "tab\t\"quote\"", "latin1-\xfc", "nfc-\u00fc", "nfd-u\u0308", "-dash", ":(top)magic", "star*", "emoji-\U0001F6F7", "back\\slash"}

func checkRunnerCommit(t *testing.T, s *Store, tree *Tree, res Result) {
	t.Helper()
	got, err := s.cacheOf(tree).git.line(t.Context(), "/", "show", "-s", "--format=%an <%ae>|%cn|%(trailers:key=Tugline-Commit,valueonly)", res.RunnerCommit)
	if err != nil || got != "Ada Test <ada@example.com>|Ada Test|runner\n" {
		t.Errorf("the runner's commit says %q, %v", got, err)
	}
}

// checkBundle takes the result into a clone of the source, as a person would.
func checkBundle(t *testing.T, back string, res Result, into string) {
	t.Helper()
	b, err := openBundle(res.BundlePath)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if diff := cmp.Diff([]string{res.Base}, b.prerequisites); diff != "" {
		t.Errorf("prerequisites (-want +got):\n%s", diff)
	}
	got, err := FetchBundle(t.Context(), back, res.BundlePath, res.Branch, into)
	if err != nil || got.SHA != res.Tip {
		t.Fatalf("fetch bundle: %+v, %v %s", got, err, causes(err))
	}
	run(t, back, "rev-list", "--objects", "--quiet", res.Tip)
	if res.PatchPath == "" {
		return
	}
	g := localGit().with("GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index"))
	for _, args := range [][]string{{"read-tree", res.Base}, {"apply", "--cached", res.PatchPath}} {
		if _, err := g.line(t.Context(), back, args...); err != nil {
			t.Fatal(err)
		}
	}
	if tree, err := g.line(t.Context(), back, "write-tree"); err != nil || tree != res.Tree {
		t.Errorf("base with the patch gives tree %s, %v, want %s", tree, err, res.Tree)
	}
}

// listing is every file of a tree with kind, size and time, without git's own.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	must(filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		must(err)
		if d.Name() == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if p == dir {
			return nil
		}
		info, err := d.Info()
		must(err)
		out[p] = info.Mode().String() + " " + info.ModTime().String()
		return nil
	}))
	return out
}

func TestHarvestKeepsOddNames(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	for _, name := range oddNames {
		write(t, filepath.Join(tree.Path, name), "odd")
	}
	must(os.Symlink("nowhere", filepath.Join(tree.Path, "link")))
	must(os.WriteFile(filepath.Join(tree.Path, "tool"), nil, 0o755))
	res := harvest(t, tree, CommitAuto)
	entries, err := s.cacheOf(tree).git.list(t.Context(), "/", "ls-tree", "-r", "-z", res.Tip)
	if err != nil {
		t.Fatal(err)
	}
	modes := make(map[string]string)
	for _, e := range entries {
		meta, name, _ := strings.Cut(e, "\t")
		modes[name] = meta[:6]
	}
	for _, name := range oddNames {
		if modes[name] != "100644" {
			t.Errorf("%q is not in the commit", name)
		}
	}
	if modes["link"] != "120000" || modes["tool"] != "100755" {
		t.Errorf("link is %s and tool is %s", modes["link"], modes["tool"])
	}
}

func TestHarvestLargeUntracked(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, func(c *Config) { c.UntrackedLimit = 1000 })
	tree := prepare(t, s, Request{URL: src})
	write(t, filepath.Join(tree.Path, "small"), "small")
	write(t, filepath.Join(tree.Path, "huge"), strings.Repeat("x", 2000))
	res := harvest(t, tree, CommitAuto)
	if res.RunnerCommit == "" || res.Stat.Files != 1 || !res.LeftUncommitted || !hasNote(res.Notes, `"huge"`) {
		t.Fatalf("got %+v", res)
	}
	out, err := removeSaved(t, s, "job1")
	if err != nil || out.Removed || !strings.Contains(out.Why, "2000 bytes") {
		t.Fatalf("got %+v, %v", out, err)
	}
}

func TestHarvestBranchesAndStashes(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	run(t, tree.Path, "checkout", "-q", "-b", "attempt")
	tried := commitFile(t, tree.Path, "tried", "t")
	run(t, tree.Path, "checkout", "-q", tree.Branch)
	write(t, filepath.Join(tree.Path, "a.txt"), "stashed")
	run(t, tree.Path, "stash", "push", "-q")
	commitFile(t, tree.Path, "one", "1")
	res := harvest(t, tree, CommitAuto)
	if res.CommitCount != 1 || !hasNote(res.Notes, `branch "attempt" with 1 commits`) || !hasNote(res.Notes, "a stash was left") {
		t.Fatalf("got %+v", res)
	}
	kept := run(t, s.cacheOf(tree).path, "for-each-ref", "--format=%(objectname) %(refname)", "refs/tugline/kept/job1/1-7")
	if !strings.Contains(kept, tried+" refs/tugline/kept/job1/1-7/branch/attempt") || !strings.Contains(kept, "/stash/") {
		t.Errorf("kept: %s", kept)
	}
	// Another job of the repository does not take them for its own.
	other := prepare(t, s, Request{URL: src, Job: "job2"})
	if res := harvest(t, other, CommitAuto); len(res.Notes) != 0 {
		t.Errorf("the other job has notes %q", res.Notes)
	}
}

func TestHarvestFollowUp(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	write(t, filepath.Join(tree.Path, "one"), "1")
	first := harvest(t, tree, CommitAuto)
	if same := harvest(t, tree, CommitAuto); same.Tip != first.Tip || same.RunnerCommit != "" || same.BundleSHA256 == "" {
		t.Errorf("harvested twice: got %+v, first %+v", same, first)
	}
	again, err := s.Reopen(t.Context(), "job1")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(again.Path, "two"), "2")
	second, err := again.Harvest(t.Context(), HarvestRequest{Fence: fence2, Message: "Do the second thing\n\nbecause"})
	if err != nil {
		t.Fatal(err)
	}
	if second.CommitCount != 2 || second.Commits[0].SHA != first.Tip || second.Commits[1].Subject != "Do the second thing" || second.Base != first.Base {
		t.Fatalf("got %+v", second)
	}
	if second.Commits[1].Author != "Ada Test <ada@example.com>" || second.Commits[1].At.IsZero() {
		t.Errorf("got %+v", second.Commits[1])
	}
}

// Line endings that the attributes want otherwise make a fresh checkout look changed; that is nobody's work.
func TestHarvestOfADirtyCheckout(t *testing.T) {
	t.Parallel()
	src := origin(t)
	commitFile(t, src, "crlf.txt", "a\r\nb\r\n")
	commitFile(t, src, ".gitattributes", "*.txt text\n")
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	if !hasNote(tree.Notes, "right after the checkout") {
		t.Fatalf("notes are %q", tree.Notes)
	}
	if res := harvest(t, tree, CommitAuto); res.CommitCount != 0 || res.LeftUncommitted {
		t.Fatalf("got %+v", res)
	}
	if out, err := removeSaved(t, s, "job1"); err != nil || !out.Removed {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestHarvestManyCommits(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "many")
	run(t, "/", "init", "-q", src)
	var in strings.Builder
	for i := range 1200 {
		in.WriteString("commit refs/heads/main\ncommitter A <a@x> " + strconv.Itoa(1700000000+i) + " +0000\ndata 2\nc\nM 644 inline f" + strconv.Itoa(i%7) + "\ndata " + strconv.Itoa(len(strconv.Itoa(i))) + "\n" + strconv.Itoa(i) + "\n")
	}
	if _, err := localGit().run(t.Context(), call{dir: src, args: []string{"fast-import", "--quiet"}, stdin: strings.NewReader(in.String())}); err != nil {
		t.Fatal(err)
	}
	base := run(t, src, "rev-parse", "main~500")
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src, BaseCommit: base})
	run(t, tree.Path, "reset", "-q", "--hard", "origin/main")
	res := harvest(t, tree, CommitAuto)
	if res.CommitCount != 500 || len(res.Commits) != maxCommits || res.Commits[maxCommits-1].SHA != res.Tip || !res.Descends {
		t.Fatalf("got %d commits, %d listed", res.CommitCount, len(res.Commits))
	}
}

// checkRescue takes what was rescued into another repository that has the base: the bundle brings the very commit, the
// patch over the tip the same files.
func checkRescue(t *testing.T, back string, s *Store, tree *Tree, res Result) {
	t.Helper()
	run(t, back, "fetch", "-q", res.RescueBundlePath, "+"+res.RescueRef+":"+res.RescueRef)
	c := s.cacheAt(tree.rec.Cache, tree.rec.Generation, tree.rec.URL)
	want, err := c.git.commit(t.Context(), c.path, res.RescueRef)
	if err != nil || run(t, back, "rev-parse", res.RescueRef) != want {
		t.Errorf("the bundle does not bring %s %s: %v", res.RescueRef, want, err)
	}
	if res.RescuePatchPath == "" || res.Tip == "" {
		return
	}
	if res.Tip != tree.Base {
		run(t, back, "fetch", "-q", res.BundlePath, tree.rec.branchRef())
	}
	g := localGit().with("GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index"))
	for _, args := range [][]string{{"read-tree", res.Tip}, {"apply", "--cached", "--whitespace=nowarn", res.RescuePatchPath}} {
		if _, err := g.line(t.Context(), back, args...); err != nil {
			t.Fatal(err)
		}
	}
	got, err := g.line(t.Context(), back, "write-tree")
	if want := run(t, back, "rev-parse", res.RescueRef+"^{tree}"); err != nil || got != want {
		t.Errorf("the patch makes tree %s of the tip, want %s: %v", got, want, err)
	}
}
