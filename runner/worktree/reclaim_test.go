package worktree

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestReclaimKeepsToItsOrder(t *testing.T) {
	t.Parallel()
	one, two := origin(t), origin(t)
	for _, src := range []string{one, two} {
		write(t, src+"/.gitignore", "node_modules/\ntarget\n*.ignored\n")
		run(t, src, "commit", "-q", "-am", "ignore")
	}
	k := keeping(t, nil)
	big := strings.Repeat("x", 10_000)
	old := prepare(t, k.Store, Request{URL: one, Job: "old"})
	k.at = k.at.Add(hour)
	late := prepare(t, k.Store, Request{URL: one, Job: "late"})
	busy := prepare(t, k.Store, Request{URL: one, Job: "busy"})
	k.busy["busy"] = true
	for _, tree := range []*Tree{old, late, busy} {
		write(t, tree.Path+"/node_modules/a/b.js", big)
		write(t, tree.Path+"/web/node_modules/c.js", big)
		write(t, tree.Path+"/web/d", "tracked by nobody")
		write(t, tree.Path+"/target/.git/HEAD", "x") // a repository, or what looks like one
		write(t, tree.Path+"/dist/out.js", big)      // not ignored: somebody's work
		write(t, tree.Path+"/x.ignored/y", big)      // not of the names
		run(t, tree.Path, "add", "web/d")
	}
	unused := prepare(t, k.Store, Request{URL: two, Job: "unused"})
	if out, err := removeSaved(t, k.Store, "unused"); err != nil || !out.Removed {
		t.Fatal(out, err)
	}
	k.at = k.at.Add(hour)
	used := k.lastUse(old.rec)
	names := []string{"node_modules", "target", "dist"}
	p := k.policy()
	steps := 0
	p.Enough = func() bool { steps++; return steps > 1 } // after the first workspace
	out, err := k.Reclaim(t.Context(), p, names)
	if err != nil || out.Directories != 2 || out.Bytes != 20_000 {
		t.Fatalf("first %+v, %v", out, err)
	}
	if exists(old.Path+"/node_modules") || exists(old.Path+"/web/node_modules") || !exists(late.Path+"/node_modules") {
		t.Error("not the workspace that was used longest ago")
	}
	if got := k.lastUse(old.rec); !got.Equal(used) {
		t.Errorf("the workspace counts as used at %v, was %v", got, used)
	}
	p.Enough = func() bool { return false }
	if out, err = k.Reclaim(t.Context(), p, names); err != nil || out.Directories != 2 || len(out.Retained.Evicted) != 1 || exists(k.cacheOf(unused).path) {
		t.Errorf("then %+v, %v", out, err)
	}
	for _, tree := range []*Tree{old, late, busy} {
		for _, at := range []string{"/target/.git/HEAD", "/dist/out.js", "/x.ignored/y", "/web/d", "/a.txt"} {
			if !exists(tree.Path + at) {
				t.Errorf("%s of %s is gone", at, tree.Job)
			}
		}
	}
	if !exists(busy.Path + "/node_modules/a/b.js") {
		t.Error("taken from a job that runs")
	}
	if left, err := os.ReadDir(k.dir + "/trash"); err != nil || len(left) != 0 {
		t.Errorf("the trash holds %v, %v", left, err)
	}
	p.Enough = func() bool { return true }
	if out, err = k.Reclaim(t.Context(), p, names); err != nil || out.Directories+len(out.Retained.Deleted) != 0 {
		t.Errorf("with enough room %+v, %v", out, err)
	}
	// The last are workspaces whose time is over.
	clean := prepare(t, k.Store, Request{URL: two, Job: "clean"})
	k.at = k.at.Add(25 * time.Hour)
	p.Enough = func() bool { return false }
	if out, err = k.Reclaim(t.Context(), p, names); err != nil || len(out.Retained.Deleted) != 1 || exists(clean.Path) {
		t.Errorf("at last %+v, %v", out, err)
	}
}
