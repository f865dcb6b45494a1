//go:build linux

package fault

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// failover ends the leader with -9, waits for the next and starts the old one again.
func (c *cluster) failover() *hub {
	c.t.Helper()
	old := c.leader()
	old.p.Kill()
	lead := c.succeeded(old)
	old.start()
	return lead
}

// used waits until a runner holds so many slots.
func (c *cluster) used(name string, slots int, within time.Duration) {
	c.t.Helper()
	var got api.Runner
	c.eventually(within, "runner "+name+" is online and holds the slots it should", func() bool {
		var rs api.Runners
		if !c.get("/v1/runners?consistent", &rs) {
			return false
		}
		for _, r := range rs.Runners {
			if r.Name == name {
				got = r
			}
		}
		return got.State == "online" && got.Slots.Used == slots
	})
}

// A runner is given a job and stands still before it accepts; the leader is killed
// meanwhile. The next leader gives the job to another runner; the first, when it goes
// on, does not run it too.
func TestUnacceptedWhileTheLeaderFails(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	r := c.runners[0]
	r.p.Pause()
	id := w.submit("given", 10)
	c.eventually(20*time.Second, "the job is given to the runner that stands still", func() bool {
		j, ok := c.job(id)
		return ok && j.Attempt == 1
	})
	c.failover()
	c.addRunner(2).start()
	w.check("given", 90*time.Second)
	if j, _ := c.job(id); j.Runner != "r2" {
		t.Errorf("%s ran the job; want r2", j.Runner)
	}
	r.p.Resume()
	c.used("r1", 0, 40*time.Second)
	c.used("r2", 0, 40*time.Second)
	if got := w.traces("given"); got != "began\nended\n" {
		t.Errorf("the job ran as %q; want once, whole", got)
	}
	c.voters(3)
}

// A job ends while its runner is cut off, and the leader fails in between: the report
// is not lost, and the slot is free afterwards.
func TestReportWhileTheLeaderFails(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.running("across", 20)
	r := c.runners[0]
	r.unplug()
	c.eventually(20*time.Second, "the job ends", func() bool { return strings.HasSuffix(w.traces("across"), "ended\n") })
	c.failover()
	r.plug()
	w.check("across", 60*time.Second)
	c.used("r1", 0, 20*time.Second)
	c.voters(3)
}

// A runner is told to stop just as its job ends and the leader fails; after its next
// start the job has its right end.
func TestReportAtShutdownWhileTheLeaderFails(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.running("across", 20)
	r := c.runners[0]
	old := c.leader()
	c.eventually(20*time.Second, "the job ends", func() bool {
		return strings.HasSuffix(w.traces("across"), "last\n") || strings.HasSuffix(w.traces("across"), "ended\n")
	})
	old.p.Kill()
	r.p.Stop()
	c.succeeded(old)
	old.start()
	r.start()
	w.check("across", 60*time.Second)
	c.used("r1", 0, 20*time.Second)
	c.voters(3)
}

// All hubs are down for a while under running jobs, and their leader is another one
// afterwards: nothing is called lost for the silence.
func TestAllHubsDownUnderRunningJobs(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	w := c.work()
	w.running("short", 60)
	w.running("long", 300)
	for _, h := range c.hubs {
		h.p.Kill()
	}
	c.eventually(30*time.Second, "a job ends meanwhile", func() bool { return strings.HasSuffix(w.traces("short"), "ended\n") })
	for _, h := range c.hubs[1:] {
		h.start()
	}
	c.leader(c.hubs[1:]...)
	w.check("short", 60*time.Second)
	c.hubs[0].start()
	w.check("long", 60*time.Second)
	c.voters(3)
}

// A job is cancelled while its runner is cut off, and the leader fails in between: the
// slot is free once the runner is back, and only once.
func TestCancelWhileTheLeaderFails(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	id := w.running("stopped", 600)
	r := c.runners[0]
	r.unplug()
	c.run("job", "cancel", id)
	c.failover()
	r.plug()
	if j := c.ended(id, 60*time.Second); j.State != fleet.Cancelled {
		t.Errorf("the job is %s (%s); want cancelled", j.State, j.Reason.Detail)
	}
	c.used("r1", 0, 20*time.Second)
	if got := w.traces("stopped"); got != "began\n" {
		t.Errorf("the job ran as %q; want once, cut off", got)
	}
	w.submit("next", 2)
	w.submit("and next", 2)
	w.check("next", 60*time.Second)
	w.check("and next", 60*time.Second)
	c.voters(3)
}
