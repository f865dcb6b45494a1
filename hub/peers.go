package hub

import (
	"slices"
	"time"

	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/shared/fleet"
)

// Calls between the nodes about the nodes themselves.
const (
	callMembers = "members"
	callDrain   = "drain"
)

// openPeers makes the service between the nodes, where there is a network.
func (h *Hub) openPeers() (err error) {
	if h.network == nil {
		return nil
	}
	h.peers, err = peer.New(peer.Config{
		Self: h.id.Node, Network: h.network, Leading: h.leading.Load, Leader: h.node.Leader,
		Members: h.others, Facts: h.facts, Handler: handler{h}, Wall: h.wall,
		Presence: h.presence,
		OnLive:   func(j fleet.JobID, e []fleet.Event) { h.web.Live(j, e) },
		Calls: map[string]peer.Call{
			callNode:    {AtLeader: true, Do: h.updateNode},
			callMembers: {AtLeader: true, Do: h.answerMembers},
			callDrain:   {Do: h.answerDrain},
			callRemoved: {Do: h.answerRemoved},
			callTakeKey: {Do: h.takeKey},
			callGiveKey: {Do: h.giveKey},
			callRekey:   {Do: h.answerRekey},
			callKnowKey: {Do: h.answerKnowKey},
		},
		Join: h.admit, Logger: h.log,
	})
	h.keyPeers = keyPeers{distribute: h.distributeKey, fetch: h.fetchKeyFrom}
	return err
}

// others are the ids of the other nodes on record.
func (h *Hub) others() []string {
	var out []string
	for _, n := range h.entries.View().Nodes() {
		if n.ID != h.id.Node {
			out = append(out, n.ID)
		}
	}
	return out
}

// facts is what this node tells the others of itself.
func (h *Hub) facts() peer.Facts {
	st := h.node.Status()
	return peer.Facts{
		Leader: st.Leader, Term: st.Term, Applied: h.entries.View().Meta().Index, Entry: st.AppliedIndex, Last: st.LastIndex,
		Version: h.cfg.Version, Kinds: int(h.cfg.Generation), DiskFree: freeBytes(h.cfg.Dir), DiskFull: h.disk.room() != nil,
		Debt: h.debt(), Uptime: time.Since(h.started), Stalled: st.Stalled, Draining: h.draining.Load(),
	}
}

// leaderURL is where the leader serves people and runners; empty where unknown.
func (h *Hub) leaderURL() string {
	id := h.node.Leader()
	if id == h.id.Node || h.network == nil {
		return h.url
	}
	if n, ok := h.entries.View().Node(id); ok {
		return n.URL
	}
	return ""
}

// hubURLs are where all nodes serve, this one first.
func (h *Hub) hubURLs() []string {
	out := []string{h.url}
	for _, n := range h.entries.View().Nodes() {
		if n.URL != "" && !slices.Contains(out, n.URL) {
			out = append(out, n.URL)
		}
	}
	return out
}
