package runner

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

func fence(n int) fleet.Fence { return fleet.Fence{Epoch: 1, Index: uint64(n + 1)} }

// Whatever is promised, used, given back and asked for again, in whatever order: once
// every promise was kept, the floor of each is still free.
func TestPromisesLeaveTheFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const floor = 100
		var l ledger
		free := rapid.Int64Range(0, 2000).Draw(t, "free")
		low := free < floor
		owed := map[fleet.Fence]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f := fence(rapid.IntRange(0, 5).Draw(t, "attempt"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				want := rapid.Int64Range(0, 900).Draw(t, "bytes")
				was := owed[f]
				_, others, ok := l.take(f, want, floor, func() fleet.Volume { return fleet.Volume{Known: true, Free: free} })
				var sum int64
				for g, n := range owed {
					if g != f {
						sum += n
					}
				}
				if others != sum || ok != (free-sum-want >= floor) {
					t.Fatalf("%d of %d free and %d promised: %v, others %d", want, free, sum, ok, others)
				}
				if !ok {
					want = was
				}
				owed[f] = want
			case 2: // it uses some of what it was promised, and says so
				used := min(owed[f], rapid.Int64Range(0, 900).Draw(t, "used"))
				owed[f] -= used
				free -= used
				l.put(f, owed[f])
			case 3:
				owed[f] = 0
				l.put(f, 0)
			}
			left := free
			for _, n := range owed {
				left -= n
			}
			if !low && left < floor {
				t.Fatalf("%d would be left of %d, with promises %v", left, free, owed)
			}
			if l.total() != free-left {
				t.Fatalf("%d is promised, the ledger has %d", free-left, l.total())
			}
		}
	})
}

func TestWhatIsNotKnownIsNotPromised(t *testing.T) {
	var l ledger
	if v, _, ok := l.take(fence(0), 1, 0, func() fleet.Volume { return fleet.Volume{Path: "/x", Detail: "it hangs"} }); ok || v.Path != "/x" || l.total() != 0 {
		t.Errorf("%+v, %v, %d", v, ok, l.total())
	}
}

// After a restart everything is promised again that was not used up, and nothing else.
func TestPromisesAreRestored(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []journal.Progress{{Reserve: 10}, {Reserve: 20, Intent: true, Acked: true}, {Reserve: 40, Finished: true}, {Reserve: 80, Ended: true}, {}} {
		if err := j.Begin(journal.Attempt{Job: "j", Fence: fence(i), Order: string(rune('a' + i))}); err != nil {
			t.Fatal(err)
		}
		if err := j.Update(fence(i), journal.Lazy, func(q *journal.Progress) { *q = p }); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var l ledger
	l.restore(j.Attempts())
	if l.total() != 30 {
		t.Errorf("%d bytes are promised, want 30", l.total())
	}
}

// Those who ask at the same time are measured one after the other: of many that fit
// alone and not together, as many go as fit.
func TestPromisesDoNotRace(t *testing.T) {
	var l ledger
	var work sync.WaitGroup
	var mu sync.Mutex
	took := 0
	for i := range 50 {
		work.Go(func() {
			if _, _, ok := l.take(fence(i), 30, 100, func() fleet.Volume { return fleet.Volume{Known: true, Free: 200} }); ok {
				mu.Lock()
				took++
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if took != 3 || l.total() != 90 {
		t.Errorf("%d of them go, %d bytes; want 3", took, l.total())
	}
}
