package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lfsTool is a stand-in for Git LFS: it stores, and its remote has what "pull" puts in place.
const lfsTool = `#!/bin/sh
store() {
	oid=$(sha256sum <"$1" | cut -d' ' -f1)
	dir=$(git rev-parse --path-format=absolute --git-common-dir)/lfs/objects/$(echo $oid | cut -c1-2)/$(echo $oid | cut -c3-4)
	mkdir -p "$dir" && cp "$1" "$dir/$oid" && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n' $oid $(wc -c <"$1")
}
case $1 in
pull) printf real >x.bin; store x.bin >/dev/null; git -c core.hooksPath=/dev/null add x.bin;;
clean) t=$(mktemp); cat >$t; store $t; rm $t;;
smudge) cat;;
push) ;;
ls-files) for f in $(git ls-tree -r --name-only $3 | grep bin$); do echo "$(git show $3:$f | sed -n 's/^oid sha256://p') * $f"; done;;
*) exit 1;;
esac
`

// Bundles carry pointers alone: what Git LFS keeps in a cache holds it, but for what a remote is known to have.
func TestContentsOfGitLFSHoldACache(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	tool := filepath.Join(bin, "git-lfs")
	must(os.WriteFile(tool, []byte(lfsTool), 0o700))
	config := filepath.Join(t.TempDir(), "gitconfig")
	write(t, config, "[user]\n\tname = A\n\temail = a@x\n[filter \"lfs\"]\n\tclean = "+tool+" clean -- %f\n\tsmudge = "+tool+" smudge -- %f\n")
	clean := "filter.lfs.clean=" + tool + " clean -- %f"
	src := origin(t)
	commitFile(t, src, ".gitattributes", "*.bin filter=lfs\n")
	write(t, src+"/x.bin", "real")
	run(t, src, "-c", clean, "add", "x.bin")
	run(t, src, "commit", "-q", "-m", "lfs")
	must(os.RemoveAll(src + "/.git/lfs"))
	made := func(k *keeper, tree *Tree) Result {
		t.Helper()
		write(t, tree.Path+"/new.bin", "made here")
		run(t, tree.Path, "-c", clean, "add", "new.bin")
		run(t, tree.Path, "commit", "-q", "-m", "new")
		res := harvest(t, tree, CommitAuto)
		must(k.Delivered("job1", fence1))
		return res
	}
	for _, c := range []struct {
		name string
		do   func(k *keeper, tree *Tree)
		why  string // why it stays
	}{
		{"pulled", func(*keeper, *Tree) {}, ""},
		{"made, and pointers are at the hub", func(k *keeper, tree *Tree) { made(k, tree) }, "1 files of Git LFS"},
		{"made, and pushed by the runner", func(k *keeper, tree *Tree) {
			must(k.Push(t.Context(), "job1", PushRequest{Remote: src, Branch: "lfs", SHA: made(k, tree).Tip}))
		}, ""},
	} {
		k := keeping(t, func(c *Config) {
			c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL="+config)
		})
		tree := prepare(t, k.Store, Request{URL: src})
		if b, err := os.ReadFile(tree.Path + "/x.bin"); err != nil || string(b) != "real" || run(t, tree.Path, "-c", clean, "status", "--porcelain") != "" {
			t.Fatalf("%s: the content is %q, %v; notes %q; %s", c.name, b, err, tree.Notes, run(t, tree.Path, "-c", clean, "status", "--porcelain"))
		}
		c.do(k, tree)
		if out := k.pass(25 * hour); len(out.Deleted) != 1 {
			t.Errorf("%s: %+v", c.name, out)
		}
		var out Retained
		for range 2 {
			out = k.pass(400 * hour)
		}
		if gone := !exists(k.cacheOf(tree).path); gone != (c.why == "") || !gone && (!strings.Contains(out.Caches[0].Why, c.why) || len(out.Caches[0].Commands) != 1) {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
	// A content that is not kept any more is saved from the file.
	k := keeping(t, func(c *Config) {
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL="+config)
	})
	tree := prepare(t, k.Store, Request{URL: src})
	made(k, tree)
	old := k.at.Add(-hour) // git does not look into it again
	must(os.Chtimes(tree.Path+"/new.bin", old, old))
	run(t, tree.Path, "-c", clean, "update-index", "--refresh")
	must(os.RemoveAll(k.cacheOf(tree).path + "/lfs"))
	if w := k.kept(k.pass(25 * hour)); w.Rescue == "" || k.show(t, tree, w.Rescue, "new.bin") != "made here" {
		t.Errorf("%+v", w)
	}
}
