package hub

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Runners whose link goes through the tunnel between the hubs reach one port in it.
// Behind it are the runners' paths and nothing else, with the TLS of the public port.
// A runner is let in by its own key, to its own paths; whoever holds a ticket that was
// made for this, by the ticket's key, to be enrolled.

// guestRunner is the name under which the tunnel knows the holder of a runner's ticket.
func guestRunner(t *fleet.Ticket) string { return "ticket " + string(t.Hash) }

// admitRunners has the tunnel let in the runners on record and the holders of tickets.
func (h *Hub) admitRunners(v state.View) {
	var now []mesh.Runner
	for _, t := range v.RunnerGuests(h.entries.now()) {
		now = append(now, mesh.Runner{ID: guestRunner(t), Keys: []mesh.PublicKey{mesh.PublicKey(t.Guest)}})
	}
	for _, r := range v.MeshRunners() {
		now = append(now, mesh.Runner{ID: string(r.ID), Keys: []mesh.PublicKey{mesh.PublicKey(r.MeshKey)}})
	}
	if !reflect.DeepEqual(now, h.meshRunners) {
		h.mesh.SetRunners(now)
		h.meshRunners = now
	}
}

// serveMeshRunners serves runners inside the tunnel until ctx ends.
func (h *Hub) serveMeshRunners(ctx context.Context) error {
	l, err := h.mesh.ListenRunners(mesh.PortRunner)
	if err != nil {
		return fmt.Errorf("listen for runners in the tunnel: %w", err)
	}
	runners := http.NewServeMux()
	h.sessions.Register(runners)
	srv := h.server(h.inside(runners))
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := srv.Shutdown(grace); err != nil {
			srv.Close()
		}
	})
	defer stop()
	if err := h.serve(srv, l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve runners in the tunnel: %w", err)
	}
	return nil
}

// inside lets a peer of the tunnel through to what is its own. Its address proves who it
// is.
func (h *Hub) inside(runners http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		id, own := strings.CutPrefix(r.URL.Path, "/v1/runners/")
		id, _, _ = strings.Cut(id, "/")
		switch {
		case err != nil:
		case r.URL.Path == wire.EnrolPath: // the ticket in it is the proof
			runners.ServeHTTP(w, r)
			return
		case own && from.Addr() == mesh.RunnerAddr(h.id.Cluster, id):
			runners.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this way leads to a runner's own paths only", http.StatusForbidden)
	})
}

// tunnels are where the hubs' tunnels are, for runners.
func (h *Hub) tunnels() []wire.HubAddress {
	var out []wire.HubAddress
	for _, n := range h.entries.View().Nodes() {
		if len(n.Endpoints) == 0 {
			continue
		}
		a := wire.HubAddress{Node: n.ID, Key: hex.EncodeToString(n.MeshKey), Endpoints: n.Endpoints, URL: n.URL}
		if len(n.NextMeshKey) > 0 {
			a.Next = hex.EncodeToString(n.NextMeshKey)
		}
		out = append(out, a)
	}
	return out
}

// meshTicket writes a ticket for a runner that reaches the hubs through their tunnel.
func (h *Hub) meshTicket(secret string, expires time.Time) (text, command string, err error) {
	t := h.runnerTicket(secret, expires)
	t.Mesh = h.tunnels()
	switch {
	case h.mesh == nil || len(t.Mesh) == 0:
		return "", "", fmt.Errorf("this hub runs without --mesh-listen, so that no runner can come that way; start it again with --mesh-listen :7441: %w", fleet.Conflict)
	case h.cert == nil && strings.HasPrefix(h.url, "https://"):
		return "", "", fmt.Errorf("a proxy ends this hub's TLS, and the tunnel does not lead through it; runners come by the mesh to hubs that end TLS themselves: %w", fleet.Conflict)
	}
	if text = t.String(); text == "" {
		return "", "", fmt.Errorf("the addresses of the hubs are too long for a ticket: %w", fleet.TooLarge)
	}
	return text, "TUGLINE_TICKET=" + text + " tugline runner run --via-mesh --data-dir ~/.local/share/tugline/runner", nil
}

// toldTime is how long runners in the tunnel get to learn a hub's next key.
const toldTime = 2 * time.Second

// awaitMeshRunners gives the runners in the tunnel a moment to ask what is new. Sessions
// are the leader's; every node sees the record change, and nudges its own.
func (h *Hub) awaitMeshRunners(ctx context.Context) {
	if len(h.entries.View().MeshRunners()) == 0 {
		return
	}
	timer := time.NewTimer(toldTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// nudgeMeshRunners makes the runners in the tunnel beat at once.
func (h *Hub) nudgeMeshRunners() {
	for _, r := range h.entries.View().MeshRunners() {
		h.sessions.Nudge(r.ID)
	}
}
