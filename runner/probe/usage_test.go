package probe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// files gives the number of files of each class.
func filesOf(usage []fleet.ClassUsage) map[string]int64 {
	n := map[string]int64{}
	for _, u := range usage {
		n[u.Class] = u.Files
	}
	return n
}

func TestUsage(t *testing.T) {
	root := t.TempDir()
	big := strings.Repeat("x", 1<<20)
	put(t, root, map[string]string{
		"trees/work/job/repo/main.go": "x", "trees/work/job/repo/node_modules/a/a.js": big, "trees/work/job/repo/node_modules/a/dist/b.js": "x",
		"trees/work/job/repo/sub/target/c": "x", "trees/repos/id/g1.git/pack": strings.Repeat("y", 3<<19), "attempts/j/stdout": "x",
		"journal": "x", "tmp/f": "x", "elsewhere/big": big,
	})
	if err := os.Link(filepath.Join(root, "trees/work/job/repo/node_modules/a/a.js"), filepath.Join(root, "trees/work/job/repo/node_modules/again.js")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "elsewhere"), filepath.Join(root, "trees/work/job/repo/link")); err != nil {
		t.Fatal(err)
	}
	trees := []Tree{
		{Path: filepath.Join(root, "trees/work"), Class: "worktrees", Within: map[string]string{"node_modules": "build", "target": "build", "main.go": "build"}},
		{Path: filepath.Join(root, "trees/repos"), Class: "caches"},
		{Path: filepath.Join(root, "attempts"), Class: "logs"},
		{Path: filepath.Join(root, "elsewhere"), Class: "harness"},
		{Path: filepath.Join(root, "nothing here"), Class: "harness"},
		{Path: root + "/", Class: "other"},
	}
	s := plain(t)
	usage, partial := s.Usage(t.Context(), trees, 1000, 10*time.Second)
	if partial {
		t.Error("all of it was looked at, and it is called partial")
	}
	want := map[string]int64{"worktrees": 2, "build": 3, "caches": 1, "logs": 1, "harness": 1, "other": 2}
	if diff := cmp.Diff(want, filesOf(usage)); diff != "" {
		t.Errorf("files by class (-want +got):\n%s", diff)
	}
	if usage[0].Class != "caches" || usage[0].Bytes < 3<<19 {
		t.Errorf("the largest is %+v, want the caches", usage[0])
	}
	for i := 1; i < len(usage); i++ {
		if usage[i].Bytes > usage[i-1].Bytes {
			t.Errorf("not the largest first: %+v", usage)
		}
	}

	// A huge tree does not hide the others, and says that not all was counted.
	many := map[string]string{}
	for i := range 600 {
		many["trees/work/job/many/"+itoa(int64(i))] = ""
	}
	put(t, root, many)
	usage, partial = s.Usage(t.Context(), trees, 300, 10*time.Second)
	if n := filesOf(usage); !partial || n["caches"] != 1 || n["logs"] != 1 || n["worktrees"] >= 600 {
		t.Errorf("with a bound of entries: %v, partial %v", n, partial)
	}
	if _, partial = s.Usage(t.Context(), trees, 1000, 0); !partial {
		t.Error("without any time it is not called partial")
	}
}
