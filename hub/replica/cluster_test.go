package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is some nodes in one process.
type cluster struct {
	t     testing.TB
	net   *network
	dir   string
	mu    sync.Mutex
	ids   []string
	learn map[string]bool // learners
	nodes map[string]*node
	tune  func(*Config)
	open  map[string]func(string, int) (durable.File, error) // disks of some
}

// node is one of them, while it runs.
type node struct {
	*Replica
	id    string
	room  error
	mu    sync.Mutex
	end   context.CancelFunc
	wg    sync.WaitGroup
	lead  context.CancelFunc
	store *spool.Store
	blobs *blob.Store
}

func newCluster(t testing.TB, tune func(*Config), ids ...string) *cluster {
	t.Helper()
	// In memory where there is such a place: nothing here is about power cuts.
	place := "/dev/shm"
	if info, err := os.Stat(place); err != nil || !info.IsDir() {
		place = ""
	}
	dir, err := os.MkdirTemp(place, "replica")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, net: newNetwork(), dir: dir, ids: ids, learn: map[string]bool{}, nodes: map[string]*node{}, tune: tune}
	for _, id := range ids {
		c.start(id)
	}
	return c
}

// close stops all nodes; a test in a bubble calls it before the bubble ends.
func (c *cluster) close() {
	for _, id := range c.ids {
		c.stop(id)
	}
	os.RemoveAll(c.dir)
}

func (c *cluster) members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Member
	for _, id := range c.ids {
		out = append(out, Member{ID: id, Voter: !c.learn[id]})
	}
	return out
}

// add lets another node in, as a learner.
func (c *cluster) add(id string) *node {
	c.mu.Lock()
	c.ids = append(c.ids, id)
	c.learn[id] = true
	c.mu.Unlock()
	c.changed()
	return c.start(id)
}

func (c *cluster) promote(id string) {
	c.mu.Lock()
	delete(c.learn, id)
	c.mu.Unlock()
	c.changed()
}

func (c *cluster) changed() {
	for _, n := range c.nodes {
		n.MembersChanged()
	}
}

func (n *node) full() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.room
}

func (n *node) fill(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.room = err
}

func (c *cluster) start(id string) *node {
	c.t.Helper()
	dir := filepath.Join(c.dir, id)
	n := &node{id: id}
	must := func(err error) {
		if err != nil {
			c.t.Fatalf("start %s: %v", id, err)
		}
	}
	var err error
	n.store, err = spool.Open(spool.Config{Dir: filepath.Join(dir, "spool"), Room: n.full, Open: c.open[id]})
	must(err)
	n.blobs, err = blob.Open(blob.Config{Dir: filepath.Join(dir, "blobs"), Room: n.full})
	must(err)
	cfg := Config{
		Self: id, Dir: filepath.Join(dir, "replica"), Spool: n.store, Blobs: n.blobs,
		Members: c.members, Dial: c.net.dial(id), Room: n.full,
	}
	if os.Getenv("REPLICA_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("on", id)
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	n.Replica, err = New(cfg)
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	n.end = cancel
	l := c.net.listen(id)
	n.wg.Go(func() { n.Run(ctx) })
	n.wg.Go(func() { n.Serve(ctx, l) })
	c.nodes[id] = n
	return n
}

// stop ends a node as a crash of its process would: what it wrote stays.
func (c *cluster) stop(id string) {
	n := c.nodes[id]
	if n == nil {
		return
	}
	if n.lead != nil {
		n.lead()
	}
	n.end()
	n.wg.Wait()
	n.Close()
	n.store.Close()
	delete(c.nodes, id)
}

// lead has a node lead; the one that led may not know.
func (c *cluster) lead(id string, term, since uint64) *node {
	c.t.Helper()
	n := c.nodes[id]
	ctx, cancel := context.WithCancel(context.Background())
	if n.lead != nil {
		n.lead()
	}
	n.lead = cancel
	if err := n.Lead(ctx, Term{Epoch: 1, Term: term, Since: since}); err != nil {
		c.t.Fatalf("%s leads in term %d: %v", id, term, err)
	}
	return n
}

func key(i int) spool.Key {
	return spool.Key{Job: fleet.JobID(fmt.Sprintf("job%d", i)), Fence: fleet.Fence{Epoch: 1, Index: uint64(100 + i)}, Name: spool.Output}
}

func (n *node) must(t testing.TB, k spool.Key, offset int64, data string) {
	t.Helper()
	end, err := n.Append(context.Background(), k, offset, []byte(data))
	if err != nil || end < offset+int64(len(data)) {
		t.Fatalf("append %q to %s at %d on %s: %d, %v", data, k, offset, n.id, end, err)
	}
}

func (n *node) read(t testing.TB, k spool.Key) string {
	t.Helper()
	r, err := n.Reader(context.Background(), k, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s on %s: %v", k, n.id, err)
	}
	return string(b)
}

// local reads what a node has on its own disk.
func (n *node) local(t testing.TB, k spool.Key) string {
	t.Helper()
	i, ok := n.store.Peek(k)
	if !ok {
		return ""
	}
	b := make([]byte, i.Size)
	if _, err := n.store.ReadAt(k, b, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("read %s on the disk of %s: %v", k, n.id, err)
	}
	return string(b)
}

// eventually waits, in the time of a bubble, for something to become so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("after a minute it is not so that %s", what)
}

func TestThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 10)
		a.must(t, key(1), 0, "hello ")
		a.must(t, key(1), 6, "world")
		if got := a.read(t, key(1)); got != "hello world" {
			t.Errorf("leader reads %q", got)
		}
		for _, id := range []string{"b", "c"} {
			eventually(t, id+" has the stream", func() bool { return c.nodes[id].local(t, key(1)) == "hello world" })
		}
		if err := a.Seal(t.Context(), key(1), 11, ""); err != nil {
			t.Fatalf("seal: %v", err)
		}
		for _, id := range []string{"b", "c"} {
			eventually(t, id+" has the seal", func() bool { _, sealed := c.nodes[id].store.Size(key(1)); return sealed })
		}
	})
}

func TestLeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 10)
		a.must(t, key(1), 0, "first ")
		c.net.part("a", "c", true)
		c.net.part("b", "c", true)
		a.must(t, key(1), 6, "second ") // on a and b
		c.net.part("b", "c", false)
		c.net.part("a", "b", true)
		// What only the old leader has was never acknowledged.
		if _, err := a.Append(t.Context(), key(1), 13, []byte("never")); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("append without a majority: %v, want %v", err, fleet.Unavailable)
		}
		n := c.lead("c", 2, 200)
		_, err := n.Append(t.Context(), key(1), 1000, []byte("x"))
		var gap *spool.GapError
		if !errors.As(err, &gap) || gap.Want != 13 {
			t.Errorf("the new leader wants %v, want offset 13", err)
		}
		n.must(t, key(1), 13, "third")
		c.net.part("a", "b", false)
		c.net.part("a", "c", false)
		for _, id := range []string{"a", "b", "c"} {
			eventually(t, id+" has what was acknowledged", func() bool { return c.nodes[id].local(t, key(1)) == "first second third" })
		}
		if _, err := a.Append(t.Context(), key(1), 18, []byte("stale")); err == nil {
			t.Error("the deposed leader acknowledged something")
		}
	})
}
