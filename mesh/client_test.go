package mesh

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func (n testNode) hub() Hub {
	p := n.peer()
	return Hub{Keys: p.Keys, Endpoints: p.Endpoints}
}

// soon is a context that ends after ms milliseconds.
func soon(t testing.TB, ms int) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestGuest(t *testing.T) {
	t.Parallel()
	hub := newNode(t, "n-1")
	join := echo(t, listen(t, hub.Mesh, PortJoin))
	for _, port := range []int{PortRaft, PortPeer, PortRunner} {
		echo(t, listen(t, hub.Mesh, port))
	}
	key := KeyFromSeed([32]byte{1, 2, 3})
	hub.SetGuests([]PublicKey{key.Public()})
	c, err := NewClient(ClientConfig{Cluster: "c-1", Key: key, Hubs: []Hub{hub.hub()}, Listen: "127.0.0.1:0", Logger: testLog("guest")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn, err := c.DialPort(soon(t, 5000), PortJoin)
	if err != nil {
		t.Fatal(err)
	}
	if err := say(conn, "let me in"); err != nil {
		t.Fatal(err)
	}
	if got := <-join; got != "" {
		t.Errorf("a guest is called %q", got)
	}
	// It may hold sixteen connections, not more.
	var held []net.Conn
	for range connsMax[ClassGuest] + 1 {
		if c, err := c.DialPort(soon(t, 5000), PortJoin); err == nil {
			held = append(held, c)
		}
	}
	answered := 0
	for _, c := range held {
		if say(c, "and me") == nil {
			answered++
		}
		c.Close()
	}
	if want := connsMax[ClassGuest] - 1; answered != want {
		t.Errorf("%d more connections of a guest were answered, want %d", answered, want)
	}
	for _, port := range []int{PortRaft, PortPeer, PortRunner, PortGossip} {
		if _, err := c.DialPort(soon(t, 150), port); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a guest dialled port %d: %v", port, err)
		}
	}
	if hub.Dropped() == 0 {
		t.Error("no packet was dropped")
	}
	hub.SetGuests(nil)
	conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	conn.Write([]byte("still here"))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a guest that is none any more was answered")
	}
	if _, err := c.DialPort(soon(t, 300), PortJoin); err == nil {
		t.Error("a guest that is none any more dialled")
	}
}

// TestStranger: a key that the hub was not given gets no word out of it.
func TestStranger(t *testing.T) {
	t.Parallel()
	hub := newNode(t, "n-1")
	echo(t, listen(t, hub.Mesh, PortJoin))
	dial, end, err := JoinDial(ClientConfig{Cluster: "c-1", Key: NewKey(), Hubs: []Hub{hub.hub()}, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	began := time.Now()
	if _, err := dial(soon(t, 400)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fleet.Unavailable) {
		t.Errorf("a stranger dialled: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the dial ended after %v, its context after 400 ms", took)
	}
}

func TestRunners(t *testing.T) {
	t.Parallel()
	dead, hub := newNode(t, "n-0"), newNode(t, "n-1")
	dead.Close()
	l, err := hub.ListenRunners(PortRunner)
	if err != nil {
		t.Fatal(err)
	}
	who := echo(t, l)
	echo(t, listen(t, hub.Mesh, PortRaft))
	key := NewKey()
	hub.SetRunners([]Runner{{ID: "r-1", Keys: []PublicKey{key.Public()}}})
	hubs := []Hub{dead.hub(), hub.hub()}
	hubs[1].Hosts = []string{"hub.example"}
	dial, end, err := RunnerDial(ClientConfig{Cluster: "c-1", Key: key, Hubs: hubs, Listen: "127.0.0.1:0", Logger: testLog("runner")})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, addr := range []string{"hub.example:7440", "elsewhere:1"} { // by name; whichever answers
		c, err := dial(soon(t, 5000), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := say(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if got := <-who; got != "r-1" || c.RemoteAddr() == nil {
			t.Errorf("the runner is called %q", got)
		}
		c.Close()
	}
	v, err := NewClient(ClientConfig{Cluster: "c-1", Key: NewKey(), Hubs: hubs, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.DialPort(soon(t, 150), PortRaft); err == nil {
		t.Error("a runner dialled a port that is not open to runners")
	}
	// The port closes with its listener, for new connections.
	l.Close()
	if _, err := dial(soon(t, 300), "tcp", "hub.example:7440"); err == nil {
		t.Error("a runner dialled a closed port")
	}
}

// TestDialer: the answers to what can't be.
func TestDialer(t *testing.T) {
	n := newNode(t, "n-1")
	echo(t, listen(t, n.Mesh, PortRaft))
	if err := say(dial(t, n.Mesh, "n-1", PortRaft), "to myself"); err != nil {
		t.Errorf("a node and itself: %v", err)
	}
	if _, err := n.Dial(t.Context(), "n-9", PortRaft); !errors.Is(err, fleet.NotFound) {
		t.Errorf("dial a stranger: %v", err)
	}
	other := newNode(t, "n-2")
	n.SetPeers([]Peer{other.peer()})
	other.SetPeers([]Peer{n.peer()})
	if _, err := n.Dial(soon(t, 5000), "n-2", PortPeer); !errors.Is(err, fleet.Unavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial a closed port: %v", err)
	}
	if _, err := n.Listen(PortRaft); !errors.Is(err, fleet.Conflict) {
		t.Errorf("listen twice: %v", err)
	}
	waiting := make(chan error, 1)
	nobody := Peer{ID: "n-3", Keys: []PublicKey{NewKey().Public()}, Endpoints: []string{"127.0.0.1:9"}}
	n.SetPeers([]Peer{nobody})
	go func() {
		_, err := n.Dial(t.Context(), "n-3", PortRaft)
		waiting <- err
	}()
	eventually(t, "the endpoint is tried", 5*time.Second, func() bool { return n.Endpoint("n-3").String() == "127.0.0.1:9" })
	n.SetPeers(nil)
	// Not found, where the dial began only now.
	if err := <-waiting; !errors.Is(err, errRemoved) && !errors.Is(err, fleet.NotFound) {
		t.Errorf("a dial to a node that is removed meanwhile: %v", err)
	}
	n.Close()
	n.Close()
	if _, err := n.Listen(PortPeer); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listen on a closed mesh: %v", err)
	}
	if _, err := n.Dial(t.Context(), "n-1", PortRaft); err == nil {
		t.Error("dialled from a closed mesh")
	}
}

func TestAddresses(t *testing.T) {
	a, b := Addr("c-1", "n-1"), Addr("c-1", "n-2")
	if a == b || a != Addr("c-1", "n-1") || a == Addr("c-2", "n-1") {
		t.Error("addresses are not those of the ids")
	}
	ula := netip.MustParsePrefix("fd00::/8")
	k := NewKey().Public()
	for i, addr := range []netip.Addr{a, GuestAddr("c-1", k), RunnerAddr("c-1", "r-1"), keyAddr("c-1", k)} {
		raw := addr.As16()
		if !ula.Contains(addr) || raw[6] != 0 || int(raw[7]) != i {
			t.Errorf("%s is not in subnet %d", addr, i)
		}
	}
}

// TestIPv6 joins two nodes over IPv6, where this machine has it.
func TestIPv6(t *testing.T) {
	probe, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Logf("no IPv6 here: %v", err)
		return
	}
	probe.Close()
	a, b := newNodeAt(t, "n-a", "[::1]:0", 0), newNodeAt(t, "n-b", ":0", 0)
	pb := b.peer()
	pb.Endpoints = []string{netip.AddrPortFrom(netip.IPv6Loopback(), b.ListenAddr().Port()).String(), "127.0.0.1:9"}
	a.SetPeers([]Peer{pb})
	b.SetPeers([]Peer{a.peer()})
	echo(t, listen(t, b.Mesh, PortRaft))
	if err := say(dial(t, a.Mesh, "n-b", PortRaft), "over six"); err != nil {
		t.Fatal(err)
	}
}
