package wire

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// seeds adds the golden files to a fuzz test.
func seeds(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzMessages decodes anything as every message. What decodes encodes again.
func FuzzMessages(f *testing.F) {
	seeds(f)
	f.Add([]byte(`{"items":[{"finished":{"result":"e30=","sig":""}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range messages {
			v := reflect.New(reflect.TypeOf(m))
			if Decode(b, v.Interface()) != nil {
				continue
			}
			again, err := json.Marshal(v.Interface())
			if err != nil {
				t.Fatalf("%T was decoded and does not encode: %v", m, err)
			}
			if len(again) <= MaxBody && Decode(again, reflect.New(reflect.TypeOf(m)).Interface()) != nil {
				t.Fatalf("%T does not decode what it encoded: %s", m, again)
			}
		}
	})
}

// FuzzFrames takes anything apart. Nothing opens under a key that did not seal it,
// and what a row gives covers the row exactly.
func FuzzFrames(f *testing.F) {
	f.Add(Seal(testKey, LinkUp, TypeReport, 1, []byte("{}")))
	f.Add(append(Plain(TypeChallenge, []byte("x")), Plain(TypeGoodbye, nil)...))
	f.Add(oversized())
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for rest := b; ; n++ {
			fr, r, err := Split(rest)
			if err != nil {
				break
			}
			if len(fr.Body) > MaxBody || len(r) >= len(rest) {
				t.Fatalf("frame of %d bytes leaves %d of %d", len(fr.Body), len(r), len(rest))
			}
			rest = r
		}
		if fr, err := OpenPlain(b); err == nil && !bytes.Equal(Plain(fr.Type, fr.Body), b) {
			t.Fatal("a plain frame does not seal to what it was")
		}
		if _, err := NewOpener(SessionKey{0xee}, LinkUp).Open(b); err == nil {
			t.Fatal("opened a frame that nobody sealed")
		}
		if h, err := ParseHello(b); err == nil && len(h.Nonce) != NonceSize {
			t.Fatal("a hello without nonce")
		}
	})
}

// FuzzOutput reads anything as an output body. What is read is written again.
func FuzzOutput(f *testing.F) {
	b, err := EncodeOutput(Output{Job: "j", Fence: fleet.Fence{Epoch: 1, Index: 2}, Stream: StreamOutput, Data: []byte("x")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeOutput(b)
		if err != nil {
			return
		}
		again, err := EncodeOutput(o)
		if err != nil {
			t.Fatal(err)
		}
		p, err := DecodeOutput(again)
		if err != nil || !bytes.Equal(p.Data, o.Data) || p.Offset != o.Offset {
			t.Fatalf("%+v became %+v, %v", o, p, err)
		}
	})
}

// FuzzTicket reads anything as a ticket. What is read is written again.
func FuzzTicket(f *testing.F) {
	f.Add(Ticket{Hubs: []string{"https://h"}, Secret: "s", Trust: TrustSystem, ExpiresAt: moment}.String())
	f.Add("tug1_AAAA")
	f.Add("tug9_")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseTicket(s)
		if err != nil {
			return
		}
		if _, err := ParseTicket(k.String()); err != nil {
			t.Fatalf("%+v does not parse again: %v", k, err)
		}
	})
}

// FuzzOrders verifies anything as an order: only what was signed passes.
func FuzzOrders(f *testing.F) {
	priv := ed25519.NewKeyFromSeed(same(1, 32))
	keys := map[string]ed25519.PublicKey{"k1": priv.Public().(ed25519.PublicKey)}
	s, err := SignOrder(priv, "k1", Order{Kind: OrderStop, Body: BodyDigest(nil), NotAfter: moment})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Order, s.Sig, []byte(nil))
	f.Fuzz(func(t *testing.T, order, sig, body []byte) {
		_, err := VerifyOrder(keys, Signed{Order: order, Key: "k1", Sig: sig}, body, Want{}, moment)
		if err == nil && (!bytes.Equal(order, s.Order) || len(body) > 0) {
			t.Fatalf("%s passed", order)
		}
		// The decoders behind the signature take anything too.
		forged, err := SignOrder(priv, "k1", Order{})
		if err != nil {
			t.Fatal(err)
		}
		forged.Order = order
		forged.Sig = ed25519.Sign(priv, append([]byte(orderDomain), order...))
		VerifyOrder(keys, forged, body, Want{}, moment)
		VerifyBlobAuth(testKey, string(sig), "GET", string(body))
	})
}
