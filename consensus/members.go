package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// changeWait bounds the wait for an earlier change of the members.
const changeWait = 5 * time.Second

// Member is one node of the group, as the newest entry about members on this disk
// has it.
type Member struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`  // what Transport.Dial is called with; the id
	Voter bool   `json:"voter"` // false: a learner, which gets every entry and has no say
}

// Members are the nodes of the group in the order in which they came. A node that
// waits to be added, or was removed, may know of none, or of members without
// itself. The newest change may not be committed yet.
func (n *Node) Members() ([]Member, error) {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("members: %w", err)
	}
	return members(f.Configuration()), nil
}

func members(c raft.Configuration) []Member {
	out := make([]Member, len(c.Servers))
	for i, s := range c.Servers {
		out[i] = Member{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter}
	}
	return out
}

// member looks a node up.
func (n *Node) member(id string) (m Member, voters int, err error) {
	all, err := n.Members()
	for _, one := range all {
		if one.Voter {
			voters++
		}
		if one.ID == id {
			m = one
		}
	}
	return m, voters, err
}

// AddLearner adds the node id, which gets every entry from then on and no vote; a
// member is left as it is. It returns once that is committed. Errors are those of
// Propose.
func (n *Node) AddLearner(ctx context.Context, id string) error {
	if m, _, err := n.member(id); err != nil || m.ID != "" {
		return n.leads("add learner", err)
	}
	return n.change(ctx, "add learner "+id, func(wait time.Duration) raft.Future {
		return n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, wait)
	})
}

// Promote gives the learner id a vote. It returns once that is committed; a voter
// is left as it is, and ErrNotMember says that the node was not added. Errors are
// otherwise those of Propose.
//
// A voter that lacks much of the log holds commits up: promote one that has caught
// up.
func (n *Node) Promote(ctx context.Context, id string) error {
	switch m, _, err := n.member(id); {
	case err != nil || m.Voter:
		return n.leads("promote", err)
	case m.ID == "":
		return fmt.Errorf("promote %s: %w", id, ErrNotMember)
	}
	return n.change(ctx, "promote "+id, func(wait time.Duration) raft.Future {
		return n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, wait)
	})
}

// Remove takes the node id out of the group. It returns once that is committed;
// who is no member is left so. A leader that removes itself hands its leadership to
// another voter with that; the last voter can't be removed. Errors are otherwise
// those of Propose.
func (n *Node) Remove(ctx context.Context, id string) error {
	m, voters, err := n.member(id)
	switch {
	case err != nil || m.ID == "":
		return n.leads("remove", err)
	case m.Voter && voters == 1:
		return fmt.Errorf("remove %s: %w", id, ErrLastVoter)
	}
	err = n.change(ctx, "remove "+id, func(wait time.Duration) raft.Future {
		return n.raft.RemoveServer(raft.ServerID(id), 0, wait)
	})
	if err == nil && id == n.cfg.NodeID {
		// The others would wait in vain for the next heartbeat.
		n.handOver(ctx)
	}
	return err
}

// leads is err, or else ErrNotLeader on a node that does not lead.
func (n *Node) leads(op string, err error) error {
	if err != nil {
		return err
	}
	if n.raft.State() != raft.Leader {
		return fmt.Errorf("%s: %w", op, ErrNotLeader)
	}
	return nil
}

// change has raft make one change of the members and waits for it.
func (n *Node) change(ctx context.Context, op string, begin func(wait time.Duration) raft.Future) error {
	if err := n.enter(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	wait := changeWait
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, min(wait, time.Until(end)))
	}
	f := begin(wait)
	if err := n.await(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	switch err := f.Error(); {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%s: %w", op, ErrNotLeader)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%s: an earlier change of the members is not committed after %v: %w", op, wait, context.DeadlineExceeded)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%s: %w", op, unknown(err))
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}
