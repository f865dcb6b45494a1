package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/mesh"
)

const gossipMetaEvery = 5 * time.Second

// openGossip begins to hear who is there and where. It decides nothing: it finds the
// addresses of nodes that moved while nobody led, and sees soon who is gone.
func (h *Hub) openGossip() (err error) {
	if h.mesh == nil {
		return nil
	}
	h.gossip, err = mesh.StartGossip(mesh.GossipConfig{Carrier: h.mesh, Cluster: h.id.Cluster, Meta: h.meta(), Logger: h.log})
	if err != nil {
		return fmt.Errorf("hear of the other nodes: %w", err)
	}
	return nil
}

func (h *Hub) meta() mesh.Meta {
	m := mesh.Meta{Endpoints: h.endpoints(), Version: h.cfg.Version, Kinds: uint32(h.cfg.Generation), DiskFree: uint64(freeBytes(h.cfg.Dir))}
	if h.draining.Load() {
		m.Flags |= mesh.FlagDraining
	}
	if h.disk.room() != nil {
		m.Flags |= mesh.FlagDiskFull
	}
	return m
}

// keepGossip tells the others how this node is, until ctx ends.
func (h *Hub) keepGossip(ctx context.Context) {
	tick := time.NewTicker(gossipMetaEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if err := h.gossip.Leave(); err != nil {
				h.log.Debug("leaving the gossip", "err", err)
			}
			return
		case <-h.gossip.Events():
			poke(h.rosterPokes)
		case <-tick.C:
			if err := h.gossip.SetMeta(h.meta()); err != nil {
				h.log.Warn("telling the other nodes of this one failed", "err", err)
			}
		}
	}
}

// heardEndpoints adds to the roster where nodes are now as gossip or the operator
// says. Which node is at an address that the operator named is found by trying.
func (h *Hub) heardEndpoints(peers []mesh.Peer) []mesh.Peer {
	for i := range peers {
		peers[i].Endpoints = slices.Concat(peers[i].Endpoints, h.cfg.MeshPeers)
	}
	if h.gossip == nil {
		return peers
	}
	for _, m := range h.gossip.Members() {
		i := slices.IndexFunc(peers, func(p mesh.Peer) bool { return p.ID == m.ID })
		if i < 0 {
			continue
		}
		for _, e := range m.Meta.Endpoints {
			if !slices.Contains(peers[i].Endpoints, e) {
				peers[i].Endpoints = append(slices.Clone(peers[i].Endpoints), e)
			}
		}
	}
	return peers
}
