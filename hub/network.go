package hub

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/mesh"
)

// Ports inside the network of the nodes; hub/peer has two more.
const (
	portRaft   = 7301
	portCopies = 7303
)

// Network connects the hub nodes by their ids.
type Network = peer.Network

// openNetwork brings up what connects this node to others: the mesh, or what a test
// gave. Without --mesh-listen there is none, and the node is alone.
func (h *Hub) openNetwork() (err error) {
	switch {
	case h.cfg.Network != nil:
		h.network = h.cfg.Network
	case h.cfg.MeshListen != "":
		if h.roster, err = loadRoster(h.cfg.Dir); err != nil {
			return err
		}
		h.mesh, err = mesh.New(mesh.Config{Cluster: h.id.Cluster, ID: h.id.Node, Key: h.keys.mesh, Listen: h.cfg.MeshListen, Logger: h.log})
		if err != nil {
			return err
		}
		h.mesh.SetPeers(h.heardEndpoints(h.roster.peers()))
		h.network = h.mesh
	}
	return nil
}

// transport carries the log between the nodes.
func (h *Hub) transport() (consensus.Transport, error) {
	if h.network == nil {
		return nil, nil
	}
	l, err := h.network.Listen(portRaft)
	if err != nil {
		return nil, fmt.Errorf("listen for the log: %w", err)
	}
	return transport{l, h.network}, nil
}

type transport struct {
	net.Listener
	network Network
}

func (t transport) Dial(id string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.network.Dial(ctx, id, portRaft)
}

// endpoints says where other nodes find this one's mesh.
func (h *Hub) endpoints() []string {
	if len(h.cfg.MeshAdvertise) > 0 {
		return h.cfg.MeshAdvertise
	}
	if h.mesh == nil {
		return nil
	}
	at := h.mesh.ListenAddr()
	port := strconv.Itoa(int(at.Port()))
	if !at.Addr().IsUnspecified() {
		return []string{net.JoinHostPort(at.Addr().String(), port)}
	}
	var out []string
	for _, a := range localAddresses() {
		if ip := net.ParseIP(a); ip != nil && !ip.IsLoopback() {
			out = append(out, net.JoinHostPort(a, port))
		}
	}
	slices.Sort(out) // an interface that comes up in another order is no change
	if name, err := os.Hostname(); len(out) == 0 && err == nil {
		out = append(out, net.JoinHostPort(name, port))
	}
	return out[:min(len(out), 8)]
}
