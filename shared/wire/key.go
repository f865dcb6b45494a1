package wire

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/fleet"
)

// NonceSize is the length of a challenge's and a hello's nonce in bytes.
const NonceSize = 32

// NewNonce reads a nonce from a source of randomness.
func NewNonce(rand io.Reader) ([]byte, error) {
	n := make([]byte, NonceSize)
	if _, err := io.ReadFull(rand, n); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	return n, nil
}

// RunnerKey derives the 32-byte HMAC key of one generation of a runner from the
// cluster's master key, so that the hub stores no secret for each runner.
func RunnerKey(master []byte, runner fleet.RunnerID, generation uint64) ([]byte, error) {
	if len(master) < 32 {
		return nil, fmt.Errorf("master key has %d bytes, at least 32: %w", len(master), fleet.BadRequest)
	}
	info := "tugline runner key v1\x00" + string(runner) + "\x00" + string(binary.BigEndian.AppendUint64(nil, generation))
	return hkdf.Key(sha256.New, master, nil, info, 32)
}

// DeriveSession gives the key of the session that a challenge and a hello opened.
// Directions are told apart by what each MAC covers.
func DeriveSession(runnerKey, challengeNonce, helloNonce []byte, cluster string, runner fleet.RunnerID) (SessionKey, error) {
	var k SessionKey
	if len(challengeNonce) != NonceSize || len(helloNonce) != NonceSize {
		return k, fmt.Errorf("nonces of %d and %d bytes, each must have %d: %w", len(challengeNonce), len(helloNonce), NonceSize, fleet.BadRequest)
	}
	salt := append(append(make([]byte, 0, 2*NonceSize), challengeNonce...), helloNonce...)
	b, err := hkdf.Key(sha256.New, runnerKey, salt, "tugline session v1\x00"+cluster+"\x00"+string(runner), len(k))
	if err != nil {
		return k, fmt.Errorf("derive session key: %w", err)
	}
	copy(k[:], b)
	return k, nil
}

// BlobScheme is the scheme of the Authorization header of a blob request.
const BlobScheme = "Tugline-Session"

// BlobAuth gives the Authorization header of a blob request: the session, a nonce
// and a MAC by the session key over method, path and nonce. It holds while the
// session lives. Repeating a request is harmless, since a blob is its digest.
func BlobAuth(key SessionKey, session, method, path string, nonce []byte) string {
	return BlobScheme + " " + session + ":" + hex.EncodeToString(nonce) + ":" + hex.EncodeToString(blobMAC(key, session, method, path, nonce))
}

// BlobSession gives the session that a blob request's Authorization header names,
// not verified yet. Error: unauthorised.
func BlobSession(authorization string) (string, error) {
	session, _, _, err := splitBlobAuth(authorization)
	return session, err
}

// VerifyBlobAuth checks what BlobAuth made. Error: unauthorised.
func VerifyBlobAuth(key SessionKey, authorization, method, path string) error {
	session, nonce, mac, err := splitBlobAuth(authorization)
	if err != nil {
		return err
	}
	if !hmac.Equal(mac, blobMAC(key, session, method, path, nonce)) {
		return fmt.Errorf("authorization of the blob request does not verify: %w", fleet.Unauthorised)
	}
	return nil
}

func blobMAC(key SessionKey, session, method, path string, nonce []byte) []byte {
	m := hmac.New(sha256.New, key[:])
	io.WriteString(m, "tugline blob v1\x00"+session+"\x00"+method+"\x00"+path+"\x00")
	m.Write(nonce)
	return m.Sum(nil)
}

func splitBlobAuth(s string) (session string, nonce, mac []byte, err error) {
	rest, ok := strings.CutPrefix(s, BlobScheme+" ")
	part := strings.Split(rest, ":")
	if ok && len(part) == 3 && len(part[0]) > 0 && len(part[1]) == 2*NonceSize && len(part[2]) == 2*MACSize {
		var err1, err2 error
		nonce, err1 = hex.DecodeString(part[1])
		mac, err2 = hex.DecodeString(part[2])
		if err1 == nil && err2 == nil {
			return part[0], nonce, mac, nil
		}
	}
	return "", nil, nil, fmt.Errorf("authorization is not %s SESSION:NONCE:MAC: %w", BlobScheme, fleet.Unauthorised)
}

// SealTo encrypts data so that only the holder of boxPub's private half reads it
// (an anonymous NaCl box). boxPub is a 32-byte X25519 public key.
func SealTo(boxPub []byte, rand io.Reader, data []byte) ([]byte, error) {
	if len(boxPub) != 32 {
		return nil, fmt.Errorf("box key has %d bytes, must have 32: %w", len(boxPub), fleet.BadRequest)
	}
	out, err := box.SealAnonymous(nil, data, (*[32]byte)(boxPub), rand)
	if err != nil {
		return nil, fmt.Errorf("seal to box key: %w", err)
	}
	return out, nil
}

// OpenBox reads what SealTo sealed to boxPub.
func OpenBox(boxPub, boxPriv, sealed []byte) ([]byte, error) {
	if len(boxPub) != 32 || len(boxPriv) != 32 {
		return nil, fmt.Errorf("box keys have %d and %d bytes, must have 32: %w", len(boxPub), len(boxPriv), fleet.BadRequest)
	}
	out, ok := box.OpenAnonymous(nil, sealed, (*[32]byte)(boxPub), (*[32]byte)(boxPriv))
	if !ok {
		return nil, fmt.Errorf("box was not sealed to this key or is damaged: %w", fleet.BadSignature)
	}
	return out, nil
}
