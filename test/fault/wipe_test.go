//go:build linux

package fault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
)

// wipe takes all that a hub has on its disk; it must not run.
func (h *hub) wipe() {
	h.c.t.Helper()
	if err := os.RemoveAll(h.dir); err != nil {
		h.c.t.Fatal(err)
	}
}

// replace has a hub that does not run begin anew, as a member in the place of the one that it
// was, and waits until so many vote.
func (h *hub) replace(voters int) {
	h.c.t.Helper()
	old := h.id
	h.wipe()
	h.start("--ticket", h.c.hubTicket("--replace", old))
	// Until then the one that it was may still be counted, as it was heard last.
	h.c.eventually(40*time.Second, "the hub is a node with another id", func() bool {
		h.lives()
		return h.identify() && h.id != old
	})
	h.c.voters(voters)
}

// refuses waits until the hub, just started, has ended by itself, with this exit code
// and these words.
func (h *hub) refuses(code int, words ...string) {
	h.c.t.Helper()
	select {
	case <-h.p.Ended():
	case <-time.After(40 * time.Second):
		h.c.t.Fatalf("hub %s runs; it should have refused:\n%s", h.called, h.p.Said())
	}
	said := h.p.Said()
	if got := h.p.ExitCode(); got != code {
		h.c.t.Errorf("hub %s ended with %d; want %d:\n%s", h.called, got, code, said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			h.c.t.Errorf("hub %s ended without the words %q:\n%s", h.called, w, said)
		}
	}
}

// A voter loses its disk while another one lacks an entry that was acknowledged. If it
// came back under its old id, those two could elect a leader without the entry. Its
// command line, given again, is refused; as a replacement it learns all, votes once it
// is whole, and gives out the output of jobs from before its time.
func TestWipedVoter(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.submit("old", 5)
	w.check("old", 60*time.Second)
	lead := c.leader()
	wiped, behind := c.others(lead)[0], c.others(lead)[1]
	behind.unplug()
	w.submit("acknowledged", 5)
	wiped.p.Kill()
	lead.p.Kill()
	copied := filepath.Join(c.dir, "copy")
	if out, err := c.person.command("cp", "-a", wiped.dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	wiped.wipe()
	behind.plug()
	wiped.start()
	wiped.refuses(2, "--ticket")
	if w.acknowledges(behind, "without a majority") {
		t.Error("a hub without a majority took a job")
	}
	var s api.Status
	if err := behind.get("/v1/status", &s); err != nil || s.Leader == behind.id {
		t.Errorf("%s leads without a majority, which lacks an entry (%v)", s.Leader, err)
	}
	lead.restart()
	c.leader(lead, behind)
	w.check("acknowledged", 60*time.Second)
	old := wiped.id

	// With the ticket of the first time too: it was used up.
	wiped.start("--ticket", c.joined)
	wiped.refuses(2, "ticket")
	wiped.replace(3)
	if m := lead.member(old); m.Role != "removed" {
		t.Errorf("the lost node is %q; want removed", m.Role)
	}
	w.kept("old", wiped)
	w.kept("acknowledged", wiped)
	// It was whole when it got its vote; what has ended since is compared every few seconds.
	c.eventually(20*time.Second, "the new voter is whole", func() bool { return lead.member(wiped.id).Whole() })

	// The output lies on its own disk: it gives it out with the others gone.
	for _, h := range c.others(wiped) {
		h.p.Kill()
	}
	w.kept("old", wiped)
	for _, h := range c.others(wiped) {
		h.start()
	}
	c.voters(3)

	// What lay on the lost disk comes to light again, and is not let in.
	wiped.p.Stop()
	now := wiped.dir
	wiped.dir = copied
	id := wiped.id
	wiped.start()
	wiped.refuses(78, "removed", "replaced")
	if wiped.identify(); wiped.id != old {
		t.Fatalf("the copy of the lost disk is node %s; want %s", wiped.id, old)
	}
	if m := c.leader(c.others(wiped)...).member(old); m.Role != "removed" {
		t.Errorf("the replaced node is %q once it is back; want removed", m.Role)
	}
	wiped.dir = now
	wiped.restart()
	c.voters(3)
	if wiped.id != id {
		t.Errorf("the replacement is node %s after a restart; want %s", wiped.id, id)
	}
	w.submit("new", 5)
	w.check("new", 60*time.Second)
}

// The founder loses its disk, and its first command line, with --bootstrap, is given
// again: that makes another cluster, which neither the other hubs nor the runners take
// for theirs.
func TestWipedFounder(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	founder := c.hubs[0]
	var before, after api.Status
	if err := founder.get("/v1/status", &before); err != nil {
		t.Fatal(err)
	}
	w.running("first", 60)
	founder.p.Kill()
	founder.wipe()
	founder.start("--bootstrap")
	c.leader(c.others(founder)...)
	w.check("first", 60*time.Second, c.others(founder)...)
	ca := c.ca
	c.eventually(20*time.Second, "the founder begins anew", func() bool {
		founder.lives()
		c.ca = filepath.Join(founder.dir, "ca.pem")
		defer func() { c.ca = ca }()
		b, err := os.ReadFile(filepath.Join(founder.dir, "operator.token"))
		if err != nil {
			return false
		}
		token := c.token
		c.token = strings.TrimSpace(string(b))
		defer func() { c.token = token }()
		return founder.get("/v1/status", &after) == nil && after.Leader != ""
	})
	if after.Cluster == before.Cluster || after.Runners != 0 {
		t.Errorf("the founder without its disk is of cluster %s with %d runners; want another cluster, and none", after.Cluster, after.Runners)
	}
	w.submit("second", 5)
	w.check("second", 60*time.Second, c.others(founder)...)
	if m := c.leader(c.others(founder)...).member(founder.id); m.Health != "unreachable" {
		t.Errorf("the others call the founder %q; want unreachable", m.Health)
	}
}
