package hub

import (
	"runtime"
	"testing"
)

// TestIdleTickIsCheap: with nothing queued and nothing running, a look of the leader
// allocates next to nothing for each runner that is connected.
func TestIdleTickIsCheap(t *testing.T) {
	const runners, ticks, most = 48, 20, 256 // bytes for each runner and tick
	n := start(t, t.TempDir(), true)
	l := newTerm(n.hub)
	tick := func() uint64 {
		least := ^uint64(0) // whatever else the process does comes on top
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range ticks {
				l.tick(t.Context())
			}
			runtime.ReadMemStats(&after)
			least = min(least, (after.TotalAlloc-before.TotalAlloc)/ticks)
		}
		return least
	}
	alone := tick()
	secret := n.ticketFor(runners)
	for i := range runners {
		n.connect(secret, i)
	}
	n.eventually("all runners are connected", func() bool {
		connected := 0
		for _, p := range n.hub.sessions.Presence() {
			if p.Connected {
				connected++
			}
		}
		return connected == runners
	})
	if with := tick(); with > alone+runners*most {
		t.Errorf("a tick allocates %d bytes with %d idle runners, %d with none", with, runners, alone)
	}
	if alone > 64<<10 {
		t.Errorf("a tick without any runner allocates %d bytes", alone)
	}
}
