package hub

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// heldKey is one generation of one of the cluster's keys, with its secret. A pending
// one, which no entry of the log has made active yet, may have rivals of the same
// generation, of which at most one will be.
type heldKey struct {
	Kind       string    `json:"kind"`
	Generation uint64    `json:"generation"`
	ID         string    `json:"id"`
	Secret     []byte    `json:"secret"`           // HMAC key; Ed25519 seed; EC private key as DER
	Public     []byte    `json:"public,omitempty"` // Ed25519 public key; certificate as DER
	Proof      []byte    `json:"proof,omitempty"`  // signature, or certificate as DER, by the key before it
	MadeAt     time.Time `json:"made_at,omitzero"`
	Used       bool      `json:"used,omitempty"`   // it is or was the active one
	Served     bool      `json:"served,omitempty"` // a CA that hubs showed certificates of

	ca      *x509.Certificate
	private *ecdsa.PrivateKey
}

// digest tells whether two nodes hold the same secret, and nothing else of it: every
// secret is random and too long to guess.
func (k *heldKey) digest() fleet.Digest {
	sum := sha256.Sum256([]byte("tugline cluster key v1\x00" + k.Kind + "\x00" + string(k.Secret)))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

func (k *heldKey) is(row *fleet.ClusterKey) bool {
	return k.Kind == row.Kind && k.Generation == row.Generation && k.digest() == row.Digest
}

// complete checks a key that was read and fills in what follows from it.
func (k *heldKey) complete() (err error) {
	bad := func(what string) error {
		return fmt.Errorf("generation %d of the %s key %s", k.Generation, k.Kind, what)
	}
	switch k.Kind {
	case fleet.KeyHMAC:
		if len(k.Secret) != 32 {
			return bad("has not 32 bytes")
		}
	case fleet.KeySigning:
		if len(k.Secret) != ed25519.SeedSize || !ed25519.NewKeyFromSeed(k.Secret).Public().(ed25519.PublicKey).Equal(ed25519.PublicKey(k.Public)) {
			return bad("does not fit its public key")
		}
	case fleet.KeyCA:
		if k.ca, err = x509.ParseCertificate(k.Public); err != nil {
			return bad("has no certificate that can be read")
		}
		if k.private, err = x509.ParseECPrivateKey(k.Secret); err != nil || !k.private.PublicKey.Equal(k.ca.PublicKey) {
			return bad("does not fit its certificate")
		}
	default:
		return fmt.Errorf("there is a key of kind %q, which this version does not know", k.Kind)
	}
	if k.Generation == 0 || k.ID == "" {
		return bad("has no id")
	}
	return nil
}

// follows says whether a key is announced by the one before it.
func (k *heldKey) follows(before *heldKey) bool {
	switch k.Kind {
	case fleet.KeySigning:
		chain := []wire.SigningKey{{ID: before.ID, Key: before.Public}, {ID: k.ID, Key: k.Public, Sig: k.Proof}}
		_, err := wire.VerifyChain(before.Public, chain)
		return err == nil
	case fleet.KeyCA:
		_, err := wire.VerifyCAs([][]byte{wire.CAPin(before.ca)}, []wire.CAKey{{Cert: before.Public}, {Cert: k.Public, Cross: k.Proof}})
		return err == nil
	}
	return true
}

// makeKey makes a generation of a key; before is the one that announces it, or nil.
func makeKey(kind string, generation uint64, cluster string, before *heldKey, now time.Time) (*heldKey, error) {
	k := &heldKey{Kind: kind, Generation: generation, MadeAt: now.UTC()}
	switch kind {
	case fleet.KeyHMAC:
		k.Secret = make([]byte, 32)
		rand.Read(k.Secret)
		k.ID = "h-" + string(k.digest()[:12])
	case fleet.KeySigning:
		pub, priv, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		k.Secret, k.Public, k.ID = priv.Seed(), pub, signingID(pub)
		if before != nil {
			k.Proof = wire.SignSigningKey(ed25519.NewKeyFromSeed(before.Secret), k.ID, pub).Sig
		}
	case fleet.KeyCA:
		if err := k.makeCA(cluster, before); err != nil {
			return nil, fmt.Errorf("make a CA: %w", err)
		}
	default:
		return nil, fmt.Errorf("there is no key of kind %q: %w", kind, fleet.BadRequest)
	}
	return k, k.complete()
}

func signingID(pub []byte) string {
	sum := sha256.Sum256(pub)
	return "k-" + hex.EncodeToString(sum[:6])
}

// payload gives one key, for another node.
func (k *heldKey) payload() ([]byte, error) {
	return json.Marshal(keyFile{Version: keyFileVersion, Keys: []*heldKey{k}})
}
