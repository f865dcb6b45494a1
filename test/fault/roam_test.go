//go:build linux

package fault

import (
	"fmt"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
)

// move gives a hub that does not run another address.
func (h *hub) move(last int) {
	h.c.t.Helper()
	h.renumber(fmt.Sprintf("10.77.0.%d", last))
}

// Two of three hubs, the leader among them, come back under other addresses, while a
// job runs: no node file is written by hand, they find each other by way of the third,
// and the runner finds them.
func TestAddressesChange(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.running("across", 150)
	stays := c.others(c.leader())[0]
	for _, h := range c.hubs {
		h.p.Kill()
	}
	for i, h := range c.others(stays) {
		h.move(21 + i)
	}
	for _, h := range c.hubs {
		h.start()
	}
	c.leader()
	c.voters(3)
	w.submit("after", 5)
	w.check("after", 60*time.Second)
	w.check("across", 60*time.Second)
	c.eventually(30*time.Second, "the members' list has the new addresses", func() bool {
		m, ok := c.members()
		for _, x := range m.Members {
			for _, h := range c.hubs {
				if x.ID == h.id && (x.URL != h.url() || len(x.Endpoints) != 1 || x.Endpoints[0] != h.addr+":"+udpPort) {
					return false
				}
			}
		}
		return ok
	})
}

// A hub's address changes under it while it runs, as by a new lease of its network: the
// tunnel goes on from where it is heard next.
func TestAddressChangesUnderARunningHub(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	for _, h := range c.hubs {
		h.anywhere = true
	}
	c.found()
	lead := c.leader()
	h := c.others(lead)[0]
	w := c.work()
	h.move(31)
	c.addRunner(2).start()
	c.online()
	w.submit("after", 5)
	c.voters(3)
	w.check("after", 60*time.Second, c.others(h)...)
	c.eventually(30*time.Second, "the leader hears it at its new address, and it lacks nothing", func() bool {
		m := lead.member(h.id)
		return m.Endpoint == h.addr+":"+udpPort && m.Health == "ok" && m.Lag == 0
	})
}

// All addresses change at once, so that no hub knows where another is. Two are told of
// one, and all find each other; nothing is written by hand.
func TestAllAddressesChange(t *testing.T) {
	t.Parallel()
	c := start(t, 0)
	w := c.work()
	w.submit("before", 1)
	for _, h := range c.hubs {
		h.p.Kill()
	}
	for i, h := range c.hubs {
		h.move(41 + i)
	}
	known := c.hubs[0]
	known.start()
	for _, h := range c.others(known) {
		h.start("--mesh-peer", known.addr+":"+udpPort)
	}
	c.voters(3)
	w.have("before")
}

// have sees that every hub has a job on record.
func (w *work) have(name string) {
	w.c.t.Helper()
	for _, h := range w.c.hubs {
		w.c.eventually(20*time.Second, "hub "+h.called+" has job "+name+" on record", func() bool {
			var j api.Job
			return h.get("/v1/jobs/"+w.jobs[name], &j) == nil
		})
	}
}

// All addresses change at once, and nobody knows the others'. One hub is recovered, the
// others join it anew, and nothing that was acknowledged is lost.
func TestAllAddressesChangeAndAreForgotten(t *testing.T) {
	t.Parallel()
	c := start(t, 0)
	w := c.work()
	w.submit("before", 1)
	for _, h := range c.hubs {
		h.p.Kill()
	}
	for i, h := range c.hubs {
		h.move(41 + i)
	}
	h := c.hubs[0]
	h.start()
	if w.acknowledges(h, "alone") {
		t.Error("a hub without a majority took a job")
	}
	h.p.Stop()
	c.run("hub", "recover", "--data-dir", h.dir)
	h.restart()
	for _, x := range c.others(h) {
		old := x.id
		x.wipe()
		x.start("--ticket", c.hubTicket())
		c.eventually(40*time.Second, "another hub joins", func() bool { return x.identify() && x.id != old })
	}
	c.voters(3)
	w.have("before")
}
