package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

// A node that is removed is shut out before it could hear of it from the log, so it is
// told: the leader keeps the tunnel to it for that moment, while the other nodes have
// cut it. It remembers what it was told, and does not run again.

const (
	callRemoved  = "removed"
	removedName  = "removed"
	farewellTime = time.Second
)

// part has the tunnel to a node stay until done is called, although it is removed.
func (h *Hub) part(id string) (done func()) {
	h.rosterMu.Lock()
	defer h.rosterMu.Unlock()
	h.parting = id
	return func() {
		h.rosterMu.Lock()
		h.parting = ""
		h.rosterMu.Unlock()
		poke(h.rosterPokes)
	}
}

// stillParting adds the node that is being told to the peers of the tunnel.
func (h *Hub) stillParting(peers []mesh.Peer) []mesh.Peer {
	h.rosterMu.Lock()
	id := h.parting
	h.rosterMu.Unlock()
	if id == "" || slices.ContainsFunc(peers, func(p mesh.Peer) bool { return p.ID == id }) {
		return peers
	}
	n, ok := h.entries.View().Node(id)
	if !ok {
		return peers
	}
	return append(peers, (roster{Nodes: []*fleet.HubNode{n}}).peers()...)
}

// bid tells a node that it was removed. One that does not answer is not waited for.
func (h *Hub) bid(ctx context.Context, id, why string) {
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()
	if _, err := h.peers.Call(ctx, id, callRemoved, []byte(why)); err != nil {
		h.log.Info("a removed node could not be told", "node", id, "err", err)
	}
}

// answerRemoved is told that this node was removed.
func (h *Hub) answerRemoved(_ context.Context, _ string, body []byte) ([]byte, error) {
	why := fleet.CutText(string(body), fleet.MaxHubNodeText)
	if err := writeFile(filepath.Join(h.cfg.Dir, removedName), []byte(why+"\n"), 0o600); err != nil {
		h.log.Error("remembering that this node was removed failed", "err", err)
	}
	h.rosterMu.Lock()
	h.gone = errRemovedFor(why)
	h.rosterMu.Unlock()
	poke(h.rosterPokes)
	return nil, nil
}

func errRemovedFor(why string) error {
	return fmt.Errorf("%w: %s; empty its data directory to join it anew", ErrRemoved, why)
}

// wasRemoved says that this node was told so at an earlier time.
func wasRemoved(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, removedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whether this node was removed: %w", err)
	}
	return errRemovedFor(string(b[:max(len(b)-1, 0)]))
}
