package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/process"
)

// What an agent tells git to pass over is seen all the same, by the harvest of its job and before its workspace goes.
func TestNothingIsHiddenBySettings(t *testing.T) {
	t.Parallel()
	const text = "written by the agent\n"
	for _, c := range []struct {
		name string
		do   func(tree *Tree)
		kept string // why it stays; empty: its files are saved
	}{
		{"sparse before the change", func(tree *Tree) {
			run(t, tree.Path, "sparse-checkout", "set", "--no-cone", "/nothing/")
			write(t, tree.Path+"/a.txt", text)
		}, ""},
		{"sparse after the change", func(tree *Tree) {
			write(t, tree.Path+"/a.txt", text)
			run(t, tree.Path, "sparse-checkout", "set", "--no-cone", "/nothing/")
		}, ""},
		{"a name that differs in its case", func(tree *Tree) {
			run(t, tree.Path, "config", "core.ignoreCase", "true")
			write(t, tree.Path+"/A.TXT", text)
		}, ""},
		{"the same size and time", func(tree *Tree) {
			st, err := os.Stat(tree.Path + "/a.txt")
			must(err)
			run(t, tree.Path, "config", "core.trustctime", "false")
			run(t, tree.Path, "config", "core.checkStat", "minimal")
			old := st.ModTime().Add(-hour)
			must(os.Chtimes(tree.Path+"/a.txt", old, old))
			run(t, tree.Path, "update-index", "--refresh")
			// As soon as the clock of the file system tells another time: git by itself compares whole seconds.
			st, err = os.Stat(tree.Path + "/a.txt")
			must(err)
			for begun := changed(st); !changed(st).After(begun); {
				write(t, tree.Path+"/a.txt", "ONE\nTWO\n")
				must(os.Chtimes(tree.Path+"/a.txt", old, old))
				st, err = os.Stat(tree.Path + "/a.txt")
				must(err)
			}
		}, ""},
		{"a directory .GIT", func(tree *Tree) { write(t, tree.Path+"/.GIT/x", text) }, "names that git refuses"},
		{"a file git~1", func(tree *Tree) { write(t, tree.Path+"/dir/git~1", text) }, "names that git refuses"},
		{"a file git~1 beside others", func(tree *Tree) {
			write(t, tree.Path+"/git~1", text)
			write(t, tree.Path+"/other", text)
		}, "names that git refuses"},
		{"sides of a conflict in the index alone", func(tree *Tree) {
			write(t, tree.Path+"/x", text)
			sha := run(t, tree.Path, "hash-object", "-w", "x")
			must(os.Remove(tree.Path + "/x"))
			_, err := process.Run(t.Context(), process.Cmd{Argv: []string{"git", "-c", "core.hooksPath=/dev/null", "update-index", "--index-info"}, Dir: tree.Path,
				Env: os.Environ(), Stdin: strings.NewReader("100644 " + sha + " 3\tx\n")})
			must(err)
		}, "conflicts"},
	} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(tree)
		for range 2 {
			out := k.pass(25 * hour)
			if w := k.kept(out); c.kept == "" && w.Rescue == "" || c.kept != "" && !strings.Contains(w.Why, c.kept) {
				t.Errorf("%s: %+v", c.name, w)
			}
		}
		if res := harvest(t, tree, CommitNever); !res.LeftUncommitted && c.kept != "conflicts" {
			t.Errorf("%s: the harvest passed over it: %+v", c.name, res)
		}
	}
}

// A program that an agent wrote into git's configuration is not run to find out what its workspace holds, to take in what
// it left, or to build it again, and what the program would leave of a file proves nothing.
func TestNoProgramOfAnAgentIsRun(t *testing.T) {
	t.Parallel()
	ran := t.TempDir() + "/ran"
	eats := "touch " + ran + "; git cat-file blob HEAD:a.txt"
	for name, do := range map[string]func(k *keeper, tree *Tree){
		"clean":   func(_ *keeper, tree *Tree) { run(t, tree.Path, "config", "filter.x.clean", eats) },
		"smudge":  func(_ *keeper, tree *Tree) { run(t, tree.Path, "config", "filter.x.smudge", eats) },
		"process": func(_ *keeper, tree *Tree) { run(t, tree.Path, "config", "filter.x.process", eats) },
		"of the worktree": func(_ *keeper, tree *Tree) {
			run(t, tree.Path, "config", "extensions.worktreeConfig", "true")
			run(t, tree.Path, "config", "--worktree", "filter.x.clean", eats)
		},
		"in a file that is included": func(_ *keeper, tree *Tree) {
			more := t.TempDir() + "/more"
			run(t, tree.Path, "config", "--file", more, "filter.x.clean", eats)
			run(t, tree.Path, "config", "include.path", more)
		},
		"in the place of LFS": func(_ *keeper, tree *Tree) { run(t, tree.Path, "config", "filter.lfs.clean", eats) },
		"fsmonitor": func(k *keeper, tree *Tree) {
			run(t, tree.Path, "config", "core.fsmonitor", eats)
			run(t, tree.Path, "config", "filter.x.clean", eats)
		},
	} {
		src := origin(t)
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		do(k, tree)
		write(t, filepath.Join(k.cacheOf(tree).path, "info", "attributes"), "a.txt filter=x\n*.bin filter=lfs\n")
		write(t, tree.Path+"/a.txt", "changed\n")
		write(t, tree.Path+"/b.bin", "new\n")
		if w := k.kept(k.pass(25 * hour)); w.Do != Look || !strings.Contains(w.Why, "filter.") {
			t.Errorf("%s: %+v", name, w)
		}
		res := harvest(t, tree, CommitAuto)
		if !res.LeftUncommitted || res.RunnerCommit != "" || !hasNote(res.Notes, "filter.") || k.show(t, tree, res.RescueRef, "a.txt") != "changed" {
			t.Errorf("%s: harvested is %+v", name, res)
		}
		must(os.RemoveAll(tree.Path))
		if again, err := k.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2}); err != nil || !hasNote(again.Notes, "filter.") && name != "of the worktree" {
			t.Errorf("%s: built again: %+v, %v", name, again, err)
		}
		if exists(ran) {
			t.Errorf("%s: it was run", name)
			must(os.Remove(ran))
		}
	}
}

func TestFiltersOfGitLFSAreNoAgents(t *testing.T) {
	t.Parallel()
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: origin(t)})
	run(t, tree.Path, "config", "filter.lfs.clean", "git-lfs clean -- %f")
	run(t, tree.Path, "config", "filter.lfs.process", "git-lfs filter-process")
	run(t, tree.Path, "config", "filter.lfs.required", "true")
	if out := k.pass(25 * hour); len(out.Deleted) != 1 {
		t.Errorf("%+v", out)
	}
}
