package wire

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/fleet"
)

// TestKeysDiffer sees that every input of a derivation counts.
func TestKeysDiffer(t *testing.T) {
	seen := map[string]string{}
	note := func(name string, key []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if was, dup := seen[string(key)]; dup {
			t.Errorf("%s and %s give the same key", was, name)
		}
		seen[string(key)] = name
	}
	for name, in := range map[string]struct {
		master byte
		runner fleet.RunnerID
		gen    uint64
	}{"base": {1, "r-1", 1}, "master": {2, "r-1", 1}, "runner": {1, "r-2", 1}, "generation": {1, "r-1", 2}} {
		k, err := RunnerKey(same(in.master, 32), in.runner, in.gen)
		note("runner key by "+name, k, err)
	}
	for name, in := range map[string]struct {
		key, challenge, hello byte
		cluster               string
		runner                fleet.RunnerID
	}{
		"base": {1, 1, 2, "c", "r"}, "key": {2, 1, 2, "c", "r"}, "challenge": {1, 3, 2, "c", "r"}, "hello": {1, 1, 3, "c", "r"},
		"swapped": {1, 2, 1, "c", "r"}, "cluster": {1, 1, 2, "d", "r"}, "runner": {1, 1, 2, "c", "s"},
	} {
		k, err := DeriveSession(same(in.key, 32), same(in.challenge, 32), same(in.hello, 32), in.cluster, in.runner)
		note("session key by "+name, k[:], err)
	}
	if _, err := RunnerKey(same(1, 31), "r", 1); err == nil {
		t.Error("a short master key was taken")
	}
	if _, err := DeriveSession(same(1, 32), same(1, 31), same(1, 32), "c", "r"); err == nil {
		t.Error("a short nonce was taken")
	}
	if _, err := NewNonce(strings.NewReader("short")); err == nil {
		t.Error("a nonce was made of too little")
	}
}

func TestHello(t *testing.T) {
	key, challenge := same(1, 32), Plain(TypeChallenge, []byte(`{"nonce":"x"}`))
	in := Hello{Version: 1, Runner: "r-1", Nonce: same(2, 32), Name: "box", Time: moment}
	f, err := SealHello(key, challenge, in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseHello(f)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, got); d != "" {
		t.Errorf("hello (-sent +read):\n%s", d)
	}
	if err := VerifyHello(key, challenge, f); err != nil {
		t.Error(err)
	}
	changed := bytes.Replace(f, []byte("box"), []byte("fox"), 1)
	for name, err := range map[string]error{
		"another key":       VerifyHello(same(3, 32), challenge, f),
		"another challenge": VerifyHello(key, Plain(TypeChallenge, []byte(`{"nonce":"y"}`)), f),
		"a changed hello":   VerifyHello(key, challenge, changed),
	} {
		if !errors.Is(err, fleet.BadSignature) {
			t.Errorf("%s gave %v", name, err)
		}
	}
	in.Nonce = nil
	short, err := SealHello(key, challenge, in)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"no nonce": short, "a challenge": challenge, "a tail": append(bytes.Clone(f), 0), "cut": f[:len(f)-1]} {
		if _, err := ParseHello(b); !errors.Is(err, fleet.BadRequest) {
			t.Errorf("%s gave %v", name, err)
		}
	}
}

func TestBox(t *testing.T) {
	pub, priv, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := SealTo(pub[:], rand.Reader, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := OpenBox(pub[:], priv[:], sealed); err != nil || string(got) != "key" {
		t.Errorf("got %q, %v", got, err)
	}
	sealed[len(sealed)-1] ^= 1
	if _, err := OpenBox(pub[:], priv[:], sealed); !errors.Is(err, fleet.BadSignature) {
		t.Errorf("a damaged box gave %v", err)
	}
	if _, err := SealTo(pub[:31], rand.Reader, nil); err == nil {
		t.Error("a short key was taken")
	}
	if _, err := OpenBox(pub[:], nil, nil); err == nil {
		t.Error("no key was taken")
	}
}

func TestTicket(t *testing.T) {
	in := Ticket{Hubs: []string{"https://hub:7443"}, Cluster: "c", Trust: TrustPin, Pin: same(1, 32), Secret: "s", ExpiresAt: moment}
	tok := in.String()
	got, err := ParseTicket(" " + tok[:20] + "\n  " + tok[20:] + "\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, got); d != "" {
		t.Errorf("ticket (-made +read):\n%s", d)
	}
	for n := range len(tok) {
		if _, err := ParseTicket(tok[:n]); !errors.Is(err, fleet.TicketInvalid) {
			t.Fatalf("cut after %d characters: %v", n, err)
		}
	}
	for _, c := range []struct{ name, token, says string }{
		{"cut short", tok[:len(tok)-9], "cut short"},
		{"a changed character", strings.Replace(tok, tok[30:31], string(tok[30]^1), 1), "damaged"},
		{"a later format", "tug2_" + tok[5:], "format tug2"},
		{"something else", "ghp_abcdef", "not a ticket"},
		{"nothing", "", "not a ticket"},
		{"a tail", tok + "AAAA", "follows"},
		{"a strange character", tok[:30] + "!" + tok[31:], "character"},
		{"no hub", Ticket{Secret: "s", Trust: TrustSystem}.String(), "no hub"},
		{"no secret", Ticket{Hubs: in.Hubs, Trust: TrustSystem}.String(), "no secret"},
		{"no pin", Ticket{Hubs: in.Hubs, Secret: "s", Trust: TrustPin}.String(), "no pin"},
		{"no CA", Ticket{Hubs: in.Hubs, Secret: "s", Trust: TrustCA}.String(), "no CA"},
		{"another trust", Ticket{Hubs: in.Hubs, Secret: "s", Trust: "blind"}.String(), "blind"},
	} {
		_, err := ParseTicket(c.token)
		if !errors.Is(err, fleet.TicketInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s gave %v, want it to say %q", c.name, err, c.says)
		}
	}
	if _, err := ParseTicket(Ticket{Hubs: in.Hubs, Secret: "s", Plain: true}.String()); err != nil {
		t.Errorf("a plain ticket gave %v", err)
	}
	a, err1 := NewSecret(rand.Reader)
	b, err2 := NewSecret(rand.Reader)
	if err1 != nil || err2 != nil || a == b || len(a) != 43 || !SecretHash(a).Valid() || SecretHash(a) == SecretHash(b) {
		t.Errorf("secrets %q and %q, %v, %v", a, b, err1, err2)
	}
}

func TestBlobAuth(t *testing.T) {
	h := BlobAuth(testKey, "s1", "GET", "/p", same(1, 32))
	if s, err := BlobSession(h); err != nil || s != "s1" {
		t.Errorf("session %q, %v", s, err)
	}
	if err := VerifyBlobAuth(testKey, h, "GET", "/p"); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another key":     VerifyBlobAuth(SessionKey{7}, h, "GET", "/p"),
		"another method":  VerifyBlobAuth(testKey, h, "PUT", "/p"),
		"another path":    VerifyBlobAuth(testKey, h, "GET", "/q"),
		"another session": VerifyBlobAuth(testKey, strings.Replace(h, "s1", "s2", 1), "GET", "/p"),
		"cut":             VerifyBlobAuth(testKey, h[:len(h)-1], "GET", "/p"),
		"nothing":         VerifyBlobAuth(testKey, "", "GET", "/p"),
		"no hex":          VerifyBlobAuth(testKey, h[:len(h)-1]+"g", "GET", "/p"),
	} {
		if !errors.Is(err, fleet.Unauthorised) {
			t.Errorf("%s gave %v", name, err)
		}
	}
}
