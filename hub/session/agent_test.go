package session

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// agent is a runner as another program might be written from the protocol: it uses
// nothing of the server.
type agent struct {
	t       testing.TB
	h       *hub
	id      fleet.RunnerID
	gen     uint64
	key     []byte
	sign    ed25519.PrivateKey
	orders  map[string]ed25519.PublicKey
	machine string
	journal string
	count   uint64
	cluster string
	epoch   uint64
	version int
	facts   fleet.RunnerFacts
	seq     uint64         // outbox number
	ahead   time.Duration  // of its clock
	held    *wire.KeysHeld // nil: it says nothing of keys

	boxPub, boxPriv *[32]byte
}

// newAgent makes keys and nothing else.
func (h *hub) newAgent() *agent {
	h.t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	a := &agent{t: h.t, h: h, sign: priv, machine: "m-1", journal: "j-1", count: 1, cluster: testCluster, epoch: 1, version: wire.Version,
		facts: fleet.RunnerFacts{Version: "test", OS: "linux", Arch: "amd64", Slots: 2, Permissions: fleet.PermFull}}
	if a.boxPub, a.boxPriv, err = box.GenerateKey(rand.Reader); err != nil {
		h.t.Fatal(err)
	}
	return a
}

// enrolled makes a runner with an identity.
func (h *hub) enrolled() *agent {
	h.t.Helper()
	a := h.newAgent()
	status, body := a.enrol(h.ticket())
	if status != http.StatusCreated {
		h.t.Fatalf("enrol: %d %s", status, body)
	}
	a.take(body)
	return a
}

func (a *agent) request(secret string) wire.Enrol {
	return wire.Enrol{Secret: secret, Name: "box", SignKey: a.sign.Public().(ed25519.PublicKey), BoxKey: a.boxPub[:], MachineID: a.machine}
}

func (a *agent) enrol(secret string) (status int, body []byte) {
	a.t.Helper()
	b, err := json.Marshal(a.request(secret))
	if err != nil {
		a.t.Fatal(err)
	}
	return a.post(wire.EnrolPath, b)
}

func (a *agent) post(path string, body []byte) (status int, reply []byte) {
	a.t.Helper()
	res, err := a.h.client.Post(a.h.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	reply, err = io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return res.StatusCode, reply
}

// take keeps the identity that an enrolment gave.
func (a *agent) take(body []byte) {
	a.t.Helper()
	var e wire.Enrolled
	if err := json.Unmarshal(body, &e); err != nil {
		a.t.Fatal(err)
	}
	key, err := wire.OpenBox(a.boxPub[:], a.boxPriv[:], e.HMACKey)
	if err != nil {
		a.t.Fatal(err)
	}
	a.id, a.gen, a.key = e.Runner, e.Generation, key
	if a.orders, err = wire.VerifyChain(e.Signing[0].Key, e.Signing); err != nil {
		a.t.Fatal(err)
	}
}

// hello answers a challenge; it gives the frame and the session key.
func (a *agent) hello(challenge []byte) (frame []byte, key wire.SessionKey) {
	a.t.Helper()
	f, err := wire.OpenPlain(challenge)
	if err != nil {
		a.t.Fatal(err)
	}
	var c wire.Challenge
	if err := wire.Decode(f.Body, &c); err != nil {
		a.t.Fatal(err)
	}
	nonce := random(a.t, wire.NonceSize)
	frame, err = wire.SealHello(a.key, challenge, wire.Hello{Version: a.version, Runner: a.id, Generation: a.gen, Nonce: nonce,
		Cluster: a.cluster, Epoch: a.epoch, MachineID: a.machine, JournalID: a.journal, JournalCount: a.count,
		Name: "box", Facts: a.facts, Time: time.Now().Add(a.ahead).UTC()})
	if err != nil {
		a.t.Fatal(err)
	}
	key, err = wire.DeriveSession(a.key, c.Nonce, nonce, testCluster, a.id)
	if err != nil {
		a.t.Fatal(err)
	}
	return frame, key
}

// talk is a session as a test uses it, over either transport.
type talk interface {
	// say sends a frame and gives the answer of the given type, or the goodbye
	// that came instead.
	say(typ wire.Type, body []byte, answer wire.Type) ([]byte, *wire.Goodbye)
	// next waits for a frame that the hub sends by itself.
	next() (wire.Type, []byte)
	key() (wire.SessionKey, string)
	close()
}

// over runs a test for both transports.
func over(t *testing.T, f func(t *testing.T, connect func(*agent) talk)) {
	t.Run("ws", func(t *testing.T) { f(t, func(a *agent) talk { return a.link() }) })
	t.Run("http", func(t *testing.T) { f(t, func(a *agent) talk { return a.exchange() }) })
}

// linkTalk is a session over a WebSocket. One goroutine of the test at a time.
type linkTalk struct {
	a       *agent
	conn    *websocket.Conn
	sk      wire.SessionKey
	session string
	seal    *wire.Sealer
	open    *wire.Opener
	waiting []wire.Frame // that came while something else was waited for
}

// dial opens the WebSocket and reads the challenge.
func (a *agent) dial(id fleet.RunnerID) (conn *websocket.Conn, challenge []byte) {
	a.t.Helper()
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: patience}
	conn, res, err := d.Dial("ws"+strings.TrimPrefix(a.h.url, "http")+wire.LinkPath(id), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	res.Body.Close()
	a.t.Cleanup(func() { conn.Close() })
	return conn, a.read(conn)
}

func (a *agent) read(conn *websocket.Conn) []byte {
	a.t.Helper()
	conn.SetReadDeadline(time.Now().Add(patience))
	_, b, err := conn.ReadMessage()
	if err != nil {
		a.t.Fatalf("read from hub: %v", err)
	}
	return b
}

// link connects and shakes hands.
func (a *agent) link() *linkTalk {
	a.t.Helper()
	l, bye := a.tryLink()
	if bye != nil {
		a.t.Fatalf("the hub refused: %+v", bye)
	}
	return l
}

// tryLink gives the goodbye where the handshake fails.
func (a *agent) tryLink() (*linkTalk, *wire.Goodbye) {
	a.t.Helper()
	conn, challenge := a.dial(a.id)
	hello, key := a.hello(challenge)
	if err := conn.WriteMessage(websocket.BinaryMessage, hello); err != nil {
		a.t.Fatal(err)
	}
	l := &linkTalk{a: a, conn: conn, sk: key, seal: wire.NewSealer(key, wire.LinkUp), open: wire.NewOpener(key, wire.LinkDown)}
	b := a.read(conn)
	if f, err := wire.OpenPlain(b); err == nil {
		return nil, goodbye(a.t, f)
	}
	f, err := l.open.Open(b)
	if err != nil {
		a.t.Fatal(err)
	}
	if f.Type == wire.TypeGoodbye {
		return nil, goodbye(a.t, f)
	}
	l.session = welcome(a.t, f)
	return l, nil
}

func goodbye(t testing.TB, f wire.Frame) *wire.Goodbye {
	t.Helper()
	var g wire.Goodbye
	if f.Type != wire.TypeGoodbye || wire.Decode(f.Body, &g) != nil {
		t.Fatalf("frame of type %d is no goodbye: %s", f.Type, f.Body)
	}
	return &g
}

func welcome(t testing.TB, f wire.Frame) string {
	t.Helper()
	var w wire.Welcome
	if f.Type != wire.TypeWelcome || wire.Decode(f.Body, &w) != nil || w.Session == "" {
		t.Fatalf("frame of type %d is no welcome: %s", f.Type, f.Body)
	}
	return w.Session
}

func (l *linkTalk) send(typ wire.Type, body []byte) {
	l.a.t.Helper()
	if err := l.conn.WriteMessage(websocket.BinaryMessage, l.seal.Seal(typ, body)); err != nil {
		l.a.t.Logf("send: %v", err)
	}
}

// frame gives the next frame from the wire.
func (l *linkTalk) frame() wire.Frame {
	l.a.t.Helper()
	f, err := l.open.Open(l.a.read(l.conn))
	if err != nil {
		l.a.t.Fatal(err)
	}
	return f
}

func (l *linkTalk) say(typ wire.Type, body []byte, answer wire.Type) ([]byte, *wire.Goodbye) {
	l.a.t.Helper()
	l.send(typ, body)
	for {
		f := l.frame()
		switch f.Type {
		case answer:
			return f.Body, nil
		case wire.TypeGoodbye:
			return nil, goodbye(l.a.t, f)
		}
		l.waiting = append(l.waiting, f)
	}
}

func (l *linkTalk) next() (wire.Type, []byte) {
	l.a.t.Helper()
	if len(l.waiting) > 0 {
		f := l.waiting[0]
		l.waiting = l.waiting[1:]
		return f.Type, f.Body
	}
	f := l.frame()
	return f.Type, f.Body
}

func (l *linkTalk) key() (wire.SessionKey, string) { return l.sk, l.session }
func (l *linkTalk) close()                         { l.conn.Close() }

// httpTalk is a session over exchanges.
type httpTalk struct {
	a       *agent
	sk      wire.SessionKey
	session string
	up      map[string]*wire.Sealer
	down    map[string]*wire.Opener
	mu      sync.Mutex
	waiting []wire.Frame
}

// ask posts one exchange.
func (a *agent) ask(session, channel string, body []byte) (status int, header http.Header, reply []byte) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.h.url+wire.ExchangePath(a.id)+"?channel="+channel, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set(wire.SessionHeader, session)
	res, err := a.h.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	reply, err = io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return res.StatusCode, res.Header, reply
}

func (a *agent) exchange() *httpTalk {
	a.t.Helper()
	x, bye := a.tryExchange()
	if bye != nil {
		a.t.Fatalf("the hub refused: %+v", bye)
	}
	return x
}

func (a *agent) tryExchange() (*httpTalk, *wire.Goodbye) {
	a.t.Helper()
	status, header, challenge := a.ask("", wire.ChannelOpen, nil)
	if status != http.StatusOK {
		a.t.Fatalf("open exchange: %d %s", status, challenge)
	}
	hello, key := a.hello(challenge)
	status, _, reply := a.ask(header.Get(wire.SessionHeader), wire.ChannelOpen, hello)
	if status != http.StatusOK {
		a.t.Fatalf("hello: %d %s", status, reply)
	}
	if _, _, again := a.ask(header.Get(wire.SessionHeader), wire.ChannelOpen, hello); !bytes.Equal(again, reply) {
		a.t.Fatal("the same hello got another answer")
	}
	x := &httpTalk{a: a, sk: key,
		up:   map[string]*wire.Sealer{"push": wire.NewSealer(key, wire.PushUp), "poll": wire.NewSealer(key, wire.PollUp)},
		down: map[string]*wire.Opener{"push": wire.NewOpener(key, wire.PushDown), "poll": wire.NewOpener(key, wire.PollDown)}}
	if f, err := wire.OpenPlain(reply); err == nil {
		return nil, goodbye(a.t, f)
	}
	f, err := x.down["push"].Open(reply)
	if err != nil {
		a.t.Fatal(err)
	}
	if f.Type == wire.TypeGoodbye {
		return nil, goodbye(a.t, f)
	}
	x.session = welcome(a.t, f)
	return x, nil
}

// roundTrip sends one frame on a channel and gives the frames of the answer.
func (x *httpTalk) roundTrip(channel string, typ wire.Type, body []byte) ([]wire.Frame, error) {
	status, _, reply := x.a.ask(x.session, channel, x.up[channel].Seal(typ, body))
	if status != http.StatusOK {
		var p wire.Problem
		if err := json.Unmarshal(reply, &p); err != nil {
			return nil, fmt.Errorf("answer %d: %s", status, reply)
		}
		return nil, p.Code
	}
	return x.down[channel].OpenAll(reply)
}

func (x *httpTalk) say(typ wire.Type, body []byte, answer wire.Type) ([]byte, *wire.Goodbye) {
	x.a.t.Helper()
	frames, err := x.roundTrip("push", typ, body)
	var code fleet.Code
	if errors.As(err, &code) {
		return nil, &wire.Goodbye{Code: code}
	}
	if err != nil {
		x.a.t.Fatal(err)
	}
	var found []byte
	for _, f := range frames {
		switch f.Type {
		case answer:
			found = f.Body
		case wire.TypeGoodbye:
			return nil, goodbye(x.a.t, f)
		default:
			x.waiting = append(x.waiting, f)
		}
	}
	if found == nil {
		x.a.t.Fatalf("no frame of type %d in the answer", answer)
	}
	return found, nil
}

func (x *httpTalk) next() (wire.Type, []byte) {
	x.a.t.Helper()
	for len(x.waiting) == 0 {
		frames, err := x.roundTrip("poll", wire.TypePoll, nil)
		if err != nil {
			x.a.t.Fatal(err)
		}
		x.waiting = append(x.waiting, frames...)
	}
	f := x.waiting[0]
	x.waiting = x.waiting[1:]
	return f.Type, f.Body
}

func (x *httpTalk) key() (wire.SessionKey, string) { return x.sk, x.session }
func (x *httpTalk) close()                         {}

// What a runner says, in the words of the protocol.

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := wire.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// beat sends a heartbeat and gives the desired set.
func (a *agent) beat(k talk, views ...wire.AttemptView) wire.HeartbeatReply {
	a.t.Helper()
	a.count++
	body, bye := k.say(wire.TypeHeartbeat, encode(a.t, wire.Heartbeat{Full: true, Epoch: 1, Slots: 2, Count: a.count, Attempts: views, Keys: a.held}), wire.TypeHeartbeatReply)
	if bye != nil {
		a.t.Fatalf("heartbeat was answered with a goodbye: %+v", bye)
	}
	var rep wire.HeartbeatReply
	if err := wire.Decode(body, &rep); err != nil {
		a.t.Fatal(err)
	}
	return rep
}

// report sends items and gives their acknowledgements.
func (a *agent) report(k talk, items ...wire.ReportItem) []wire.ItemAck {
	a.t.Helper()
	for i := range items {
		a.seq++
		items[i].Seq = a.seq
	}
	body, bye := k.say(wire.TypeReport, encode(a.t, wire.Report{Items: items}), wire.TypeReportAck)
	if bye != nil {
		a.t.Fatalf("report was answered with a goodbye: %+v", bye)
	}
	var ack wire.ReportAck
	if err := wire.Decode(body, &ack); err != nil {
		a.t.Fatal(err)
	}
	if len(ack.Items) != len(items) {
		a.t.Fatalf("%d items got %d acknowledgements", len(items), len(ack.Items))
	}
	for i := range items {
		if ack.Items[i].Seq != items[i].Seq {
			a.t.Fatalf("item %d was acknowledged as %d", items[i].Seq, ack.Items[i].Seq)
		}
	}
	return ack.Items
}

// wrote sends a chunk of output and gives the acknowledgement.
func (a *agent) wrote(k talk, o wire.Output) wire.OutputAck {
	a.t.Helper()
	b, err := wire.EncodeOutput(o)
	if err != nil {
		a.t.Fatal(err)
	}
	body, bye := k.say(wire.TypeOutput, b, wire.TypeOutputAck)
	if bye != nil {
		a.t.Fatalf("output was answered with a goodbye: %+v", bye)
	}
	var ack wire.OutputAck
	if err := wire.Decode(body, &ack); err != nil {
		a.t.Fatal(err)
	}
	return ack
}

// finished gives a signed end.
func (a *agent) finished(j fleet.JobID, f fleet.Fence, exit int) wire.ReportItem {
	a.t.Helper()
	fin := &wire.Finished{Exit: fleet.Exit{Code: exit, Reason: "exited"}, FinishedAt: time.Now().UTC(), Output: 5}
	if err := wire.SignFinished(a.sign, j, f, fin); err != nil {
		a.t.Fatal(err)
	}
	return wire.ReportItem{Job: j, Fence: f, Finished: fin}
}

// ok fails the test unless every item was taken.
func ok(t testing.TB, acks []wire.ItemAck) {
	t.Helper()
	for _, k := range acks {
		if k.Code != "" {
			t.Fatalf("item %d was refused: %s (%s, retry %v)", k.Seq, k.Code, k.Detail, k.Retry)
		}
	}
}

// refused fails the test unless the item was refused with the code.
func refused(t testing.TB, acks []wire.ItemAck, code fleet.Code, retry bool) {
	t.Helper()
	if len(acks) != 1 || acks[0].Code != code || acks[0].Retry != retry {
		t.Fatalf("acknowledged as %+v, want code %s, retry %v", acks, code, retry)
	}
}
