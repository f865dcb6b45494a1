package wire

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func signer(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pub, priv
}

func TestVerifyOrder(t *testing.T) {
	pub, priv := signer(t)
	_, stranger := signer(t)
	now := moment
	body := []byte(`{"reason":"cancelled"}`)
	want := Want{Cluster: "c", Epoch: 2, Runner: "r-1"}
	for _, c := range []struct {
		name   string
		order  func(*Order)
		signed func(*Signed)
		by     ed25519.PrivateKey
		body   []byte
		code   fleet.Code
	}{
		{name: "good"},
		{name: "a later epoch", order: func(o *Order) { o.Epoch = 3 }},
		{name: "at the last moment", order: func(o *Order) { o.NotAfter = now }},
		{name: "a known critical field", order: func(o *Order) { o.Critical = []string{"reason"} }},
		{name: "an earlier epoch", order: func(o *Order) { o.Epoch = 1 }, code: fleet.ClusterMismatch},
		{name: "another cluster", order: func(o *Order) { o.Cluster = "d" }, code: fleet.ClusterMismatch},
		{name: "another runner", order: func(o *Order) { o.Runner = "r-2" }, code: fleet.BadSignature},
		{name: "expired", order: func(o *Order) { o.NotAfter = now.Add(-time.Second) }, code: fleet.OrderExpired},
		{name: "no expiry", order: func(o *Order) { o.NotAfter = time.Time{} }, code: fleet.OrderExpired},
		{name: "an unknown kind", order: func(o *Order) { o.Kind = "dance" }, code: fleet.UnknownCritical},
		{name: "an unknown critical field", order: func(o *Order) { o.Critical = []string{"reason", "sandbox"} }, code: fleet.UnknownCritical},
		{name: "another body", body: []byte(`{"reason":"other"}`), code: fleet.BadSignature},
		{name: "no body", body: []byte{}, code: fleet.BadSignature},
		{name: "an unknown key", signed: func(s *Signed) { s.Key = "k9" }, code: fleet.SigningKeyUnknown},
		{name: "a stranger's signature", by: stranger, code: fleet.BadSignature},
		{name: "changed after signing", signed: func(s *Signed) { s.Order = bytes.Replace(s.Order, []byte("r-1"), []byte("r-2"), 1) }, code: fleet.BadSignature},
		{name: "no signature", signed: func(s *Signed) { s.Sig = nil }, code: fleet.BadSignature},
		{name: "a signature of another domain", signed: func(s *Signed) { s.Sig = ed25519.Sign(priv, s.Order) }, code: fleet.BadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Order{Cluster: "c", Epoch: 2, Runner: "r-1", ID: "x", Kind: OrderStop, Body: BodyDigest(body), NotAfter: now.Add(time.Minute)}
			if c.order != nil {
				c.order(&o)
			}
			by := priv
			if c.by != nil {
				by = c.by
			}
			s, err := SignOrder(by, "k1", o)
			if err != nil {
				t.Fatal(err)
			}
			if c.signed != nil {
				c.signed(&s)
			}
			b := body
			if c.body != nil {
				b = c.body
			}
			got, err := VerifyOrder(map[string]ed25519.PublicKey{"k1": pub}, s, b, want, now)
			if c.code == "" && (err != nil || got.ID != "x") || c.code != "" && !errors.Is(err, c.code) {
				t.Errorf("got %+v, %v; want %q", got, err, c.code)
			}
		})
	}
}

// TestCritical sees that this version knows all that it calls critical itself.
func TestCritical(t *testing.T) {
	a := Assignment{Resume: &Resume{}, Fresh: true, Model: "m", Again: true, Docker: true, Spec: fleet.Spec{Repo: &fleet.Repo{}, ArgvBlob: "d", Secrets: []string{"s"}, Push: "b", Commit: "auto"}}
	known := knownFields()[OrderAssign]
	for _, c := range Critical(a) {
		if !strings.Contains(","+strings.Join(known, ",")+",", ","+c+",") {
			t.Errorf("critical field %q is none of %v", c, known)
		}
	}
	if n := len(Critical(a)); n != 13 {
		t.Errorf("%d critical fields, want 13", n)
	}
}

func TestVerifyChain(t *testing.T) {
	p1, s1 := signer(t)
	p2, s2 := signer(t)
	p3, _ := signer(t)
	stranger, sx := signer(t)
	k1, k2, k3 := SigningKey{ID: "k1", Key: p1}, SignSigningKey(s1, "k2", p2), SignSigningKey(s2, "k3", p3)
	for _, c := range []struct {
		name   string
		pinned ed25519.PublicKey
		chain  []SigningKey
		keys   int
		code   fleet.Code
	}{
		{"the first alone", p1, []SigningKey{k1}, 1, ""},
		{"from the first", p1, []SigningKey{k1, k2, k3}, 3, ""},
		{"from the second, not the first", p2, []SigningKey{k1, k2, k3}, 2, ""},
		{"not in the chain", stranger, []SigningKey{k1, k2}, 0, fleet.SigningKeyUnknown},
		{"no chain", p1, nil, 0, fleet.SigningKeyUnknown},
		{"no pin", nil, []SigningKey{{ID: "k1"}}, 0, fleet.SigningKeyUnknown},
		{"signed by a stranger", p1, []SigningKey{k1, SignSigningKey(sx, "k2", p2)}, 0, fleet.BadSignature},
		{"under another id", p1, []SigningKey{k1, {ID: "k9", Key: k2.Key, Sig: k2.Sig}}, 0, fleet.BadSignature},
		{"the same id twice", p1, []SigningKey{k1, SignSigningKey(s1, "k1", p2)}, 0, fleet.BadSignature},
		{"a link left out", p1, []SigningKey{k1, k3}, 0, fleet.BadSignature},
		{"too long", p1, make([]SigningKey, MaxChain+1), 0, fleet.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys, err := VerifyChain(c.pinned, c.chain)
			if c.code == "" && err != nil || c.code != "" && !errors.Is(err, c.code) || len(keys) != c.keys {
				t.Errorf("%d keys, %v; want %d, %q", len(keys), err, c.keys, c.code)
			}
		})
	}
}

func TestFinished(t *testing.T) {
	pub, priv := signer(t)
	other, _ := signer(t)
	fence := fleet.Fence{Epoch: 1, Index: 7}
	f := &Finished{Exit: fleet.Exit{Code: 3, Reason: "exited"}, Detail: "<&>", FinishedAt: moment, Evidence: &fleet.Evidence{Tip: "abc"}}
	if err := SignFinished(priv, "j", fence, f); err != nil {
		t.Fatal(err)
	}
	b, err := Encode(ReportItem{Job: "j", Fence: fence, Finished: f})
	if err != nil {
		t.Fatal(err)
	}
	var got ReportItem
	if err := Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Finished.Exit.Code != 3 || got.Finished.Detail != "<&>" || got.Finished.Evidence.Tip != "abc" {
		t.Errorf("read back %+v", got.Finished)
	}
	if err := VerifyFinished(pub, "j", fence, got.Finished); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another key":   VerifyFinished(other, "j", fence, got.Finished),
		"no key":        VerifyFinished(nil, "j", fence, got.Finished),
		"another job":   VerifyFinished(pub, "i", fence, got.Finished),
		"another fence": VerifyFinished(pub, "j", fleet.Fence{Epoch: 1, Index: 8}, got.Finished),
		"no signature":  VerifyFinished(pub, "j", fence, &Finished{}),
	} {
		if !errors.Is(err, fleet.BadSignature) {
			t.Errorf("%s gave %v", name, err)
		}
	}
	// A field of a newer runner is under the signature and passed over.
	newer := []byte(`{"exit":{"code":0,"reason":"exited"},"class":"ok","finished_at":"2026-03-01T12:00:00Z","output":0,"events":0,"mood":"fine"}`)
	form, err := json.Marshal(signedFinished{Result: newer, Sig: ed25519.Sign(priv, finishedMessage("j", fence, newer))})
	if err != nil {
		t.Fatal(err)
	}
	var later Finished
	if err := Decode(form, &later); err != nil || VerifyFinished(pub, "j", fence, &later) != nil {
		t.Errorf("a newer runner's result does not verify: %v", err)
	}
}

// TestVerifyOrigin: the order by which an attempt began is good long after it expired,
// for that attempt of that runner alone.
func TestVerifyOrigin(t *testing.T) {
	pub, priv := signer(t)
	_, stranger := signer(t)
	fence := fleet.Fence{Epoch: 1, Index: 7}
	for _, c := range []struct {
		name   string
		order  func(*Order)
		body   func(*Assignment)
		origin func(*Origin)
		by     ed25519.PrivateKey
		code   fleet.Code
	}{
		{name: "good"},
		{name: "long expired", order: func(o *Order) { o.NotAfter = moment.Add(-1000 * time.Hour) }},
		{name: "with a field that is critical to its runner", order: func(o *Order) { o.Critical = []string{"whatever"} }},
		{name: "another cluster", order: func(o *Order) { o.Cluster = "d" }, code: fleet.ClusterMismatch},
		{name: "another runner", order: func(o *Order) { o.Runner = "r-2" }, code: fleet.BadSignature},
		{name: "another job", order: func(o *Order) { o.Job = "k" }, code: fleet.BadSignature},
		{name: "another fence", order: func(o *Order) { o.Fence.Index++ }, code: fleet.BadSignature},
		{name: "another kind", order: func(o *Order) { o.Kind = OrderStop }, code: fleet.BadSignature},
		{name: "a body of another job", body: func(a *Assignment) { a.Job = "k" }, code: fleet.BadSignature},
		{name: "a body of another fence", body: func(a *Assignment) { a.Fence.Epoch++ }, code: fleet.BadSignature},
		{name: "another body", origin: func(o *Origin) { o.Body = append(o.Body, ' ') }, code: fleet.BadSignature},
		{name: "an unknown key", origin: func(o *Origin) { o.Order.Key = "k9" }, code: fleet.SigningKeyUnknown},
		{name: "a stranger's signature", by: stranger, code: fleet.BadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Assignment{Job: "j", Turn: 1, Attempt: 1, Fence: fence, Spec: fleet.Spec{Kind: fleet.KindExec}}
			if c.body != nil {
				c.body(&a)
			}
			body, err := Encode(a)
			if err != nil {
				t.Fatal(err)
			}
			o := Order{Cluster: "c", Epoch: 1, Runner: "r-1", Job: "j", Fence: fence, ID: "x", Kind: OrderAssign, Body: BodyDigest(body), NotAfter: moment}
			if c.order != nil {
				c.order(&o)
			}
			by := priv
			if c.by != nil {
				by = c.by
			}
			s, err := SignOrder(by, "k1", o)
			if err != nil {
				t.Fatal(err)
			}
			from := Origin{Order: s, Body: body}
			if c.origin != nil {
				c.origin(&from)
			}
			got, err := VerifyOrigin(map[string]ed25519.PublicKey{"k1": pub}, from, "c", "r-1", "j", fence)
			if c.code == "" && (err != nil || got.Spec.Kind != fleet.KindExec) || c.code != "" && !errors.Is(err, c.code) {
				t.Errorf("got %+v, %v; want %q", got, err, c.code)
			}
		})
	}
}
