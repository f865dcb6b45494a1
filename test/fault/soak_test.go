//go:build linux && soak

package fault

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// TestSoakStorm is TestStormOfKills for long enough to meet what is rare.
func TestSoakStorm(t *testing.T) {
	t.Parallel()
	storm(t, 20*time.Minute)
}

// lease is for how long a runner may be silent before its work is called lost.
const lease = 10 * time.Minute

// TestSoakHubsDownLongerThanALease: all hubs are down for longer than that. It was they
// who were silent: nothing is lost, and everybody has a full lease afterwards.
func TestSoakHubsDownLongerThanALease(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	long := int((lease + 2*time.Minute) / (100 * time.Millisecond))
	w.running("across", long)
	for _, h := range c.hubs {
		h.p.Kill()
	}
	<-time.After(lease + time.Minute)
	c.runners[0].unplug() // it has not been heard by the new leader when that begins to wait
	for _, h := range c.hubs[1:] {
		h.start()
	}
	c.leader(c.hubs[1:]...)
	<-time.After(30 * time.Second)
	c.runners[0].plug()
	c.hubs[0].start()
	w.check("across", 3*time.Minute)
	c.voters(3)
}

// TestSoakBothCopiesRun: a runner is silent for longer than a lease, across a failing
// leader, and its job, which may be run again, is given to another. When the first is
// back both have run; one result counts, and the other is refused.
func TestSoakBothCopiesRun(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	gate := filepath.Join(c.dir, "gate")
	script := c.write(filepath.Join(c.dir, "twice.sh"), `echo began >> "$1"; while [ ! -e "$2" ]; do sleep 0.1; done; echo ended >> "$1"`)
	trace := filepath.Join(w.dir, "twice")
	id := strings.TrimSpace(c.run("exec", "--detach", "--on-lost", "rerun", "--", "sh", script, trace, gate))
	c.inState(id, fleet.Running, 40*time.Second)
	first := c.runners[0]
	first.unplug()
	c.addRunner(2).start()
	<-time.After(lease / 2)
	c.failover()
	c.eventually(lease+3*time.Minute, "the job is given to the other runner", func() bool {
		j, ok := c.job(id)
		return ok && j.Runner == "r2" && j.State == fleet.Running
	})
	first.plug()
	<-time.After(20 * time.Second) // both run, and both are heard
	c.write(gate, "")
	j := c.ended(id, time.Minute)
	if j.State != fleet.Succeeded || j.Runner != "r2" {
		t.Errorf("the job is %s by %s; want it succeeded by r2", j.State, j.Runner)
	}
	c.used("r1", 0, time.Minute)
	c.used("r2", 0, time.Minute)
	var again api.Job
	c.eventually(20*time.Second, "the job is still as it was", func() (ok bool) { again, ok = c.job(id); return ok })
	if again.Runner != "r2" || again.State != fleet.Succeeded {
		t.Errorf("the job is %s by %s after the first runner told its end; want it as it was", again.State, again.Runner)
	}
	if got := w.traces("twice"); strings.Count(got, "began") != 2 {
		t.Errorf("the job ran as %q; want it begun twice", got)
	}
	c.voters(3)
}
