package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLog logs everything when the environment asks for it.
func testLog(id string) *slog.Logger {
	if os.Getenv("MESH_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("self", id)
}

type testNode struct {
	*Mesh
	key PrivateKey
}

func (n testNode) peer() Peer {
	return Peer{ID: n.ID(), Keys: []PublicKey{n.key.Public()}, Endpoints: []string{n.ListenAddr().String()}}
}

func newNode(t testing.TB, id string) testNode { return newNodeAt(t, id, "127.0.0.1:0", 0) }

func newNodeAt(t testing.TB, id, listen string, mtu int) testNode {
	t.Helper()
	key := NewKey()
	m, err := New(Config{Cluster: "c-1", ID: id, Key: key, Listen: listen, MTU: mtu, Logger: testLog(id)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return testNode{m, key}
}

// newNodes makes nodes that all know each other.
func newNodes(t testing.TB, n int) []testNode {
	t.Helper()
	var all []testNode
	var peers []Peer
	for i := range n {
		node := newNode(t, fmt.Sprintf("n-%d", i))
		all = append(all, node)
		peers = append(peers, node.peer())
	}
	for _, node := range all {
		node.SetPeers(peers)
	}
	return all
}

// echo answers every connection with what it gets, and tells who called.
func echo(t testing.TB, l net.Listener) <-chan string {
	t.Helper()
	who := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case who <- c.(*Conn).Peer():
			default:
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return who
}

func listen(t testing.TB, m *Mesh, port int) net.Listener {
	t.Helper()
	l, err := m.Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t testing.TB, m *Mesh, id string, port int) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	c, err := m.Dial(ctx, id, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say sends a word and waits for its echo.
func say(c net.Conn, word string) error {
	c.SetDeadline(time.Now().Add(8 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("got %q back, want %q", got, word)
	}
	return nil
}

func TestThreeNodes(t *testing.T) {
	nodes := newNodes(t, 3)
	for _, n := range nodes {
		who := echo(t, listen(t, n.Mesh, PortRaft))
		for _, other := range nodes {
			c := dial(t, other.Mesh, n.ID(), PortRaft)
			if err := say(c, "from "+other.ID()); err != nil {
				t.Fatalf("%s to %s: %v", other.ID(), n.ID(), err)
			}
			if got := <-who; got != other.ID() {
				t.Errorf("%s was called by %s, and saw %q", n.ID(), other.ID(), got)
			}
			if got := c.(*Conn).Peer(); got != n.ID() {
				t.Errorf("%s dialled %s and is with %q", other.ID(), n.ID(), got)
			}
		}
	}
}

func TestRemoval(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 3)
	echo(t, listen(t, nodes[0].Mesh, PortRaft))
	stays, goes := dial(t, nodes[1].Mesh, "n-0", PortRaft), dial(t, nodes[2].Mesh, "n-0", PortRaft)
	echo(t, listen(t, nodes[2].Mesh, PortRaft))
	ours := dial(t, nodes[0].Mesh, "n-2", PortRaft)
	for _, c := range []net.Conn{stays, goes, ours} {
		if err := say(c, "before"); err != nil {
			t.Fatal(err)
		}
	}
	waiting := make(chan error, 1)
	go func() {
		ours.SetDeadline(time.Time{})
		_, err := ours.Read(make([]byte, 1))
		waiting <- err
	}()

	nodes[0].SetPeers([]Peer{nodes[0].peer(), nodes[1].peer()})
	select {
	case err := <-waiting:
		if !errors.Is(err, errRemoved) {
			t.Errorf("read from the removed peer: %v, want %v", err, errRemoved)
		}
	case <-time.After(time.Second):
		t.Fatal("a connection to the removed peer waits on")
	}
	goes.SetDeadline(time.Now().Add(500 * time.Millisecond))
	goes.Write([]byte("after"))
	if n, err := goes.Read(make([]byte, 9)); err == nil {
		t.Errorf("the removed peer read %d bytes", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	if _, err := nodes[2].Dial(ctx, "n-0", PortRaft); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the removed peer dialled: %v, want the end of the context", err)
	}
	if _, err := nodes[0].Dial(ctx, "n-2", PortRaft); err == nil {
		t.Error("the removed peer was dialled")
	}
	if err := say(stays, "after"); err != nil {
		t.Errorf("a peer that stays: %v", err)
	}
}
