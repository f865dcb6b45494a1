package meshtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/mesh/meshtest"
)

// connect gives both ends of a connection from a to b.
func connect(t *testing.T, a, b *meshtest.Node) (here, there net.Conn) {
	t.Helper()
	l, err := b.Listen(7301)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err = a.Dial(t.Context(), b.ID(), 7301)
	if err != nil {
		t.Fatal(err)
	}
	there, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		here, there := connect(t, n.Node("a"), n.Node("b"))
		if p, ok := there.(interface{ Peer() string }); !ok || p.Peer() != "a" {
			t.Errorf("the peer of the accepted end is not a")
		}
		// More than the buffers hold, both ways at once.
		big := bytes.Repeat([]byte("tug"), meshtest.Buffer)
		for _, c := range []net.Conn{here, there} {
			go func() {
				c.Write(big)
				c.(interface{ CloseWrite() error }).CloseWrite()
			}()
		}
		for _, c := range []net.Conn{there, here} {
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, big) {
				t.Errorf("read %d bytes, %v; want %d", len(got), err, len(big))
			}
		}
		here.Close()
		if _, err := there.Write([]byte("x")); err == nil {
			t.Error("a write to a closed end went well")
		}
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		here, _ := connect(t, n.Node("a"), n.Node("b"))
		began := time.Now()
		here.SetReadDeadline(began.Add(time.Minute))
		_, err := here.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("read ended after %v with %v", time.Since(began), err)
		}
		here.SetWriteDeadline(time.Now().Add(time.Second))
		k, err := here.Write(make([]byte, 2*meshtest.Buffer))
		if k != meshtest.Buffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write took %d bytes, %v; want %d and a deadline", k, err, meshtest.Buffer)
		}
		// A deadline that moves wakes who waits already.
		here.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { here.SetReadDeadline(time.Now()) })
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read with a moved deadline: %v", err)
		}
	})
}

func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(7)
		here, there := connect(t, n.Node("a"), n.Node("b"))
		n.Delay(10*time.Millisecond, 50*time.Millisecond)
		began := time.Now()
		var want []byte
		for i := range byte(100) {
			want = append(want, i)
			here.Write([]byte{i})
		}
		here.Close()
		got, err := io.ReadAll(there)
		if took := time.Since(began); err != nil || !bytes.Equal(got, want) || took < 10*time.Millisecond || took > 50*time.Millisecond {
			t.Errorf("read %v, %v after %v", got, err, took)
		}
	})
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		a, b, c := n.Node("a"), n.Node("b"), n.Node("c")
		ab, ba := connect(t, a, b)
		ac, ca := connect(t, a, c)
		n.Partition([]string{"a", "b"}, []string{"c"})
		ab.Write([]byte("x"))
		if k, err := ba.Read(make([]byte, 9)); k != 1 || err != nil {
			t.Errorf("within a group: %d, %v", k, err)
		}
		// A short cut holds bytes back, and loses none.
		ac.Write([]byte("held"))
		ca.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := ca.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("across the cut: %v", err)
		}
		n.Heal()
		ca.SetReadDeadline(time.Time{})
		if k, err := ca.Read(make([]byte, 9)); k != 4 || err != nil {
			t.Errorf("after it healed: %d, %v", k, err)
		}
		// A long one breaks connections, and dials end with their context.
		n.Isolate("c")
		began := time.Now()
		if _, err := ca.Read(make([]byte, 9)); err == nil || time.Since(began) != meshtest.GiveUp {
			t.Errorf("a long cut: %v after %v", err, time.Since(began))
		}
		if _, err := ac.Write([]byte("x")); err == nil {
			t.Error("the other end of a broken connection took bytes")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := a.Dial(ctx, "c", 7301); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial across a cut: %v", err)
		}
	})
}

func TestOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		here, there := connect(t, n.Node("a"), n.Node("b"))
		n.Cut("a", "b")
		here.Write([]byte("lost"))
		there.Write([]byte("found"))
		if k, err := here.Read(make([]byte, 9)); k != 5 || err != nil {
			t.Errorf("against the cut: %d, %v", k, err)
		}
		there.SetReadDeadline(time.Now().Add(time.Second))
		if k, err := there.Read(make([]byte, 9)); err == nil {
			t.Errorf("along the cut: %d bytes", k)
		}
		n.Restore("a", "b")
		there.SetReadDeadline(time.Time{})
		if k, err := there.Read(make([]byte, 9)); k != 4 || err != nil {
			t.Errorf("when it was restored: %d, %v", k, err)
		}
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		a, b := n.Node("a"), n.Node("b")
		l, _ := b.Listen(7302)
		here, _ := connect(t, a, b)
		hidden, _ := connect(t, n.Node("c"), b)
		n.Cut("b", "c")
		n.Crash("b")
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept on a crashed node: %v", err)
		}
		if _, err := here.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("read from a crashed node: %v, want a reset", err)
		}
		if _, err := a.Dial(t.Context(), "b", 7302); err == nil {
			t.Error("a crashed node was dialled")
		}
		// Who is cut off from it learns nothing yet.
		if _, err := hidden.Write([]byte("x")); err != nil {
			t.Errorf("write to a crashed node across a cut: %v", err)
		}
		n.Heal()
		if _, err := hidden.Read(make([]byte, 1)); err == nil {
			t.Error("it never learnt")
		}
		if _, err := b.Dial(t.Context(), "a", 7302); err == nil {
			t.Error("a crashed node dials")
		}
		connect(t, a, n.Node("b"))
	})
}

// TestLoss sees that what arrives is whole and late, that the same seed gives the
// same lateness, and that very much loss resets.
func TestLoss(t *testing.T) {
	run := func(t *testing.T, seed uint64, p float64) (took time.Duration, err error) {
		synctest.Test(t, func(t *testing.T) {
			n := meshtest.New(seed)
			here, there := connect(t, n.Node("a"), n.Node("b"))
			n.Loss(p)
			began := time.Now()
			go func() {
				for i := range byte(50) {
					here.Write([]byte{i})
				}
				here.Close()
			}()
			var got []byte
			got, err = io.ReadAll(there)
			took = time.Since(began)
			if err == nil && len(got) != 50 {
				t.Errorf("%d of 50 bytes arrived", len(got))
			}
		})
		return took, err
	}
	first, err := run(t, 3, 0.2)
	if err != nil || first < meshtest.Resend {
		t.Errorf("20 %% loss: %v after %v", err, first)
	}
	if again, _ := run(t, 3, 0.2); again != first {
		t.Errorf("the same seed took %v, then %v", first, again)
	}
	var all []time.Duration
	for seed := range uint64(5) {
		took, _ := run(t, seed, 0.2)
		all = append(all, took)
	}
	if slices.Sort(all); all[0] == all[4] {
		t.Errorf("five seeds, one fate: %v", all)
	}
	if _, err := run(t, 3, 1); err == nil {
		t.Error("a link that loses everything carried a stream")
	}
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		a, err := n.Node("a").Packets(mesh.PortGossip)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := n.Node("b").Packets(mesh.PortGossip)
		n.Delay(time.Second, time.Second)
		a.WriteTo([]byte("hi"), "b")
		began := time.Now()
		buf := make([]byte, 9)
		if k, from, err := b.ReadFrom(buf); k != 2 || from != "a" || err != nil || time.Since(began) != time.Second {
			t.Errorf("got %d bytes of %q, %v, after %v", k, from, err, time.Since(began))
		}
		n.Heal()
		n.Loss(1)
		a.WriteTo([]byte("lost"), "b")
		n.Heal()
		n.Cut("a", "b")
		a.WriteTo([]byte("cut"), "b")
		n.Heal()
		a.WriteTo([]byte("last"), "b")
		if k, _, _ := b.ReadFrom(buf); string(buf[:k]) != "last" {
			t.Errorf("got %q", buf[:k])
		}
		time.AfterFunc(time.Second, func() { b.Close() })
		if _, _, err := b.ReadFrom(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	})
}

// TestForeignGossip: two clusters on one network hear nothing of each other.
func TestForeignGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		var all []*mesh.Gossip
		for id, cluster := range map[string]string{"n-1": "c-1", "n-2": "c-2"} {
			g, err := mesh.StartGossip(mesh.GossipConfig{Carrier: n.Node(id), Cluster: cluster})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			g.Join("n-1", "n-2")
			all = append(all, g)
		}
		time.Sleep(time.Minute)
		for _, g := range all {
			alive := 0
			for _, m := range g.Members() {
				if m.Alive {
					alive++
				}
			}
			if alive != 1 || len(g.Members()) != 2 {
				t.Errorf("a node of a foreign cluster was taken in: %+v", g.Members())
			}
		}
	})
}

// TestGossip runs the real gossip in virtual time: who crashes is seen dead after
// about three seconds, and nodes find each other again after a long cut.
func TestGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := meshtest.New(1)
		ids := []string{"n-1", "n-2", "n-3"}
		all := map[string]*mesh.Gossip{}
		for _, id := range ids {
			g, err := mesh.StartGossip(mesh.GossipConfig{Carrier: n.Node(id), Cluster: "c-1", Meta: mesh.Meta{Version: id}})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			g.Join(ids...)
			all[id] = g
		}
		alive := func(id string) (k int) {
			for _, m := range all[id].Members() {
				if m.Alive && m.Meta.Version == m.ID {
					k++
				}
			}
			return k
		}
		until := func(what string, limit time.Duration, ok func() bool) time.Duration {
			t.Helper()
			began := time.Now()
			for !ok() {
				if time.Since(began) > limit {
					t.Fatalf("%s: not after %v", what, limit)
				}
				time.Sleep(50 * time.Millisecond)
			}
			return time.Since(began)
		}
		until("all see all", 10*time.Second, func() bool { return alive("n-1") == 3 && alive("n-2") == 3 && alive("n-3") == 3 })
		// A minute of delay and loss makes nobody dead.
		n.Delay(0, 100*time.Millisecond)
		n.Loss(0.05)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if alive("n-1") != 3 || alive("n-2") != 3 || alive("n-3") != 3 {
				t.Fatal("a node was called dead for some delay and loss")
			}
		}
		n.Heal()
		n.Isolate("n-3")
		took := until("the lost node is dead", 6*time.Second, func() bool { return alive("n-1") == 2 && alive("n-2") == 2 })
		t.Logf("seen dead after %v", took)
		time.Sleep(2 * time.Minute)
		n.Heal()
		took = until("they find each other again", 10*time.Second, func() bool { return alive("n-1") == 3 && alive("n-2") == 3 && alive("n-3") == 3 })
		t.Logf("together again after %v", took)
		if err := all["n-2"].SetMeta(mesh.Meta{Version: "n-2", DiskFree: 7}); err != nil {
			t.Fatal(err)
		}
		until("new words spread", 3*time.Second, func() bool { return all["n-1"].Members()[1].Meta.DiskFree == 7 })
		all["n-3"].Leave()
		all["n-3"].Close()
		until("a leaver is seen gone", 2*time.Second, func() bool { return alive("n-1") == 2 })
	})
}
