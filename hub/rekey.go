package hub

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

const (
	rekeyStep   = 10 * time.Second // for each step of replacing a node's mesh key
	rekeyLook   = 50 * time.Millisecond
	removalLook = 2 * time.Second // for nodes whose removal the cluster's keys have not followed yet
	removalWait = 30 * time.Second
)

// Calls between nodes about the keys of the mesh.
const (
	callRekey   = "rekey"    // replace your key
	callKnowKey = "know-key" // answer once your mesh takes this key of mine
)

// public gives this node's keys of the mesh as the others are told; next is nil where
// there is none.
func (k *selfKeys) public() (now, next []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.next.IsZero() {
		next = key(k.next)
	}
	return key(k.mesh), next
}

// prepare makes the next key of the mesh, or gives the one of a change that was begun.
// It is on disk before anybody hears of it.
func (k *selfKeys) prepare(dir string) (mesh.PrivateKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next.IsZero() {
		k.next = mesh.NewKey()
		if err := k.save(dir); err != nil {
			k.next = mesh.PrivateKey{}
			return k.next, err
		}
	}
	return k.next, nil
}

// adopt makes the next key the present one.
func (k *selfKeys) adopt(dir string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, next := k.mesh, k.next
	k.mesh, k.next = next, mesh.PrivateKey{}
	if err := k.save(dir); err != nil {
		k.mesh, k.next = was, next
		return err
	}
	return nil
}

// RotateMesh has a node replace its key of the mesh while everything runs. Every node on
// record has to know the new key before it is used, voter or not: one that comes back
// and knows only the old one is heard by nobody, so that nobody could tell it.
func (h *Hub) RotateMesh(ctx context.Context, id string) error {
	switch n, ok := h.entries.View().Node(id); {
	case h.mesh == nil:
		return fmt.Errorf("this hub runs without --mesh-listen and has no key of a mesh: %w", fleet.Conflict)
	case !ok || n.Removed():
		return fmt.Errorf("there is no node %s; `tugline hub members` lists them: %w", id, fleet.NotFound)
	}
	var gone []error
	for _, other := range h.others() {
		gone = append(gone, h.away(other))
	}
	if err := inOneLine(gone); err != nil {
		return fmt.Errorf("the key of node %s was not replaced: %w", id, err)
	}
	if id == h.id.Node {
		return h.rekey(ctx)
	}
	_, err := h.peers.Call(ctx, id, callRekey, nil)
	if err != nil && errors.Is(err, fleet.Unavailable) && !peer.Answered(err) {
		return fmt.Errorf("the key of node %s was not replaced: %w", id, errAway(id))
	}
	return err
}

func (h *Hub) answerRekey(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	return nil, h.rekey(ctx)
}

// rekey replaces this node's key of the mesh. The others know the new one beside the
// old one before it is used, and forget the old one after. A crash leaves a next key
// that is announced and that the next change uses, or one that is in use and that the
// node announces as its own when it comes back.
func (h *Hub) rekey(ctx context.Context) error {
	if !h.rotating.TryLock() {
		return fmt.Errorf("another key is being replaced; try again when that has ended: %w", fleet.Conflict)
	}
	defer h.rotating.Unlock()
	next, err := h.keys.prepare(h.cfg.Dir)
	if err != nil {
		return fmt.Errorf("make a new key of the mesh: %w", err)
	}
	want := key(next)
	if err := h.announced(ctx, func(me *fleet.HubNode) bool { return bytes.Equal(me.NextMeshKey, want) }); err != nil {
		return fmt.Errorf("announce the new key of the mesh: %w", err)
	}
	if err := h.knownToAll(ctx, want); err != nil {
		return fmt.Errorf("the key of node %s was not replaced: %w", h.id.Node, err)
	}
	h.awaitMeshRunners(ctx)
	if err := h.keys.adopt(h.cfg.Dir); err != nil {
		return fmt.Errorf("keep the new key of the mesh: %w", err)
	}
	if err := h.mesh.Rekey(next); err != nil {
		return fmt.Errorf("use the new key of the mesh: %w", err)
	}
	// Everybody is spoken to under the new key before the old one goes. Who does not
	// answer now finds the new one on record.
	if err := h.knownToAll(ctx, want); err != nil {
		h.log.Warn("a node has not answered under the new key of the mesh yet", "err", err)
	}
	if err := h.announced(ctx, func(me *fleet.HubNode) bool { return bytes.Equal(me.MeshKey, want) }); err != nil {
		h.log.Warn("the new key of the mesh is in use and not recorded yet", "err", err)
	}
	h.log.Info("key of the mesh replaced", "node", h.id.Node)
	return nil
}

// announced tells the leader of this node's keys until the record here says so.
func (h *Hub) announced(ctx context.Context, ok func(*fleet.HubNode) bool) error {
	ctx, cancel := context.WithTimeout(ctx, rekeyStep)
	defer cancel()
	return awaitEvery(ctx, rekeyLook, func() error {
		if me, known := h.entries.View().Node(h.id.Node); known && ok(me) {
			return nil
		}
		h.introduce(ctx)
		return fmt.Errorf("the leader has not recorded it: %w", fleet.Unavailable)
	})
}

// knownToAll returns nil once the mesh of every other node takes a key of this one.
func (h *Hub) knownToAll(ctx context.Context, key []byte) error {
	ctx, cancel := context.WithTimeout(ctx, rekeyStep)
	defer cancel()
	others := h.others()
	failed := make([]error, len(others))
	var wg sync.WaitGroup
	for i, id := range others {
		wg.Go(func() {
			if _, err := h.peers.Call(ctx, id, callKnowKey, key); err != nil {
				failed[i] = notTakenBy(id, err)
			}
		})
	}
	wg.Wait()
	return inOneLine(failed)
}

// answerKnowKey waits until this node's mesh takes a key of the node that asks, and has
// it on disk: the other may use it from then on, whether this node is there or not.
func (h *Hub) answerKnowKey(ctx context.Context, from string, key []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, rekeyStep-rekeyStep/5) // it says so before the other ceases to listen
	defer cancel()
	return nil, awaitEvery(ctx, rekeyLook, func() error {
		poke(h.rosterPokes)
		h.rosterMu.Lock()
		defer h.rosterMu.Unlock()
		for _, n := range h.roster.Nodes {
			if n.ID == from && (bytes.Equal(n.NextMeshKey, key) || bytes.Equal(n.MeshKey, key)) {
				return nil
			}
		}
		return fmt.Errorf("it has not read of the key %s in the log yet: %w", hex.EncodeToString(key[:min(4, len(key))]), fleet.Conflict)
	})
}

// renewAfterRemoval replaces the keys that a removed node holds, once for each removal:
// who has its disk must neither sign orders nor open the sessions of runners for long.
// It is tried until every voter has the new keys.
func (l *term) renewAfterRemoval(ctx context.Context) {
	tick := time.NewTicker(removalLook)
	defer tick.Stop()
	var notBefore time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Now().Before(notBefore) {
			continue
		}
		for _, kind := range []string{fleet.KeyHMAC, fleet.KeySigning} {
			id := exposedBy(l.hub.entries.View(), kind)
			if id == "" {
				continue
			}
			res, err := l.hub.rotate(ctx, state.Head{Actor: "removal of " + id}, kind, 0)
			if err = errors.Join(err, res.Err()); err != nil {
				notBefore = time.Now().Add(removalWait)
				l.hub.log.Warn("a key that a removed node holds is not replaced yet", "kind", kind, "node", id, "err", err)
				break
			}
			l.hub.log.Info("a key that a removed node holds was replaced", "kind", kind, "node", id)
		}
	}
}

// exposedBy gives the removed node that holds the active key of a kind, or "".
func exposedBy(v state.View, kind string) string {
	rows := v.Keys(kind)
	if len(rows) == 0 {
		return ""
	}
	since := rows[len(rows)-1].At
	nodes := v.AllNodes()
	i := slices.IndexFunc(nodes, func(n *fleet.HubNode) bool { return n.Removed() && !n.RemovedAt.Before(since) })
	if i < 0 {
		return ""
	}
	return nodes[i].ID
}

// exposed says in words which keys wait to be replaced after a removal.
func exposed(v state.View) string {
	for _, kind := range []string{fleet.KeyHMAC, fleet.KeySigning} {
		if id := exposedBy(v, kind); id != "" {
			return fmt.Sprintf("node %s was removed and holds the %s key; a new one takes its place as soon as every voter has it", id, kind)
		}
	}
	return ""
}
