package state

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// activation gives a command that must be obeyed where the generation is the next.
func activation(kind string, generation uint64) *ActivateKeys {
	name := keyName(kind, generation)
	return &ActivateKeys{Kind: kind, Generation: generation, ID: "k-" + name, Public: []byte("public " + name), Digest: digest(name), Keep: time.Hour}
}

// shownKeys tells the generations of a key as they are recorded, in one line.
func shownKeys(g *rig, kind string) string {
	var out []string
	for _, k := range g.m.View().Keys(kind) {
		s := k.ID
		if k.Until != nil {
			s += " until " + k.Until.Sub(g.now).Round(time.Minute).String()
		}
		if k.ServesAt != nil {
			s += " serves"
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func TestActivateKeys(t *testing.T) {
	g := newRig(t)
	is := func(kind, want string) {
		t.Helper()
		if got := shownKeys(g, kind); got != want {
			t.Errorf("%s keys are %q; want %q", kind, got, want)
		}
	}
	is("hmac", "")
	if res := g.do(activation("hmac", 1)); res.ID != "hmac/1" {
		t.Errorf("gave the id %q", res.ID)
	}
	g.repeated(activation("hmac", 1))
	g.do(activation("hmac", 2))
	is("hmac", "k-hmac/1 until 1h0m0s, k-hmac/2")
	g.now = g.now.Add(30 * time.Minute)
	g.do(activation("hmac", 5)) // a node may know of generations that were lost with the log
	is("hmac", "k-hmac/1 until 30m0s, k-hmac/2 until 1h0m0s, k-hmac/5")
	is("signing", "")

	g.do(activation("ca", 1))
	g.do(activation("ca", 2))
	is("ca", "k-ca/1 until 1h0m0s serves, k-ca/2")
	g.do(&ActivateKeys{Kind: "ca", Generation: 2, Serve: true})
	g.repeated(&ActivateKeys{Kind: "ca", Generation: 2, Serve: true})
	is("ca", "k-ca/1 until 1h0m0s serves, k-ca/2 serves")

	other := activation("hmac", 5)
	other.Digest = digest("another secret")
	g.refused(fleet.Conflict, other)
	g.refused(fleet.Conflict, activation("hmac", 4))
	g.refused(fleet.NotFound, &ActivateKeys{Kind: "ca", Generation: 3, Serve: true})
	g.refused(fleet.NotFound, &ActivateKeys{Kind: "hmac", Generation: 5, Serve: true})
	for name, spoil := range map[string]func(*ActivateKeys){
		"another kind":   func(c *ActivateKeys) { c.Kind = "tls" },
		"generation 0":   func(c *ActivateKeys) { c.Generation = 0 },
		"no id":          func(c *ActivateKeys) { c.ID = "" },
		"no digest":      func(c *ActivateKeys) { c.Digest = "x" },
		"a large public": func(c *ActivateKeys) { c.Public = make([]byte, maxKeyBytes+1) },
		"a large proof":  func(c *ActivateKeys) { c.Proof = make([]byte, maxKeyBytes+1) },
		"a negative end": func(c *ActivateKeys) { c.Keep = -1 },
		"a late end":     func(c *ActivateKeys) { c.Keep = maxKeyKeep + 1 },
	} {
		c := activation("signing", 1)
		spoil(c)
		if res := g.try(c); res.Code != fleet.BadRequest {
			t.Errorf("%s gave %q", name, res.Code)
		}
	}
	is("signing", "")
	snap := snapshot(t, g.m)
	m := restored(t, snap)
	if !bytes.Equal(snap, snapshot(t, m)) || len(m.View().Keys("hmac")) != 3 {
		t.Error("a restored snapshot differs")
	}
	if k := g.m.View().Keys("hmac")[1]; !k.Holds(k.Until.Add(-1)) || k.Holds(*k.Until) {
		t.Error("a key does not end when it ends")
	}
	if a := g.m.View().Audit(0, 1)[0]; a.Command != "keys.rotate" || a.Subject != "ca/2" {
		t.Errorf("audited as %+v", a)
	}
}

// TestMasterOfRunner: what a runner's key comes from is known from its enrolment on,
// and follows what it shows.
func TestMasterOfRunner(t *testing.T) {
	g := newRig(t)
	master := func(id fleet.RunnerID) uint64 {
		r, _ := g.m.View().Runner(id)
		return r.Master
	}
	old := g.enrol("r1")
	g.do(activation("hmac", 1))
	g.do(activation("hmac", 2))
	young := g.enrol("r2")
	if master(old) != 0 || master(young) != 2 {
		t.Errorf("masters are %d and %d; want 0, the first, and 2", master(old), master(young))
	}
	g.do(&UpdateRunner{ID: old, Master: 2})
	g.do(&UpdateRunner{ID: old, JournalCount: 9})
	if master(old) != 2 {
		t.Errorf("master is %d; want 2, as shown", master(old))
	}
	g.do(activation("hmac", 3))
	k := &CreateTicket{Hash: digest("anew"), TTL: time.Hour, Uses: 1, For: old}
	g.do(k)
	g.do(&Enrol{Ticket: k.Hash, Name: "r1", SignKey: []byte("new"), BoxKey: []byte("new"), MachineID: "m"})
	if master(old) != 3 {
		t.Errorf("master of the runner that enrolled anew is %d; want 3", master(old))
	}
}

// writeKeysLog makes a log with rotations and a runner that follows them.
func writeKeysLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	for _, kind := range fleet.KeyKinds {
		g.do(activation(kind, 1))
	}
	g.enrol("r1")
	for _, kind := range fleet.KeyKinds {
		g.do(activation(kind, 2))
		g.try(activation(kind, 2))
	}
	g.do(&ActivateKeys{Kind: fleet.KeyCA, Generation: 2, Serve: true})
	g.do(&UpdateRunner{ID: "r1", Master: 2})
	g.enrol("r2")
	return written(g)
}
