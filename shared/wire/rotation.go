package wire

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// KeysHeld is what a runner holds of the keys that the cluster may replace. It is in
// the first heartbeat of a session and in every one after it changed.
type KeysHeld struct {
	HMAC    uint64   `json:"hmac"`         // generation of the cluster's HMAC key that its newest key was derived from
	Signing string   `json:"signing"`      // id of the newest order-signing key that it knows
	CA      []string `json:"ca,omitempty"` // CAPin of every CA that it pins, in hex; absent: it pins none
}

// KeyNews is what a runner does not hold yet. It comes with every desired set until
// a heartbeat shows it. Absent parts are as the runner has them.
type KeyNews struct {
	HMAC    *NewKey      `json:"hmac,omitempty"`
	Signing []SigningKey `json:"signing,omitempty"` // the whole chain
	CA      []CAKey      `json:"ca,omitempty"`      // all that are trusted now, oldest first
}

// NewKey is the runner's own key under a newer master key.
type NewKey struct {
	Master     uint64 `json:"master"`     // generation of the cluster's HMAC key
	Generation uint64 `json:"generation"` // of the runner's enrolment
	Key        []byte `json:"key"`        // sealed box
}

// CAKey is a CA of the cluster. Each but the first is announced by the one before it,
// which certifies the same public key.
type CAKey struct {
	Cert  []byte `json:"cert"`            // DER, signed by itself
	Cross []byte `json:"cross,omitempty"` // DER, signed by the CA before it
}

// MaxCAs bounds the CAs that are trusted at one time.
const MaxCAs = 8

// CAPin gives what a ticket pins of a CA: SHA-256 of its public key as DER
// SubjectPublicKeyInfo.
func CAPin(cert *x509.Certificate) []byte {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return sum[:]
}

// PinText is how heartbeats name a pin.
func PinText(pin []byte) string { return hex.EncodeToString(pin) }

// VerifyCAs walks CAs from the first that is pinned and gives the pins of it and of
// those after it. CAs before it are not believed. Errors: bad_signature where none is
// pinned or one is not certified by the one before it, too_large, bad_request.
func VerifyCAs(pins [][]byte, all []CAKey) ([][]byte, error) {
	if len(all) > MaxCAs {
		return nil, fmt.Errorf("%d CAs, at most %d: %w", len(all), MaxCAs, fleet.TooLarge)
	}
	var trusted [][]byte
	var last *x509.Certificate
	for i, k := range all {
		cert, err := x509.ParseCertificate(k.Cert)
		if err != nil || !cert.IsCA {
			return nil, fmt.Errorf("CA %d cannot be read: %w", i+1, fleet.BadRequest)
		}
		pin := CAPin(cert)
		switch {
		case last != nil:
			cross, err := x509.ParseCertificate(k.Cross)
			if err != nil || !bytes.Equal(cross.RawSubjectPublicKeyInfo, cert.RawSubjectPublicKeyInfo) || !cross.IsCA || cross.CheckSignatureFrom(last) != nil {
				return nil, fmt.Errorf("CA %s is not certified by the one before it: %w", PinText(pin)[:12], fleet.BadSignature)
			}
		case !pinned(pins, pin):
			continue
		}
		trusted, last = append(trusted, pin), cert
	}
	if len(trusted) == 0 {
		return nil, fmt.Errorf("none of the cluster's %d CAs is pinned here: %w", len(all), fleet.BadSignature)
	}
	return trusted, nil
}

func pinned(pins [][]byte, pin []byte) bool {
	for _, p := range pins {
		if bytes.Equal(p, pin) {
			return true
		}
	}
	return false
}
