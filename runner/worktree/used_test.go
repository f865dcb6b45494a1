package worktree

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func TestCachesThatWereUsed(t *testing.T) {
	t.Parallel()
	if got, err := Caches(t.TempDir(), 64); err != nil || len(got) != 0 {
		t.Errorf("of a new directory: %v, %v", got, err)
	}
	one, two := origin(t), origin(t)
	s := open(t, nil)
	name := func(url string) string { return (&fleet.Repo{URL: url}).CacheOf() }
	list := func(limit int, want ...string) {
		t.Helper()
		got, err := Caches(s.dir, limit)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v, caches (-want +got):\n%s", err, diff)
		}
	}
	first := prepare(t, s, Request{URL: one})
	list(64, name(one))
	prepare(t, s, Request{URL: two, Job: "job2"})
	list(64, name(two), name(one))
	// What was used again comes first.
	prepare(t, s, Request{URL: one, Job: "job3"})
	list(64, name(one), name(two))
	list(1, name(one))
	// A spelling that the hub takes for the same is one here, too.
	prepare(t, s, Request{URL: "file://" + one, Job: "job4"})
	list(64, name("file://"+one), name(one), name(two))
	prepare(t, s, Request{URL: one + "/", Job: "job5"})
	list(64, name(one), name("file://"+one), name(two))

	// One of a time without these files goes by its address, at the time of that.
	home := filepath.Join(s.dir, "repos", s.cacheOf(first).id)
	must(os.RemoveAll(filepath.Join(home, usedDir)))
	old := time.Now().Add(-time.Hour)
	must(os.Chtimes(filepath.Join(home, "address"), old, old))
	list(64, name("file://"+one), name(two), name(one))
	for i := range 3 {
		must(os.MkdirAll(filepath.Join(s.dir, "repos", "empty"+strconv.Itoa(i)), 0o700)) // locked, never filled
	}
	list(64, name("file://"+one), name(two), name(one))
}
