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

// catchUpWait bounds the wait for a learner that is to get a vote.
const catchUpWait = 10 * time.Second

// Member is one node of the group, as the newest entry about members on this disk
// has it.
type Member struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`  // what Transport.Dial is called with; the id
	Voter bool   `json:"voter"` // false: a learner, which gets every entry and has no say

	// What the leader knows of the others, and nobody else.
	Match   uint64        `json:"match"`   // newest entry that it has on disk, 0 unknown
	Contact time.Duration `json:"contact"` // since it last answered, -1 unknown
}

// Members are the nodes of the group in the order in which they came. A node that
// waits to be added, or was removed, may know of none, or of members without
// itself. The newest change may not be committed yet.
func (n *Node) Members() ([]Member, error) {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("members: %w", err)
	}
	all := members(f.Configuration())
	for i := range all {
		p := n.progress(all[i].ID)
		all[i].Match, all[i].Contact = p.match, -1
		if !p.contact.IsZero() {
			all[i].Contact = time.Since(p.contact)
		}
	}
	return all, nil
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

// Promote gives the learner id a vote, once it has caught up; a voter is left as it
// is. It returns once that is committed. ErrNotMember says that the node was not
// added, ErrBehind that it had not caught up when ctx or 10 s ended. Errors are
// otherwise those of Propose.
func (n *Node) Promote(ctx context.Context, id string) error {
	switch m, _, err := n.member(id); {
	case err != nil || m.Voter:
		return n.leads("promote", err)
	case m.ID == "":
		return fmt.Errorf("promote %s: %w", id, ErrNotMember)
	}
	if err := n.leads("promote", nil); err != nil {
		return err
	}
	if err := n.waitCaughtUp(ctx, id); err != nil {
		return fmt.Errorf("promote %s: %w", id, err)
	}
	return n.change(ctx, "promote "+id, func(wait time.Duration) raft.Future {
		return n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, wait)
	})
}

// caughtUp says whether the node id holds all that is committed by now. A voter that
// does not would hold commits up, and a new node must have seen itself as a learner.
func (n *Node) caughtUp(id string) bool {
	p, commit := n.progress(id), n.raft.CommitIndex()
	return p.match > 0 && p.match >= commit && time.Since(p.contact) < 2*n.cfg.Heartbeat
}

func (n *Node) waitCaughtUp(ctx context.Context, id string) error {
	late := time.NewTimer(catchUpWait)
	defer late.Stop()
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	for !n.caughtUp(id) {
		select {
		case <-tick.C:
		case <-late.C:
			return ErrBehind
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBehind, context.Cause(ctx))
		case <-n.stopping:
			return n.refused()
		}
		if err := n.leads("wait for it", nil); err != nil {
			return err
		}
	}
	return nil
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
	var next []string
	if id == n.cfg.NodeID {
		if next, err = n.successors(ctx, ""); err != nil {
			return n.leads("remove", fmt.Errorf("remove %s: %w", id, err))
		}
	}
	err = n.change(ctx, "remove "+id, func(wait time.Duration) raft.Future {
		return n.raft.RemoveServer(raft.ServerID(id), 0, wait)
	})
	if err == nil {
		n.handOver(next) // who would else wait in vain for the next heartbeat
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
