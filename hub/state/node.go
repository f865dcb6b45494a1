package state

import (
	"bytes"
	"encoding/hex"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(AdmitNode) })
	_ = register(func() Command { return new(UpdateNode) })
	_ = register(func() Command { return new(RemoveNode) })
)

// AdmitNode turns a hub's ticket into a member of the cluster. The ticket is consumed
// for the node's mesh key: the same key may repeat it until the ticket's end and a
// day. A node whose id is known comes back with the keys it had or not at all; one
// that lost its keys replaces its old self under a new id, by a ticket that says so.
type AdmitNode struct {
	Ticket   fleet.Digest  `json:"ticket"`
	Node     fleet.HubNode `json:"node"`
	Replaces string        `json:"replaces,omitempty"` // must be what the ticket says, where it is given
}

func (*AdmitNode) kind() Kind { return 43 }

const newHubTicket = "ask for a new one with `tugline hub ticket --role hub`"

func (c *AdmitNode) apply(t *txn) Result {
	if bad := soundNode(&c.Node); bad.Code != "" {
		return bad
	}
	k := first[fleet.Ticket](t.Txn, tableTickets, "id", string(c.Ticket))
	switch {
	case k == nil:
		return refuse(fleet.TicketInvalid, "the cluster does not know this ticket; %s", newHubTicket)
	case k.Role != fleet.TicketHub:
		return refuse(fleet.TicketInvalid, "the ticket is a runner's; %s", newHubTicket)
	case c.Replaces != "" && c.Replaces != k.Replace:
		return refuse(fleet.Conflict, "the ticket is not for replacing node %s; make one with `tugline hub ticket --role hub --replace %s`", c.Replaces, c.Replaces)
	}
	key := hex.EncodeToString(c.Node.MeshKey)
	known := t.node(c.Node.ID)
	same := known != nil && !known.Removed() && sameKeys(known, &c.Node)
	id, before := k.Admitted[key]
	switch {
	case known != nil && known.Removed():
		return refuse(fleet.NodeRemoved, "node %s was removed (%s) and cannot come back; empty its data directory, and %s", known.ID, known.RemovedWhy, newHubTicket)
	case before && t.now().After(k.ExpiresAt.Add(fleet.GuestGracePeriod)):
		return refuse(fleet.TicketExpired, "the ticket expired more than a day ago; %s", newHubTicket)
	case before && id == c.Node.ID && same, same && k.Replace == "":
		return Result{ID: c.Node.ID, Repeated: true}
	case before:
		return refuse(fleet.TicketUsed, "the ticket admitted node %s with this key, which is another one or has other keys now; %s", id, newHubTicket)
	case known != nil:
		return refuse(fleet.Conflict, "node %s is known with other keys; one that lost its data directory comes back under a new id, by `tugline hub ticket --role hub --replace %s`", known.ID, known.ID)
	case t.now().After(k.ExpiresAt):
		return refuse(fleet.TicketExpired, "the ticket expired at %s; %s", k.ExpiresAt.UTC().Format(time.RFC3339), newHubTicket)
	case k.Uses <= 0:
		return refuse(fleet.TicketUsed, "the ticket was used up by another node; %s", newHubTicket)
	}
	if k.Replace != "" {
		old := t.node(k.Replace)
		if old == nil {
			return refuse(fleet.NodeUnknown, "there is no node %s to replace", k.Replace)
		}
		if !old.Removed() {
			t.removeNode(old, "replaced by "+c.Node.ID)
		}
	}
	live := (View{t.Txn}).Nodes()
	if len(live) >= fleet.MaxHubNodes {
		return refuse(fleet.TooLarge, "the cluster has %d nodes, its bound", len(live))
	}
	for _, o := range live {
		if bytes.Equal(o.MeshKey, c.Node.MeshKey) || bytes.Equal(o.NextMeshKey, c.Node.MeshKey) {
			return refuse(fleet.Conflict, "node %s has this mesh key; two nodes cannot share one", o.ID)
		}
	}
	used := *k
	used.Uses--
	used.Admitted = map[string]string{key: c.Node.ID}
	for key, id := range k.Admitted {
		used.Admitted[key] = id
	}
	t.insert(tableTickets, &used)
	n := c.Node
	n.JoinedAt, n.RemovedAt, n.RemovedWhy = t.now(), nil, ""
	t.putNode(&n)
	return Result{ID: n.ID}
}

// UpdateNode records what a node says of itself. Its mesh key may become the next one
// that it told before, and nothing else. While there is no node at all the first one
// records itself by it.
type UpdateNode struct {
	Node fleet.HubNode `json:"node"`
}

func (*UpdateNode) kind() Kind { return 44 }

func (c *UpdateNode) apply(t *txn) Result {
	if bad := soundNode(&c.Node); bad.Code != "" {
		return bad
	}
	n, was := c.Node, t.node(c.Node.ID)
	n.RemovedAt, n.RemovedWhy = nil, ""
	switch {
	case was == nil && len((View{t.Txn}).Nodes()) > 0:
		return refuse(fleet.NodeUnknown, "there is no node %s; a node joins by a ticket, from `tugline hub ticket --role hub`", n.ID)
	case was == nil:
		n.JoinedAt = t.now()
	case was.Removed():
		return refuse(fleet.NodeRemoved, "node %s was removed: %s", n.ID, was.RemovedWhy)
	case !bytes.Equal(n.MeshKey, was.MeshKey) && !bytes.Equal(n.MeshKey, was.NextMeshKey):
		return refuse(fleet.Conflict, "node %s has another mesh key and did not tell it before", n.ID)
	default:
		n.JoinedAt = was.JoinedAt
		if sameRow(was, &n) {
			return Result{ID: n.ID, Repeated: true}
		}
	}
	t.putNode(&n)
	return Result{ID: n.ID}
}

// RemoveNode takes a node out of the cluster for good; its keys are refused from then
// on. Which nodes vote is not recorded: whoever proposes it sees to it that enough
// voters are left. The last node of the record stays.
type RemoveNode struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

func (*RemoveNode) kind() Kind { return 45 }

func (c *RemoveNode) apply(t *txn) Result {
	n := t.node(c.ID)
	switch {
	case n == nil:
		return refuse(fleet.NodeUnknown, "there is no node %s", c.ID)
	case n.Removed():
		return Result{ID: c.ID, Repeated: true}
	case len((View{t.Txn}).Nodes()) == 1:
		return refuse(fleet.Conflict, "node %s is the last one", c.ID)
	}
	t.removeNode(n, orElse(fleet.CutText(c.Why, fleet.MaxHubNodeText), "removed by "+t.head.Actor))
	return Result{ID: c.ID}
}

func (t *txn) node(id string) *fleet.HubNode {
	return first[fleet.HubNode](t.Txn, tableNodes, "id", id)
}

func (t *txn) putNode(n *fleet.HubNode) {
	t.insert(tableNodes, n)
	t.changed(Change{What: "node", Node: n})
}

func (t *txn) removeNode(was *fleet.HubNode, why string) {
	n := *was
	n.RemovedAt, n.RemovedWhy, n.NextMeshKey = at(t.now()), why, nil
	t.putNode(&n)
}

// soundNode refuses what no node says of itself.
func soundNode(n *fleet.HubNode) Result {
	no := func(what string) Result { return refuse(fleet.BadRequest, "the record of hub node %q %s", n.ID, what) }
	switch {
	case n.ID == "" || len(n.ID) > 64:
		return no("has no id, or one of over 64 bytes")
	case len(n.MeshKey) != fleet.MeshKeyBytes || len(n.SealKey) != fleet.MeshKeyBytes:
		return no("lacks a mesh key or a sealing key of 32 bytes")
	case len(n.NextMeshKey) != 0 && len(n.NextMeshKey) != fleet.MeshKeyBytes:
		return no("has a next mesh key that has not 32 bytes")
	case len(n.Endpoints) > fleet.MaxEndpoints:
		return no("has too many endpoints")
	case n.Kinds == 0:
		return no("does not say which commands it can decode")
	}
	for _, s := range append([]string{n.URL, n.Version}, n.Endpoints...) {
		if len(s) > fleet.MaxHubNodeText {
			return no("has a text that is too long")
		}
	}
	return Result{}
}

func sameKeys(a, b *fleet.HubNode) bool {
	return bytes.Equal(a.MeshKey, b.MeshKey) && bytes.Equal(a.SealKey, b.SealKey)
}
