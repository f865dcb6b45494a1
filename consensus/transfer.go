package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// transferWait bounds the wait for a new leader after a hand-over.
	transferWait = 5 * time.Second

	// leaderLook is how often the wait for a leader looks.
	leaderLook = 10 * time.Millisecond
)

// Leader is the id of the node that leads as far as this one knows, or "".
func (n *Node) Leader() string {
	_, id := n.raft.LeaderWithID()
	if string(id) == n.cfg.NodeID && n.leadership.isHeld() {
		return "" // raft does not know yet
	}
	return string(id)
}

// Transfer gives leadership to the voter to, or with "" to any that can take it,
// and returns when another node leads. While it runs, proposals are refused with
// ErrNotLeader. ErrNotLeader says that this node does not lead, ErrNobody that there
// is no voter that could take over; other errors say that the present leader may
// have stayed.
func (n *Node) Transfer(ctx context.Context, to string) error {
	if err := n.leads("transfer leadership", nil); err != nil {
		return err
	}
	if to == n.cfg.NodeID {
		return nil
	}
	candidates, err := n.successors(to)
	if err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, transferWait)
	defer cancel()
	for _, id := range candidates {
		if err = n.transfer(ctx, id); err == nil || ctx.Err() != nil || errors.Is(err, ErrNotLeader) {
			break
		}
		n.log.Info("leadership was not taken over", "to", id, "err", err)
	}
	if err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	return nil
}

// successors are the voters that may be asked to lead, the likeliest first. Without a
// wish those that do not answer are left out.
func (n *Node) successors(to string) (ids []string, err error) {
	all, err := n.Members()
	if err != nil {
		return nil, err
	}
	heard := func(m Member) bool { return m.Contact >= 0 && m.Contact < 2*n.cfg.Heartbeat }
	all = slices.DeleteFunc(all, func(m Member) bool {
		return !m.Voter || m.ID == n.cfg.NodeID || m.ID != to && (to != "" || !heard(m))
	})
	slices.SortStableFunc(all, func(a, b Member) int { return cmp.Compare(b.Match, a.Match) })
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	switch {
	case len(ids) == 0 && to != "":
		return nil, fmt.Errorf("to %s: %w", to, ErrNotMember)
	case len(ids) == 0:
		return nil, ErrNobody
	}
	return ids, nil
}

// transfer has raft hand leadership to one node and waits until another leads. That
// can be known before raft answers, whose loop may hang.
func (n *Node) transfer(ctx context.Context, id string) error {
	if err := n.enter(ctx); err != nil {
		return err
	}
	f := n.raft.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(id))
	answered := n.hand(f)
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	for {
		if leader := n.Leader(); leader != "" && leader != n.cfg.NodeID {
			return nil
		}
		select {
		case <-answered:
			answered = nil
			if err := f.Error(); errors.Is(err, raft.ErrNotLeader) {
				return ErrNotLeader
			} else if err != nil {
				return err
			}
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.stopping:
			return n.refused()
		}
	}
}

// handOver tells the voters ids, one after the other, to stand for election at once,
// whatever raft's own loop does, until one takes the message.
func (n *Node) handOver(ids []string) bool {
	for _, id := range ids {
		req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.cfg.NodeID), Addr: []byte(n.cfg.NodeID),
		}}
		err := n.trans.TimeoutNow(raft.ServerID(id), raft.ServerAddress(id), req, new(raft.TimeoutNowResponse))
		if err == nil {
			return true
		}
		n.log.Info("node does not take leadership", "to", id, "err", err)
	}
	return false
}

// Abstain has this node stand for election no more, or again: a full disk or a wrong
// clock makes a bad leader. It still votes, it keeps a leadership that it has (see
// Transfer), and it stands after all when nobody has led for ten heartbeat timeouts.
func (n *Node) Abstain(on bool) { n.abstains.Store(on) }

// stands implements guard.
func (n *Node) stands() bool {
	if !n.abstains.Load() && !n.stalled.Load() {
		return true
	}
	select {
	case <-n.begun:
	default:
		return false
	}
	last := n.raft.LastContact()
	if last.Before(n.opened) {
		last = n.opened
	}
	return time.Since(last) > 10*n.cfg.Heartbeat
}
