package hub

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestIdleTickIsCheap: with nothing queued and nothing running, a look of the leader
// allocates next to nothing for each runner that is connected.
func TestIdleTickIsCheap(t *testing.T) {
	const runners, ticks, most = 48, 20, 256 // bytes for each runner and tick
	n := start(t, t.TempDir(), true)
	l := newTerm(n.hub)
	tick := func() uint64 {
		least := ^uint64(0) // whatever else the process does comes on top
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range ticks {
				l.tick(t.Context())
			}
			runtime.ReadMemStats(&after)
			least = min(least, (after.TotalAlloc-before.TotalAlloc)/ticks)
		}
		return least
	}
	alone := tick()
	secret := n.ticketFor(runners)
	for i := range runners {
		n.connect(secret, i)
	}
	n.eventually("all runners are connected", func() bool {
		connected := 0
		for _, p := range n.hub.sessions.Presence() {
			if p.Connected {
				connected++
			}
		}
		return connected == runners
	})
	if with := tick(); with > alone+runners*most {
		t.Errorf("a tick allocates %d bytes with %d idle runners, %d with none", with, runners, alone)
	}
	if alone > 64<<10 {
		t.Errorf("a tick without any runner allocates %d bytes", alone)
	}
}

func (n *node) ticketFor(uses int) (secret string) {
	n.t.Helper()
	var k api.Ticket
	n.call(http.MethodPost, "/v1/tickets", "", api.TicketRequest{Uses: uses}, &k)
	parsed, err := wire.ParseTicket(k.Ticket)
	if err != nil {
		n.t.Fatal(err)
	}
	return parsed.Secret
}

// connect enrols a runner of which only the connection is real, connects it, and has it
// beat once.
func (n *node) connect(secret string, i int) {
	t := n.t
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sign, _, err := ed25519.GenerateKey(rand.Reader)
	must(err)
	pub, priv, err := box.GenerateKey(rand.Reader)
	must(err)
	machine := fmt.Sprint("m", i)
	b, err := json.Marshal(wire.Enrol{Secret: secret, Name: machine, SignKey: sign, BoxKey: pub[:], MachineID: machine})
	must(err)
	res, err := http.Post(n.hub.URL()+wire.EnrolPath, "application/json", bytes.NewReader(b))
	must(err)
	defer res.Body.Close()
	var e wire.Enrolled
	must(json.NewDecoder(res.Body).Decode(&e))
	key, err := wire.OpenBox(pub[:], priv[:], e.HMACKey)
	must(err)

	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	conn, up, err := d.Dial("ws"+strings.TrimPrefix(n.hub.URL(), "http")+wire.LinkPath(e.Runner), nil)
	must(err)
	up.Body.Close()
	t.Cleanup(func() { conn.Close() })
	must(conn.SetReadDeadline(time.Now().Add(10 * time.Second)))
	_, challenge, err := conn.ReadMessage()
	must(err)
	f, err := wire.OpenPlain(challenge)
	must(err)
	var c wire.Challenge
	must(wire.Decode(f.Body, &c))
	nonce, err := wire.NewNonce(rand.Reader)
	must(err)
	hello, err := wire.SealHello(key, challenge, wire.Hello{
		Version: wire.Version, Runner: e.Runner, Generation: e.Generation, Nonce: nonce, Cluster: e.Cluster, Epoch: e.Epoch,
		MachineID: machine, JournalID: "j", JournalCount: 1, Name: e.Name, Time: time.Now().UTC(),
		Facts: fleet.RunnerFacts{Version: "test", OS: "linux", Arch: "amd64", Slots: 2, Permissions: fleet.PermFull},
	})
	must(err)
	session, err := wire.DeriveSession(key, c.Nonce, nonce, e.Cluster, e.Runner)
	must(err)
	must(conn.WriteMessage(websocket.BinaryMessage, hello))
	body, err := wire.Encode(wire.Heartbeat{Full: true, Epoch: e.Epoch, Slots: 2, Count: 1})
	must(err)
	must(conn.WriteMessage(websocket.BinaryMessage, wire.NewSealer(session, wire.LinkUp).Seal(wire.TypeHeartbeat, body)))
}
