//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/api"
)

// trio are the ids of three nodes.
var trio = []string{"n-1", "n-2", "n-3"}

// plainNet joins nodes of this process by TCP on loopback with nothing around it.
type plainNet struct {
	mu sync.Mutex
	at map[string]string // the address of a node's port
}

func newPlainNet() *plainNet { return &plainNet{at: map[string]string{}} }

// plainNode is one node's end of it.
type plainNode struct {
	net *plainNet
	id  string
}

func (n plainNode) Listen(port int) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.net.at[fmt.Sprint(n.id, port)] = l.Addr().String()
	return namedListener{l}, nil
}

func (n plainNode) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	n.net.mu.Lock()
	at, ok := n.net.at[fmt.Sprint(id, port)]
	n.net.mu.Unlock()
	if !ok {
		return nil, errors.New("nobody listens at " + id)
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(append([]byte{byte(len(n.id))}, n.id...)); err != nil {
		c.Close()
		return nil, err
	}
	return named{c, id}, nil
}

// namedListener learns from the first bytes which node a connection comes from.
type namedListener struct{ net.Listener }

func (l namedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		var b [256]byte
		if _, err = c.Read(b[:1]); err == nil {
			_, err = c.Read(b[1 : 1+int(b[0])])
		}
		if err != nil {
			c.Close()
			continue
		}
		c.SetReadDeadline(time.Time{})
		return named{c, string(b[1 : 1+int(b[0])])}, nil
	}
}

type named struct {
	net.Conn
	peer string
}

func (c named) Peer() string { return c.peer }

// plainNodes and meshNodes give three nodes of a network.
func plainNodes(*testing.T) []hub.Network {
	net := newPlainNet()
	var out []hub.Network
	for _, id := range trio {
		out = append(out, plainNode{net, id})
	}
	return out
}

func meshNodes(t *testing.T) []hub.Network {
	var peers []mesh.Peer
	var all []*mesh.Mesh
	var out []hub.Network
	for _, id := range trio {
		key := mesh.NewKey()
		m, err := mesh.New(mesh.Config{Cluster: "c-bench", ID: id, Key: key, Listen: ":0"}) // all addresses, as hubs do
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		peers = append(peers, mesh.Peer{ID: id, Keys: []mesh.PublicKey{key.Public()}, Endpoints: []string{fmt.Sprintf("127.0.0.1:%d", m.ListenAddr().Port())}})
		all, out = append(all, m), append(out, m)
	}
	for _, m := range all {
		m.SetPeers(peers)
	}
	return out
}

// trioHub is one of three hubs in this process.
type trioHub struct {
	*hub.Hub
	inside hub.Insides
	token  string // of the operator
}

// threeHubs starts them, over the tunnel or, with plain, over TCP with nothing around
// it, and waits until all of them vote.
func threeHubs(t *testing.T, plain bool) []*trioHub {
	t.Helper()
	dir, over := t.TempDir(), newPlainNet()
	var all []*trioHub
	ticket := ""
	for i, id := range trio {
		h := &trioHub{}
		c := hub.Config{Dir: filepath.Join(dir, id), Listen: "127.0.0.1:0", MeshListen: "127.0.0.1:0", Version: "bench", Ticket: ticket, Bootstrap: i == 0}
		if !plain {
			port := freeUDP(t) // on all addresses, as hubs usually do
			c.MeshListen, c.MeshAdvertise = ":"+port, []string{"127.0.0.1:" + port}
		}
		c.Inspect = func(in hub.Insides) { h.inside = in }
		if plain { // the nodes' names are known before they start
			c.Network, c.MeshAdvertise = plainNode{over, id}, []string{"127.0.0.1:1"}
			if err := settle(c.Dir, id, i == 0); err != nil {
				t.Fatal(err)
			}
		}
		runHub(t, h, c)
		all = append(all, h)
		if i > 0 {
			h.token = all[0].token
			continue
		}
		b, err := os.ReadFile(h.TokenFile())
		if err != nil {
			t.Fatal(err)
		}
		h.token = strings.TrimSpace(string(b))
		var k api.Ticket
		h.client(t).call(http.MethodPost, "/v1/tickets", api.TicketRequest{Role: "hub", Uses: 2}, &k)
		ticket = k.Ticket
	}
	voters := 0
	for end := time.Now().Add(2 * time.Minute); voters < len(trio); voters = all[0].voters(t) {
		if time.Now().After(end) {
			t.Fatalf("%d nodes vote after two minutes", voters)
		}
		<-time.After(200 * time.Millisecond)
	}
	return all
}

func freeUDP(t *testing.T) (port string) {
	t.Helper()
	c, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, port, _ = net.SplitHostPort(c.LocalAddr().String())
	return port
}

// settle puts a node's identity where it looks for it at its first start.
func settle(dir, id string, founder bool) error {
	name := "joining.json"
	if founder {
		name = "node.json"
	}
	b, err := json.Marshal(map[string]any{"version": 1, "cluster": "c-bench", "node": id, "joined": !founder})
	return errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), b, 0o600))
}

func runHub(t *testing.T, h *trioHub, c hub.Config) {
	t.Helper()
	var err error
	if h.Hub, err = hub.New(c); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-h.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the hub does not get ready")
	}
}

func (h *trioHub) client(t *testing.T) *client {
	return &client{t, h.URL(), "Bearer " + h.token, http.DefaultClient}
}

func (h *trioHub) voters(t *testing.T) (n int) {
	var m api.Members
	h.client(t).call(http.MethodGet, "/v1/members", nil, &m)
	for _, x := range m.Members {
		if x.Role == "voter" {
			n++
		}
	}
	return n
}

// leads gives the hub that leads.
func leads(t *testing.T, all []*trioHub) *trioHub {
	for range 1000 {
		for _, h := range all {
			if h.inside.Leading() {
				return h
			}
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatal("no hub leads")
	return nil
}
