package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	groupEvery = time.Second     // looks at the members of the log's group
	giveEvery  = 3 * time.Second // between tries to give leadership away
	alive      = 5 * time.Second // since a member answered last
)

// Calls between the nodes.
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

// others are the ids of all nodes on record.
func (h *Hub) others() []string {
	var out []string
	for _, n := range h.entries.View().Nodes() {
		out = append(out, n.ID)
	}
	return out
}

// facts is what this node tells the others of itself.
func (h *Hub) facts() peer.Facts {
	st := h.node.Status()
	return peer.Facts{
		Leader: st.Leader, Term: st.Term, Applied: h.entries.View().Meta().Index, Last: st.LastIndex,
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

// voices are the clocks of the other voters, as far as they were heard.
func (h *Hub) voices() []voice {
	if h.peers == nil {
		return nil
	}
	members, err := h.node.Members()
	if err != nil {
		return nil
	}
	var out []voice
	for _, s := range h.peers.Samples() {
		if s.ID == h.id.Node || s.Heard.IsZero() || !slices.ContainsFunc(members, func(m consensus.Member) bool { return m.ID == s.ID && m.Voter }) {
			continue
		}
		out = append(out, voice{wall: s.Facts.Wall.Add(s.Trip / 2), age: time.Since(s.Heard)})
	}
	return out
}

// unfit says why this node should not lead although it could, or nil.
func (h *Hub) unfit() error {
	if h.draining.Load() {
		return errors.New("it is being drained")
	}
	if err := h.disk.room(); err != nil {
		return err
	}
	return h.entries.timely()
}

// group keeps the log's group as the record of nodes has it: who was admitted
// learns, who was removed leaves. Votes are given elsewhere, to who has caught up.
func (l *term) group(ctx context.Context) {
	tick := time.NewTicker(groupEvery)
	defer tick.Stop()
	var gave time.Time
	for {
		l.regroup(ctx)
		if err := l.hub.unfit(); err != nil && time.Since(gave) > giveEvery {
			gave = time.Now()
			l.giveAway(ctx, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *term) regroup(ctx context.Context) {
	h := l.hub
	if h.network == nil {
		return
	}
	members, err := h.node.Members()
	if err != nil {
		return
	}
	record := map[string]*fleet.HubNode{}
	for _, n := range h.entries.View().AllNodes() {
		record[n.ID] = n
	}
	has := map[string]bool{}
	for _, m := range members {
		has[m.ID] = true
		if n := record[m.ID]; n != nil && n.Removed() {
			if err := h.node.Remove(ctx, m.ID); err != nil {
				h.log.Warn("removing a node from the log's group failed", "node", m.ID, "err", err)
			}
		}
	}
	for id, n := range record {
		if !n.Removed() && !has[id] {
			if err := h.node.AddLearner(ctx, id); err != nil {
				h.log.Warn("adding a node to the log's group failed", "node", id, "err", err)
			}
		}
	}
}

// giveAway hands leadership to another voter, if there is one that can take it.
func (l *term) giveAway(ctx context.Context, why error) {
	h := l.hub
	to, ok := h.heir()
	if !ok {
		return
	}
	h.log.Warn("giving leadership away", "to", to, "err", why)
	if err := h.node.Transfer(ctx, to); err != nil && !errors.Is(err, consensus.ErrNotLeader) {
		h.log.Warn("leadership was not taken over", "err", err)
	}
}

// heir gives the voter that is fittest to lead next.
func (h *Hub) heir() (id string, ok bool) {
	members, err := h.node.Members()
	if err != nil || h.peers == nil {
		return "", false
	}
	var best peer.Sample
	for _, s := range h.peers.Samples() {
		voter := slices.ContainsFunc(members, func(m consensus.Member) bool { return m.ID == s.ID && m.Voter })
		if s.ID == h.id.Node || !voter || s.Err != nil || s.Heard.IsZero() || time.Since(s.Heard) > alive || s.Facts.DiskFull || s.Facts.Draining || s.Facts.Stalled {
			continue
		}
		if best.ID == "" || s.Facts.Last > best.Facts.Last {
			best = s
		}
	}
	return best.ID, best.ID != ""
}

// Members tells of all nodes as the leader sees them, or as this one does where no
// leader can be asked.
func (h *Hub) Members(ctx context.Context) (api.Members, error) {
	if h.peers != nil && !h.leading.Load() && h.node.Leader() != "" {
		var out api.Members
		b, err := h.peers.CallLeader(ctx, callMembers, nil)
		if err == nil && json.Unmarshal(b, &out) == nil {
			return out, nil
		}
	}
	return h.members(time.Now())
}

func (h *Hub) answerMembers(context.Context, string, []byte) ([]byte, error) {
	m, err := h.members(time.Now())
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

func (h *Hub) members(now time.Time) (api.Members, error) {
	group, err := h.node.Members()
	if err != nil {
		return api.Members{}, fmt.Errorf("list the members: %w: %w", fleet.Unavailable, err)
	}
	st := h.node.Status()
	out := api.Members{Leader: st.Leader, Term: st.Term, Index: st.CommitIndex, SeenBy: h.id.Node, Members: []api.Member{}, Warnings: []string{}}
	samples := map[string]peer.Sample{h.id.Node: {ID: h.id.Node, Facts: h.facts(), Heard: now}}
	if h.peers != nil {
		for _, s := range h.peers.Samples() {
			samples[s.ID] = s
		}
	}
	nodes := h.entries.View().AllNodes()
	if _, ok := h.entries.View().Node(h.id.Node); !ok {
		me := h.self() // alone, and on no record yet
		nodes = append(nodes, &me)
	}
	voters, fit := 0, 0
	debts := h.copies.Debt()
	for _, n := range nodes {
		s := samples[n.ID]
		if d := debts[n.ID]; d.Known {
			s.Facts.Debt = d.Bytes // its own word does not know what is under way to it
		}
		m := h.member(n, group, s, st.LastIndex, now)
		m.Leader = n.ID == st.Leader
		if m.Role == "voter" {
			if voters++; m.Health != "unreachable" {
				fit++
			}
		}
		out.Members = append(out.Members, m)
	}
	if voters > 0 && voters%2 == 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d voters bear the loss of no more nodes than %d do; add one, or remove one", voters, voters-1))
	}
	if voters > 2 && fit == voters/2+1 {
		out.Warnings = append(out.Warnings, "one more node lost, and nothing can be committed")
	}
	if st.Leader == "" {
		out.Warnings = append(out.Warnings, "no node leads: nothing can be committed now")
	}
	return out, nil
}

// member tells of one node.
func (h *Hub) member(n *fleet.HubNode, group []consensus.Member, s peer.Sample, last uint64, now time.Time) api.Member {
	m := api.Member{
		ID: n.ID, URL: n.URL, Endpoints: n.Endpoints, Version: n.Version, Kinds: int(n.Kinds), JoinedAt: n.JoinedAt.UTC(),
		Role: "joining", Health: "ok", Self: n.ID == h.id.Node,
	}
	if m.Endpoints == nil {
		m.Endpoints = []string{}
	}
	for _, g := range group {
		if g.ID == n.ID {
			if m.Role = "learner"; g.Voter {
				m.Role = "voter"
			}
		}
	}
	if n.Removed() {
		at := n.RemovedAt.UTC()
		m.Role, m.RemovedAt, m.Health, m.Detail = "removed", &at, "removed", n.RemovedWhy
		return m
	}
	if h.mesh != nil && !m.Self {
		if at := h.mesh.Endpoint(n.ID); at.IsValid() {
			m.Endpoint = at.String()
		}
	}
	if !s.Heard.IsZero() {
		ago := max(0, now.Sub(s.Heard)).Milliseconds()
		f := s.Facts
		m.LastContact, m.Applied, m.Lag = &ago, f.Applied, last-min(last, max(f.Last, f.Applied))
		m.DiskFree, m.DiskFull, m.UnderReplicated, m.Uptime = f.DiskFree, f.DiskFull, f.Debt, f.Uptime.Round(time.Second).String()
		m.ClockOffset = s.Offset.Milliseconds()
	}
	switch f := s.Facts; {
	case s.Heard.IsZero() && (s.Err == nil || errors.Is(s.Err, peer.ErrNotAsked)):
		m.Health, m.Detail = "unknown", "it has not been asked yet"
	case s.Heard.IsZero() || now.Sub(s.Heard) > alive:
		m.Health = "unreachable"
		if s.Err != nil {
			m.Detail = s.Err.Error()
		}
	case f.DiskFull:
		m.Health, m.Detail = "disk_full", "it takes no new output and does not lead"
	case f.Stalled:
		m.Health, m.Detail = "slow_disk", "the disk under its log is too slow for a leader's"
	case s.Offset.Abs() > maxApart:
		m.Health, m.Detail = "clock_skew", fmt.Sprintf("its clock is %s off", s.Offset.Round(time.Second))
	case f.Draining:
		m.Health, m.Detail = "draining", "it does not lead, and may be stopped"
	case f.Debt > 0 && m.Role != "voter":
		m.Health, m.Detail = "filling", "it fetches output and files that it lacks"
	}
	return m
}

// Transfer gives leadership to a node, or with "" to any that can take it.
func (h *Hub) Transfer(ctx context.Context, to string) error {
	if to == "" {
		id, ok := h.heir()
		if !ok {
			return fmt.Errorf("no other voter can lead now; `tugline hub members` says why: %w", fleet.Conflict)
		}
		to = id
	}
	if h.peers != nil {
		for _, s := range h.peers.Samples() {
			if s.ID == to && s.Facts.Draining {
				return fmt.Errorf("node %s is drained and leads no more; `tugline hub drain --back %s` ends that: %w", to, to, fleet.Conflict)
			}
		}
	}
	err := h.node.Transfer(ctx, to)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, consensus.ErrNotMember):
		return fmt.Errorf("node %s is no voter; `tugline hub members` lists them: %w", to, fleet.NotFound)
	case errors.Is(err, consensus.ErrNotLeader):
		return fmt.Errorf("this node does not lead any more: %w", fleet.Unavailable)
	}
	return fmt.Errorf("node %s did not take leadership over: %v: %w", to, err, fleet.Unavailable)
}

// Remove takes a node out of the cluster for good, on the leader. Unless forced it
// is refused where too few voters that answer would be left.
func (h *Hub) Remove(ctx context.Context, actor state.Head, id, why string, force bool) error {
	if !h.removing.TryLock() { // what is safe is judged by the members as they are
		return fmt.Errorf("another node is being removed; ask again: %w", fleet.Conflict)
	}
	defer h.removing.Unlock()
	m, err := h.members(time.Now())
	if err != nil {
		return err
	}
	voters, fit, found := 0, 0, false
	var lacks int64
	for _, n := range m.Members {
		found = found || n.ID == id && n.Role != "removed"
		if n.Role == "voter" && n.ID != id {
			lacks = max(lacks, n.UnderReplicated)
			if voters++; n.Health != "unreachable" {
				fit++
			}
		}
	}
	switch {
	case lacks > 1 && !force: // 1 says that it is not known
		return fmt.Errorf("a node that would be left still lacks %d bytes of output that the one to be removed may have; wait until `tugline hub members` shows none, or give --force: %w", lacks, fleet.Conflict)
	case !found:
		return fmt.Errorf("there is no node %s; `tugline hub members` lists them: %w", id, fleet.NotFound)
	case voters == 0:
		return fmt.Errorf("node %s is the only voter; the cluster would end with it: %w", id, fleet.Conflict)
	case fit <= voters/2 && !force:
		return fmt.Errorf("of the %d voters that would be left only %d answer, and nothing could be committed any more; bring one back first, or give --force: %w", voters, fit, fleet.Conflict)
	case id == h.id.Node:
		if err := h.Transfer(ctx, ""); err != nil {
			return err
		}
		return fmt.Errorf("node %s led until now; ask again, another one leads: %w", id, fleet.Unavailable)
	}
	// It gives up its vote while it can still be heard: afterwards the tunnel to it is
	// cut, and a vote that was needed would be missing for good.
	if err := h.node.Remove(ctx, id); err != nil {
		return fmt.Errorf("node %s was not taken out of the log's group: %v: %w", id, err, fleet.Unavailable)
	}
	done := h.part(id)
	defer done()
	res, err := h.entries.ProposeAs(ctx, actor, &state.RemoveNode{ID: id, Why: why})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return err
	}
	if n, ok := h.entries.View().Node(id); ok && h.peers != nil {
		h.bid(ctx, id, n.RemovedWhy)
	}
	return nil
}

// Drain prepares a node for a planned stop, or ends that: a node that is drained
// gives leadership away and takes none.
func (h *Hub) Drain(ctx context.Context, id string, on bool) error {
	b, err := json.Marshal(on)
	if err != nil {
		return err
	}
	if id == "" || id == h.id.Node {
		_, err = h.answerDrain(ctx, h.id.Node, b)
		return err
	}
	if h.peers == nil || !slices.Contains(h.others(), id) {
		return fmt.Errorf("there is no node %s; `tugline hub members` lists them: %w", id, fleet.NotFound)
	}
	_, err = h.peers.Call(ctx, id, callDrain, b)
	return err
}

func (h *Hub) answerDrain(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var on bool
	if err := json.Unmarshal(body, &on); err != nil {
		return nil, fmt.Errorf("read the request to drain: %v: %w", err, fleet.BadRequest)
	}
	if on && !h.leading.Load() {
		h.draining.Store(true)
		return nil, nil
	}
	if !on {
		h.draining.Store(false)
		return nil, nil
	}
	to, ok := h.heir()
	if !ok {
		return nil, fmt.Errorf("no other voter can lead now, so that work would wait while this node is stopped; `tugline hub members` says why: %w", fleet.Conflict)
	}
	h.draining.Store(true)
	h.sessions.Restarting(0, 30*time.Second, h.successors(to))
	return nil, h.Transfer(ctx, to)
}

// successors are the URLs of the nodes that runners should turn to, the likeliest
// first.
func (h *Hub) successors(to string) []string {
	var out []string
	for _, n := range h.entries.View().Nodes() {
		if n.URL == "" || n.ID == h.id.Node {
			continue
		}
		if n.ID == to {
			out = slices.Insert(out, 0, n.URL)
		} else {
			out = append(out, n.URL)
		}
	}
	return out
}
