package runner

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// change puts other keys in the place of those in use and tells the runners.
func (h *testHub) change(f func(*hubsession.Keys)) {
	k := *h.keys.Load()
	f(&k)
	h.keys.Store(&k)
	h.srv.KeysChanged()
}

func (h *testHub) newMaster(g uint64) {
	b := make([]byte, 32)
	rand.Read(b)
	h.change(func(k *hubsession.Keys) {
		m := map[uint64][]byte{g: b}
		for g, b := range k.Masters {
			m[g] = b
		}
		k.Masters, k.Master = m, g
	})
}

// newSigning makes a new order-signing key the active one.
func (h *testHub) newSigning(id string) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	h.change(func(k *hubsession.Keys) {
		k.Chain = append(slices.Clone(k.Chain), wire.SignSigningKey(k.Signing, id, pub))
		k.Signing, k.SigningID = priv, id
	})
}

func mustIdentity(t *testing.T, dir string) *identity {
	t.Helper()
	id, err := loadIdentity(dir)
	if err != nil || id == nil {
		t.Fatalf("identity: %v", err)
	}
	return id
}

// quick has runners beat often, so that they also reconnect soon.
func quick(c *hubsession.Config) {
	c.ActiveInterval, c.IdleInterval = 200*time.Millisecond, 200*time.Millisecond
}

// A runner moves to a new key while a job runs, and the job notices nothing; so it
// does over plain requests, and after a restart it still holds the new key.
func TestRunnerTakesANewKey(t *testing.T) {
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, quick)
			cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Transport: transport, Logger: testLogger("RUNNER_LOG")}
			r := h.restart(cfg)
			was := mustIdentity(t, cfg.Dir)
			gate := filepath.Join(t.TempDir(), "gate")
			j, f := h.run(r.id, "/bin/sh", "-c", "while [ ! -e "+gate+" ]; do sleep 0.05; done")
			eventually(t, "it runs", func() bool { return h.attempt(j, f).State == fleet.AttemptRunning })
			for g := uint64(2); g <= 3; g++ {
				h.newMaster(g)
				eventually(t, "the runner uses the new key", func() bool { k, _ := h.View().Runner(r.id); return k.Master == g })
				eventually(t, "it has forgotten the old one", func() bool {
					id := mustIdentity(t, cfg.Dir)
					return id.Master == g && id.Rekey == nil && string(id.HMACKey) != string(was.HMACKey)
				})
			}
			r.end()
			h.change(func(k *hubsession.Keys) { // nothing but the newest counts any more
				k.Ended = map[uint64][]byte{1: k.Masters[1], 2: k.Masters[2]}
				k.Masters = map[uint64][]byte{3: k.Masters[3]}
			})
			h.restart(cfg)
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.ends(j, fleet.Succeeded)
			h.sealed(j, f)
			if n := len(h.job(j).Turns[0].Attempts); n != 1 {
				t.Errorf("%d attempts; want one", n)
			}
		})
	}
}

// A runner that was away for too long is told so, and what to do.
func TestRunnerMissedItsNewKey(t *testing.T) {
	t.Parallel()
	h := newHub(t, quick)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	r.end()
	h.newMaster(2)
	h.change(func(k *hubsession.Keys) {
		k.Ended, k.Masters = map[uint64][]byte{1: k.Masters[1]}, map[uint64][]byte{2: k.Masters[2]}
	})
	again, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var away *StandDown
	if err := again.Run(t.Context()); !errors.As(err, &away) || away.Code != fleet.RunnerRevoked || !strings.Contains(away.Text(), "tugline hub ticket --for") {
		t.Fatalf("Run = %v; want to be sent away, with what to do", err)
	}
	cfg.Ticket = h.ticketFor(r.id)
	r = h.restart(cfg)
	j, f := h.run(r.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if id := mustIdentity(t, cfg.Dir); id.Master != 2 {
		t.Errorf("enrolled anew with a key of master %d; want 2", id.Master)
	}
}

// A new key that the hub does not know, say because it was put back to an earlier
// state, is given up for the former one.
func TestUnknownNewKeyIsGivenUp(t *testing.T) {
	t.Parallel()
	h := newHub(t, quick)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	r.end()
	id := mustIdentity(t, cfg.Dir)
	id.Rekey = &rekey{Master: 7, Key: make([]byte, 32)}
	if err := id.save(cfg.Dir); err != nil {
		t.Fatal(err)
	}
	r = h.restart(cfg)
	eventually(t, "it is given up", func() bool { return mustIdentity(t, cfg.Dir).Rekey == nil })
	j, _ := h.run(r.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	if id := mustIdentity(t, cfg.Dir); id.Master > 1 {
		t.Errorf("master %d; want the first", id.Master)
	}
}

// Orders are signed by a new key from one moment to the next, under running jobs, and
// for a runner that was away for two rotations.
func TestRunnerFollowsSigningKeys(t *testing.T) {
	t.Parallel()
	h := newHub(t, quick)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 4, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	j, f := h.run(r.id, "/bin/sleep", "300")
	eventually(t, "it runs", func() bool { return h.attempt(j, f).State == fleet.AttemptRunning })
	h.newSigning("k2")
	again, _ := h.run(r.id, "/bin/true") // its order comes by the new key
	h.ends(again, fleet.Succeeded)
	eventually(t, "the new key is pinned", func() bool { return string(mustIdentity(t, cfg.Dir).pinned()) == string(h.keys.Load().Chain[1].Key) })
	r.end()
	h.newSigning("k3")
	h.newSigning("k4")
	h.change(func(k *hubsession.Keys) { k.Chain = k.Chain[1:] }) // older ones are needed by nobody
	r = h.restart(cfg)
	h.must(&state.CancelJob{Job: j})
	h.srv.Nudge(r.id)
	h.ends(j, fleet.Cancelled)
	last, _ := h.run(r.id, "/bin/true")
	h.ends(last, fleet.Succeeded)
	for _, id := range []fleet.JobID{again, last} {
		if n := len(h.job(id).Turns[0].Attempts); n != 1 {
			t.Errorf("%d attempts of %s; want one, none declined", n, id)
		}
	}
}

// An order by a key that nothing leads to is looked for in the next challenge, once.
func TestUnknownSigningKey(t *testing.T) {
	t.Parallel()
	h := newHub(t, quick)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.change(func(k *hubsession.Keys) { k.Signing, k.SigningID = stranger, "k9" })
	j, f := h.run(r.id, "/bin/true")
	eventually(t, "it is declined", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined })
	if a := h.attempt(j, f); a.Code != fleet.SigningKeyUnknown || !strings.Contains(a.Detail, "k9") {
		t.Errorf("declined as %s: %s", a.Code, a.Detail)
	}
}

// The identity as earlier releases wrote it is read, and what it lacks is the first
// generation.
func TestOldIdentity(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "identity-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(identityFile(dir), b, 0o600); err != nil {
		t.Fatal(err)
	}
	id := mustIdentity(t, dir)
	k := &keyring{dir: dir, id: id}
	held := k.held()
	if held.HMAC != 1 || held.Signing != "k-1" || len(held.CA) != 1 || id.Runner != "r-01k0000000000000000000000a" || len(id.HMACKey) != 32 {
		t.Errorf("read as %+v, holding %+v", id, held)
	}
	if err := k.change(func(id *identity) { id.Master = 2 }); err != nil {
		t.Fatal(err)
	}
	if again := mustIdentity(t, dir); again.Master != 2 || string(again.HMACKey) != string(id.HMACKey) || again.Cluster != id.Cluster {
		t.Errorf("written as %+v", again)
	}
}
