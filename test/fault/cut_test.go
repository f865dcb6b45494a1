//go:build linux

package fault

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// handover is the time within which another hub has to lead on a machine that is busy
// with other tests.
const handover = 8 * time.Second

// succeeded waits until the other hubs have a leader among them, and gives it.
func (c *cluster) succeeded(old *hub) *hub {
	c.t.Helper()
	began := time.Now()
	lead := c.leader(c.others(old)...)
	took := time.Since(began)
	c.t.Logf("%s leads in place of %s after %s", lead.called, old.called, took.Round(10*time.Millisecond))
	if took > handover {
		c.t.Errorf("another hub led after %s; want at most %s", took, handover)
	}
	return lead
}

// acknowledges says whether a hub takes a job within a few seconds; the job must then
// be on the others' record.
func (w *work) acknowledges(h *hub, name string) bool {
	w.c.t.Helper()
	a, err := h.ask(http.MethodPost, "/v1/jobs", "work-"+filepath.Base(w.c.dir)+"-"+name, api.Submit{Kind: fleet.KindExec, Argv: w.argv(name, 1)}, 4*time.Second)
	return err == nil && a.status/100 == 2
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
	cut := time.Now()
	lead := c.succeeded(old)
	id := w.submit("second", 5)
	c.eventually(30*time.Second, "the runner begins another job", func() bool { return w.traces("second") != "" })
	t.Logf("the runner began another job %s after the cut", time.Since(cut).Round(10*time.Millisecond))
	if took := time.Since(cut); took > 2*handover {
		t.Errorf("the runner began job %s %s after the cut; want at most %s", id, took, 2*handover)
	}
	w.check("second", 40*time.Second, c.others(old)...)
	w.check("first", 40*time.Second, c.others(old)...)
	old.plug()
	c.voters(3)
	if now := c.leader(); now != lead {
		t.Errorf("%s leads after the old leader came back; want %s, undisturbed", now.called, lead.called)
	}
	w.check("first", time.Second)
	w.check("second", time.Second)
	var s api.Status
	if err := old.get("/v1/status", &s); err != nil || s.Leader != lead.id {
		t.Errorf("the old leader says %v that %s leads; want %s", err, s.Leader, lead.id)
	}
}

// The leader goes deaf: it hears nothing of the other hubs any more, while they and the
// runners hear it, and it hears the runners and people. It must not go on leading those
// who still reach it.
func TestLeaderDeaf(t *testing.T) {
	t.Parallel()
	halfCut(t, func(lead, other *hub) { lead.deafTo(other.machine) }, func(lead, other *hub) { lead.hears(other.machine) })
}

// The leader goes mute: the other hubs hear nothing of it, and it hears them.
func TestLeaderMute(t *testing.T) {
	t.Parallel()
	halfCut(t, func(lead, other *hub) { other.deafTo(lead.machine) }, func(lead, other *hub) { other.hears(lead.machine) })
}

func halfCut(t *testing.T, cut, mend func(lead, other *hub)) {
	c := start(t, 1)
	w := c.work()
	w.running("first", 50)
	old := c.leader()
	for _, h := range c.others(old) {
		cut(old, h)
	}
	c.succeeded(old)
	if w.acknowledges(old, "refused") {
		t.Error("a hub without a majority took a job")
	}
	var j api.Job
	if err := old.get("/v1/jobs/"+w.jobs["first"]+"?consistent", &j); err == nil {
		t.Error("a hub without a majority answered a consistent read")
	}
	w.submit("second", 5)
	w.check("second", 40*time.Second, c.others(old)...)
	w.check("first", 40*time.Second, c.others(old)...)
	for _, h := range c.others(old) {
		mend(old, h)
	}
	c.voters(3)
	w.check("first", time.Second)
	w.check("second", time.Second)
}

// A follower hears nothing of the leader, and both reach the third hub: it must not
// take leadership away again and again.
func TestFollowerDeafToTheLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	lead := c.leader()
	before, _ := lead.members()
	deaf := c.others(lead)[0]
	deaf.deafTo(lead.machine)
	w.running("first", 40)
	w.check("first", 40*time.Second, lead)
	after, ok := lead.members()
	if !ok || after.Term != before.Term || after.Leader != lead.id {
		t.Errorf("term %d, leader %s after a follower went deaf; want term %d, leader %s", after.Term, after.Leader, before.Term, lead.id)
	}
	deaf.hears(lead.machine)
	c.voters(3)
	w.check("first", time.Second)
}
