package mesh

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// eventually waits for a condition that the network brings about.
func eventually(t testing.TB, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		<-tick.C
	}
	return time.Since(began)
}

// calls has the node a call b, known to it as p, which knows a by its key only and
// echoes.
func calls(t testing.TB, a, b testNode, p Peer) {
	t.Helper()
	a.SetPeers([]Peer{p})
	unknown := a.peer()
	unknown.Endpoints = nil
	b.SetPeers([]Peer{unknown})
	echo(t, listen(t, b.Mesh, PortRaft))
}

// relayed gives two nodes, of which n-a calls n-b through a relay.
func relayed(t testing.TB, tune ...func(*relay)) (a, b testNode, r *relay) {
	t.Helper()
	a, b = newNode(t, "n-a"), newNode(t, "n-b")
	r = newRelay(t, b.ListenAddr())
	for _, f := range tune {
		f(r)
	}
	p := b.peer()
	p.Endpoints = []string{r.addr()}
	calls(t, a, b, p)
	return a, b, r
}

// TestRoaming: a node whose address changes is followed, and a stale word in the set
// does not undo it.
func TestRoaming(t *testing.T) {
	a, b, r := relayed(t)
	c := dial(t, a.Mesh, "n-b", PortRaft)
	if err := say(c, "one"); err != nil {
		t.Fatal(err)
	}
	before := b.Endpoint("n-a")
	r.move(t)
	if err := say(c, "two"); err != nil {
		t.Fatalf("after the move: %v", err)
	}
	after := b.Endpoint("n-a")
	if before == after || !after.IsValid() {
		t.Errorf("the endpoint is %s after the move, and was %s", after, before)
	}
	stale := a.peer()
	stale.Endpoints = []string{"127.0.0.1:9"}
	b.SetPeers([]Peer{stale})
	if err := say(c, "three"); err != nil {
		t.Fatal(err)
	}
	if got := b.Endpoint("n-a"); got != after {
		t.Errorf("the set's endpoint took the place of the one that works: %s", got)
	}
	if s, ok := b.Status("n-a"); !ok || s.Conns != 1 || s.Heard.IsZero() || s.Handshake.IsZero() || s.Received == 0 || s.Sent == 0 || s.Key != a.key.Public() {
		t.Errorf("status: %+v, %v", s, ok)
	}
}

// TestCandidates: the working one of several endpoints is found, names are resolved,
// and one that comes later helps a peer that was not found.
func TestCandidates(t *testing.T) {
	t.Parallel()
	a, b := newNode(t, "n-a"), newNode(t, "n-b")
	hole := socket(t)
	defer hole.Close()
	p := b.peer()
	_, port, _ := net.SplitHostPort(p.Endpoints[0])
	p.Endpoints = []string{hole.LocalAddr().String(), "no.such.host.invalid:7441"}
	calls(t, a, b, p)
	if _, err := a.Dial(soon(t, 300), "n-b", PortRaft); err == nil {
		t.Fatal("a peer was reached by a hole")
	}
	p.Endpoints = append(p.Endpoints, "localhost:"+port)
	a.SetPeers([]Peer{p})
	if err := say(dial(t, a.Mesh, "n-b", PortRaft), "found"); err != nil {
		t.Fatal(err)
	}
	if got := a.Endpoint("n-b"); got.Port() != b.ListenAddr().Port() {
		t.Errorf("the endpoint is %s, want port %s", got, port)
	}
}

// TestRestart: a node that comes back at another port is found through its own calls,
// and quickly.
func TestRestart(t *testing.T) {
	t.Parallel()
	a, b := newNode(t, "n-a"), newNode(t, "n-b")
	a.SetPeers([]Peer{b.peer()})
	b.SetPeers([]Peer{a.peer()})
	echo(t, listen(t, b.Mesh, PortRaft))
	c := dial(t, a.Mesh, "n-b", PortRaft)
	if err := say(c, "before"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlived its peer")
	}
	m, err := New(Config{Cluster: "c-1", ID: "n-b", Key: b.key, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	echo(t, listen(t, m, PortRaft))
	m.SetPeers([]Peer{a.peer()})
	began := time.Now()
	if err := say(dial(t, a.Mesh, "n-b", PortRaft), "after"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("reached again only after %v", took)
	}
}

// TestRekey: a stream goes on, whole, while both ends change their keys twice.
func TestRekey(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 2)
	a, b := nodes[0], nodes[1]
	first := a.key
	l := listen(t, b.Mesh, PortCopies)
	c := dial(t, a.Mesh, "n-1", PortCopies)
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()

	stop := make(chan struct{})
	var wg sync.WaitGroup
	sums := [2]chan []byte{make(chan []byte, 1), make(chan []byte, 1)}
	var got, longest [2]atomic.Int64
	for i, pair := range [][2]net.Conn{{c, there}, {there, c}} {
		sent := sha256.New()
		wg.Go(func() {
			chance := rand.NewChaCha8([32]byte{byte(i)})
			buf := make([]byte, 4<<10)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					pair[0].(*Conn).CloseWrite()
					sums[i] <- sent.Sum(nil)
					return
				case <-tick.C:
					chance.Read(buf)
					sent.Write(buf)
					if _, err := pair[0].Write(buf); err != nil {
						t.Errorf("write: %v", err)
						return
					}
				}
			}
		})
		wg.Go(func() {
			have := sha256.New()
			last := time.Now()
			buf := make([]byte, 64<<10)
			for {
				n, err := pair[1].Read(buf)
				longest[i].Store(max(longest[i].Load(), int64(time.Since(last))))
				last = time.Now()
				have.Write(buf[:n])
				got[i].Add(int64(n))
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Errorf("read after %d bytes: %v", got[i].Load(), err)
					return
				}
			}
			if sum := have.Sum(nil); !bytes.Equal(sum, <-sums[i]) {
				t.Errorf("direction %d: what came is not what was sent", i)
			}
		})
	}
	flows := func() {
		t.Helper()
		x, y := got[0].Load(), got[1].Load()
		eventually(t, "bytes come both ways", 10*time.Second, func() bool { return got[0].Load() > x+64<<10 && got[1].Load() > y+64<<10 })
	}
	for _, how := range []string{"one after the other", "both at once"} {
		flows()
		longest[0].Store(0)
		longest[1].Store(0)
		ka, kb := NewKey(), NewKey()
		pa, pb := a.peer(), b.peer()
		pa.Keys, pb.Keys = append(pa.Keys, ka.Public()), append(pb.Keys, kb.Public())
		for _, n := range nodes {
			n.SetPeers([]Peer{pa, pb})
		}
		if err := a.Rekey(ka); err != nil {
			t.Fatal(err)
		}
		if how == "one after the other" {
			flows()
		}
		if err := b.Rekey(kb); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both use the new keys", 10*time.Second, func() bool {
			sa, _ := a.Status("n-1")
			sb, _ := b.Status("n-0")
			return sa.Key == kb.Public() && sb.Key == ka.Public()
		})
		a.key, b.key = ka, kb
		pa.Keys, pb.Keys = pa.Keys[1:], pb.Keys[1:]
		for _, n := range nodes {
			n.SetPeers([]Peer{pa, pb})
		}
		flows()
		t.Logf("%s: the longest gaps are %v and %v", how, time.Duration(longest[0].Load()), time.Duration(longest[1].Load()))
	}
	close(stop)
	wg.Wait()
	// A key that it had is refused like any stranger's.
	v, err := NewClient(ClientConfig{Cluster: "c-1", Key: first, Hubs: []Hub{b.hub()}, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.DialPort(soon(t, 300), PortCopies); err == nil {
		t.Error("the old key was let in")
	}
}

// TestReplacedKey: a peer that comes with none of its keys has lost its connections.
func TestReplacedKey(t *testing.T) {
	nodes := newNodes(t, 2)
	echo(t, listen(t, nodes[1].Mesh, PortRaft))
	c := dial(t, nodes[0].Mesh, "n-1", PortRaft)
	p := nodes[1].peer()
	p.Keys = []PublicKey{NewKey().Public()}
	nodes[0].SetPeers([]Peer{p})
	if err := say(c, "x"); err == nil {
		t.Error("the connection outlived its key")
	}
}

// TestKeyMoves: a key that goes from one id to another in one step serves the other.
func TestKeyMoves(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 3)
	echo(t, listen(t, nodes[0].Mesh, PortRaft))
	for range 4 { // whatever the order of the map
		for _, id := range []string{"n-8", "n-9"} {
			p := nodes[1].peer()
			p.ID = id
			nodes[0].SetPeers([]Peer{p, nodes[2].peer()})
			eventually(t, id+" is heard", 8*time.Second, func() bool {
				s, ok := nodes[0].Status(id)
				return ok && !s.Heard.IsZero()
			})
		}
	}
}

// TestBadLine: over a line that loses a tenth and delays the rest, everything arrives.
func TestBadLine(t *testing.T) {
	t.Parallel()
	a, _, _ := relayed(t, func(r *relay) { r.bad(0.1, 5*time.Millisecond) })
	began := time.Now()
	c := dial(t, a.Mesh, "n-b", PortRaft)
	t.Logf("connected after %v", time.Since(began))
	for range 20 {
		if err := say(c, "over a bad line"); err != nil {
			t.Fatal(err)
		}
	}
	big := bytes.Repeat([]byte("tugline "), 32<<10)
	go c.Write(big)
	got := make([]byte, len(big))
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
		t.Errorf("a quarter of a mebibyte there and back: %v", err)
	}
	t.Logf("all after %v", time.Since(began))
}

// TestGarbage: noise at the UDP port changes nothing.
func TestGarbage(t *testing.T) {
	nodes := newNodes(t, 2)
	echo(t, listen(t, nodes[1].Mesh, PortRaft))
	c := dial(t, nodes[0].Mesh, "n-1", PortRaft)
	noise := socket(t)
	defer noise.Close()
	chance := rand.NewChaCha8([32]byte{7})
	at := net.UDPAddrFromAddrPort(nodes[1].ListenAddr())
	for i := range 2000 {
		b := make([]byte, i%1500)
		chance.Read(b)
		if len(b) > 4 && i%2 == 0 { // as if it were one of WireGuard's four messages
			b[0], b[1], b[2], b[3] = byte(1+i%4), 0, 0, 0
		}
		noise.WriteTo(b, at)
		if i%200 == 0 {
			if err := say(c, "through the noise"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := say(c, "after it"); err != nil {
		t.Fatal(err)
	}
}

// TestDeadPeer: a peer that vanishes is noticed within seconds, whether there is
// something to send or not.
func TestDeadPeer(t *testing.T) {
	t.Parallel()
	a, _, r := relayed(t)
	idle, busy := dial(t, a.Mesh, "n-b", PortRaft), dial(t, a.Mesh, "n-b", PortRaft)
	for _, c := range []net.Conn{idle, busy} {
		if err := say(c, "x"); err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Time{})
	}
	r.bad(1, 0)
	began := time.Now()
	busy.Write([]byte("nobody answers"))
	var wg sync.WaitGroup
	for name, c := range map[string]net.Conn{"idle": idle, "busy": busy} {
		wg.Go(func() {
			_, err := c.Read(make([]byte, 1))
			took := time.Since(began)
			t.Logf("%s: %v after %v", name, err, took)
			if err == nil || took > 13*time.Second {
				t.Errorf("the %s connection noticed after %v: %v", name, took, err)
			}
		})
	}
	wg.Wait()
}
