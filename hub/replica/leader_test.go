package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// TestNewestNotLongest: of two copies the one of the later leader counts, however
// long the other is, whichever node has it.
func TestNewestNotLongest(t *testing.T) {
	for _, next := range []string{"a", "c"} {
		t.Run(next+" leads at last", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, nil, "a", "b", "c")
				defer c.close()
				c.lead("a", 1, 0).must(t, key(1), 0, "base ")
				eventually(t, "c has it", func() bool { return c.nodes["c"].local(t, key(1)) == "base " })
				c.net.part("a", "b", true)
				c.net.part("a", "c", true)
				if _, err := c.nodes["a"].Append(t.Context(), key(1), 5, []byte("a long end that nobody else has")); !errors.Is(err, fleet.Unavailable) {
					t.Fatalf("append without a majority: %v", err)
				}
				if size, _ := c.nodes["a"].Size(key(1)); size <= 5 || c.nodes["a"].Acked(key(1)) != 5 {
					t.Errorf("of %d bytes %d are told to be acknowledged; want 5", size, c.nodes["a"].Acked(key(1)))
				}
				c.lead("b", 2, 0).must(t, key(1), 5, "end")
				eventually(t, "c has it", func() bool { return c.nodes["c"].local(t, key(1)) == "base end" })
				c.stop("b")
				c.net.part("a", "c", false)
				n := c.lead(next, 3, 0)
				n.must(t, key(1), 8, " more")
				if got := n.read(t, key(1)); got != "base end more" {
					t.Errorf("the last leader has %q", got)
				}
				c.net.part("a", "b", false)
				c.start("b")
				for _, id := range []string{"a", "b", "c"} {
					eventually(t, id+" has what was acknowledged", func() bool { return c.nodes[id].local(t, key(1)) == "base end more" })
				}
			})
		})
	}
}

// TestSealedByTheOldLeader: a seal that was acknowledged is found by a leader that
// has neither it nor the last bytes; one that was not gives way.
func TestSealedByTheOldLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 0)
		a.must(t, key(1), 0, "one")
		a.must(t, key(2), 0, "two")
		eventually(t, "c has both", func() bool { return c.nodes["c"].local(t, key(1))+c.nodes["c"].local(t, key(2)) == "onetwo" })
		c.net.part("a", "c", true)
		c.net.part("b", "c", true)
		a.must(t, key(1), 3, " end")
		if err := a.Seal(t.Context(), key(1), 7, ""); err != nil {
			t.Fatalf("seal: %v", err)
		}
		c.net.part("a", "b", true)
		if err := a.Seal(t.Context(), key(2), 3, ""); !errors.Is(err, fleet.Unavailable) {
			t.Fatalf("seal without a majority: %v", err)
		}
		c.net.part("b", "c", false)
		n := c.lead("c", 2, 0)
		if err := n.Seal(t.Context(), key(1), 7, ""); err != nil {
			t.Errorf("the new leader does not know of the seal: %v", err)
		}
		if _, err := n.Append(t.Context(), key(1), 7, []byte("x")); !errors.Is(err, fleet.LogSealed) {
			t.Errorf("append to a sealed stream: %v", err)
		}
		n.must(t, key(2), 3, " goes on")
		c.net.part("a", "b", false)
		c.net.part("a", "c", false)
		eventually(t, "a has gone along", func() bool { return c.nodes["a"].local(t, key(2)) == "two goes on" })
		if err := n.SealEmpty(t.Context(), key(3)); err != nil {
			t.Errorf("seal of a stream that never was: %v", err)
		}
		if err := n.SealEmpty(t.Context(), key(1)); !errors.Is(err, fleet.SpoolMismatch) {
			t.Errorf("seal of a stream that has bytes as empty: %v", err)
		}
	})
}

// TestSealedEmpty: a stream without a byte is sealed by each leader that is asked to,
// also where an earlier one had done so.
func TestSealedEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		for i, id := range []string{"a", "b", "a", "c"} {
			n := c.lead(id, uint64(i+1), 0)
			if err := n.SealEmpty(t.Context(), key(1)); err != nil {
				t.Fatalf("seal by %s, the leader of term %d: %v", id, i+1, err)
			}
			if _, err := n.Append(t.Context(), key(1), 0, []byte("x")); !errors.Is(err, fleet.LogSealed) {
				t.Errorf("append by %s to what it sealed: %v", id, err)
			}
		}
	})
}

// TestDeposedLeader: a leader that does not know of its successor acknowledges
// nothing, and learns of it.
func TestDeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		a.must(t, key(1), 0, "x")
		c.lead("b", 2, 200)
		began := time.Now()
		if _, err := a.Append(t.Context(), key(1), 1, []byte("y")); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("the old leader: %v", err)
		}
		if err := a.Lead(t.Context(), Term{Epoch: 1, Term: 1}); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("leading in an old term: %v", err)
		}
		if err := c.nodes["c"].Lead(t.Context(), Term{Epoch: 1, Term: 2}); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("leading in another's term: %v", err)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %s to be told", took)
		}
		if _, err := c.nodes["c"].Append(t.Context(), key(1), 1, []byte("y")); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("a follower: %v", err)
		}
	})
}

// TestNoMajority: calls are refused after the time that they may wait, and succeed
// when they are repeated in better times.
func TestNoMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		a.must(t, key(1), 0, "abc")
		c.stop("b")
		a.must(t, key(1), 3, "def")
		c.stop("c")
		began := time.Now()
		end, err := a.Append(t.Context(), key(1), 6, []byte("ghi"))
		if took := time.Since(began); end != 6 || !errors.Is(err, fleet.Unavailable) || took != 10*time.Second {
			t.Errorf("append alone of three: %d, %v after %s", end, err, took)
		}
		if err := a.Blobs().Put(t.Context(), digestOf("blob"), 4, reader4("blob")); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("blob alone of three: %v", err)
		}
		c.start("c")
		a.must(t, key(1), 6, "ghi")
		eventually(t, "c has all", func() bool { return c.nodes["c"].local(t, key(1)) == "abcdefghi" })
		if err := a.Blobs().Put(t.Context(), digestOf("blob"), 4, reader4("blob")); err != nil {
			t.Errorf("the same blob with a majority: %v", err)
		}
		c.stop("c")
		began = time.Now()
		back := make(chan struct{})
		go func() {
			defer close(back)
			time.Sleep(time.Second)
			c.start("b")
		}()
		a.must(t, key(1), 9, "jkl") // as soon as b is back
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("it took %s", took)
		}
		<-back
	})
}

// TestFullFollower: one that is full takes nothing and holds nobody up; with room
// again it gets what it missed.
func TestFullFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		b := c.nodes["b"]
		b.fill(fmt.Errorf("no room: %w", fleet.DiskFull))
		a.must(t, key(1), 0, "some output")
		if err := a.Blobs().Put(t.Context(), digestOf("blob"), 4, reader4("blob")); err != nil {
			t.Errorf("a blob with one full node: %v", err)
		}
		eventually(t, "the leader knows", func() bool { return a.Debt()["b"].Full })
		if d := a.Debt()["b"]; d.Known && d.Bytes == 0 {
			t.Errorf("the full node counts as whole: %+v", d)
		}
		if b.local(t, key(1)) != "" {
			t.Error("the full node took bytes")
		}
		b.fill(nil)
		eventually(t, "the node is whole again", func() bool {
			_, err := b.blobs.Stat(digestOf("blob"))
			d := a.Debt()["b"]
			return b.local(t, key(1)) == "some output" && err == nil && d.Known && d.Bytes == 0 && !d.Full
		})
		a.fill(fmt.Errorf("no room: %w", fleet.DiskFull))
		if _, err := a.Append(t.Context(), key(1), 11, []byte("more")); !errors.Is(err, fleet.DiskFull) {
			t.Errorf("append on a full leader: %v", err)
		}
		time.Sleep(time.Second)
		if got := b.local(t, key(1)); got != "some output" {
			t.Errorf("what the leader refused went to a follower: %q", got)
		}
	})
}

// failing is a disk whose syncs can be made to fail.
type failing struct {
	mu   sync.Mutex
	sync func() error // nil: as they are
}

func (f *failing) set(sync func() error) { f.mu.Lock(); f.sync = sync; f.mu.Unlock() }

func (f *failing) open(path string, flag int) (durable.File, error) {
	x, err := durable.Open(path, flag)
	if err != nil {
		return nil, err
	}
	return &failingFile{x, f}, nil
}

type failingFile struct {
	durable.File
	disk *failing
}

func (f *failingFile) Sync() error {
	f.disk.mu.Lock()
	fails := f.disk.sync
	f.disk.mu.Unlock()
	if fails != nil {
		if err := fails(); err != nil {
			return err
		}
	}
	return f.File.Sync()
}

// TestLeaderGivesUpBytes: bytes that the leader's disk lost after they were copied
// never pass for what takes their place.
func TestLeaderGivesUpBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &failing{}
		c := newCluster(t, nil)
		c.open = map[string]func(string, int) (durable.File, error){"a": disk.open}
		for _, id := range []string{"a", "b", "c"} {
			c.ids = append(c.ids, id)
		}
		for _, id := range c.ids {
			c.start(id)
		}
		defer c.close()
		a := c.lead("a", 1, 50)
		a.must(t, key(1), 0, "kept ")
		eventually(t, "c has it", func() bool { return c.nodes["c"].local(t, key(1)) == "kept " })
		disk.set(func() error {
			time.Sleep(time.Second) // the others have it before this disk fails
			return os.ErrDeadlineExceeded
		})
		if end, err := a.Append(t.Context(), key(1), 5, []byte("lost by the leader")); end != 5 || err == nil {
			t.Errorf("append on a failing disk: %d, %v", end, err)
		}
		disk.set(nil)
		if got := c.nodes["c"].local(t, key(1)); got != "kept lost by the leader" {
			t.Fatalf("c has %q", got)
		}
		c.net.part("a", "c", true) // c keeps what the leader lost
		a.must(t, key(1), 5, "other")
		c.stop("a")
		// b has the later bytes, c more of the earlier ones.
		n := c.lead("c", 2, 200)
		n.must(t, key(1), 10, " end")
		if got := n.read(t, key(1)); got != "kept other end" {
			t.Errorf("the next leader has %q", got)
		}
	})
}

func TestLaggingFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		c.stop("c")
		big := make([]byte, 3<<20)
		for i := range big {
			big[i] = byte(i / 1000)
		}
		for off := 0; off < len(big); off += 500_000 {
			a.must(t, key(1), int64(off), string(big[off:min(off+500_000, len(big))]))
		}
		a.must(t, key(2), 0, "small")
		c.start("c")
		eventually(t, "the follower has caught up", func() bool {
			n := c.nodes["c"]
			return n.local(t, key(1)) == string(big) && n.local(t, key(2)) == "small"
		})
		eventually(t, "it counts as whole", func() bool { d := a.Debt()["c"]; return d.Known && d.Bytes == 0 })
	})
}

// TestOneNode: with nobody else there is nothing to wait for, not even to lead.
func TestOneNode(t *testing.T) {
	c := newCluster(t, nil, "a")
	defer c.close()
	a := c.nodes["a"]
	a.must(t, key(1), 0, "alone")
	if err := a.Seal(t.Context(), key(1), 5, ""); err != nil {
		t.Errorf("seal: %v", err)
	}
	if err := a.SealEmpty(t.Context(), key(2)); err != nil {
		t.Errorf("seal of nothing: %v", err)
	}
	if d := a.Debt()["a"]; !d.Known || d.Bytes != 0 {
		t.Errorf("debt %+v", d)
	}
	if err := a.Lead(context.Background(), Term{Epoch: 1, Term: 7}); err != nil {
		t.Errorf("lead: %v", err)
	}
	if got := a.read(t, key(1)); got != "alone" {
		t.Errorf("read %q", got)
	}
}

// TestGrow: a cluster that was one node copies what that node had, also of streams
// that go on.
func TestGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a")
		defer c.close()
		a := c.lead("a", 3, 50)
		a.must(t, key(1), 0, "sealed before")
		if err := a.Seal(t.Context(), key(1), 13, ""); err != nil {
			t.Fatal(err)
		}
		a.must(t, key(2), 0, "goes on")
		a.must(t, spool.Key{Job: "old", Fence: fleet.Fence{Epoch: 1, Index: 7}, Name: spool.Events}, 0, "of an earlier term")
		if err := a.Blobs().Put(t.Context(), digestOf("blob"), 4, reader4("blob")); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"b", "c"} {
			n := c.add(id)
			eventually(t, id+" is whole", func() bool { d := a.Debt()[id]; return d.Known && d.Bytes == 0 })
			if got := n.local(t, key(1)) + n.local(t, key(2)); got != "sealed beforegoes on" {
				t.Errorf("%s counts as whole and has %q", id, got)
			}
			if _, err := n.blobs.Stat(digestOf("blob")); err != nil {
				t.Errorf("%s counts as whole and lacks the blob: %v", id, err)
			}
			c.promote(id)
			time.Sleep(time.Second)
		}
		a.must(t, key(2), 7, " and on")
		c.stop("a")
		if got := c.lead("b", 4, 200).read(t, key(2)); got != "goes on and on" {
			t.Errorf("the next leader has %q", got)
		}
	})
}

// TestSlowSender: a blob that comes slowly to the only node keeps no member out, and
// nobody from writing meanwhile; it is on all in the end.
func TestSlowSender(t *testing.T) {
	c := newCluster(t, nil, "a")
	defer c.close()
	a := c.lead("a", 1, 50)
	in, out := io.Pipe()
	defer out.Close()
	data := strings.Repeat("x", maxChunk+1)
	put := make(chan error, 1)
	go func() { put <- a.Blobs().Put(context.Background(), digestOf(data), int64(len(data)), in) }()
	if _, err := io.WriteString(out, data[:1]); err != nil { // when it returns, Put reads
		t.Fatal(err)
	}
	c.add("b")
	wrote := make(chan error, 1)
	go func() {
		a.look()
		_, err := a.Append(context.Background(), key(1), 0, []byte("meanwhile"))
		wrote <- err
	}()
	select {
	case err := <-wrote:
		if err != nil {
			t.Errorf("append: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the append waits for the sender of a blob")
	}
	io.WriteString(out, data[1:])
	out.Close()
	if err := <-put; err != nil {
		t.Errorf("put: %v", err)
	}
	c.promote("b")
	a.look()
	for late := time.After(5 * time.Second); len(a.connected()) == 0; {
		select {
		case <-late:
			t.Fatal("no connection to the new member")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := a.Blobs().Put(context.Background(), digestOf(data), int64(len(data)), strings.NewReader(data)); err != nil {
		t.Errorf("the same blob with two voters: %v", err)
	}
	if _, err := c.nodes["b"].blobs.Stat(digestOf(data)); err != nil {
		t.Errorf("the other voter lacks it: %v", err)
	}
}

// TestFrozenFollower: a node that holds its connections and says nothing, as a
// stopped process does, holds nobody up and piles nothing up.
func TestFrozenFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b")
		defer c.close()
		var wg sync.WaitGroup
		defer wg.Wait()
		door := c.net.listen("z")
		defer door.Close()
		wg.Go(func() {
			for {
				conn, err := door.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if m, err := readFrame(conn, false); err == nil {
					a := m.answer()
					a.Node, a.Length = "z", version
					conn.Write(a.append(nil))
				} // and nothing is read any more
			}
		})
		c.mu.Lock()
		c.ids = append(c.ids, "z")
		c.mu.Unlock()
		c.changed()
		time.Sleep(2 * time.Second)
		a := c.lead("a", 1, 50)
		began, part := time.Now(), string(make([]byte, 64<<10))
		for i := range 400 {
			a.must(t, key(i%10), int64(i/10*len(part)), part)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("appends took %s while a node was frozen", took)
		}
		a.Replica.mu.Lock()
		p := a.peers["z"]
		a.Replica.mu.Unlock()
		p.mu.Lock()
		queue, flight := len(p.queue), p.flight
		p.mu.Unlock()
		if queue > 10 || flight > inFlight+maxChunk {
			t.Errorf("%d streams and %d bytes wait for the frozen node", queue, flight)
		}
		if d := a.Debt()["z"]; d.Known {
			t.Errorf("the frozen node's debt is known: %+v", d)
		}
	})
}
