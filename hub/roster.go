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
	Version int              `json:"version"`
	Nodes   []*fleet.HubNode `json:"nodes"`
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
	if err == nil && r.Version != 1 {
		err = fmt.Errorf("it is of version %d: use the newer tugline that wrote it", r.Version)
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
	nodes := v.Nodes()
	if len(nodes) == 0 {
		return nil // the record is not read yet, or nobody is on it
	}
	now := roster{Version: 1, Nodes: h.roster.with(v)}
	if peers := h.stillParting(h.heardEndpoints(now.peers())); !reflect.DeepEqual(peers, h.told) {
		h.mesh.SetPeers(peers)
		h.told = peers
	}
	if !reflect.DeepEqual(now, h.roster) {
		h.gossip.Join(h.others()...)
		if err := now.save(h.cfg.Dir); err != nil {
			h.log.Error("recording where the other nodes are failed", "err", err)
		}
		h.rosterMu.Lock()
		h.roster = now
		h.rosterMu.Unlock()
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
