package hub

import (
	"context"
	"fmt"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

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
