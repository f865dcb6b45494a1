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

// leaderLook is how often the wait for a leader, or for a node to catch up, looks.
const leaderLook = 10 * time.Millisecond

var (
	// ErrHandingOver is a definite refusal, and an ErrNotLeader, while leadership is being
	// handed over.
	ErrHandingOver = fmt.Errorf("leadership is being handed over: %w", ErrNotLeader)
	// ErrAway says that a node does not answer.
	ErrAway = errors.New("does not answer")
	// errTold says that a node was told to lead, and that it is not known whether it does.
	errTold = errors.New("it was told to lead and has not yet begun")
	errSlow = errors.New("it did not get what it lacks in time")
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
// and returns when another node leads. Proposals are refused with ErrHandingOver
// meanwhile, which takes a few round trips and never more than about three heartbeat
// timeouts: nothing is tried twice. ErrNotLeader says that this node does not lead,
// ErrNobody that there is no voter that could take over; ErrNotMember, ErrAway and
// ErrBehind are those of CanLead. Where these are the answer nothing was refused; other
// errors say that the present leader may have stayed.
func (n *Node) Transfer(ctx context.Context, to string) error {
	if err := n.leads("transfer leadership", nil); err != nil {
		return err
	}
	if to == n.cfg.NodeID {
		return nil
	}
	candidates, err := n.successors(ctx, to)
	if err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	for !n.leadership.handing.CompareAndSwap(false, true) { // another one is under way
		if err := n.pause(ctx); err != nil {
			return fmt.Errorf("transfer leadership: %w", err)
		}
	}
	defer n.leadership.handing.Store(false)
	ctx, cancel := context.WithTimeout(ctx, 5*n.cfg.Heartbeat/2)
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

// CanLead says why the node id could not take leadership over from this one now, as far
// as this one, which leads, can tell, or nil: ErrNotMember says that it is no voter,
// ErrAway that it has not answered for two heartbeat timeouts, ErrBehind that it lacks
// more than 1,024 entries.
func (n *Node) CanLead(id string) error {
	m, _, err := n.member(id)
	switch {
	case err != nil:
		return err
	case !m.Voter:
		return ErrNotMember
	case m.Contact < 0 || m.Contact >= 2*n.cfg.Heartbeat:
		return ErrAway
	case m.Match > 0 && m.Match+maxLag < n.raft.LastIndex():
		return ErrBehind
	}
	return nil
}

// successors are the voters that may be asked to lead, the likeliest first.
func (n *Node) successors(ctx context.Context, to string) (ids []string, err error) {
	if to != "" {
		err := n.CanLead(to)
		for end := time.Now().Add(n.cfg.Heartbeat); errors.Is(err, ErrAway) && time.Now().Before(end); err = n.CanLead(to) {
			if m, _, _ := n.member(to); m.Contact >= 0 || n.pause(ctx) != nil {
				break // only a node that has led for no time yet has heard nothing at all
			}
		}
		if err != nil {
			return nil, fmt.Errorf("to %s: %w", to, err)
		}
		return []string{to}, nil
	}
	all, err := n.Members()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b Member) int { return cmp.Compare(b.Match, a.Match) })
	for _, m := range all {
		if m.ID != n.cfg.NodeID && n.CanLead(m.ID) == nil {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return nil, ErrNobody
	}
	return ids, nil
}

// pause waits for the next look.
func (n *Node) pause(ctx context.Context) error {
	next := time.NewTimer(leaderLook)
	defer next.Stop()
	select {
	case <-next.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopping:
		return n.refused()
	}
}

// transfer has one node lead: once it has all that there is, it is told to stand for
// election at once. It is told past raft's own loop, which may hang in the disk, and
// which would take no entries for as long as an append to a dead node lasts.
func (n *Node) transfer(ctx context.Context, id string) error {
	for begun := time.Now(); ; {
		if err := n.leads("hand over", nil); err != nil {
			return ErrNotLeader
		}
		waited := time.Since(begun) > n.cfg.Heartbeat
		lacks := n.progress(id).match < n.raft.LastIndex()
		if lacks && waited {
			return errSlow
		}
		if !lacks && (waited || len(n.slots) == 0) {
			break
		}
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
	if err := n.tell(id); err != nil {
		return err
	}
	for {
		if leader := n.Leader(); leader != "" && leader != n.cfg.NodeID {
			return nil
		}
		if err := n.pause(ctx); err != nil {
			return fmt.Errorf("%w: %w", errTold, err)
		}
	}
}

// tell has the node id stand for election at once.
func (n *Node) tell(id string) error {
	req := &raft.TimeoutNowRequest{RPCHeader: n.header()}
	return n.trans.TimeoutNow(raft.ServerID(id), raft.ServerAddress(id), req, new(raft.TimeoutNowResponse))
}

// handOver tells the voters ids, one after the other, to stand for election at once,
// whatever raft's own loop does, until one takes the message.
func (n *Node) handOver(ids []string) bool {
	for _, id := range ids {
		err := n.tell(id)
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
