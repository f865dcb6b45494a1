// Package cluster runs three hubs, fifty runners and the people who use them in one
// process and in virtual time, over a network in memory, has faults of all kinds happen
// to them by chance, and looks after every step whether what is promised holds: what
// was acknowledged is there, nothing runs twice or at two places, every report counts
// once, output is as it was written, slots are kept, and a term has one leader.
//
// A seed fixes what happens and when; which of two things that are due at the same
// moment comes first is the scheduler's, so that a run is repeated nearly, not exactly.
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
	first   = flag.Uint64("first", 1, "the first seed")
	seeds   = flag.Int("seeds", 3, "how many seeds, one in ten of them with its logs on disk")
	span    = flag.Duration("for", 5*time.Minute, "virtual time under faults")
	loud    = flag.Bool("loud", false, "tell everything that happens on standard error")
)

// onDisk is how many seeds there are to one whose logs are on disk.
const onDisk = 10

func TestCluster(t *testing.T) {
	from, n := *first, *seeds
	if *oneSeed > 0 {
		from, n = *oneSeed, 1
	}
	for seed := from; seed < from+uint64(n); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			w, err := simulate(t, options{Seed: seed, For: *span, Disk: seed%onDisk == 0, Verbose: *loud})
			if err != nil {
				t.Errorf("%v\n\nsee it again with: go test ./test/cluster -run TestCluster -seed %d -for %s -loud", err, seed, *span)
			}
			if w.people.done() == 0 || w.ledger.items == 0 || w.check.packed == 0 {
				t.Error("nothing was done")
			}
			t.Log(w.sum())
		})
	}
}

// simulate runs one world in a bubble of virtual time.
func simulate(t *testing.T, opt options) (w *world, err error) {
	t.Helper()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC))) // no clock is before the program was built
		w = newWorld(t, opt)
		err = w.run()
	})
	w.took = time.Since(begun)
	return w, err
}
