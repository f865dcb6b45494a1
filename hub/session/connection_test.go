package session

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

func TestEnrol(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.newAgent()
	secret := h.ticket()
	status, first := a.enrol(secret)
	if status != http.StatusCreated {
		t.Fatalf("enrol: %d %s", status, first)
	}
	a.take(first)
	id := a.id
	status, again := a.enrol(secret)
	if status != http.StatusCreated {
		t.Fatalf("the same keys again: %d %s", status, again)
	}
	key := a.key
	a.take(again)
	if a.id != id || !bytes.Equal(a.key, key) {
		t.Errorf("the same keys got %s, then %s", id, a.id)
	}
	a.link()

	b := h.newAgent()
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name   string
		secret string
		change func(*wire.Enrol)
		status int
		code   fleet.Code
	}{
		{"a used ticket", secret, nil, http.StatusForbidden, fleet.TicketUsed},
		{"an unknown ticket", "nonsense", nil, http.StatusForbidden, fleet.TicketInvalid},
		{"no ticket", "", nil, http.StatusForbidden, fleet.TicketInvalid},
		{"an expired ticket", h.ticket(func(c *state.CreateTicket) { c.TTL = -time.Minute }), nil, http.StatusForbidden, fleet.TicketExpired},
		{"a short sign key", h.ticket(), func(e *wire.Enrol) { e.SignKey = e.SignKey[:31] }, http.StatusBadRequest, fleet.BadRequest},
		{"no box key", h.ticket(), func(e *wire.Enrol) { e.BoxKey = nil }, http.StatusBadRequest, fleet.BadRequest},
		{"no name", h.ticket(), func(e *wire.Enrol) { e.Name = "" }, http.StatusBadRequest, fleet.BadRequest},
		{"a name with a blank", h.ticket(), func(e *wire.Enrol) { e.Name = "a b" }, http.StatusBadRequest, fleet.BadRequest},
		{"a long name", h.ticket(), func(e *wire.Enrol) { e.Name = long }, http.StatusBadRequest, fleet.BadRequest},
		{"no machine", h.ticket(), func(e *wire.Enrol) { e.MachineID = "" }, http.StatusBadRequest, fleet.BadRequest},
		{"a long label", h.ticket(), func(e *wire.Enrol) { e.Labels = map[string]string{"k": long} }, http.StatusBadRequest, fleet.BadRequest},
		{"too large", h.ticket(), func(e *wire.Enrol) { e.Labels = map[string]string{"k": strings.Repeat("x", wire.MaxEnrol)} }, http.StatusRequestEntityTooLarge, fleet.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := b.request(c.secret)
			if c.change != nil {
				c.change(&e)
			}
			status, body := a.post(wire.EnrolPath, encodeAny(t, e))
			var p wire.Problem
			if err := json.Unmarshal(body, &p); err != nil {
				t.Fatalf("%d %s", status, body)
			}
			if status != c.status || p.Code != c.code || p.Status != status || p.Detail == "" {
				t.Errorf("answer %d %+v, want %d %s", status, p, c.status, c.code)
			}
		})
	}
	if status, body := a.post(wire.EnrolPath, []byte("{")); status != http.StatusBadRequest {
		t.Errorf("half a document: %d %s", status, body)
	}
}

func encodeAny(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReenrol gives an identity to new keys and refuses the old ones.
func TestReenrol(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	old := h.enrolled()
	k := old.link()
	fresh := h.newAgent()
	status, body := fresh.enrol(h.ticket(func(c *state.CreateTicket) { c.For = old.id }))
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	fresh.take(body)
	if fresh.id != old.id || fresh.gen != old.gen+1 {
		t.Fatalf("got %s generation %d, want %s generation %d", fresh.id, fresh.gen, old.id, old.gen+1)
	}
	k.send(wire.TypeHeartbeat, encode(t, wire.Heartbeat{Count: 2}))
	if g := goodbye(t, k.frame()); g.Code != fleet.RunnerRevoked || !g.Final {
		t.Errorf("the old session was told %+v", g)
	}
	if _, g := old.tryLink(); g == nil || g.Code != fleet.RunnerRevoked || !g.Final {
		t.Errorf("the old keys were told %+v", g)
	}
	fresh.link()
}

// TestHandshakeRefused goes through the ways in which a handshake fails. sealed
// says whether the goodbye proves that it comes from a hub that knows the key.
func TestHandshakeRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(h *hub, a *agent)
		code   fleet.Code
		final  bool
	}{
		{"never enrolled", func(_ *hub, a *agent) { a.id = "r-never" }, fleet.RunnerUnknown, false},
		{"another key", func(h *hub, a *agent) { a.key = random(h.t, 32) }, fleet.BadSignature, false},
		{"another generation", func(_ *hub, a *agent) { a.gen++ }, fleet.BadSignature, false},
		{"another version", func(_ *hub, a *agent) { a.version = 99 }, fleet.ProtocolVersion, false},
		{"another cluster", func(_ *hub, a *agent) { a.cluster = "c-other" }, fleet.ClusterMismatch, true},
		{"a higher epoch", func(_ *hub, a *agent) { a.epoch = 2 }, fleet.ClusterMismatch, true},
		{"revoked", func(h *hub, a *agent) { h.must(&state.RevokeRunner{ID: a.id}) }, fleet.RunnerRevoked, true},
		{"removed", func(h *hub, a *agent) { h.must(&state.RemoveRunner{ID: a.id}) }, fleet.RunnerUnknown, true},
		{"in conflict", func(h *hub, a *agent) {
			why := "two machines"
			h.must(&state.FlagRunner{ID: a.id, Conflict: &why})
		}, fleet.ClonedIdentity, true},
		{"another machine", func(_ *hub, a *agent) { a.machine = "m-2" }, fleet.ClonedIdentity, true},
		{"too much to say", func(_ *hub, a *agent) { a.facts.Repos = []string{strings.Repeat("x", maxFollow)} }, fleet.TooLarge, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			a := h.enrolled()
			c.change(h, a)
			_, byLink := a.tryLink()
			_, byExchange := a.tryExchange()
			for transport, g := range map[string]*wire.Goodbye{"ws": byLink, "http": byExchange} {
				if g == nil || g.Code != c.code || g.Final != c.final || g.Detail == "" {
					t.Errorf("%s: goodbye is %+v, want %s, final %v", transport, g, c.code, c.final)
				}
			}
			if n := len(h.srv.Presence()); n != 0 {
				t.Errorf("%d runners are present", n)
			}
		})
	}
}

// TestHandshakeRaw sends what is no hello at all.
func TestHandshakeRaw(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	b := h.enrolled()
	_, old := a.dial(a.id)
	replayed, _ := a.hello(old)
	foreign, _ := b.hello(old)
	for _, c := range []struct {
		name  string
		frame []byte
		code  fleet.Code
	}{
		{"nothing", nil, fleet.BadRequest},
		{"noise", []byte("hello, hub"), fleet.BadRequest},
		{"noise of our version", append([]byte{wire.Version}, bytes.Repeat([]byte{0xff}, 60)...), fleet.TooLarge},
		{"another version's frame", append([]byte{9}, replayed[1:]...), fleet.ProtocolVersion},
		{"a plain challenge", old, fleet.BadRequest},
		{"a hello for another challenge", replayed, fleet.BadSignature},
		{"a hello of another runner", foreign, fleet.BadRequest},
		{"a frame cut short", replayed[:len(replayed)-1], fleet.BadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, _ := a.dial(a.id)
			if err := conn.WriteMessage(websocket.BinaryMessage, c.frame); err != nil {
				t.Fatal(err)
			}
			f, err := wire.OpenPlain(a.read(conn))
			if err != nil {
				t.Fatal(err)
			}
			if g := goodbye(t, f); g.Code != c.code || g.Final {
				t.Errorf("goodbye is %+v, want %s", g, c.code)
			}
		})
	}
	t.Run("a text message", func(t *testing.T) {
		conn, _ := a.dial(a.id)
		if err := conn.WriteMessage(websocket.TextMessage, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(patience))
		if _, _, err := conn.ReadMessage(); err == nil {
			t.Error("the hub went on")
		}
	})
}

// TestSupersede ends the older session and tells it why.
func TestSupersede(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	first := a.link()
	a.beat(first)
	second := a.exchange()
	if g := goodbye(t, first.frame()); g.Code != fleet.Superseded || !g.Final {
		t.Errorf("the older session was told %+v", g)
	}
	a.beat(second)
	third := a.link()
	frames, err := second.roundTrip("push", wire.TypeHeartbeat, encode(t, wire.Heartbeat{Count: a.count + 1}))
	if err != nil || len(frames) != 1 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	if g := goodbye(t, frames[0]); g.Code != fleet.Superseded || !g.Final {
		t.Errorf("the older session was told %+v", g)
	}
	a.beat(third)
	if p, _ := h.srv.PresenceOf(a.id); !p.Connected || p.Session != third.session || p.Transport != "ws" {
		t.Errorf("presence is %+v", p)
	}
}

// TestClone refuses both holders of an identity until a person decides.
func TestClone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		copy func(a *agent) // makes of the runner a copy of itself
	}{
		{"another machine", func(a *agent) { a.machine = "m-copy" }},
		{"an older journal", func(a *agent) { a.count = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			a := h.enrolled()
			k := a.link()
			for range 10 {
				a.beat(k)
			}
			twin := *a
			c.copy(&twin)
			if _, g := twin.tryLink(); g == nil || g.Code != fleet.ClonedIdentity || !g.Final {
				t.Fatalf("the copy was told %+v", g)
			}
			if g := goodbye(t, k.frame()); g.Code != fleet.ClonedIdentity || !g.Final {
				t.Errorf("the first was told %+v", g)
			}
			if _, g := a.tryLink(); g == nil || g.Code != fleet.ClonedIdentity {
				t.Errorf("the first came back and was told %+v", g)
			}
			if r, _ := h.View().Runner(a.id); r.Conflict == "" {
				t.Error("the conflict is not recorded")
			}
			none := ""
			h.must(&state.FlagRunner{ID: a.id, Conflict: &none})
			twin.link() // the one that comes next is taken as the right one
			if c.name == "another machine" {
				if _, g := a.tryLink(); g == nil || g.Code != fleet.ClonedIdentity {
					t.Errorf("the other one was told %+v", g)
				}
			}
		})
	}
}

// TestNewJournal loses the accepted attempts of a runner that has forgotten them.
func TestNewJournal(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	a.journal, a.count = "j-new", 0
	a.link()
	if s := h.job(j).State; s != fleet.Lost {
		t.Errorf("job is %s", s)
	}
}

// TestBadFrame ends a session at the first frame that is not in order.
func TestBadFrame(t *testing.T) {
	t.Parallel()
	beat := func(t *testing.T, n uint64) []byte { return encode(t, wire.Heartbeat{Count: n + 10}) }
	for _, c := range []struct {
		name  string
		frame func(t *testing.T, k *linkTalk) []byte
		code  fleet.Code
	}{
		{"a repeat", func(t *testing.T, k *linkTalk) []byte {
			return wire.Seal(k.sk, wire.LinkUp, wire.TypeHeartbeat, 1, beat(t, 1))
		}, fleet.BadSequence},
		{"a gap", func(t *testing.T, k *linkTalk) []byte {
			return wire.Seal(k.sk, wire.LinkUp, wire.TypeHeartbeat, 3, beat(t, 3))
		}, fleet.BadSequence},
		{"a changed bit", func(t *testing.T, k *linkTalk) []byte {
			f := wire.Seal(k.sk, wire.LinkUp, wire.TypeHeartbeat, 2, beat(t, 2))
			f[len(f)-wire.MACSize-2] ^= 1
			return f
		}, fleet.BadSignature},
		{"a changed type", func(t *testing.T, k *linkTalk) []byte {
			f := wire.Seal(k.sk, wire.LinkUp, wire.TypeHeartbeat, 2, beat(t, 2))
			f[1] = byte(wire.TypeLive)
			return f
		}, fleet.BadSignature},
		{"a reflected frame", func(t *testing.T, k *linkTalk) []byte {
			return wire.Seal(k.sk, wire.LinkDown, wire.TypeHeartbeat, 2, beat(t, 2))
		}, fleet.BadSignature},
		{"a frame without MAC", func(t *testing.T, _ *linkTalk) []byte {
			return wire.Plain(wire.TypeHeartbeat, beat(t, 2))
		}, fleet.BadSignature},
		{"no JSON", func(_ *testing.T, k *linkTalk) []byte {
			return wire.Seal(k.sk, wire.LinkUp, wire.TypeHeartbeat, 2, []byte("{"))
		}, fleet.BadRequest},
		{"a journal that went back", func(t *testing.T, k *linkTalk) []byte {
			return wire.Seal(k.sk, wire.LinkUp, wire.TypeHeartbeat, 2, encode(t, wire.Heartbeat{Count: 1}))
		}, fleet.BadSequence},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			a := h.enrolled()
			k := a.link()
			a.beat(k)
			if err := k.conn.WriteMessage(websocket.BinaryMessage, c.frame(t, k)); err != nil {
				t.Fatal(err)
			}
			if g := goodbye(t, k.frame()); g.Code != c.code || g.Final {
				t.Errorf("goodbye is %+v, want %s", g, c.code)
			}
			eventually(t, "the runner is not connected", func() bool { p, _ := h.srv.PresenceOf(a.id); return !p.Connected })
			a.link() // a new session is welcome
		})
	}
}

// TestEnded sees how each way to end sessions is told.
func TestEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		act   func(h *hub, a *agent)
		code  fleet.Code
		final bool
	}{
		{"the key is revoked", func(h *hub, a *agent) {
			h.must(&state.RevokeRunner{ID: a.id})
			r, _ := h.View().Runner(a.id)
			h.srv.RunnerChanged(r)
		}, fleet.RunnerRevoked, true},
		{"the runner is removed", func(h *hub, a *agent) {
			h.must(&state.RemoveRunner{ID: a.id})
			r, _ := h.View().Runner(a.id)
			h.srv.RunnerChanged(r)
		}, fleet.RunnerUnknown, true},
		{"leadership is lost", func(h *hub, _ *agent) { h.srv.EndAll(fleet.SessionEnded, "another hub leads") }, fleet.SessionEnded, false},
		{"the hub stops", func(h *hub, _ *agent) { h.srv.Close() }, fleet.Restarting, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			a := h.enrolled()
			k := a.link()
			a.beat(k)
			c.act(h, a)
			if g := goodbye(t, k.frame()); g.Code != c.code || g.Final != c.final {
				t.Errorf("goodbye is %+v, want %s, final %v", g, c.code, c.final)
			}
		})
	}
}

// TestByItself sees what the hub says without being asked.
func TestByItself(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		a.beat(k)
		h.srv.Nudge(a.id)
		h.srv.Nudge("r-nobody")
		if typ, _ := k.next(); typ != wire.TypeNudge {
			t.Errorf("frame %d came instead of a nudge", typ)
		}
		h.srv.Restarting(2*time.Second, 30*time.Second, nil)
		var r wire.Restarting
		typ, body := k.next()
		if typ == wire.TypeHeartbeatReply { // a nudge over HTTP brings the desired set
			typ, body = k.next()
		}
		if typ != wire.TypeRestarting || wire.Decode(body, &r) != nil || r.After != 2*time.Second || r.For != 30*time.Second {
			t.Errorf("frame %d came: %s", typ, body)
		}
	})
}

// TestPresence follows a runner that connects, offers, falls silent and leaves.
func TestPresence(t *testing.T) {
	t.Parallel()
	h := newHub(t, func(c *Config) { c.ActiveInterval, c.IdleInterval = 300*time.Millisecond, 300*time.Millisecond })
	a := h.enrolled()
	if _, seen := h.srv.PresenceOf(a.id); seen {
		t.Error("a runner that never connected is present")
	}
	k := a.link()
	a.beat(k)
	p, _ := h.srv.PresenceOf(a.id)
	want := fleet.Presence{Runner: a.id, Connected: true, Session: k.session, Transport: "ws", Interval: 300 * time.Millisecond, Slots: 2, Full: true}
	p.LastBeat, p.Address = time.Time{}, ""
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("presence (-want +got):\n%s", d)
	}
	eventually(t, "silence makes it stale", func() bool { p, _ := h.srv.PresenceOf(a.id); return !p.Connected })
	if all := h.srv.Presence(); len(all) != 1 || all[0].LastBeat.IsZero() {
		t.Errorf("presence of all is %+v", all)
	}
	conn := k.conn
	conn.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			break // a silent connection is closed
		}
	}
	h.mu.Lock()
	h.leading = false
	h.mu.Unlock()
	status, body := a.post(wire.ExchangePath(a.id)+"?channel=open", nil)
	var problem wire.Problem
	if err := json.Unmarshal(body, &problem); err != nil || status != http.StatusServiceUnavailable || problem.Code != fleet.Unavailable {
		t.Errorf("a hub that does not lead answered %d %s", status, body)
	}
}

// TestFollower points runners to the leader.
func TestFollower(t *testing.T) {
	t.Parallel()
	h := newHub(t, func(c *Config) {
		c.Leading = func() bool { return false }
		c.Leader = func() string { return "https://hub-2.example" }
		c.Hubs = func() []string { return []string{"https://hub-1.example", "https://hub-2.example"} }
	})
	client := *h.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Get(h.url + wire.LinkPath("r-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var p wire.Problem
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusTemporaryRedirect || res.Header.Get("Location") != "https://hub-2.example/v1/runners/r-1/link" || len(p.Hubs) != 2 || p.Leader == "" {
		t.Errorf("answer %d to %s, %+v", res.StatusCode, res.Header.Get("Location"), p)
	}
}

// TestHung keeps a runner that reads nothing from holding up anybody else.
func TestHung(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a, b := h.enrolled(), h.enrolled()
	b.journal = "j-2"
	hung, k := a.link(), b.link()
	a.beat(hung)
	done := make(chan struct{})
	go func() {
		defer close(done)
		body := bytes.Repeat([]byte("x"), 64<<10)
		h.srv.mu.Lock()
		x := h.srv.live[a.id]
		h.srv.mu.Unlock()
		for range 200 { // more than the sockets and the queue take
			x.out.send(wire.TypeRestarting, body)
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("sending to a hung runner waits")
	}
	b.beat(k)
	eventually(t, "the hung session ended", func() bool { p, _ := h.srv.PresenceOf(a.id); return !p.Connected })
}

// TestSkew admits a runner whose clock is far off; orders go by the hub's time.
func TestSkew(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	a.ahead = 24 * time.Hour
	h.assign(a.id)
	rep := a.beat(a.link())
	d := rep.Desired[0]
	if _, err := wire.VerifyOrder(a.orders, *d.Order, d.Body, wire.Want{Cluster: testCluster, Epoch: 1, Runner: a.id}, rep.Time); err != nil {
		t.Error(err)
	}
}

// TestOldMaster verifies runners of an earlier master key and enrols new ones
// under the newest.
func TestOldMaster(t *testing.T) {
	t.Parallel()
	old, newest := random(t, 32), random(t, 32)
	h := newHub(t)
	h.change(func(k *Keys) { k.Masters = map[uint64][]byte{1: old, 2: newest} })
	a := h.enrolled()
	for g, master := range map[int][]byte{1: old, 2: newest} {
		key, err := wire.RunnerKey(master, a.id, a.gen)
		if err != nil {
			t.Fatal(err)
		}
		if g == 2 && !bytes.Equal(key, a.key) {
			t.Error("the enrolled key is not of the newest master")
		}
		a := *a
		a.key = key
		a.link()
	}
}

// TestConfig refuses what a server cannot work with.
func TestConfig(t *testing.T) {
	t.Parallel()
	good := newHub(t).srv.cfg
	bad := func(spoil func(*Keys)) func() *Keys {
		k := *good.Keys()
		spoil(&k)
		return func() *Keys { return &k }
	}
	for name, change := range map[string]func(*Config){
		"no proposer":     func(c *Config) { c.Proposer = nil },
		"no spool":        func(c *Config) { c.Spool = nil },
		"no standing":     func(c *Config) { c.Standing = nil },
		"no master key":   func(c *Config) { c.Keys = bad(func(k *Keys) { k.Masters = nil }) },
		"no signing key":  func(c *Config) { c.Keys = bad(func(k *Keys) { k.Signing = nil }) },
		"another chain":   func(c *Config) { c.Keys = bad(func(k *Keys) { k.SigningID = "k9" }) },
		"no keys":         func(c *Config) { c.Keys = nil },
		"another master":  func(c *Config) { c.Keys = bad(func(k *Keys) { k.Master = 7 }) },
		"CAs, no pins":    func(c *Config) { c.Keys = bad(func(k *Keys) { k.CAs = make([]wire.CAKey, 1) }) },
		"a long interval": func(c *Config) { c.IdleInterval = time.Hour },
		"no cluster":      func(c *Config) { c.Keys = bad(func(k *Keys) { k.Cluster = "" }) },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
