package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/fleet"
)

// What is sealed for one installation on one runner is read there, and nowhere else, and
// for nothing else.
func TestSealedCredentials(t *testing.T) {
	pub, priv, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"CODEX_API_KEY": "sk-0123456789"}
	sealed, err := SealCredentials(pub[:], rand.Reader, "p1", values)
	if err != nil || bytes.Contains(sealed, []byte("sk-0123456789")) || bytes.Contains(sealed, []byte("CODEX")) {
		t.Fatalf("sealed: %v", err)
	}
	good := Provision{ID: "p1", What: "codex", Credentials: []string{"CODEX_API_KEY"}, Sealed: sealed}
	if got, err := OpenCredentials(pub[:], priv[:], good); err != nil || !maps.Equal(got, values) {
		t.Errorf("opened: %v %v", got, err)
	}
	otherPub, otherPriv, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCredentials(otherPub[:], otherPriv[:], good); err == nil {
		t.Error("another runner reads it")
	}
	for name, spoil := range map[string]func(*Provision){
		"another installation": func(p *Provision) { p.ID = "p2" },
		"another name":         func(p *Provision) { p.Credentials = []string{"OPENAI_BASE_URL"} },
		"more names":           func(p *Provision) { p.Credentials = append(p.Credentials, "OPENAI_BASE_URL") },
		"no names":             func(p *Provision) { p.Credentials = nil },
		"gone":                 func(p *Provision) { p.Sealed = nil },
		"cut":                  func(p *Provision) { p.Sealed = p.Sealed[:len(p.Sealed)-1] },
		"bent":                 func(p *Provision) { p.Sealed = append([]byte{p.Sealed[0] ^ 1}, p.Sealed[1:]...) },
	} {
		p := good
		p.Credentials, p.Sealed = append([]string{}, p.Credentials...), append([]byte{}, p.Sealed...)
		spoil(&p)
		if got, err := OpenCredentials(pub[:], priv[:], p); err == nil || got != nil || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	plain, err := SealTo(pub[:], rand.Reader, []byte(`{"id":"p1","values":{"CODEX_API_KEY":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	good.Sealed = plain
	if _, err := OpenCredentials(pub[:], priv[:], good); !errors.Is(err, fleet.BadRequest) {
		t.Errorf("what is no credentials: %v", err)
	}
}

// The vector: a box that was sealed once is read by every later version.
func TestSealedVector(t *testing.T) {
	key := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	got, err := OpenCredentials(key(vectorPub), key(vectorPriv), Provision{ID: "p-vector", Credentials: []string{"CODEX_API_KEY"}, Sealed: key(vectorSealed)})
	if err != nil || got["CODEX_API_KEY"] != "sk-vector" {
		t.Errorf("%v, %v", got, err)
	}
}

const (
	vectorPub    = "f4760d8cd72b2f9c843180caf5fc5b318440348183cd1262f480e2928a5ee542"
	vectorPriv   = "7100afbc11edaa4b081c4b7ca9411cefb1388e56250e4315cb551fb4e3b8092d"
	vectorSealed = "8c74bfa14b82bdb41bf5267cb1c6d134ca28aa4ee54c070204d7bb3160ea3530580a25e0c4f2e9701bb7f493d162cef9310ddfc06ba4719236e2ee48adc91df8fe9fe55727fb067d0c6d8f5d467679481982b65ff65e003126f8ff3f996f9a3f075c3e3a74caea02"
)
