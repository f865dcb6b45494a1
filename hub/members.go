package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	alive      = 5 * time.Second         // since a member answered last
	tellTime   = 2 * time.Second         // for an answer about the members, whoever is asked for it
	leaderTime = 1500 * time.Millisecond // of that, for the leader
)

// Members tells of all nodes as the leader sees them, or as this one does where no
// leader can be asked. A leader that has just died is not waited for: people ask who is
// there when something is wrong.
func (h *Hub) Members(ctx context.Context) (api.Members, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	silent := ""
	if id := h.node.Leader(); h.peers != nil && !h.leading.Load() && id != "" {
		var out api.Members
		b, err := h.askLeader(ctx)
		if err == nil && json.Unmarshal(b, &out) == nil {
			return out, nil
		}
		silent = id
	}
	h.meet(ctx)
	out, err := h.members(time.Now())
	if silent != "" && silent == out.Leader {
		out.Warnings = append(out.Warnings, fmt.Sprintf("node %s led until now and does not answer; this is what node %s knows", silent, h.id.Node))
	}
	return out, err
}

func (h *Hub) askLeader(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	return h.peers.CallLeader(ctx, callMembers, nil)
}

func (h *Hub) answerMembers(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTime-leaderTime/3) // for the answer to come in time
	defer cancel()
	h.meet(ctx)
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
		m := h.member(n, group, s, h.debtOf(s, debts[n.ID]), st.LastIndex, now)
		m.Leader = n.ID == st.Leader
		if m.Role == "voter" {
			if voters++; m.Health != "unreachable" && m.Health != "set_back" {
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

// debtOf is what a node lacks: by the leader's count, since a node's own word does not
// know what is under way to it, and by that word where no leader is asked.
func (h *Hub) debtOf(s peer.Sample, d replica.Debt) replica.Debt {
	switch own := s.Facts.Debt; {
	case d.Known:
	case own == unknownDebt:
		d = replica.Debt{}
	default:
		d = replica.Debt{Bytes: own, Known: !h.leading.Load() && !s.Heard.IsZero()}
	}
	return d
}

// member tells of one node.
func (h *Hub) member(n *fleet.HubNode, group []consensus.Member, s peer.Sample, d replica.Debt, last uint64, now time.Time) api.Member {
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
		if m.Applied = f.Entry; m.Applied == 0 {
			m.Applied = f.Applied // of a version to which they are the same
		}
		m.LastContact, m.Lag = &ago, last-min(last, max(f.Last, m.Applied))
		m.DiskFree, m.DiskFull, m.Uptime = f.DiskFree, f.DiskFull, f.Uptime.Round(time.Second).String()
		m.UnderReplicated, m.Replication = d.Bytes, d.Known
		m.ClockOffset = s.Offset.Milliseconds()
	}
	setBack := h.node.Refused()[n.ID]
	off := h.off(s.Offset)
	switch f := s.Facts; {
	case setBack != "" && !m.Self:
		m.Health, m.Detail = "set_back", setBack
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
	case off.Abs() > maxApart:
		m.Health, m.Detail = "clock_skew", fmt.Sprintf("its clock is %s off", off.Round(time.Second))
	case f.Draining:
		m.Health, m.Detail = "draining", "it does not lead, and may be stopped"
	case !m.Whole() && m.Role != "voter":
		m.Health, m.Detail = "filling", "it fetches output and files that it lacks"
	}
	return m
}
