package hub

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// ticket writes a join ticket around a secret, and the command to paste.
func (h *Hub) ticket(secret string, expires time.Time) (text, command string) {
	t := h.runnerTicket(secret, expires)
	if h.cfg.Program != "" {
		v := h.entries.View()
		for _, err := range h.programs.describe(&t, fleet.ReleaseKeyOf(v.Meta().Settings), v.Releases()) {
			h.log.Warn("a program is not offered to runners, or without its signature", "err", err)
		}
	}
	text = t.String()
	// In the environment it is not for everybody on that machine to read.
	return text, "TUGLINE_TICKET=" + text + " tugline runner run --data-dir ~/.local/share/tugline/runner"
}

func (h *Hub) runnerTicket(secret string, expires time.Time) wire.Ticket {
	t := wire.Ticket{Hubs: h.hubURLs(), Cluster: h.id.Cluster, Secret: secret, ExpiresAt: expires}
	switch t.Trust = h.trust(); t.Trust {
	case "":
		t.Plain = true
	case wire.TrustPin:
		u := h.secrets.use.Load()
		t.Pin = wire.CAPin(u.issuer.ca)
		for _, k := range u.trusted {
			if k != u.issuer {
				t.Pins = append(t.Pins, wire.CAPin(k.ca))
			}
		}
	}
	return t
}

// trust says how a machine knows that it speaks to this node; "" without TLS.
func (h *Hub) trust() wire.Trust {
	switch {
	case strings.HasPrefix(h.url, "http://"):
		return ""
	case h.cfg.TLSCert != "" || h.cfg.PublicURL != "" && h.cfg.plain():
		return wire.TrustSystem
	}
	return wire.TrustPin
}

// Ticket makes a join ticket with the defaults, for whoever started the node.
func (h *Hub) Ticket(ctx context.Context, ttl time.Duration, labels map[string]string) (text, command string, err error) {
	secret := web.NewSecret("")
	if err := h.entries.Record(ctx, &state.CreateTicket{Hash: web.HashSecret(secret), TTL: ttl, Uses: 1, Labels: labels}); err != nil {
		return "", "", fmt.Errorf("make a join ticket: %w", err)
	}
	text, command = h.ticket(secret, time.Now().Add(ttl).UTC())
	return text, command, nil
}

// hubTicket writes a ticket for a machine that is to become a hub node.
func (h *Hub) hubTicket(secret string, expires time.Time) (text, command string, err error) {
	t := wire.HubTicket{Cluster: h.id.Cluster, Secret: secret, ExpiresAt: expires}
	for _, n := range h.entries.View().Nodes() {
		if len(n.Endpoints) > 0 {
			t.Nodes = append(t.Nodes, wire.HubAddress{Node: n.ID, Key: hex.EncodeToString(n.MeshKey), Endpoints: n.Endpoints})
		}
	}
	if len(t.Nodes) == 0 {
		return "", "", fmt.Errorf("this hub runs without --mesh-listen, so that no node can join it; start it again with --mesh-listen :7441: %w", fleet.Conflict)
	}
	text = t.String()
	// In the environment it is not for everybody on that machine to read.
	return text, "TUGLINE_TICKET=" + text + " tugline hub run --data-dir /var/lib/tugline --listen 0.0.0.0:7440 --mesh-listen :7441", nil
}

// guestKey is what the hubs know the holder of a hub ticket's secret by.
func guestKey(secret string) []byte {
	seed, err := wire.GuestKey(secret)
	if err != nil { // only for a length that no key has
		panic(err)
	}
	return key(mesh.KeyFromSeed(seed))
}
