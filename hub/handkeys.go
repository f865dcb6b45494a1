package hub

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Keys of the cluster travel between nodes sealed to the node that receives them, by
// two calls: one that hands a key over and one that asks for one.
const (
	callTakeKey = "take-key"
	callGiveKey = "give-key"
)

// wantedKey is what a node asks for.
type wantedKey struct {
	Kind       string `json:"kind"`
	Generation uint64 `json:"generation"`
}

// distributeKey hands a key to every other node, and returns nil once every voter has
// it on disk. A learner that does not answer asks for it later. An error names the
// voters that do not take it.
func (h *Hub) distributeKey(ctx context.Context, k sealable) error {
	members, err := h.node.Members()
	if err != nil {
		return fmt.Errorf("list the members: %w: %w", fleet.Unavailable, err)
	}
	failed := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID != h.id.Node {
			wg.Go(func() { failed[i] = h.handKey(ctx, m, k) })
		}
	}
	wg.Wait()
	return inOneLine(failed)
}

func (h *Hub) handKey(ctx context.Context, m consensus.Member, k sealable) error {
	n, ok := h.entries.View().Node(m.ID)
	if !ok || n.Removed() {
		return nil // on its way out
	}
	err := h.away(m.ID)
	if err == nil {
		err = h.give(ctx, n, k)
	}
	if err != nil && !m.Voter {
		h.log.Warn("a learner has not taken the new key yet", "node", m.ID, "err", err)
		return nil
	}
	return err
}

// give hands a key to one node.
func (h *Hub) give(ctx context.Context, n *fleet.HubNode, k sealable) error {
	ctx, cancel := context.WithTimeout(ctx, keyCall)
	defer cancel()
	sealed, err := k.Seal(n.SealKey)
	if err != nil {
		return fmt.Errorf("seal it to node %s: %v: %w", n.ID, err, fleet.Internal)
	}
	if _, err := h.peers.Call(ctx, n.ID, callTakeKey, sealed); err != nil {
		h.log.Warn("a node has not taken the new key", "node", n.ID, "err", err)
		return notTakenBy(n.ID, err)
	}
	return nil
}

// takeKey stores what another node hands over.
func (h *Hub) takeKey(_ context.Context, from string, sealed []byte) ([]byte, error) {
	b, err := h.keys.open(sealed)
	if err != nil {
		return nil, fmt.Errorf("a key from node %s: %v: %w", from, err, fleet.BadRequest)
	}
	return nil, h.secrets.take(b)
}

// giveKey gives a node of the cluster a key that it lacks, sealed to it.
func (h *Hub) giveKey(_ context.Context, from string, body []byte) ([]byte, error) {
	var w wantedKey
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, fmt.Errorf("read which key node %s wants: %v: %w", from, err, fleet.BadRequest)
	}
	n, ok := h.entries.View().Node(from)
	if !ok || n.Removed() {
		return nil, fmt.Errorf("node %s is not on record: %w", from, fleet.Forbidden)
	}
	b, err := h.secrets.payloadOf(w.Kind, w.Generation)
	if err != nil {
		return nil, err
	}
	return wire.SealTo(n.SealKey, rand.Reader, b)
}

// fetchKeyFrom asks the other nodes, one after the other, for a key.
func (h *Hub) fetchKeyFrom(ctx context.Context, kind string, generation uint64) ([]byte, error) {
	body, err := json.Marshal(wantedKey{kind, generation})
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, id := range h.others() {
		sealed, err := h.peers.Call(ctx, id, callGiveKey, body)
		if err == nil {
			return h.keys.open(sealed)
		}
		failed = append(failed, err)
	}
	if len(failed) == 0 {
		return nil, fmt.Errorf("there is no other node: %w", fleet.NotFound)
	}
	return nil, errors.Join(failed...)
}
