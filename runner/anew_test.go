package runner

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// ticketFor makes a ticket by which a runner that is known enrols anew.
func (h *testHub) ticketFor(id fleet.RunnerID) string {
	h.t.Helper()
	secret, err := wire.NewSecret(rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	h.must(&state.CreateTicket{Hash: wire.SecretHash(secret), TTL: time.Minute, Uses: 1, For: id})
	return wire.Ticket{Hubs: []string{h.url}, Cluster: testCluster, Secret: secret, ExpiresAt: time.Now().Add(time.Minute), Plain: true}.String()
}

// A revoked runner is sent away with its old ticket and says which one it wants; with
// a new one on the same directory it is the same runner with another key.
func TestRevokedRunnerEnrolsAnewWithANewTicket(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	r.end()
	old, err := loadIdentity(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	h.must(&state.RevokeRunner{ID: r.id})
	again, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var away *StandDown
	if err := again.Run(t.Context()); !errors.As(err, &away) || away.Code != fleet.RunnerRevoked {
		t.Fatalf("with the old ticket Run = %v, want to be sent away as revoked", err)
	}
	if text := away.Text(); !strings.Contains(text, "`tugline hub ticket --for box`") || !strings.Contains(text, "in TUGLINE_TICKET") {
		t.Errorf("it says %q", text)
	}

	cfg.Ticket = h.ticketFor(r.id)
	r = h.restart(cfg)
	id, err := loadIdentity(cfg.Dir)
	if err != nil || id.Runner != old.Runner || id.Generation != old.Generation+1 || id.Next != nil || string(id.SignSeed) == string(old.SignSeed) {
		t.Fatalf("the identity %+v of %+v: %v", id, old, err)
	}
	j, f := h.run(r.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	r.end()
	h.restart(cfg) // the ticket is used up and matters no more
}

// A hub that was recovered without the cluster's keys, at an address that the runner never
// heard of: its ticket names it, and the runner comes back as itself.
func TestRunnerOfARecoveredHubEnrolsAnew(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	var away atomic.Bool
	h.front(t, func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return away.Load()
	})
	cfg.Ticket = h.ticket()
	r := h.restart(cfg)
	r.end()
	away.Store(true)
	keys := *h.keys.Load()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys.Masters = map[uint64][]byte{2: make([]byte, 32)}
	keys.Signing, keys.SigningID, keys.Chain = priv, "anew", []wire.SigningKey{{ID: "anew", Key: pub}}
	h.keys.Store(&keys)
	h.url = h.srvURL
	cfg.Ticket = h.ticketFor(r.id)
	again := h.restart(cfg)
	if again.id != r.id {
		t.Errorf("it is %s and was %s", again.id, r.id)
	}
	j, f := h.run(again.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
}

// A removed runner can't come back as itself; a ticket makes its directory a new one.
func TestRemovedRunnerEnrolsAsAnother(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	r.end()
	gone := r.id
	h.must(&state.RemoveRunner{ID: gone})
	cfg.Ticket = h.ticket()
	another, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tr := &testRunner{Runner: another, t: t, dir: cfg.Dir, stop: cancel, done: make(chan error, 1)}
	go func() { tr.done <- another.Run(ctx) }()
	t.Cleanup(func() { tr.end() })
	eventually(t, "another identity to be connected", func() bool {
		id, err := loadIdentity(cfg.Dir)
		if err != nil || id.Runner == gone {
			return false
		}
		tr.id = id.Runner
		p, ok := h.srv.PresenceOf(tr.id)
		return ok && p.Connected && p.Full
	})
	j, f := h.run(tr.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
}
