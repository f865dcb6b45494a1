package hub

import (
	"context"
	"encoding/json"
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
	callRemoved   = "removed"
	removedName   = "removed"
	farewellTime  = 2 * time.Second
	farewellPause = 100 * time.Millisecond

	farewellEvery = 5 * time.Second
	farewellFor   = 30 * day
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

// farewellWords is what a removed node is told. One that has seen a later epoch than
// the teller does not listen.
type farewellWords struct {
	Why   string `json:"why"`
	Epoch uint64 `json:"epoch"`
}

// bid tells a node that it was removed, as soon as the tunnel to it is there. One that
// does not answer is not waited for.
func (h *Hub) bid(ctx context.Context, id, why string) (told bool) {
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()
	body, err := json.Marshal(farewellWords{why, h.entries.View().Meta().Epoch})
	if err != nil {
		return false
	}
	poke(h.rosterPokes)
	err = awaitEvery(ctx, farewellPause, func() error {
		_, err := h.peers.Call(ctx, id, callRemoved, body)
		return err
	})
	if err != nil {
		h.log.Debug("a removed node could not be told", "node", id, "err", err)
	}
	return err == nil
}

// farewells tells nodes that were away when they were removed, one every few seconds,
// for as long as they may come back: after a recovery, the nodes that it went on
// without would be a cluster of their own.
func (l *term) farewells(ctx context.Context) {
	h := l.hub
	if h.mesh == nil {
		return
	}
	told := map[string]bool{}
	tick := time.NewTicker(farewellEvery)
	defer tick.Stop()
	for next := 0; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var away []*fleet.HubNode
		for _, n := range h.entries.View().AllNodes() {
			if n.Removed() && !told[n.ID] && h.entries.now().Sub(*n.RemovedAt) < farewellFor {
				away = append(away, n)
			}
		}
		if len(away) == 0 {
			continue
		}
		n := away[next%len(away)]
		told[n.ID] = h.farewell(ctx, n)
	}
}

func (h *Hub) farewell(ctx context.Context, n *fleet.HubNode) bool {
	if !h.removing.TryLock() {
		return false
	}
	defer h.removing.Unlock()
	defer h.part(n.ID)()
	return h.bid(ctx, n.ID, n.RemovedWhy)
}

// answerRemoved is told that this node was removed.
func (h *Hub) answerRemoved(_ context.Context, from string, body []byte) ([]byte, error) {
	var w farewellWords
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, fmt.Errorf("read what node %s says of a removal: %v: %w", from, err, fleet.BadRequest)
	}
	if seen := max(h.seenEpoch(), h.entries.View().Meta().Epoch); w.Epoch < seen {
		return nil, fmt.Errorf("node %s speaks of epoch %d, and this one has seen %d: %w", from, w.Epoch, seen, fleet.StaleEpoch)
	}
	why := fleet.CutText(w.Why, fleet.MaxHubNodeText)
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
