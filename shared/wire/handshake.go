package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// SealHello builds the frame that answers a challenge. challenge is the whole
// challenge frame as received: the MAC covers its hash and the hello's bytes, so
// that neither can be changed or used with another.
func SealHello(runnerKey, challenge []byte, h Hello) ([]byte, error) {
	body, err := Encode(h)
	if err != nil {
		return nil, fmt.Errorf("encode hello: %w", err)
	}
	return append(header(TypeHello, 0, body, MACSize), helloMAC(runnerKey, challenge, body)...), nil
}

// ParseHello reads a hello without believing it: the hub needs to know whose key
// to verify it by. Errors: those of Split and Decode, bad_request.
func ParseHello(b []byte) (Hello, error) {
	var h Hello
	f, rest, err := Split(b)
	switch {
	case err != nil:
		return h, err
	case f.Type != TypeHello || f.Seq != 0 || len(rest) > 0:
		return h, fmt.Errorf("frame of type %d where a hello was due: %w", f.Type, fleet.BadRequest)
	}
	if err := Decode(f.Body, &h); err != nil {
		return h, fmt.Errorf("decode hello: %w", err)
	}
	if len(h.Nonce) != NonceSize {
		return h, fmt.Errorf("hello nonce has %d bytes, must have %d: %w", len(h.Nonce), NonceSize, fleet.BadRequest)
	}
	return h, nil
}

// VerifyHello checks a hello's MAC against the challenge it answers, both as whole
// frames. Error: bad_signature.
func VerifyHello(runnerKey, challenge, hello []byte) error {
	f, _, err := Split(hello)
	if err != nil {
		return err
	}
	if !hmac.Equal(f.mac, helloMAC(runnerKey, challenge, f.Body)) {
		return fmt.Errorf("hello does not verify by the runner's key: %w", fleet.BadSignature)
	}
	return nil
}

func helloMAC(runnerKey, challenge, body []byte) []byte {
	sum := sha256.Sum256(challenge)
	m := hmac.New(sha256.New, runnerKey)
	m.Write([]byte("tugline hello v1\x00"))
	m.Write(sum[:])
	m.Write(body)
	return m.Sum(nil)
}
