//go:build linux

package fault

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const decade = "87660h"

// perishable is what would be gone after a jump of the clock that was believed.
type perishable struct {
	c     *cluster
	token string
	work  *work
}

// perish prepares a token that lasts half an hour and an ended job.
func (c *cluster) perish() *perishable {
	c.t.Helper()
	w := c.work()
	w.submit("before", 1)
	w.check("before", 40*time.Second)
	var k api.Token
	if err := json.Unmarshal([]byte(c.run("token", "create", "--name", "short", "--role", "viewer", "--ttl", "30m", "--json")), &k); err != nil {
		c.t.Fatal(err)
	}
	return &perishable{c, k.Secret, w}
}

// lasts sees that nothing of it has expired.
func (p *perishable) lasts(at ...*hub) {
	p.c.t.Helper()
	for _, h := range at {
		operator := p.c.token
		p.c.token = p.token
		a, err := h.ask(http.MethodGet, "/v1/jobs/"+p.work.jobs["before"], "", nil, askTime)
		p.c.token = operator
		if err != nil || a.status != http.StatusOK {
			p.c.t.Errorf("hub %s whose clock is off by %q answers the holder of a token that lasts half an hour with %d: %s (%v)", h.called, h.off(), a.status, a.body, err)
		}
	}
	p.work.kept("before", at...)
}

// impatient sees that time goes on: a job that nobody can take is blocked once its
// queue timeout of 3 s has passed.
func (c *cluster) impatient(within time.Duration) {
	c.t.Helper()
	id := strings.TrimSpace(c.run("exec", "--detach", "--require", "moon=full", "--queue-timeout", "3s", "--", "true"))
	c.inState(id, fleet.Blocked, within)
}

// A follower's clock jumps, on, back, and by ten years. Nothing comes of it but that
// the members' list tells, and that it does not lead.
func TestClockOfFollowerJumps(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	p := c.perish()
	lead := c.leader()
	wrong := c.others(lead)[0]
	for _, off := range []string{"1h", "-1h", decade} {
		wrong.clock(off)
		c.eventually(20*time.Second, "the members' list tells of a clock that is off by "+off, func() bool {
			return lead.member(wrong.id).Health == "clock_skew"
		})
		p.lasts(c.hubs...)
		c.impatient(20 * time.Second)
	}
	w := p.work
	w.submit("after", 2)
	w.check("after", 40*time.Second)
	// Without it, the two others could elect only each other; with the leader gone, it
	// must not lead although it is one of the two.
	lead.p.Kill()
	next := c.succeeded(lead)
	if next == wrong {
		t.Errorf("%s leads, whose clock is off by ten years", wrong.called)
	}
	wrong.clock("0s")
	lead.restart()
	c.voters(3)
	p.lasts(c.hubs...)
}

// The leader's clock jumps: it gives leadership away, and nothing expires.
func TestClockOfLeaderJumps(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	p := c.perish()
	w := p.work
	w.running("across", 150)
	for _, off := range []string{"1h", "-1h", decade} {
		old := c.leader()
		old.clock(off)
		began := time.Now()
		c.eventually(20*time.Second, "leadership is given away by a hub whose clock is off by "+off, func() bool {
			return c.leader() != old
		})
		t.Logf("clock off by %s: %s leads in place of %s after %s", off, c.leader().called, old.called, time.Since(began).Round(10*time.Millisecond))
		p.lasts(c.hubs...)
		c.impatient(20 * time.Second)
		old.clock("0s")
		c.voters(3)
	}
	w.check("across", 60*time.Second)
	p.lasts(c.hubs...)
	var s api.Status
	if !c.get("/v1/status?consistent", &s) || time.Until(s.StateTime).Abs() > time.Minute {
		t.Errorf("state time is %s; want now", s.StateTime)
	}
}

// The clock of a single hub jumps. By an hour it is believed, and time does not stand
// still when it is set back; by ten years it is not, and the hub serves what it has,
// says why it records nothing, and goes on by itself once the clock is right.
func TestClockOfSingleHubJumps(t *testing.T) {
	t.Parallel()
	c := prepare(t, 1)
	c.found()
	c.addRunner(2).start()
	c.online()
	p := c.perish()
	w, h := p.work, c.hubs[0]
	w.running("across", 100)
	h.clock("-1h")
	c.impatient(20 * time.Second)
	w.submit("an hour back", 1)
	w.check("an hour back", 40*time.Second)
	p.lasts(h)
	h.clock("0s")

	h.clock(decade)
	var a answer
	c.eventually(20*time.Second, "the hub takes nothing on", func() bool {
		var err error
		a, err = h.ask(http.MethodPost, "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, askTime)
		return err == nil && a.status/100 != 2
	})
	var why api.Problem
	if err := json.Unmarshal(a.body, &why); err != nil || why.Code != fleet.ClockSkew || !strings.Contains(why.Detail, "set the clock") {
		t.Errorf("the hub refuses with %s; want what is wrong with the clock", a.body)
	}
	if ready, err := h.ask(http.MethodGet, "/readyz", "", nil, askTime); err != nil || ready.status == http.StatusOK || !strings.Contains(string(ready.body), "clock") {
		t.Errorf("/readyz answers %d: %s (%v); want what is wrong with the clock", ready.status, ready.body, err)
	}
	p.lasts(h)
	h.p.Kill()
	h.restart() // it sees the same after a start
	if j, ok := c.job(w.jobs["before"]); !ok || j.State != fleet.Succeeded {
		t.Errorf("an ended job is %q after a start with the wrong clock", j.State)
	}
	p.lasts(h)
	h.clock("0s")
	w.submit("right again", 1)
	w.check("right again", 40*time.Second)
	w.check("across", 60*time.Second)
	p.lasts(h)
	c.impatient(20 * time.Second)

	h.clock("1h") // as far as a clock is believed; it leads back in a moment
	w.submit("an hour on", 1)
	w.check("an hour on", 40*time.Second)
	h.clock("0s")
	c.impatient(20 * time.Second)
}

func (h *hub) off() string {
	b, _ := os.ReadFile(h.faults.Clock)
	return string(b)
}
