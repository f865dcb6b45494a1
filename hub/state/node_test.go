package state

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// nodes gives the ids of the cluster's nodes in one line.
func (g *rig) nodes() string {
	var out []string
	for _, n := range g.m.View().Nodes() {
		out = append(out, n.ID)
	}
	return strings.Join(out, " ")
}

// hubTicket makes a hub's ticket and gives its hash.
func (g *rig) hubTicket(name string, change ...func(*CreateTicket)) fleet.Digest {
	g.t.Helper()
	c := &CreateTicket{Hash: digest(name), TTL: time.Hour, Uses: 1, Role: fleet.TicketHub, Guest: hubNode("guest").MeshKey}
	for _, f := range change {
		f(c)
	}
	g.do(c)
	return c.Hash
}

func TestHubTickets(t *testing.T) {
	g := newRig(t)
	g.do(&UpdateNode{Node: hubNode("n-1")})
	for name, c := range map[string]struct {
		code   fleet.Code
		change func(*CreateTicket)
	}{
		"no guest key":        {fleet.BadRequest, func(c *CreateTicket) { c.Guest = nil }},
		"a short guest key":   {fleet.BadRequest, func(c *CreateTicket) { c.Guest = c.Guest[1:] }},
		"labels":              {fleet.BadRequest, func(c *CreateTicket) { c.Labels = map[string]string{"a": "b"} }},
		"for a runner":        {fleet.NotFound, func(c *CreateTicket) { c.For = "r1" }},
		"another role":        {fleet.BadRequest, func(c *CreateTicket) { c.Role = "cat" }},
		"a runner's guest":    {fleet.BadRequest, func(c *CreateTicket) { c.Role, c.Guest = fleet.TicketRunner, make([]byte, 5) }},
		"replaces a stranger": {fleet.NodeUnknown, func(c *CreateTicket) { c.Replace = "n-9" }},
	} {
		k := &CreateTicket{Hash: digest("bad"), TTL: time.Hour, Uses: 1, Role: fleet.TicketHub, Guest: hubNode("guest").MeshKey}
		c.change(k)
		if res := g.try(k); res.Code != c.code {
			t.Errorf("%s: %s, want %s", name, res.Code, c.code)
		}
	}
	runner := &CreateTicket{Hash: digest("a runner's"), TTL: time.Hour, Uses: 1, Role: fleet.TicketRunner}
	g.do(runner)
	if k, _ := g.m.View().Ticket(runner.Hash); k.Role != "" {
		t.Errorf("a runner's ticket has the role %q; want none, as always", k.Role)
	}
	g.refused(fleet.TicketInvalid, &AdmitNode{Ticket: runner.Hash, Node: hubNode("n-2")})
	hub := g.hubTicket("a hub's")
	g.refused(fleet.TicketInvalid, &Enrol{Ticket: hub, ID: "r1", Name: "r1", SignKey: []byte("k")})
}

func TestNodesJoin(t *testing.T) {
	g := newRig(t)
	g.do(&UpdateNode{Node: hubNode("n-1")}) // the first one, by no ticket
	g.refused(fleet.NodeUnknown, &UpdateNode{Node: hubNode("n-2")})
	k := g.hubTicket("two")
	g.do(&AdmitNode{Ticket: k, Node: hubNode("n-2")})
	n, _ := g.m.View().Node("n-2")
	if !n.JoinedAt.Equal(g.now) {
		t.Errorf("joined at %s, want %s", n.JoinedAt, g.now)
	}
	g.repeated(&AdmitNode{Ticket: k, Node: hubNode("n-2")})
	moved := hubNode("n-2")
	moved.Endpoints, moved.URL = []string{"elsewhere:1"}, "https://elsewhere"
	g.repeated(&AdmitNode{Ticket: k, Node: moved}) // its keys are what counts
	g.refused(fleet.TicketUsed, &AdmitNode{Ticket: k, Node: hubNode("n-3")})
	other := hubNode("n-2")
	other.MeshKey = hubNode("n-9").MeshKey
	g.refused(fleet.Conflict, &AdmitNode{Ticket: g.hubTicket("wiped"), Node: other})
	other = hubNode("n-2")
	other.SealKey = hubNode("n-9").SealKey
	g.refused(fleet.TicketUsed, &AdmitNode{Ticket: k, Node: other})
	twin := hubNode("n-3")
	twin.MeshKey = hubNode("n-1").MeshKey
	g.refused(fleet.Conflict, &AdmitNode{Ticket: g.hubTicket("twin"), Node: twin})
	if got := g.nodes(); got != "n-1 n-2" {
		t.Errorf("nodes %s", got)
	}
	late := g.hubTicket("late")
	g.do(&AdmitNode{Ticket: late, Node: hubNode("n-3")})
	guests := func(want int) {
		t.Helper()
		if got := len(g.m.View().Guests(g.now)); got != want {
			t.Errorf("%d guests at %s, want %d", got, g.now.Sub(epoch0), want)
		}
	}
	guests(4) // two tickets are unused, two may be repeated
	g.now = g.now.Add(2 * time.Hour)
	g.repeated(&AdmitNode{Ticket: late, Node: hubNode("n-3")})
	guests(2)
	g.refused(fleet.TicketExpired, &AdmitNode{Ticket: digest("twin"), Node: hubNode("n-4")})
	g.now = g.now.Add(24 * time.Hour)
	g.refused(fleet.TicketExpired, &AdmitNode{Ticket: late, Node: hubNode("n-3")})
	guests(0)
	for i := 4; len(g.m.View().Nodes()) < fleet.MaxHubNodes; i++ {
		id := "n-" + string(rune('a'+i))
		g.do(&AdmitNode{Ticket: g.hubTicket(id), Node: hubNode(id)})
	}
	g.refused(fleet.TooLarge, &AdmitNode{Ticket: g.hubTicket("full"), Node: hubNode("n-full")})
}

func TestNodesAreReplaced(t *testing.T) {
	g := newRig(t)
	g.do(&UpdateNode{Node: hubNode("n-1")})
	g.do(&AdmitNode{Ticket: g.hubTicket("two"), Node: hubNode("n-2")})
	k := g.hubTicket("for two", func(c *CreateTicket) { c.Replace = "n-2" })
	g.refused(fleet.Conflict, &AdmitNode{Ticket: k, Node: hubNode("n-3"), Replaces: "n-1"})
	g.refused(fleet.Conflict, &AdmitNode{Ticket: k, Node: hubNode("n-2")}) // itself, as it was
	_, changes := g.apply(Head{Actor: "hub"}, &AdmitNode{Ticket: k, Node: hubNode("n-3"), Replaces: "n-2"})
	if got := g.nodes(); got != "n-1 n-3" {
		t.Errorf("nodes %s", got)
	}
	if len(changes) != 2 || changes[0].Node.ID != "n-2" || !changes[0].Node.Removed() || changes[1].Node.ID != "n-3" {
		t.Errorf("told of %+v", changes)
	}
	old, _ := g.m.View().Node("n-2")
	if old.RemovedWhy != "replaced by n-3" || !old.RemovedAt.Equal(g.now) {
		t.Errorf("the old one is %+v", old)
	}
	g.repeated(&AdmitNode{Ticket: k, Node: hubNode("n-3"), Replaces: "n-2"})
	g.refused(fleet.NodeRemoved, &AdmitNode{Ticket: g.hubTicket("again"), Node: hubNode("n-2")})
	g.refused(fleet.NodeRemoved, &UpdateNode{Node: hubNode("n-2")})
	// Replaced by hand meanwhile: the ticket is good all the same.
	k = g.hubTicket("for three", func(c *CreateTicket) { c.Replace = "n-3" })
	g.do(&RemoveNode{ID: "n-3", Why: "its disk is dead"})
	g.do(&AdmitNode{Ticket: k, Node: hubNode("n-4")})
	if n, _ := g.m.View().Node("n-3"); n.RemovedWhy != "its disk is dead" {
		t.Errorf("removed because %q", n.RemovedWhy)
	}
	if a := g.m.View().Audit(0, 1); a[0].Command != "hub.admit" || a[0].Subject != "n-4" {
		t.Errorf("audited as %+v", a[0])
	}
}

func TestNodesAreUpdatedAndRemoved(t *testing.T) {
	g := newRig(t)
	n := hubNode("n-1")
	g.do(&UpdateNode{Node: n})
	joined := g.now
	g.repeated(&UpdateNode{Node: n})
	g.refused(fleet.Conflict, &RemoveNode{ID: "n-1"}) // the last one
	next := hubNode("next").MeshKey
	other := n
	other.MeshKey = next
	g.refused(fleet.Conflict, &UpdateNode{Node: other}) // never told before
	n.NextMeshKey, n.URL, n.Version = next, "https://new", "v2"
	g.do(&UpdateNode{Node: n})
	n.MeshKey, n.NextMeshKey = next, nil
	g.do(&UpdateNode{Node: n})
	got, _ := g.m.View().Node("n-1")
	want := n
	want.JoinedAt = joined
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("recorded (-want +got)\n%s", d)
	}
	g.refused(fleet.NodeUnknown, &RemoveNode{ID: "n-9"})
	g.do(&AdmitNode{Ticket: g.hubTicket("two"), Node: hubNode("n-2")})
	g.do(&RemoveNode{ID: "n-1"})
	g.repeated(&RemoveNode{ID: "n-1"})
	if n, _ := g.m.View().Node("n-1"); n.RemovedWhy != "removed by t-person" {
		t.Errorf("removed because %q", n.RemovedWhy)
	}
	for name, spoil := range map[string]func(*fleet.HubNode){
		"no id":             func(n *fleet.HubNode) { n.ID = "" },
		"a long id":         func(n *fleet.HubNode) { n.ID = strings.Repeat("n", 65) },
		"no mesh key":       func(n *fleet.HubNode) { n.MeshKey = nil },
		"a short seal key":  func(n *fleet.HubNode) { n.SealKey = n.SealKey[1:] },
		"a long next key":   func(n *fleet.HubNode) { n.NextMeshKey = make([]byte, 33) },
		"many endpoints":    func(n *fleet.HubNode) { n.Endpoints = slices.Repeat([]string{"a:1"}, fleet.MaxEndpoints+1) },
		"a long endpoint":   func(n *fleet.HubNode) { n.Endpoints = []string{strings.Repeat("a", fleet.MaxHubNodeText+1)} },
		"a long url":        func(n *fleet.HubNode) { n.URL = strings.Repeat("a", fleet.MaxHubNodeText+1) },
		"no commands named": func(n *fleet.HubNode) { n.Kinds = 0 },
	} {
		n := hubNode("n-2")
		spoil(&n)
		if res := g.try(&UpdateNode{Node: n}); res.Code != fleet.BadRequest {
			t.Errorf("%s: %s, want %s", name, res.Code, fleet.BadRequest)
		}
	}
}

// TestHeld: a command of a new generation waits for every node that does not know it.
func TestHeld(t *testing.T) {
	gone := time.Now()
	node := func(id string, kinds uint16) *fleet.HubNode { return &fleet.HubNode{ID: id, Kinds: kinds} }
	left := node("n-0", 0)
	left.RemovedAt = &gone
	for _, c := range []struct {
		name  string
		cmd   Command
		nodes []*fleet.HubNode
		want  string
	}{
		{"no records", &SilenceRunner{}, nil, ""},
		{"alone with an old record", &SilenceRunner{}, []*fleet.HubNode{left, node("n-1", 1)}, ""},
		{"all know it", &SilenceRunner{}, []*fleet.HubNode{node("n-1", 2), node("n-2", 3)}, ""},
		{"one does not", &SilenceRunner{}, []*fleet.HubNode{node("n-1", 2), node("n-2", 1), node("n-3", 1)}, "n-2"},
		{"a removed one does not", &SilenceRunner{}, []*fleet.HubNode{left, node("n-1", 2), node("n-2", 2)}, ""},
		{"an old command with a greater number", &Expire{}, []*fleet.HubNode{node("n-1", 2), node("n-2", 1)}, ""},
		{"an upgraded node says so", &UpdateNode{Node: fleet.HubNode{ID: "n-2", Kinds: 2}}, []*fleet.HubNode{node("n-1", 2), node("n-2", 1)}, ""},
		{"an upgraded node says so beside an old one", &UpdateNode{Node: fleet.HubNode{ID: "n-2", Kinds: 2}}, []*fleet.HubNode{node("n-1", 1), node("n-2", 1)}, "n-1"},
		{"a node that was set back says so", &UpdateNode{Node: fleet.HubNode{ID: "n-2", Kinds: 1}}, []*fleet.HubNode{node("n-1", 2), node("n-2", 2)}, ""},
		{"a new command with a lesser number", &RenewAttempt{}, []*fleet.HubNode{node("n-1", 2), node("n-2", 1)}, "n-2"},
	} {
		if got, held := Held(c.cmd, c.nodes); got != c.want || held != (c.want != "") {
			t.Errorf("%s: held %v by %q, want %q", c.name, held, got, c.want)
		}
	}
	for _, c := range []struct {
		name  string
		nodes []*fleet.HubNode
		want  bool
	}{
		{"no records", nil, false},
		{"alone with an old record", []*fleet.HubNode{left, node("n-1", 1)}, false},
		{"all read packs", []*fleet.HubNode{left, node("n-1", 4), node("n-2", 4)}, false},
		{"one does not", []*fleet.HubNode{node("n-1", 4), node("n-2", 3), node("n-3", 4)}, true},
	} {
		if held := HeldPacks(c.nodes); held != c.want {
			t.Errorf("packs, %s: held %v, want %v", c.name, held, c.want)
		}
	}
	if Newest() != browserGeneration {
		t.Errorf("the newest generation is %d, want %d", Newest(), browserGeneration)
	}
	for _, k := range Kinds() { // those of the first log are of the first generation
		if old := k <= 21 || k >= 32 && k <= 41 || k == 48; old != (generation(k) == 1) {
			t.Errorf("kind %d is of generation %d", k, generation(k))
		}
	}
}

func TestSilentRunners(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.repeated(&SilenceRunner{ID: "r1"})
	since := g.now.Add(-20 * time.Second)
	g.do(&SilenceRunner{ID: "r1", Since: since})
	g.repeated(&SilenceRunner{ID: "r1", Since: g.now}) // the first one counts
	if r, _ := g.m.View().Runner("r1"); r.SilentSince == nil || !r.SilentSince.Equal(since) {
		t.Errorf("silent since %v, want %s", r.SilentSince, since)
	}
	g.do(&SilenceRunner{ID: "r1"})
	if r, _ := g.m.View().Runner("r1"); r.SilentSince != nil {
		t.Errorf("still silent since %s", r.SilentSince)
	}
	g.do(&SilenceRunner{ID: "r1", Since: g.now.Add(time.Hour)}) // by a clock that is ahead
	if r, _ := g.m.View().Runner("r1"); !r.SilentSince.Equal(g.now) {
		t.Errorf("silent since %s, want %s", r.SilentSince, g.now)
	}
	g.refused(fleet.RunnerUnknown, &SilenceRunner{ID: "r9"})
}
