package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)))
		w := newWorld(t, options{Seed: 1, For: 5 * time.Minute, SnapshotEvery: 500, Verbose: testing.Verbose()})
		defer w.end()
		ctx := context.Background()
		if err := w.hubs.found(ctx); err != nil {
			t.Fatal(err)
		}
		t.Log("founded", w.now())
		time.Sleep(w.opt.For)
	})
}
