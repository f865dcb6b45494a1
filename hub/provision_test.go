package hub

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// The outcome takes the sealed credentials out of memory, and so does the end of a term;
// what still waits keeps its own.
func TestSealedCredentialsAreForgotten(t *testing.T) {
	m := state.New()
	index := uint64(0)
	do := func(cmd state.Command) {
		t.Helper()
		b, err := state.Encode(state.Head{Actor: "hub", At: time.Now()}, cmd)
		if err != nil {
			t.Fatal(err)
		}
		index++
		if res, _, err := m.Apply(index, b); err != nil || res.Code != "" {
			t.Fatalf("%T: %v %s", cmd, err, res.Detail)
		}
	}
	do(&state.InitCluster{Cluster: "c", Epoch: 1})
	do(&state.CreateTicket{Hash: fleet.Digest(strings.Repeat("a", 64)), TTL: time.Hour, Uses: 1})
	do(&state.Enrol{ID: "r1", Ticket: fleet.Digest(strings.Repeat("a", 64)), Name: "box", SignKey: []byte("sign"), BoxKey: bytes.Repeat([]byte{7}, 32)})
	p := newProvisions()
	sealed := map[string][]byte{}
	for id, what := range map[string]string{"a": "codex", "b": "claude"} {
		name := fleet.ProvisionCredentialNames(what)[0]
		do(&state.QueueProvision{ID: id, Runner: "r1", What: what, Credentials: []string{name}})
		r, _ := m.View().Runner("r1")
		if err := p.give(r, id, map[string]string{name: "sk-given"}); err != nil {
			t.Fatal(err)
		}
		sealed[id] = p.sealed[id]
		p.heard(m.View(), "r1", wire.ProvisionView{ID: id, State: wire.ProvisionWaits, Detail: "for its hours"})
	}
	p.tidy(m.View())
	if len(p.sealed) != 2 || len(p.waits) != 2 {
		t.Fatalf("before the outcome there are %d sealed and %d that wait", len(p.sealed), len(p.waits))
	}
	do(p.heard(m.View(), "r1", wire.ProvisionView{ID: "a", State: wire.ProvisionFailed, Class: fleet.ProvisionInstall, Detail: "404"}))
	p.tidy(m.View())
	zero := func(id string) bool { return bytes.Equal(sealed[id], make([]byte, len(sealed[id]))) }
	if p.sealed["a"] != nil || p.sealed["b"] == nil || !zero("a") || zero("b") || p.waits["a"] != "" || p.waits["b"] == "" {
		t.Errorf("after the outcome of a: sealed %v, waits %v", len(p.sealed), p.waits)
	}
	p.forget()
	if len(p.sealed) > 0 || len(p.waits) > 0 || !zero("b") {
		t.Error("after the term something is left")
	}
}
