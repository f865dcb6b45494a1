package hub

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Most of what a hub allocates lives for one entry or one request. Collected when a
// heap of a few MiB has doubled, that costs more processor time than the entries
// themselves; so a small heap may grow by headroom before it is collected, a large one
// doubles as it would anyway. What was let grow is given back when it is quiet.
const (
	headroom   = 64 << 20 // bytes
	plainGrow  = 100      // percent, as the runtime has it
	quietEvery = 2 * time.Second
	quietBytes = 4 << 20 // allocated within quietEvery, at most
	worthBytes = 4 << 20 // of garbage, at least
)

// growth gives the percentage by which a heap may grow before it is collected.
func growth(live uint64) int {
	return int(max(plainGrow, headroom*100/max(live, headroom/16)))
}

// collector sets the pace of the process's garbage collection.
type collector struct {
	mu      sync.Mutex
	stopped bool
	percent int // as set
}

// tune sets the pace for the heap as it is, and comes back after each collection.
func (c *collector) tune() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	if p := growth(read(liveHeap)); p > c.percent+c.percent/8 || p < c.percent-c.percent/8 {
		c.percent = p
		debug.SetGCPercent(p)
	}
	again := &struct{ c *collector }{c}
	runtime.SetFinalizer(again, func(a *struct{ c *collector }) { a.c.tune() })
}

// collectSeldom paces the garbage collection of the whole process until ctx ends.
func collectSeldom(ctx context.Context) {
	c := &collector{percent: 1}
	before := debug.SetGCPercent(plainGrow)
	c.tune()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopped = true
		debug.SetGCPercent(before)
	}()
	tick := time.NewTicker(quietEvery)
	defer tick.Stop()
	for last := read(allocated); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := read(allocated)
		if now-last < quietBytes && read(heldHeap) > read(liveHeap)+worthBytes {
			debug.FreeOSMemory()
		}
		last = now
	}
}

const (
	liveHeap  = "/gc/heap/live:bytes"                // at the last collection
	heldHeap  = "/memory/classes/heap/objects:bytes" // with what is garbage by now
	allocated = "/gc/heap/allocs:bytes"              // since the start
)

func read(metric string) uint64 {
	s := []metrics.Sample{{Name: metric}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
