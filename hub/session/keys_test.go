package session

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// change puts other keys in the place of those in use, and tells nobody.
func (h *hub) change(f func(*Keys)) *Keys {
	k := *h.keys.Load()
	f(&k)
	h.keys.Store(&k)
	return &k
}

// newMaster makes a new HMAC key the active one.
func (h *hub) newMaster(g uint64) {
	h.change(func(k *Keys) {
		m := map[uint64][]byte{g: random(h.t, 32)}
		for g, b := range k.Masters {
			m[g] = b
		}
		k.Masters, k.Master = m, g
	})
}

// newSigning makes a new order-signing key the active one.
func (h *hub) newSigning(id string) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	h.change(func(k *Keys) {
		k.Chain = append(slices.Clone(k.Chain), wire.SignSigningKey(k.Signing, id, pub))
		k.Signing, k.SigningID = priv, id
	})
}

func TestMasterReplacedInSession(t *testing.T) {
	over(t, func(t *testing.T, connect func(*agent) talk) {
		t.Parallel()
		h := newHub(t)
		a := h.enrolled()
		a.held = &wire.KeysHeld{HMAC: 1, Signing: "k1"}
		k := connect(a)
		if rep := a.beat(k); rep.Keys != nil {
			t.Fatalf("news without any: %+v", rep.Keys)
		}
		h.newMaster(2)
		h.srv.KeysChanged()
		if typ, _ := k.next(); typ != wire.TypeNudge {
			t.Errorf("a frame of type %d; want a nudge", typ)
		}
		rep := a.beat(k)
		if rep.Keys == nil || rep.Keys.HMAC == nil || rep.Keys.HMAC.Master != 2 || rep.Keys.HMAC.Generation != a.gen || rep.Keys.Signing != nil || rep.Keys.CA != nil {
			t.Fatalf("news %+v; want a key of master 2 alone", rep.Keys)
		}
		key, err := wire.OpenBox(a.boxPub[:], a.boxPriv[:], rep.Keys.HMAC.Key)
		if err != nil || bytes.Equal(key, a.key) {
			t.Fatalf("the new key: %v", err)
		}
		a.held = &wire.KeysHeld{HMAC: 2, Signing: "k1"}
		if rep := a.beat(k); rep.Keys != nil {
			t.Errorf("news that are held: %+v", rep.Keys)
		}
		was := a.key
		for _, c := range []struct {
			key    []byte
			master uint64
		}{{was, 0}, {key, 2}, {key, 2}, {was, 1}} {
			a.key = c.key
			a.beat(connect(a))
			if r, _ := h.View().Runner(a.id); r.Master != c.master {
				t.Errorf("recorded master is %d; want %d", r.Master, c.master)
			}
		}
	})
}

// TestMasterEnded: a runner that did not come for a new key is told so in a way that
// it can believe, at the handshake and in a session that is still open.
func TestMasterEnded(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a, other := h.enrolled(), h.enrolled()
	open := other.link()
	other.beat(open)
	h.change(func(k *Keys) { k.Ended = k.Masters; k.Masters = map[uint64][]byte{2: random(t, 32)}; k.Master = 2 })
	_, bye := a.tryLink()
	if bye == nil || bye.Code != fleet.RunnerRevoked || !bye.Final || !strings.Contains(bye.Detail, "tugline hub ticket --for "+string(a.id)) {
		t.Errorf("told %+v; want a final goodbye with what to do", bye)
	}
	_, bye = open.say(wire.TypeHeartbeat, encode(t, wire.Heartbeat{Epoch: 1, Count: other.count}), wire.TypeHeartbeatReply)
	if bye == nil || bye.Code != fleet.RunnerRevoked || !bye.Final {
		t.Errorf("the open session was told %+v", bye)
	}
	h.change(func(k *Keys) { k.Ended = nil })
	if _, bye = a.tryLink(); bye == nil || bye.Code != fleet.BadSignature || bye.Final {
		t.Errorf("told %+v by a hub that does not know the key", bye)
	}
}

// TestSigningReplacedInSession: an order and the key that it is signed by come together.
func TestSigningReplacedInSession(t *testing.T) {
	over(t, func(t *testing.T, connect func(*agent) talk) {
		t.Parallel()
		h := newHub(t)
		a := h.enrolled()
		a.held = &wire.KeysHeld{HMAC: 1, Signing: "k1"}
		k := connect(a)
		a.beat(k)
		h.newSigning("k2")
		h.newSigning("k3")
		h.assign(a.id)
		rep := a.beat(k)
		if rep.Keys == nil || rep.Keys.HMAC != nil {
			t.Fatalf("news %+v; want a chain", rep.Keys)
		}
		keys, err := wire.VerifyChain(a.orders["k1"], rep.Keys.Signing)
		if err != nil || len(keys) != 3 {
			t.Fatalf("chain of %d, %v", len(keys), err)
		}
		d := rep.Desired[0]
		if _, err := wire.VerifyOrder(keys, *d.Order, d.Body, wire.Want{Cluster: testCluster, Epoch: 1, Runner: a.id}, rep.Time); err != nil || d.Order.Key != "k3" {
			t.Errorf("order by %s: %v", d.Order.Key, err)
		}
		a.held.Signing = "k3"
		if rep := a.beat(k); rep.Keys != nil {
			t.Errorf("news that are held: %+v", rep.Keys)
		}
	})
}

// TestDeafRunner: one that never says what it holds is made to shake hands again, and
// only where that tells it something.
func TestDeafRunner(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	h.srv.KeysChanged() // its first heartbeat has not come: it is only asked for one
	if typ, _ := k.next(); typ != wire.TypeNudge {
		t.Fatalf("a frame of type %d; want a nudge", typ)
	}
	if rep := a.beat(k); rep.Keys != nil {
		t.Errorf("news to a runner that cannot read them: %+v", rep.Keys)
	}
	h.newMaster(2)
	h.srv.KeysChanged()
	if typ, _ := k.next(); typ != wire.TypeNudge {
		t.Fatalf("a frame of type %d; want a nudge", typ)
	}
	h.newSigning("k2")
	h.srv.KeysChanged()
	typ, body := k.next()
	if g := goodbye(t, wire.Frame{Type: typ, Body: body}); g.Code != fleet.SessionEnded || g.Final {
		t.Errorf("told %+v; want to come back", g)
	}
	h.assign(a.id)
	rep := a.beat(a.link())
	if rep.Desired[0].Order.Key != "k2" {
		t.Errorf("order by %s", rep.Desired[0].Order.Key)
	}
}

// TestCANews: pins are told from the first that the runner has, until they are the
// same, and never to a runner that pins nothing of it.
func TestCANews(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	both := []wire.CAKey{{Cert: []byte("one")}, {Cert: []byte("two"), Cross: []byte("two by one")}}
	for _, c := range []struct {
		name   string
		cas    []wire.CAKey
		pins   []string
		held   []string
		want   []wire.CAKey
		pinned bool // p2 by every connected runner
	}{
		{"one CA", both[:1], []string{"p1"}, []string{"p1"}, nil, false},
		{"another comes", both, []string{"p1", "p2"}, []string{"p1"}, both, false},
		{"it has come", both, []string{"p1", "p2"}, []string{"p2", "p1"}, nil, true},
		{"the first goes", both[1:], []string{"p2"}, []string{"p1", "p2"}, both[1:], true},
		{"it has gone", both[1:], []string{"p2"}, []string{"p2"}, nil, true},
		{"nothing leads there", both[1:], []string{"p2"}, []string{"p1"}, nil, false},
		{"no pins", both, []string{"p1", "p2"}, nil, nil, true},
	} {
		h.change(func(k *Keys) { k.CAs, k.Pin = c.cas, c.pins })
		a.held = &wire.KeysHeld{HMAC: 1, Signing: "k1", CA: c.held}
		rep := a.beat(k)
		var got []wire.CAKey
		if rep.Keys != nil {
			got = rep.Keys.CA
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if all := h.srv.PinnedByAll("p2"); all != c.pinned {
			t.Errorf("%s: pinned by all is %v", c.name, all)
		}
	}
	b := h.enrolled()
	b.link()
	if h.srv.PinnedByAll("p2") {
		t.Error("a runner that has said nothing yet counts as one that pins")
	}
}
