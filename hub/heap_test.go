package hub

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestGrowth: a small heap gets its headroom, a large one doubles.
func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 1600, 1 << 20: 1600, 8 << 20: 800, 32 << 20: 200, 64 << 20: 100, 1 << 40: 100} {
		if got := growth(live); got != want {
			t.Errorf("growth(%d) = %d, want %d", live, got, want)
		}
	}
}

// TestCollectSeldom: the pace is set while it runs, follows the heap, and is as before
// in the end.
func TestCollectSeldom(t *testing.T) {
	before := pace()
	ctx, stop := context.WithCancel(t.Context())
	end := make(chan struct{})
	go func() { defer close(end); collectSeldom(ctx) }()
	until := func(what string, ok func(int) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			runtime.GC()
			if ok(pace()) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the pace is %d", what, pace())
			}
			<-time.After(time.Millisecond)
		}
	}
	until("a small heap", func(p int) bool { return p > plainGrow })
	large := make([]byte, 2*headroom)
	until("a large heap", func(p int) bool { return p <= plainGrow+plainGrow/8 }) // a change of less is not set
	runtime.KeepAlive(large)
	until("a small heap again", func(p int) bool { return p > plainGrow })
	stop()
	<-end
	if got := pace(); got != before {
		t.Errorf("the pace is %d, it was %d", got, before)
	}
}

func pace() int {
	p := debug.SetGCPercent(plainGrow)
	debug.SetGCPercent(p)
	return p
}
