package worktree

import (
	"os"
	"strings"
	"testing"
	"time"

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
			time.Sleep(1100 * time.Millisecond) // git keeps whole seconds of when a file was changed
			write(t, tree.Path+"/a.txt", "ONE\nTWO\n")
			must(os.Chtimes(tree.Path+"/a.txt", old, old))
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
