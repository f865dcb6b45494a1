package mesh

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"

	"tugline.dev/tugline/shared/fleet"
)

// PublicKey is the X25519 key that others know a node, a guest or a runner by.
// Its text form is standard base64 with padding, 44 characters.
type PublicKey [32]byte

// PrivateKey is the secret half. It prints as the public half does, so that a log
// line can't give it away; Text is the only way to its secret.
type PrivateKey struct{ secret [32]byte }

// NewKey makes a fresh key from the system's randomness.
func NewKey() PrivateKey {
	var k PrivateKey
	rand.Read(k.secret[:]) // never fails: the runtime ends the process instead
	k.clamp()
	return k
}

// KeyFromSeed makes the key that belongs to 32 secret bytes, the same each time:
// how the two sides of a ticket come to the same guest key.
func KeyFromSeed(seed [32]byte) PrivateKey {
	k := PrivateKey{secret: seed}
	k.clamp()
	return k
}

// clamp gives the scalar the form X25519 wants, so that one key has one text.
func (k *PrivateKey) clamp() {
	k.secret[0] &= 248
	k.secret[31] = k.secret[31]&127 | 64
}

// ParsePrivateKey reads the text form. The error never quotes the text.
func ParsePrivateKey(text string) (PrivateKey, error) {
	raw, err := parseKey("private", text)
	if err != nil {
		return PrivateKey{}, err
	}
	return KeyFromSeed(raw), nil
}

// ParsePublicKey reads the text form of a public key.
func ParsePublicKey(text string) (PublicKey, error) {
	raw, err := parseKey("public", text)
	return PublicKey(raw), err
}

func parseKey(what, text string) (key [32]byte, err error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case err != nil:
		return key, fmt.Errorf("read a %s mesh key: not base64 (want 44 characters, got %d): %w", what, len(text), fleet.BadRequest)
	case len(raw) != len(key):
		return key, fmt.Errorf("read a %s mesh key: it has %d bytes, not 32: %w", what, len(raw), fleet.BadRequest)
	case subtle.ConstantTimeCompare(raw, key[:]) == 1:
		return key, fmt.Errorf("read a %s mesh key: all bytes are zero: %w", what, fleet.BadRequest)
	}
	copy(key[:], raw)
	return key, nil
}

// Public gives the half that may be shown.
func (k PrivateKey) Public() PublicKey {
	key, err := ecdh.X25519().NewPrivateKey(k.secret[:])
	if err != nil { // only for a wrong length
		panic(err)
	}
	return PublicKey(key.PublicKey().Bytes())
}

// Text is the secret in the form that ParsePrivateKey reads, for the file that
// keeps it.
func (k PrivateKey) Text() string { return base64.StdEncoding.EncodeToString(k.secret[:]) }

// IsZero says that there is no key here.
func (k PrivateKey) IsZero() bool { return k == PrivateKey{} }

// String names the key without its secret.
func (k PrivateKey) String() string { return "private key of " + k.Public().String() }

// GoString keeps the secret out of %#v too.
func (k PrivateKey) GoString() string { return k.String() }

// LogValue keeps the secret out of structured logs.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

func (k PrivateKey) hex() string { return hex.EncodeToString(k.secret[:]) }

// String is the text form.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// IsZero says that there is no key here.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// MarshalText gives the text form, for JSON.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the text form.
func (k *PublicKey) UnmarshalText(text []byte) error {
	key, err := ParsePublicKey(string(text))
	if err != nil {
		return err
	}
	*k = key
	return nil
}

func (k PublicKey) hex() string { return hex.EncodeToString(k[:]) }

func parseHex(s string) (key PublicKey, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("read a mesh key: %q is not 32 bytes in hexadecimal", s)
	}
	return PublicKey(raw), nil
}
