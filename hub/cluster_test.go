package hub

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// meshed is a node of several. Who may vote is looked at often, so that a test does not
// wait for it.
func meshed(dir string) Config {
	return Config{
		Dir: dir, MeshListen: "127.0.0.1:0", Stable: 300 * time.Millisecond,
		Pilot: func(p *consensus.Pilot) { p.Interval = 200 * time.Millisecond },
	}
}

func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(60 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			n.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// ticket makes one for a hub node.
func (n *node) ticket(req api.TicketRequest) string {
	n.t.Helper()
	req.Role = fleet.TicketHub
	var k api.Ticket
	if code := n.call(http.MethodPost, "/v1/tickets", "", req, &k); code != http.StatusCreated {
		n.t.Fatalf("make a ticket: %d", code)
	}
	return k.Ticket
}

// join starts a node that joins the cluster of n.
func (n *node) join(dir, ticket string, change ...func(*Config)) *node {
	n.t.Helper()
	cfg := meshed(dir)
	cfg.Ticket = ticket
	for _, c := range change {
		c(&cfg)
	}
	cfg.Version, cfg.Listen = "test", "127.0.0.1:0"
	h, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	m := &node{t: n.t, hub: h, token: n.token, done: done}
	m.stop = func() {
		m.stop = func() {}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, ErrRemoved) {
			n.t.Errorf("run: %v", err)
		}
	}
	n.t.Cleanup(func() { m.stop() })
	select {
	case <-h.Ready():
	case err := <-done:
		n.t.Fatalf("the node ended: %v", err)
	case <-time.After(time.Minute):
		n.t.Fatal("the node is not ready after a minute")
	}
	return m
}

func (n *node) members() api.Members {
	n.t.Helper()
	var m api.Members
	if code := n.call(http.MethodGet, "/v1/members", "", nil, &m); code != http.StatusOK {
		n.t.Fatalf("members: %d", code)
	}
	return m
}

func (n *node) roles() string {
	var out []string
	for _, m := range n.members().Members {
		out = append(out, m.Role)
	}
	return strings.Join(out, " ")
}

func (n *node) submit() (fleet.JobID, int) {
	var j api.Job
	code := n.call(http.MethodPost, "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &j)
	return j.ID, code
}

func (n *node) knows(id fleet.JobID) bool {
	return n.call(http.MethodGet, "/v1/jobs/"+string(id), "", nil, nil) == http.StatusOK
}

// TestNodesJoinAndLeave grows a cluster from one node over real tunnels, writes
// through a follower, gives leadership away and takes a node out.
func TestNodesJoinAndLeave(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{Uses: 2})
	dir := t.TempDir()
	b := a.join(dir, k)
	c := a.join(t.TempDir(), k)
	a.eventually("all vote", func() bool { return a.roles() == "voter voter voter" })

	id, code := b.submit()
	if code != http.StatusCreated {
		t.Fatalf("submit by way of a follower: %d", code)
	}
	if !b.knows(id) || !a.knows(id) {
		t.Error("whoever wrote by way of a follower does not read it there")
	}
	a.eventually("the third node has it", func() bool { return c.knows(id) })

	var m api.Members
	if code := c.call(http.MethodPost, "/v1/members/transfer", "", api.Transfer{To: b.hub.id.Node}, &m); code != http.StatusOK {
		t.Fatalf("transfer: %d", code)
	}
	a.eventually("another node leads", func() bool { return a.members().Leader == b.hub.id.Node })
	a.eventually("it takes work", func() bool { _, code := a.submit(); return code == http.StatusCreated })

	// Whoever has just begun to lead knows the others as soon as it is asked for them.
	if code := b.call(http.MethodPost, "/v1/members/leader/drain", "", nil, &m); code != http.StatusOK || m.Leader == b.hub.id.Node {
		t.Errorf("drain a new leader: %d, %s leads", code, m.Leader)
	}
	if i := slices.IndexFunc(m.Members, func(n api.Member) bool { return n.Health == "unknown" }); i >= 0 {
		t.Errorf("the new leader knows nothing of %+v", m.Members[i])
	}
	a.eventually("it may lead again", func() bool {
		return a.call(http.MethodPost, "/v1/members/"+b.hub.id.Node+"/undrain", "", nil, &m) == http.StatusOK
	})

	gone := c.hub.id.Node
	if code := a.call(http.MethodDelete, "/v1/members/"+gone+"?why=test", "", nil, nil); code != http.StatusNoContent {
		t.Fatalf("remove: %d", code)
	}
	a.eventually("it is removed", func() bool { return a.roles() == "voter voter removed" })
	if code := a.call(http.MethodDelete, "/v1/members/"+gone, "", nil, nil); code != http.StatusNoContent {
		t.Errorf("remove again: %d", code)
	}
	select {
	case err := <-c.done:
		if c.done <- err; !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "test") {
			t.Errorf("the removed node ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the removed node goes on")
	}
	if _, err := New(c.hub.cfg); !errors.Is(err, ErrRemoved) {
		t.Errorf("it starts again: %v", err)
	}
	// It leads: first another one does, then it is taken out. One that is alone goes on.
	a.eventually("the second of two is removed", func() bool {
		return a.call(http.MethodDelete, "/v1/members/"+b.hub.id.Node, "", nil, nil) == http.StatusNoContent
	})
	a.eventually("the last one takes work", func() bool { _, code := a.submit(); return code == http.StatusCreated })
	if code := a.call(http.MethodDelete, "/v1/members/"+a.hub.id.Node+"?force=true", "", nil, nil); code != http.StatusConflict {
		t.Errorf("the last node was removed: %d", code)
	}

	b.stop()
	if _, err := New(Config{Dir: dir, MeshListen: "127.0.0.1:0", Listen: "127.0.0.1:0"}); !errors.Is(err, ErrRemoved) {
		t.Errorf("a removed node starts again: %v", err)
	}
}

// TestPacksWaitForAnOlderNode: several commands go into one entry of the log only where
// every node says that it can read that.
func TestPacksWaitForAnOlderNode(t *testing.T) {
	t.Parallel()
	var packs func() bool
	cfg := meshed(t.TempDir())
	cfg.Bootstrap = true
	cfg.Log = func(c *consensus.Config) { packs = c.Packs }
	n := startWith(t, cfg, time.Now)
	if !packs() {
		t.Error("alone, there are none")
	}
	dir := t.TempDir()
	m := n.join(dir, n.ticket(api.TicketRequest{}), func(c *Config) { c.Generation = 2 })
	n.eventually("none beside an older node", func() bool { return !packs() })
	if _, code := n.submit(); code != http.StatusCreated {
		t.Errorf("a job beside an older node: %d", code)
	}
	m.stop()
	n.join(dir, "")
	n.eventually("packs, once it is upgraded", packs)
	n.eventually("both have applied what the log has", func() bool {
		all := n.members()
		return !slices.ContainsFunc(all.Members, func(m api.Member) bool {
			return m.LastContact == nil || m.Applied == 0 || m.Applied > all.Index || m.Lag > 0
		})
	})
}

// TestRemovedWhileAway: a node that was off when it was removed hears of it when it
// comes back, and stands down.
func TestRemovedWhileAway(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{Uses: 2})
	b, _ := a.join(t.TempDir(), k), a.join(t.TempDir(), k)
	a.eventually("all vote", func() bool { return a.roles() == "voter voter voter" })
	b.stop()
	a.eventually("it is removed", func() bool {
		return a.call(http.MethodDelete, "/v1/members/"+b.hub.id.Node+"?why=gone+for+good", "", nil, nil) == http.StatusNoContent
	})
	cfg := b.hub.cfg
	cfg.Ticket = ""
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- h.Run(ctx) }()
	if err := <-ended; !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "gone for good") {
		t.Errorf("it ended with %v", err)
	}
}

func TestTicketsThatDoNotJoin(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{})
	a.join(t.TempDir(), k)
	cfg := meshed(t.TempDir())
	cfg.Listen, cfg.Ticket = "127.0.0.1:0", k
	if h, err := New(cfg); !errors.Is(err, fleet.TicketUsed) {
		t.Errorf("a ticket that was used joins again: %v", err)
		if h != nil {
			h.Close()
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "node.json")); err == nil {
		t.Error("a node that was refused believes that it is one")
	}
	runner, _, err := a.hub.Ticket(t.Context(), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Ticket = runner
	if _, err := New(cfg); !errors.Is(err, fleet.TicketInvalid) || !strings.Contains(err.Error(), "--role hub") {
		t.Errorf("a runner's ticket: %v", err)
	}
	alone := startWith(t, Config{Dir: t.TempDir(), Bootstrap: true}, time.Now)
	if code := alone.call(http.MethodPost, "/v1/tickets", "", api.TicketRequest{Role: fleet.TicketHub}, nil); code != http.StatusConflict {
		t.Errorf("a hub without a tunnel makes a hub ticket: %d", code)
	}
}

// TestTwoAreTooFewToLoseOne shows the warning, and that nothing is acknowledged
// without a majority.
func TestTwoAreTooFewToLoseOne(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	b := a.join(t.TempDir(), a.ticket(api.TicketRequest{}))
	a.eventually("both vote", func() bool { return a.roles() == "voter voter" })
	if w := strings.Join(a.members().Warnings, "; "); !strings.Contains(w, "2 voters") {
		t.Errorf("warnings: %s", w)
	}
	b.stop()
	a.eventually("nothing is acknowledged any more, and it is said why", func() bool {
		var p api.Problem
		code := a.call(http.MethodPost, "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &p)
		return code == http.StatusServiceUnavailable && p.Code == fleet.Unavailable && strings.Contains(p.Detail, "no hub node leads")
	})
	a.eventually("members says so", func() bool {
		return strings.Contains(strings.Join(a.members().Warnings, "; "), "no node leads")
	})
}

// TestReplacedWhileItVotes: the node that a ticket replaces gives up its vote before it
// is cut off; of two voters the other one would wait for it for ever. The only voter is
// not replaced.
func TestReplacedWhileItVotes(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	cfg := meshed(t.TempDir())
	cfg.Listen, cfg.Ticket = "127.0.0.1:0", a.ticket(api.TicketRequest{Replace: a.hub.id.Node, Uses: 1})
	if h, err := New(cfg); !errors.Is(err, fleet.Conflict) || !strings.Contains(err.Error(), "only voter") {
		t.Errorf("the only voter was replaced: %v", err)
		if h != nil {
			h.Close()
		}
	}

	b := a.join(t.TempDir(), a.ticket(api.TicketRequest{}))
	a.eventually("both vote", func() bool { return a.roles() == "voter voter" })
	old := b.hub.id.Node
	c := a.join(t.TempDir(), a.ticket(api.TicketRequest{Replace: old, Uses: 1}))
	a.eventually("it is replaced", func() bool { return a.roles() == "voter removed voter" })
	id, code := c.submit()
	if code != http.StatusCreated || !a.knows(id) {
		t.Errorf("submit by way of the new node: %d", code)
	}
	select {
	case err := <-b.done:
		if b.done <- err; !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "replaced by "+c.hub.id.Node) {
			t.Errorf("the replaced node ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the replaced node goes on")
	}
	var audit api.AuditRecords
	a.call(http.MethodGet, "/v1/audit", "", nil, &audit)
	if i := slices.IndexFunc(audit.Records, func(r api.AuditRecord) bool { return r.Command == "hub.admit" }); i < 0 || audit.Records[i].Detail != old {
		t.Errorf("the audit does not say that %s was replaced: %+v", old, audit.Records)
	}
}

// TestATicketIsNotSpentOnPortsThatAreTaken: the machine says which address is taken, and
// joins by the same ticket once it is free.
func TestATicketIsNotSpentOnPortsThatAreTaken(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{Uses: 1})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for address, change := range map[string]func(*Config){
		tcp.Addr().String():        func(c *Config) { c.Listen = tcp.Addr().String() },
		udp.LocalAddr().String():   func(c *Config) { c.MeshListen = udp.LocalAddr().String() },
		"192.0.2.1:0":              func(c *Config) { c.Listen = "192.0.2.1:0" },
		"192.0.2.1:0 for the mesh": func(c *Config) { c.MeshListen = "192.0.2.1:0" },
	} {
		cfg := meshed(t.TempDir())
		cfg.Ticket, cfg.Listen = k, "127.0.0.1:0"
		change(&cfg)
		h, err := New(cfg)
		if err == nil {
			h.Close()
			t.Fatalf("a node that cannot listen on %s was opened", address)
		}
		if !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "the ticket was not used") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if m := a.members(); len(m.Members) != 1 {
		t.Errorf("nodes that never listened are members: %+v", m.Members)
	}
	a.join(t.TempDir(), k)
}
