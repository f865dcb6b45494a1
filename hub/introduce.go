package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

// callNode is how a node tells the leader what it says of itself.
const callNode = "node"

// self is what this node says of itself.
func (h *Hub) self() fleet.HubNode {
	now, next := h.keys.public()
	return fleet.HubNode{
		ID: h.id.Node, MeshKey: now, NextMeshKey: next, SealKey: h.keys.sealPublic(), Endpoints: h.endpoints(),
		URL: h.url, Version: h.cfg.Version, Kinds: h.cfg.Generation,
	}
}

func key(k mesh.PrivateKey) []byte {
	p := k.Public()
	return p[:]
}

// introduce sees that the record says of this node what it says of itself, by way
// of the leader.
func (h *Hub) introduce(ctx context.Context) {
	if h.peers == nil || !h.isSettled() {
		return
	}
	me := h.self()
	was, known := h.entries.View().Node(me.ID)
	if known {
		me.JoinedAt = was.JoinedAt
		if reflect.DeepEqual(normalNode(*was), normalNode(me)) {
			return
		}
	}
	b, err := json.Marshal(me)
	if err == nil {
		_, err = h.peers.CallLeader(ctx, callNode, b)
	}
	if err != nil && ctx.Err() == nil {
		h.log.Debug("the leader did not record what this node says of itself", "err", err)
	}
}

// normalNode gives a record as it is after a trip through JSON.
func normalNode(n fleet.HubNode) (out fleet.HubNode) {
	b, err := json.Marshal(n)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return n
	}
	if len(out.Endpoints) == 0 {
		out.Endpoints = nil
	}
	return out
}

// updateNode records what a node says of itself; nobody speaks for another.
func (h *Hub) updateNode(ctx context.Context, from string, body []byte) ([]byte, error) {
	var n fleet.HubNode
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("read what node %s says of itself: %v: %w", from, err, fleet.BadRequest)
	}
	if n.ID != from {
		return nil, fmt.Errorf("node %s spoke for node %s: %w", from, n.ID, fleet.Forbidden)
	}
	return nil, h.entries.Record(ctx, &state.UpdateNode{Node: n})
}
