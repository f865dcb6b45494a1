package wire

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// HubTicket is everything a machine needs to join the cluster as a hub node, pasted
// as one token.
type HubTicket struct {
	Cluster   string       `json:"c"` // refused when another answers
	Nodes     []HubAddress `json:"h"` // hubs to join through, tried in order
	Secret    string       `json:"s"` // spent by joining; the guest's key comes from it
	ExpiresAt time.Time    `json:"e"` // after which the hub refuses the secret
}

// HubAddress says where a hub node's tunnel is, and whose it is.
type HubAddress struct {
	Node      string   `json:"n"`
	Key       string   `json:"k"`           // WireGuard public key, 64 hex digits
	Endpoints []string `json:"u"`           // UDP, HOST:PORT
	Next      string   `json:"x,omitempty"` // a key that is about to take the place of the present one; both are good
	URL       string   `json:"p,omitempty"` // where it serves people and runners
}

// String gives the token.
func (t HubTicket) String() string { return token(hubTicketPrefix, t) }

// ParseHubTicket reads a token as ParseTicket does. The error's code is
// ticket_invalid.
func ParseHubTicket(s string) (HubTicket, error) {
	if strings.HasPrefix(strings.TrimSpace(s), ticketPrefix) {
		return HubTicket{}, fmt.Errorf("this ticket is for a runner, not for a hub node; `tugline hub ticket --role hub` makes one for a node: %w", fleet.TicketInvalid)
	}
	var t HubTicket
	if err := readToken(s, hubTicketPrefix, &t); err != nil {
		return HubTicket{}, err
	}
	what := ""
	switch {
	case t.Cluster == "":
		what = "names no cluster"
	case len(t.Nodes) == 0:
		what = "names no hub"
	case t.Secret == "":
		what = "has no secret"
	}
	for _, n := range t.Nodes {
		if k, err := hex.DecodeString(n.Key); err != nil || len(k) != 32 || n.Node == "" || len(n.Endpoints) == 0 {
			what = "names a hub without its id, key or address"
		}
	}
	if what != "" {
		return HubTicket{}, fmt.Errorf("the ticket %s; make a new one with a hub of this release: %w", what, fleet.TicketInvalid)
	}
	return t, nil
}

// GuestKey derives the X25519 private key with which whoever holds a hub ticket's
// secret may reach the join service of the cluster's hubs, and nothing else.
func GuestKey(secret string) ([32]byte, error) {
	var k [32]byte
	b, err := hkdf.Key(sha256.New, []byte(secret), nil, "tugline hub guest v1", len(k))
	if err != nil {
		return k, fmt.Errorf("derive the guest's key: %w", err)
	}
	copy(k[:], b)
	// As X25519 has its private keys.
	k[0] &= 248
	k[31] = k[31]&127 | 64
	return k, nil
}
