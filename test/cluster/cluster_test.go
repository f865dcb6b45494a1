package cluster

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run this seed alone")
	calm    = flag.Bool("calm", false, "without faults")
	loud    = flag.Bool("loud", false, "tell everything that happens on standard error")
	span    = flag.Duration("for", 5*time.Minute, "virtual time under faults")
)

func TestCluster(t *testing.T) {
	seed := max(*oneSeed, 1)
	t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
		simulate(t, options{Seed: seed, For: *span, SnapshotEvery: 500, Verbose: *loud, Calm: *calm})
	})
}

// simulate runs one world in a bubble of virtual time.
func simulate(t *testing.T, opt options) {
	t.Helper()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC))) // no clock is before the program was built
		w := newWorld(t, opt)
		if err := w.run(); err != nil {
			t.Errorf("%v\n\nTo see it again: go test ./test/cluster -run TestCluster -seed %d -loud", err, opt.Seed)
		}
		t.Logf("%d looks, %d jobs, %d requests (%d unanswered), %d reports, %d executions", w.steps, len(w.people.promised), w.people.tries, w.people.unsure, w.ledger.items, len(w.ledger.runs))
	})
	t.Logf("took %s", time.Since(begun).Round(time.Millisecond))
}
