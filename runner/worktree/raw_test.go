package worktree

import (
	"testing"
)

// Settings and attributes have git store a file in another form than it has. Its own bytes are saved where a checkout
// would not give them; what the checkout itself has made is nobody's work.
func TestBytesThatGitWouldNotStoreAreSaved(t *testing.T) {
	t.Parallel()
	const text = "one\r\ntwo\r\n"
	sources := map[string]string{} // by attributes
	for _, c := range []struct {
		name       string
		attributes string
		do         func(tree *Tree)
		want       string // of the file, under the rescue ref; empty: the workspace goes
	}{
		{"changed, autocrlf", "", func(tree *Tree) {
			run(t, tree.Path, "config", "core.autocrlf", "input")
			write(t, tree.Path+"/a.txt", text)
		}, text},
		{"committed and pushed, autocrlf", "", func(tree *Tree) {
			run(t, tree.Path, "config", "core.autocrlf", "input")
			commitFile(t, tree.Path, "a.txt", text+"three\r\n")
			run(t, tree.Path, "push", "-q", "origin", "HEAD:refs/heads/x")
		}, text + "three\r\n"},
		{"untracked and harvested, autocrlf", "", func(tree *Tree) {
			run(t, tree.Path, "config", "core.autocrlf", "input")
			run(t, tree.Path, "rm", "-q", "--cached", "a.txt")
			write(t, tree.Path+"/a.txt", text+"three\r\n")
			harvest(t, tree, CommitNever)
		}, text + "three\r\n"},
		{"mixed ends", "*.txt eol=crlf\n", func(tree *Tree) { write(t, tree.Path+"/a.txt", "one\r\ntwo\n") }, "one\r\ntwo\n"},
		{"an ident", "*.txt ident\n", func(tree *Tree) { write(t, tree.Path+"/id.txt", "$Id: my own words$\n") }, "$Id: my own words$\n"},
		{"an ident as a checkout writes it", "*.txt ident\n", func(tree *Tree) {}, ""},
		{"ends as the attributes want them", "*.txt eol=crlf\n", func(tree *Tree) {}, ""},
		{"an encoding as the attributes want it", "*.txt working-tree-encoding=UTF-16LE\n", func(tree *Tree) {}, ""},
	} {
		src := sources[c.attributes]
		if src == "" {
			src = origin(t)
			sources[c.attributes] = src
			commitFile(t, src, "id.txt", "$Id$\n")
			commitFile(t, src, ".gitattributes", c.attributes)
		}
		k := keeping(t, nil)
		tree := prepare(t, k.Store, Request{URL: src})
		c.do(tree)
		out := k.pass(25 * hour)
		if c.want == "" {
			if len(out.Deleted) != 1 {
				t.Errorf("%s: %+v", c.name, out)
			}
			continue
		}
		w := k.kept(out)
		if w.Rescue == "" {
			t.Errorf("%s: %+v", c.name, w)
			continue
		}
		name := "a.txt"
		if c.attributes == "*.txt ident\n" {
			name = "id.txt"
		}
		got, err := k.git.in(k.cacheOf(tree).path).run(t.Context(), call{dir: "/", args: []string{"cat-file", "blob", w.Rescue + ":" + name}})
		if err != nil || got != c.want {
			t.Errorf("%s: saved is %q, %v", c.name, got, err)
		}
		if out := k.pass(8 * 24 * hour); len(out.Deleted) != 1 {
			t.Errorf("%s, after its time: %+v", c.name, out)
		}
	}
}

// Line ends in the repository that are not those that its attributes want are nobody's work either.
func TestEndsThatAttributesDoNotWantAreNoChange(t *testing.T) {
	t.Parallel()
	src := origin(t)
	commitFile(t, src, "a.txt", "one\r\ntwo\r\n")
	commitFile(t, src, ".gitattributes", "*.txt text\n")
	k := keeping(t, nil)
	prepare(t, k.Store, Request{URL: src})
	if out := k.pass(25 * hour); len(out.Deleted) != 1 {
		t.Errorf("%+v", out)
	}
}
