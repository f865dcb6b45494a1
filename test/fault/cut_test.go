//go:build linux

package fault

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
)

// newLeader waits until another hub leads than the one that did, and gives it and how
// long it took.
func (c *cluster) newLeader(old *hub, of []*hub) (*hub, time.Duration) {
	c.t.Helper()
	began := time.Now()
	lead := c.leader(of...)
	for lead == old {
		lead = c.leader(of...)
	}
	return lead, time.Since(began)
}

// The leader's cable is pulled under a running job. Another leads within seconds, the
// job goes on, a new one is taken and done; when the cable is back the old leader
// follows and has all of it.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.running("first", 60)
	old := c.leader()
	old.unplug()
	lead, took := c.newLeader(old, c.others(old))
	t.Logf("%s leads in place of %s after %s", lead.name, old.name, took.Round(10*time.Millisecond))
	if took > 8*time.Second {
		t.Errorf("another hub led after %s; want seconds", took)
	}
	w.submit("second", 5)
	w.check("second", 5, 40*time.Second, c.others(old)...)
	w.check("first", 60, 40*time.Second, c.others(old)...)
	old.plug()
	c.voters(3)
	if now := c.leader(); now != lead {
		t.Errorf("%s leads after the old leader came back; want %s, undisturbed", now.name, lead.name)
	}
	w.check("first", 60, time.Second)
	w.check("second", 5, time.Second)
	var s api.Status
	if err := old.get("/v1/status", &s); err != nil || s.Leader != lead.id {
		t.Errorf("the old leader says %v that %s leads; want %s", err, s.Leader, lead.id)
	}
}
