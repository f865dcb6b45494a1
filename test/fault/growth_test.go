//go:build linux

package fault

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
)

// bytesBelow adds up what lies below a directory.
func bytesBelow(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if i, err := e.Info(); err == nil {
				n += i.Size()
			}
		}
		return nil
	})
	return n
}

// snapshot is the index of the newest one that a hub keeps.
func (h *hub) snapshot() (newest uint64) {
	dirs, _ := filepath.Glob(filepath.Join(h.dir, "raft", "snapshots", "*-*-*"))
	for _, d := range dirs {
		var term, index, at uint64
		if n, _ := fmt.Sscanf(filepath.Base(d), "%d-%d-%d", &term, &index, &at); n == 3 {
			newest = max(newest, index)
		}
	}
	return newest
}

// The log is cut as it grows: after many times as many entries as are kept it takes no
// more room than after the first few times, and a hub that joins then is given a
// snapshot. While nothing happens nothing is written.
func TestLogDoesNotGrow(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	for _, h := range c.hubs {
		h.faults.SnapshotEvery = 64
	}
	c.found()
	c.addRunner(8).start()
	c.online()
	w := c.work()
	batch := func(n, size int) {
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				for i := range size / 4 {
					if _, err := w.trySubmit(fmt.Sprintf("job-%d-%d-%d", n, k, i), 0, time.Minute); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		c.eventually(2*time.Minute, "all of a batch has ended", func() bool {
			var s api.Status
			return c.get("/v1/status?consistent", &s) && s.Jobs["succeeded"] == len(w.jobs)
		})
	}
	index := func() uint64 {
		var s api.Status
		if !c.get("/v1/status?consistent", &s) {
			t.Fatal("no hub tells its status")
		}
		return s.Index
	}
	// A log's entry may hold several commands, each with an index of its own.
	entries := func() uint64 {
		m, ok := c.members()
		if !ok {
			t.Fatal("no hub tells its members")
		}
		return m.Index
	}
	var sizes []int64
	for n := range 4 {
		batch(n, 60)
		// What a batch wrote is cut off only at the next look, which may be after all of it,
		// and only if it was enough.
		written := entries() - 64
		c.eventually(30*time.Second, "every hub has taken a snapshot of the batch", func() bool {
			return !slices.ContainsFunc(c.hubs, func(h *hub) bool { return h.snapshot() < written })
		})
		var most int64
		for _, h := range c.hubs {
			most = max(most, bytesBelow(filepath.Join(h.dir, "raft")))
		}
		sizes = append(sizes, most)
	}
	t.Logf("the log and its snapshots take %v bytes after batches of 60 jobs, %d entries with %d commands in all", sizes, entries(), index())
	if entries() < 6*64 {
		t.Errorf("%d entries are too few to tell", entries())
	}
	if first, last := sizes[1], sizes[3]; last > first+first/2 {
		t.Errorf("the log and its snapshots grew from %d to %d bytes with twice the entries; want no growth but that of the state", first, last)
	}

	// The last jobs' logs are sealed some time after the jobs have ended.
	before, since := index(), time.Now()
	c.eventually(30*time.Second, "nothing is written for two seconds", func() bool {
		if now := index(); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
	<-time.After(8 * time.Second)
	if now := index(); now > before+2 {
		t.Errorf("%d entries were written in 8 s in which nothing happened; want 2 at most", now-before)
	}

	h := c.addHub()
	h.start("--ticket", c.hubTicket())
	c.voters(4)
	w.kept("job-0-0-0", h)
	m, _ := c.members()
	if len(m.Warnings) == 0 {
		t.Error("four voters are not warned about")
	}
}
