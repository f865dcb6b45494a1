package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

const (
	rosterEvery = time.Second // looks at who belongs to the cluster, beside those that a change asks for
	rosterName  = "peers.json"
)

// ErrRemoved says that this node was taken out of its cluster for good.
var ErrRemoved = errors.New("this node was removed from the cluster")

// roster is who belongs to the cluster as this node acts on it: whom the mesh lets
// in. A copy lies on disk, since the mesh is up before the log is read.
type roster struct {
	Version int `json:"version"`
	// Epoch and Index say as of which entry of the log the record said so.
	Epoch uint64           `json:"epoch,omitempty"`
	Index uint64           `json:"index,omitempty"`
	Nodes []*fleet.HubNode `json:"nodes"`
}

func loadRoster(dir string) (roster, error) {
	r := roster{Version: 1}
	path := filepath.Join(dir, rosterName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil {
		err = checkVersion(path, r.Version, 1)
	}
	if err != nil {
		return r, fmt.Errorf("read where the other hub nodes are, in %s: %w", path, err)
	}
	return r, nil
}

func (r roster) save(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, rosterName), append(b, '\n'), 0o600)
}

// ahead says that the roster is younger than a state: one that a node which joined, or
// starts again, is still reading from the log, or one that was set back. Such a state
// may name keys that others have replaced since, and who took them would cut itself off
// from those who could tell it more.
//
// Nobody stays let in by it who was removed. A removal that is older than the roster is
// in it; a younger one is reached only when the roster is no longer ahead. That a node
// which is behind takes a removed one for a member until then lets that one in nowhere
// else: every other node refuses its keys.
func (r roster) ahead(m state.Meta) bool {
	return m.Epoch < r.Epoch || m.Epoch == r.Epoch && m.Index < r.Index
}

// following gives the roster that follows from the record: itself while it is ahead.
func (r roster) following(v state.View, seen uint64) (next roster, ahead bool) {
	m := v.Meta()
	if r.ahead(m) || m.Epoch < seen || len(v.Nodes()) == 0 { // no node: it is not read yet, or nobody is on it
		return r, true
	}
	next = roster{Version: 1, Epoch: m.Epoch, Index: m.Index, Nodes: r.with(v)}
	if next.Epoch == r.Epoch && reflect.DeepEqual(next.Nodes, r.Nodes) {
		return r, false
	}
	return next, false
}

// with gives the nodes on record, and those that were there before and of which the
// record says nothing: it may have been set back to a time before they came, and only
// a removal that it names is one.
func (r roster) with(v state.View) []*fleet.HubNode {
	nodes := slices.Clone(v.Nodes())
	for _, n := range r.Nodes {
		if _, ok := v.Node(n.ID); !ok {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (r roster) ids() []string {
	var out []string
	for _, n := range r.Nodes {
		out = append(out, n.ID)
	}
	return out
}

// peers gives the nodes as the mesh takes them.
func (r roster) peers() []mesh.Peer {
	var out []mesh.Peer
	for _, n := range r.Nodes {
		p := mesh.Peer{ID: n.ID, Endpoints: n.Endpoints}
		for _, k := range [][]byte{n.MeshKey, n.NextMeshKey} {
			if len(k) == fleet.MeshKeyBytes {
				p.Keys = append(p.Keys, mesh.PublicKey(k))
			}
		}
		out = append(out, p)
	}
	return out
}

// keepRoster has the mesh follow the record of nodes and tickets until ctx ends. It
// returns ErrRemoved when this node is no longer among them.
func (h *Hub) keepRoster(ctx context.Context) error {
	tick := time.NewTicker(rosterEvery)
	defer tick.Stop()
	if h.gossip != nil {
		h.gossip.Join(h.roster.ids()...)
	}
	for {
		if err := h.followRoster(); err != nil {
			return err
		}
		h.introduce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-h.rosterPokes:
		case <-tick.C:
		}
	}
}

// followRoster acts on the record as it is now.
func (h *Hub) followRoster() error {
	v := h.entries.View()
	if me, ok := v.Node(h.id.Node); ok && me.Removed() {
		return errRemovedFor(me.RemovedWhy)
	}
	h.rosterMu.Lock()
	gone := h.gone
	h.rosterMu.Unlock()
	if gone != nil {
		return gone
	}
	if h.mesh == nil {
		return nil
	}
	now, ahead := h.roster.following(v, h.seenEpoch())
	if peers := h.stillParting(h.heardEndpoints(now.peers())); !reflect.DeepEqual(peers, h.told) {
		h.mesh.SetPeers(peers)
		h.told = peers
	}
	if !reflect.DeepEqual(now, h.roster) {
		h.gossip.Join(now.ids()...)
		// One that is not on disk is tried again: who was told that this node knows a key
		// may use that key while this node is away.
		if err := now.save(h.cfg.Dir); err != nil {
			h.log.Error("recording where the other nodes are failed", "err", err)
		} else {
			h.rosterMu.Lock()
			h.roster = now
			h.rosterMu.Unlock()
		}
	}
	if ahead {
		return nil
	}
	h.admitRunners(v)
	var guests []mesh.PublicKey
	for _, t := range v.Guests(h.entries.now()) {
		guests = append(guests, mesh.PublicKey(t.Guest))
	}
	if !reflect.DeepEqual(guests, h.guests) {
		h.mesh.SetGuests(guests)
		h.guests = guests
	}
	return nil
}
