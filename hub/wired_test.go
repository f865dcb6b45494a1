package hub

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

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

// wired is a runner of which only the connection is real.
type wired struct {
	n       *node
	id      fleet.RunnerID
	conn    *websocket.Conn
	up      *wire.Sealer
	down    *wire.Opener
	e       wire.Enrolled
	key     []byte
	machine string
}

// connect enrols one, connects it, and has it beat once.
func (n *node) connect(secret string, i int) *wired {
	t := n.t
	t.Helper()
	must := n.check
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
	r := &wired{id: e.Runner, e: e, key: key, machine: machine}
	r.dial(n)
	return r
}

func (n *node) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// dial connects it to a node, and has it beat once.
func (r *wired) dial(n *node) {
	n.t.Helper()
	must, e, key := n.check, r.e, r.key
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	conn, up, err := d.Dial("ws"+strings.TrimPrefix(n.hub.URL(), "http")+wire.LinkPath(e.Runner), nil)
	must(err)
	up.Body.Close()
	n.t.Cleanup(func() { conn.Close() })
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
		MachineID: r.machine, JournalID: "j", JournalCount: 1, Name: e.Name, Time: time.Now().UTC(),
		Facts: fleet.RunnerFacts{Version: "test", OS: "linux", Arch: "amd64", Slots: 2, Permissions: fleet.PermFull, Harnesses: []fleet.HarnessInfo{{Name: "exec"}}},
	})
	must(err)
	session, err := wire.DeriveSession(key, c.Nonce, nonce, e.Cluster, e.Runner)
	must(err)
	must(conn.WriteMessage(websocket.BinaryMessage, hello))
	r.n, r.conn, r.up, r.down = n, conn, wire.NewSealer(session, wire.LinkUp), wire.NewOpener(session, wire.LinkDown)
	r.say(wire.Heartbeat{Full: true, Epoch: e.Epoch, Slots: 2, Count: 1})
}

func (r *wired) say(hb wire.Heartbeat) {
	r.n.t.Helper()
	body, err := wire.Encode(hb)
	if err == nil {
		err = r.conn.WriteMessage(websocket.BinaryMessage, r.up.Seal(wire.TypeHeartbeat, body))
	}
	if err != nil {
		r.n.t.Fatal(err)
	}
}

// hear waits for the next reply to a heartbeat.
func (r *wired) hear() (rep wire.HeartbeatReply) {
	r.n.t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		r.n.t.Fatal(err)
	}
	for {
		_, b, err := r.conn.ReadMessage()
		if err != nil {
			r.n.t.Fatal(err)
		}
		f, err := r.down.Open(b)
		if err != nil {
			r.n.t.Fatal(err)
		}
		if f.Type == wire.TypeHeartbeatReply {
			if err := wire.Decode(f.Body, &rep); err != nil {
				r.n.t.Fatal(err)
			}
			return rep
		}
	}
}
