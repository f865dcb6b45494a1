package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// A state that was set back, by a backup or by the loss of most nodes, must not speak
// with the authority of what came after it. So the cluster's epoch is raised before
// anything else is done with such a state. That it has to be raised is known from two
// things: from a mark beside the log that a recovery leaves, and from the greatest
// epoch that this node has ever seen, where the state is of a lower one.

// recoveryName is the mark of a recovery that has still to raise the epoch.
const recoveryName = "recovery.json"

// recovery is what a recovery leaves beside the log.
type recovery struct {
	Version int    `json:"version"`
	Cause   string `json:"cause"`
	// Above is an epoch that the raised one must be greater than.
	Above uint64 `json:"above,omitempty"`
}

func (r recovery) save(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, recoveryName), append(b, '\n'), 0o600)
}

// recovering says whether a recovery has still to raise the epoch, and why.
func (h *Hub) recovering() (r recovery, ok bool, err error) {
	path := filepath.Join(h.cfg.Dir, recoveryName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil {
		err = checkVersion(path, r.Version, 1)
	}
	if err != nil {
		return r, false, fmt.Errorf("read %s, which says how this node was recovered: %w", path, err)
	}
	return r, true, nil
}

// raise raises the epoch of a state that was set back. It is run at the start of every
// term and does nothing to any other.
func (l *term) raise(ctx context.Context) error {
	h := l.hub
	m := h.entries.View().Meta()
	mark, recovered, err := h.recovering()
	if err != nil {
		return err
	}
	seen := h.seenEpoch()
	switch {
	case recovered:
		err = h.raiseEpoch(ctx, max(m.Epoch, seen, mark.Above)+1, mark.Cause, []fleet.HubNode{h.self()})
	case m.Epoch < seen:
		err = h.raiseEpoch(ctx, seen+1, "restore", h.livingNodes())
	default:
		return h.sawEpoch(m.Epoch)
	}
	if err == nil && recovered {
		err = os.Remove(filepath.Join(h.cfg.Dir, recoveryName))
	}
	return err
}

// raiseEpoch raises it, for the cluster to go on with the given nodes.
func (h *Hub) raiseEpoch(ctx context.Context, to uint64, cause string, nodes []fleet.HubNode) error {
	if h.network == nil {
		nodes = nil // a node that is alone is on no record
	}
	if err := h.entries.Record(ctx, &state.RaiseEpoch{To: to, Cause: cause, Nodes: nodes}); err != nil {
		return fmt.Errorf("raise the epoch to %d: %w", to, err)
	}
	h.log.Warn("the cluster's epoch was raised", "epoch", to, "cause", cause)
	return h.sawEpoch(to)
}

// livingNodes are the nodes that the cluster had before its state was set back.
func (h *Hub) livingNodes() []fleet.HubNode {
	h.rosterMu.Lock()
	defer h.rosterMu.Unlock()
	var out []fleet.HubNode
	for _, n := range h.roster.Nodes {
		out = append(out, *n)
	}
	return out
}

// seenEpoch is the greatest epoch that this node has seen.
func (h *Hub) seenEpoch() uint64 {
	h.idMu.Lock()
	defer h.idMu.Unlock()
	return h.id.Epoch
}

// sawEpoch remembers, on disk, that this node has seen an epoch.
func (h *Hub) sawEpoch(e uint64) error {
	return h.remember(func(id *identity) { id.Epoch = max(id.Epoch, e) })
}

// remember changes what this node keeps of itself beside the log.
func (h *Hub) remember(change func(*identity)) error {
	h.idMu.Lock()
	defer h.idMu.Unlock()
	id := h.id
	if change(&id); id == h.id {
		return nil
	}
	if err := id.save(filepath.Join(h.cfg.Dir, nodeName)); err != nil {
		return err
	}
	h.id.Founded, h.id.Epoch = id.Founded, id.Epoch // its names stay, and are read without the lock
	return nil
}
