package fleet

import "time"

// The keys of a cluster that are replaced while it runs.
const (
	KeyHMAC    = "hmac"    // master key, from which the keys of runners are derived
	KeySigning = "signing" // signs orders
	KeyCA      = "ca"      // certifies the hubs
)

// KeyKinds lists them.
var KeyKinds = []string{KeyHMAC, KeySigning, KeyCA}

// HMACKeep is how long keys of runners are taken after the master key that they were
// derived from was replaced, by state time.
const HMACKeep = 30 * 24 * time.Hour

// ClusterKey is what everybody may know of one generation of a key.
type ClusterKey struct {
	Kind       string     `json:"kind"`
	Generation uint64     `json:"generation"` // of its kind, from 1
	ID         string     `json:"id"`
	Public     []byte     `json:"public,omitempty"`    // Ed25519 public key, or the CA's certificate as DER
	Proof      []byte     `json:"proof,omitempty"`     // what the key before it says: a signature, or a certificate as DER
	Digest     Digest     `json:"digest"`              // of the secret: tells whether a node holds the right one
	At         time.Time  `json:"at"`                  // when it became the active one
	Until      *time.Time `json:"until,omitempty"`     // of one that was replaced: when it counts for nothing any more
	ServesAt   *time.Time `json:"serves_at,omitempty"` // of a CA: since when hubs show certificates of it
}

// Holds says whether the key counts for something at a time.
func (k *ClusterKey) Holds(now time.Time) bool { return k.Until == nil || now.Before(*k.Until) }
