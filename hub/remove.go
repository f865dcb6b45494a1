package hub

import (
	"context"
	"fmt"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// Remove takes a node out of the cluster for good, on the leader. Unless forced it
// is refused where too few voters that answer would be left. One that was taken out
// already is no error: whoever asked by way of that node itself does not hear the answer,
// and asks again.
func (h *Hub) Remove(ctx context.Context, actor state.Head, id, why string, force bool) error {
	if err := h.begin(ctx); err != nil { // what is safe is judged by the members as they are
		return err
	}
	defer h.removing.Unlock()
	if n, ok := h.entries.View().Node(id); ok && n.Removed() {
		return nil
	}
	h.meet(ctx)
	r, err := h.without(id)
	if err != nil {
		return err
	}
	switch {
	case r.lacks > 0 && !force:
		return fmt.Errorf("a node that would be left still lacks %d bytes of output that the one to be removed may have; wait until `tugline hub members` shows none, or give --force: %w", r.lacks, fleet.Conflict)
	case !r.known:
		return fmt.Errorf("there is no node %s; `tugline hub members` lists them: %w", id, fleet.NotFound)
	case r.voters == 0:
		return fmt.Errorf("node %s is the only voter; the cluster would end with it: %w", id, fleet.Conflict)
	case !r.quorum() && !force:
		return fmt.Errorf("of the %d voters that would be left only %d answer, and nothing could be committed any more; bring one back first, or give --force: %w", r.voters, r.fit, fleet.Conflict)
	}
	if err := h.takeVote(ctx, id); err != nil {
		return err
	}
	done := h.part(id)
	defer done()
	if err := h.entries.RecordAs(ctx, actor, &state.RemoveNode{ID: id, Why: why}); err != nil {
		return err
	}
	if n, ok := h.entries.View().Node(id); ok && h.peers != nil {
		h.bid(ctx, id, n.RemovedWhy)
	}
	return nil
}

// begin takes removing. It waits for as long as one that was removed earlier is told of
// it, which happens every few seconds while such a node is away.
func (h *Hub) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, farewellTime+time.Second)
	defer cancel()
	return awaitEvery(ctx, farewellPause, func() error {
		if h.removing.TryLock() {
			return nil
		}
		return fmt.Errorf("another node is being removed; ask again: %w", fleet.Conflict)
	})
}

// makeWay takes the vote of a node that another one is about to replace. It is called
// with removing held. What another leader or a node that is brought back would mend is
// fleet.Unavailable: the new node asks again.
func (h *Hub) makeWay(ctx context.Context, id string) error {
	h.meet(ctx)
	r, err := h.without(id)
	switch {
	case err != nil:
		return err
	case r.voters == 0:
		return fmt.Errorf("node %s is the only voter, and the cluster would end with it; join without --replace, and remove it once the new node votes: %w", id, fleet.Conflict)
	case !r.quorum():
		return fmt.Errorf("of the %d voters beside node %s, which is to be replaced, only %d answer; bring one back first: %w", r.voters, id, r.fit, fleet.Unavailable)
	}
	return h.takeVote(ctx, id)
}

// rest is what a cluster would be without one of its nodes.
type rest struct {
	known       bool  // the node belongs to it
	voters, fit int   // and those of them that answer
	lacks       int64 // bytes of output and files that a voter lacks, the most
}

func (r rest) quorum() bool { return r.fit > r.voters/2 }

func (h *Hub) without(id string) (rest, error) {
	m, err := h.members(time.Now())
	if err != nil {
		return rest{}, err
	}
	var r rest
	for _, n := range m.Members {
		r.known = r.known || n.ID == id && n.Role != "removed"
		if n.Role == "voter" && n.ID != id {
			r.lacks = max(r.lacks, n.UnderReplicated)
			if r.voters++; n.Health != "unreachable" {
				r.fit++
			}
		}
	}
	return r, nil
}

// takeVote has a node give up its vote while it can still be heard. Once the record says
// that it is gone the tunnel to it is cut, and a vote that was needed would be missing
// for good.
func (h *Hub) takeVote(ctx context.Context, id string) error {
	if id == h.id.Node {
		if err := h.Transfer(ctx, ""); err != nil {
			return err
		}
		return fmt.Errorf("node %s led until now; ask again, another one leads: %w", id, fleet.Unavailable)
	}
	if err := h.node.Remove(ctx, id); err != nil {
		return fmt.Errorf("node %s was not taken out of the log's group: %v: %w", id, err, fleet.Unavailable)
	}
	return nil
}
