package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	orderDomain      = "tugline order v1\x00"
	signingKeyDomain = "tugline signing key v1\x00"
)

// BodyDigest gives the digest of an order's body.
func BodyDigest(body []byte) fleet.Digest {
	sum := sha256.Sum256(body)
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

// SignOrder signs an order with the key of the given id.
func SignOrder(priv ed25519.PrivateKey, keyID string, o Order) (Signed, error) {
	b, err := Encode(o)
	if err != nil {
		return Signed{}, fmt.Errorf("encode order: %w", err)
	}
	return Signed{Order: b, Key: keyID, Sig: ed25519.Sign(priv, append([]byte(orderDomain), b...))}, nil
}

// Want is what a runner expects of every order that it obeys.
type Want struct {
	Cluster string
	Epoch   uint64 // the greatest it has journaled; a lower one is refused
	Runner  fleet.RunnerID
}

// VerifyOrder checks a received order and its body, and only then believes it: the
// signature over the bytes as they came, that it is for this runner in this cluster
// and not of an older epoch, its body's digest, its expiry by the hub's clock, and
// that this version knows its kind and its critical fields.
//
// Errors: signing_key_unknown, bad_signature, cluster_mismatch, order_expired,
// unknown_critical, and those of Decode.
func VerifyOrder(keys map[string]ed25519.PublicKey, s Signed, body []byte, want Want, now time.Time) (Order, error) {
	o, err := openOrder(keys, s)
	if err != nil {
		return o, err
	}
	switch {
	case o.Cluster != want.Cluster:
		return o, fmt.Errorf("order %s is of cluster %q, not %q: %w", o.ID, o.Cluster, want.Cluster, fleet.ClusterMismatch)
	case o.Epoch < want.Epoch:
		return o, fmt.Errorf("order %s is of epoch %d, before %d: %w", o.ID, o.Epoch, want.Epoch, fleet.ClusterMismatch)
	case o.Runner != want.Runner:
		return o, fmt.Errorf("order %s is for runner %q, not %q: %w", o.ID, o.Runner, want.Runner, fleet.BadSignature)
	case o.Body != BodyDigest(body):
		return o, fmt.Errorf("body of order %s does not have the signed digest: %w", o.ID, fleet.BadSignature)
	case now.After(o.NotAfter):
		return o, fmt.Errorf("order %s expired at %s, it is %s: %w", o.ID, o.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339), fleet.OrderExpired)
	}
	known, ok := knownFields()[o.Kind]
	if !ok {
		return o, fmt.Errorf("order %s is of kind %q, which this version does not know: %w", o.ID, o.Kind, fleet.UnknownCritical)
	}
	for _, c := range o.Critical {
		if !slices.Contains(known, c) {
			return o, fmt.Errorf("order %s has the critical field %q, which this version does not know: %w", o.ID, c, fleet.UnknownCritical)
		}
	}
	return o, nil
}

// openOrder verifies the signature over an order's bytes and decodes them.
func openOrder(keys map[string]ed25519.PublicKey, s Signed) (Order, error) {
	pub, ok := keys[s.Key]
	if !ok || len(pub) != ed25519.PublicKeySize {
		return Order{}, fmt.Errorf("order is signed by key %q, which no chain leads to: %w", s.Key, fleet.SigningKeyUnknown)
	}
	if !ed25519.Verify(pub, append([]byte(orderDomain), s.Order...), s.Sig) {
		return Order{}, fmt.Errorf("order's signature does not verify by key %q: %w", s.Key, fleet.BadSignature)
	}
	var o Order
	if err := Decode(s.Order, &o); err != nil {
		return Order{}, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}

// VerifyOrigin checks, long after, that an attempt of a runner began by an order of
// this cluster, and gives what it was assigned. When the order expired does not matter.
//
// Errors: signing_key_unknown, bad_signature, cluster_mismatch, and those of Decode.
func VerifyOrigin(keys map[string]ed25519.PublicKey, from Origin, cluster string, runner fleet.RunnerID, job fleet.JobID, fence fleet.Fence) (Assignment, error) {
	o, err := openOrder(keys, from.Order)
	if err != nil {
		return Assignment{}, err
	}
	switch {
	case o.Cluster != cluster:
		return Assignment{}, fmt.Errorf("order %s is of cluster %q, not %q: %w", o.ID, o.Cluster, cluster, fleet.ClusterMismatch)
	case o.Kind != OrderAssign || o.Runner != runner || o.Job != job || o.Fence != fence:
		return Assignment{}, fmt.Errorf("order %s is not the one that gave job %s under fence %s to %s: %w", o.ID, job, fence, runner, fleet.BadSignature)
	case o.Body != BodyDigest(from.Body):
		return Assignment{}, fmt.Errorf("body of order %s does not have the signed digest: %w", o.ID, fleet.BadSignature)
	}
	var a Assignment
	if err := Decode(from.Body, &a); err != nil {
		return Assignment{}, fmt.Errorf("decode assignment: %w", err)
	}
	if a.Job != job || a.Fence != fence {
		return Assignment{}, fmt.Errorf("the assignment is of job %s under fence %s, its order of %s under %s: %w", a.Job, a.Fence, job, fence, fleet.BadSignature)
	}
	return a, nil
}

// Critical lists the fields of an assignment that a runner which does not know
// them must not ignore: leaving one out would run something else than was asked.
func Critical(a Assignment) []string {
	c := []string{"spec.kind", "spec.permissions", "spec.harness"}
	add := func(set bool, name string) {
		if set {
			c = append(c, name)
		}
	}
	add(a.Resume != nil, "resume")
	add(a.Again, "again") // else what was done would be done twice
	add(a.Fresh, "fresh")
	add(a.Docker, "docker")
	add(a.Model != "", "model")
	add(a.Spec.Repo != nil, "spec.repo")
	add(a.Spec.Session != nil, "spec.session") // else a new one would begin, in another directory
	add(a.Spec.ArgvBlob != "", "spec.argv_blob")
	add(len(a.Spec.Secrets) > 0, "spec.secrets")
	add(a.Spec.Push != "", "spec.push")
	add(a.Spec.Commit != "", "spec.commit")
	return c
}

// knownFields gives by kind of order the body fields that this version knows, as
// dotted names: the types say it, so that the list cannot fall behind.
var knownFields = sync.OnceValue(func() map[string][]string {
	return map[string][]string{
		OrderAssign: fields(reflect.TypeFor[Assignment](), "", 3),
		OrderStop:   fields(reflect.TypeFor[Stop](), "", 3),
		OrderRenew:  fields(reflect.TypeFor[Renew](), "", 3),
		OrderUpdate: fields(reflect.TypeFor[Update](), "", 3),

		OrderProvision: fields(reflect.TypeFor[Provision](), "", 3),
	}
})

func fields(t reflect.Type, prefix string, depth int) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || depth == 0 {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		names = append(names, prefix+name)
		names = append(names, fields(t.Field(i).Type, prefix+name+".", depth-1)...)
	}
	return names
}

// SignSigningKey announces a new order-signing key under the one before it.
func SignSigningKey(old ed25519.PrivateKey, id string, key ed25519.PublicKey) SigningKey {
	return SigningKey{ID: id, Key: key, Sig: ed25519.Sign(old, signingKeyMessage(id, key))}
}

func signingKeyMessage(id string, key []byte) []byte {
	return append([]byte(signingKeyDomain+id+"\x00"), key...)
}

// MaxChain bounds a chain of signing keys.
const MaxChain = 64

// VerifyChain walks a chain of signing keys from the one that the runner pinned
// and gives it and those after it by id. Keys before it are not believed. Errors:
// signing_key_unknown where the pinned key is not in the chain, bad_signature
// where a link does not verify.
func VerifyChain(pinned ed25519.PublicKey, chain []SigningKey) (map[string]ed25519.PublicKey, error) {
	if len(chain) > MaxChain {
		return nil, fmt.Errorf("chain of %d signing keys, at most %d: %w", len(chain), MaxChain, fleet.TooLarge)
	}
	at := slices.IndexFunc(chain, func(k SigningKey) bool { return pinned.Equal(ed25519.PublicKey(k.Key)) })
	if at < 0 || len(pinned) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("none of the hub's %d signing keys leads to the pinned one: %w", len(chain), fleet.SigningKeyUnknown)
	}
	keys := map[string]ed25519.PublicKey{chain[at].ID: pinned}
	last := pinned
	for _, k := range chain[at+1:] {
		if len(k.Key) != ed25519.PublicKeySize || !ed25519.Verify(last, signingKeyMessage(k.ID, k.Key), k.Sig) {
			return nil, fmt.Errorf("signing key %q is not signed by the one before it: %w", k.ID, fleet.BadSignature)
		}
		if _, dup := keys[k.ID]; dup {
			return nil, fmt.Errorf("signing key %q appears twice in the chain: %w", k.ID, fleet.BadSignature)
		}
		last = k.Key
		keys[k.ID] = last
	}
	return keys, nil
}
