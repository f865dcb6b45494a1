package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second // bounds every wait; none lasts that long unless it fails

// cable connects nodes over loopback. Who dials says in a first line who it is.
type cable struct {
	mu   sync.Mutex
	at   map[string]string // "id:port" → address
	down map[string]bool   // nodes that nobody reaches
	seen map[net.Conn]string
}

func newCable() *cable {
	return &cable{at: map[string]string{}, down: map[string]bool{}, seen: map[net.Conn]string{}}
}

// end is the end of one node, or of a guest where the id is empty.
type end struct {
	*cable
	id string
}

func (e end) Listen(port int) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[fmt.Sprintf("%s:%d", e.id, port)] = l.Addr().String()
	return named{l}, nil
}

func (e end) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	e.mu.Lock()
	addr, down := e.at[fmt.Sprintf("%s:%d", id, port)], e.down[id] || e.down[e.id]
	e.mu.Unlock()
	if addr == "" || down {
		return nil, fmt.Errorf("node %s is not there", id)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, e.id+"\n"); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.seen[c] = id
	e.mu.Unlock()
	return c, nil
}

// cut breaks every connection to a node, and lets nobody reach it any more.
func (c *cable) cut(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[id] = true
	for conn, to := range c.seen {
		if to == id {
			conn.Close()
		}
	}
}

type named struct{ net.Listener }

func (l named) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var id []byte
	for b := make([]byte, 1); ; id = append(id, b[0]) {
		if _, err := c.Read(b); err != nil || b[0] == '\n' {
			return peerConn{c, string(id)}, nil
		}
	}
}

type peerConn struct {
	net.Conn
	id string
}

func (c peerConn) Peer() string { return c.id }

// cluster is some nodes in one process.
type cluster struct {
	t     testing.TB
	cable *cable
	nodes map[string]*node
	ids   []string
}

// node is one of them: who it believes to lead is set by the test.
type node struct {
	*Peers
	id      string
	public  *httptest.Server
	leading atomic.Bool
	leader  atomic.Pointer[string]
	applied atomic.Uint64
	term    atomic.Uint64
	ahead   atomic.Int64 // of its wall clock
	handler atomic.Pointer[http.Handler]
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	present []fleet.Presence
	live    []fleet.Event
	answers int // requests that the handler took
}

func newCluster(t testing.TB, ids []string, adjust ...func(*node, *Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, cable: newCable(), nodes: map[string]*node{}, ids: ids}
	for _, id := range ids {
		c.nodes[id] = c.start(id, adjust...)
	}
	c.elect(ids[0])
	return c
}

func (c *cluster) start(id string, adjust ...func(*node, *Config)) *node {
	c.t.Helper()
	n := &node{id: id, done: make(chan struct{})}
	nobody := ""
	n.leader.Store(&nobody)
	n.handle(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "node %s", id) })
	cfg := Config{
		Self: id, Network: end{c.cable, id}, Leading: n.leading.Load, Leader: func() string { return *n.leader.Load() },
		Members: func() []string { return c.ids },
		Facts: func() Facts {
			return Facts{Leader: *n.leader.Load(), Term: n.term.Load(), Applied: n.applied.Load(), Version: "test"}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.mu.Lock()
			n.answers++
			n.mu.Unlock()
			(*n.handler.Load()).ServeHTTP(w, r)
		}),
		Wall:     func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
		Presence: func() []fleet.Presence { n.mu.Lock(); defer n.mu.Unlock(); return n.present },
		OnLive: func(_ fleet.JobID, e []fleet.Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.live = append(n.live, e...)
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range adjust {
		f(n, &cfg)
	}
	var err error
	if n.Peers, err = New(cfg); err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() {
		defer close(n.done)
		if err := n.Run(ctx); err != nil {
			c.t.Errorf("node %s: %v", id, err)
		}
	}()
	// The public side: what does not lead hands everything on.
	n.public = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.leading.Load() {
			(*n.handler.Load()).ServeHTTP(w, r)
			return
		}
		if err := n.Forward(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	c.t.Cleanup(func() {
		n.stop()
		<-n.done
		n.public.Close()
	})
	until(c.t, "the node listens", func() bool {
		c.cable.mu.Lock()
		defer c.cable.mu.Unlock()
		return c.cable.at[fmt.Sprintf("%s:%d", id, Port)] != ""
	})
	return n
}

func (n *node) handle(h http.HandlerFunc) {
	var as http.Handler = h
	n.handler.Store(&as)
}

func (n *node) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answers
}

// elect has all nodes know a leader.
func (c *cluster) elect(id string) {
	for _, n := range c.nodes {
		n.term.Add(1)
		n.leader.Store(&id)
		n.leading.Store(n.id == id)
	}
}

func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-end:
			t.Fatalf("in vain: %s", what)
		case <-tick.C:
		}
	}
}

// client is one whose connections are the test's own.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// raw sends a request as it is written and gives what comes back as text.
func raw(t testing.TB, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(bufio.NewReader(c))
	return string(b)
}

// newPublic serves a handler to clients.
func newPublic(t testing.TB, h http.Handler) *httptest.Server {
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}
