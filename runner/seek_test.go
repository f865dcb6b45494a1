package runner

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/replica"
	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// hubs are several hub nodes over one state, on lines in memory, in virtual time. Which
// one leads is said, not elected.
type hubs struct {
	*testHub
	mu     sync.Mutex
	leader int // -1: none
	listed int // hubs that are told of, 0: all
	nodes  []*hubNode
	down   func() // ends the runner that was linked last
}

type hubNode struct {
	srv   *hubsession.Server
	url   string
	lines chan net.Conn
	stop  chan struct{}

	mu    sync.Mutex
	state string // "" up; "refuses"; "silent": new lines don't stand; "frozen": nor do old ones say anything
	conns []net.Conn
	asked int
}

func newHubs(t *testing.T, n int) *hubs {
	t.Helper()
	h := &hubs{testHub: &testHub{t: t, machine: state.New()}}
	var err error
	if h.spool, err = spool.Open(spool.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if h.blobs, err = blob.Open(blob.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	copies, err := replica.New(replica.Config{Self: "n-test", Dir: t.TempDir(), Spool: h.spool, Blobs: h.blobs})
	if err != nil {
		t.Fatal(err)
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := &hubsession.Keys{Cluster: testCluster, Masters: map[uint64][]byte{1: make([]byte, 32)}, Signing: priv, SigningID: "k1",
		Chain: []wire.SigningKey{{ID: "k1", Key: pub}}}
	var urls []string
	for i := range n {
		urls = append(urls, "http://hub"+itoa(i+1)+":80")
	}
	for i := range n {
		node := &hubNode{url: urls[i], lines: make(chan net.Conn), stop: make(chan struct{})}
		node.srv, err = hubsession.New(hubsession.Config{
			Proposer: h, Spool: copies, Blobs: copies.Blobs(), Keys: func() *hubsession.Keys { return keys }, URL: node.url,
			Standing: func() hubsession.Standing {
				m := h.View().Meta()
				return hubsession.Standing{Epoch: m.Epoch, Term: 1, Index: m.Index}
			},
			Leading: func() bool { return h.leads() == i },
			Leader: func() string {
				if l := h.leads(); l >= 0 {
					return urls[l]
				}
				return ""
			},
			Hubs: func() []string {
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.listed > 0 {
					return urls[:h.listed]
				}
				return urls
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		node.srv.Register(mux)
		srv := &http.Server{Handler: mux}
		var work sync.WaitGroup
		work.Go(func() { srv.Serve(node) })
		ctx, cancel := context.WithCancel(t.Context())
		work.Go(func() { node.srv.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			srv.Close()
			node.fail("refuses")
			work.Wait()
		})
		h.nodes = append(h.nodes, node)
	}
	t.Cleanup(func() { copies.Close(); h.spool.Close() })
	h.must(&state.InitCluster{Cluster: testCluster, Epoch: 1})
	return h
}

func (h *hubs) leads() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leader
}

func (h *hubs) lead(i int) {
	h.mu.Lock()
	h.leader = i
	h.mu.Unlock()
}

// Accept, Close and Addr make a node a listener.
func (n *hubNode) Accept() (net.Conn, error) {
	select {
	case c := <-n.lines:
		return c, nil
	case <-n.stop:
		return nil, net.ErrClosed
	}
}

func (n *hubNode) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.stop:
	default:
		close(n.stop)
	}
	return nil
}

func (n *hubNode) Addr() net.Addr { return &net.TCPAddr{} }

// fail cuts a node's lines and says how it treats new ones.
func (n *hubNode) fail(how string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = how
	if how == "frozen" {
		return
	}
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

// dial is the runner's way to the nodes. A line takes 10 ms to stand.
func (h *hubs) dial(ctx context.Context, _, address string) (net.Conn, error) {
	i := slices.IndexFunc(h.nodes, func(n *hubNode) bool { return strings.HasSuffix(n.url, "//"+address) })
	if i < 0 {
		return nil, &net.DNSError{Name: address, Err: "no such host"}
	}
	n := h.nodes[i]
	n.mu.Lock()
	how := n.state
	n.asked++
	n.mu.Unlock()
	switch how {
	case "refuses":
		return nil, errors.New("connection refused")
	case "silent", "frozen":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(10 * time.Millisecond)
	here, there := net.Pipe()
	n.mu.Lock()
	n.conns = append(n.conns, here, there)
	n.mu.Unlock()
	select {
	case n.lines <- hubLine{there, n}:
		return here, nil
	case <-n.stop:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hubLine is a node's end of a line.
type hubLine struct {
	net.Conn
	node *hubNode
}

func (l hubLine) Write(b []byte) (int, error) {
	l.node.mu.Lock()
	frozen := l.node.state == "frozen"
	l.node.mu.Unlock()
	if frozen {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// connected says whether the runner has a session at a node, and its first heartbeat
// was answered there.
func (h *hubs) connected(i int, id fleet.RunnerID) bool {
	p, ok := h.nodes[i].srv.PresenceOf(id)
	return ok && p.Connected && p.Full
}

// linked runs the link of a runner, without the rest of it, until the test ends.
func (h *hubs) linked(t *testing.T, adjust ...func(*Config)) *link {
	t.Helper()
	cfg := Config{Dir: t.TempDir(), Name: "linked", Self: "/bin/true", Dial: h.dial, Logger: testLogger("RUNNER_LOG")}
	secret, err := wire.NewSecret(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.must(&state.CreateTicket{Hash: wire.SecretHash(secret), TTL: time.Hour, Uses: 1})
	// The ticket knows one hub; the others are learnt.
	cfg.Ticket = wire.Ticket{Hubs: []string{h.nodes[0].url}, Cluster: testCluster, Secret: secret, ExpiresAt: time.Now().Add(time.Hour), Plain: true}.String()
	for _, f := range adjust {
		f(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, down := r.linkUp(t)
	h.down = down
	return l
}

// linkUp gives the link, and what ends it before the test does.
func (r *Runner) linkUp(t *testing.T) (*link, func()) {
	t.Helper()
	var err error
	if r.journal, err = journal.Open(r.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if r.id, err = r.enrolled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.link, err = newLink(r, r.id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := r.link.run(ctx); err != nil {
			t.Errorf("the link ended: %v", err)
		}
	})
	down := sync.OnceFunc(func() {
		cancel()
		work.Wait()
		r.journal.Close()
	})
	t.Cleanup(down)
	return r.link, down
}

// within waits in virtual time, and gives how long it took.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// A hub that joins while a session lasts is told of in that session: the runner finds it
// when all that it knew at the handshake are gone, also after a restart of its own.
func TestHubsThatCameDuringASessionAreFound(t *testing.T) {
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHubs(t, 3)
				h.listed = 2
				l := h.linked(t, func(c *Config) { c.Transport = transport })
				id := l.id.Runner
				within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, id) })
				if known := l.keys.knownHubs(); slices.Contains(known, h.nodes[2].url) {
					t.Fatalf("it knows %v before it was told", known)
				}
				h.mu.Lock()
				h.listed = 0
				h.mu.Unlock()
				time.Sleep(time.Minute) // some heartbeats
				if known := l.keys.knownHubs(); !slices.Contains(known, h.nodes[2].url) {
					t.Errorf("what it keeps for its next start is %v", known)
				}
				h.nodes[0].fail("refuses")
				h.nodes[1].fail("refuses")
				h.lead(2)
				within(t, 5*time.Second, "the hub that came later", func() bool { return h.connected(2, id) })
			})
		})
	}
}

// notes is a log to look at.
type notes struct {
	mu sync.Mutex
	b  strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// Of each hub that took no session the log of a runner that tells all says why.
func TestTheLogSaysWhyAHubWasPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubs(t, 3)
		var log notes
		l := h.linked(t, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, l.id.Runner) })
		h.nodes[0].fail("refuses")
		h.lead(-1) // so that each of the others is asked
		for hub, why := range map[string]string{h.nodes[0].url: "connection refused", h.nodes[1].url: "no hub leads", h.nodes[2].url: "no hub leads"} {
			within(t, 10*time.Second, "of "+hub+" it is said why it was passed over", func() bool {
				return slices.ContainsFunc(strings.Split(log.String(), "\n"), func(line string) bool {
					return strings.Contains(line, "takes no session") && strings.Contains(line, "hub="+hub) && strings.Contains(line, why)
				})
			})
		}
	})
}

func TestTheNewLeaderIsFoundWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"ws", "http"} {
		for _, how := range []string{"refuses", "silent"} {
			for _, held := range []time.Duration{300 * time.Millisecond, time.Minute} {
				for _, election := range []time.Duration{0, 2 * time.Second, 20 * time.Second} {
					t.Run(transport+" "+how+" after "+held.String()+" election "+election.String(), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							h := newHubs(t, 3)
							l := h.linked(t, func(c *Config) { c.Transport = transport })
							id := l.id.Runner
							within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, id) })
							time.Sleep(held)
							h.nodes[0].fail(how)
							h.lead(-1)
							time.Sleep(election)
							h.lead(2)
							limit := 3 * time.Second
							if transport == "http" {
								limit += 2 * time.Second // until the session is given up
							}
							took := within(t, limit, "the new leader is found", func() bool { return h.connected(2, id) })
							t.Logf("found after %s", took)
							if kept := mustLoad(t, l.r.cfg.Dir).Known; len(kept) != 3 || kept[0] != h.nodes[2].url {
								t.Errorf("it keeps the hubs %v; want all three, the leader first", kept)
							}
						})
					})
				}
			}
		}
	}
}

func mustLoad(t *testing.T, dir string) *identity {
	t.Helper()
	id, err := loadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestALeaderThatIsCutOffIsLeftForTheNewOne(t *testing.T) {
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHubs(t, 3)
				l := h.linked(t, func(c *Config) { c.Transport = transport })
				id := l.id.Runner
				within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, id) })
				time.Sleep(30 * time.Second)
				h.nodes[0].fail("frozen")
				// Nobody else leads: a slow hub is not left.
				time.Sleep(17 * time.Second)
				if !l.up() {
					t.Error("a hub that is slow was left although no other leads")
				}
				h.lead(1)
				within(t, 3*time.Second+doubtEvery, "the new leader is found", func() bool { return h.connected(1, id) })
			})
		})
	}
}

func TestAnnouncedRestartsAreNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubs(t, 3)
		var log logged
		l := h.linked(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		id := l.id.Runner
		within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, id) })
		time.Sleep(time.Minute)
		before := h.nodes[1].tries()
		h.nodes[0].srv.Restarting(0, 20*time.Second, []string{h.nodes[2].url, h.nodes[1].url})
		time.Sleep(5 * time.Second)
		if !l.up() {
			t.Error("the session ended before the hub did")
		}
		h.lead(2)
		h.nodes[0].srv.EndAll(fleet.Restarting, "the hub is stopping")
		h.nodes[0].fail("refuses")
		within(t, restartJitter+200*time.Millisecond, "the successor has it", func() bool { return h.connected(2, id) })
		if n := h.nodes[1].tries(); n != before {
			t.Errorf("the second successor was asked %d times; the first took it at once", n-before)
		}
		// Away for longer than it said: then it is told, once.
		h.nodes[2].srv.Restarting(0, 20*time.Second, nil)
		time.Sleep(time.Second)
		h.lead(-1)
		h.nodes[2].srv.EndAll(fleet.Restarting, "the hub is stopping")
		time.Sleep(15 * time.Second)
		if said := log.String(); strings.Contains(said, "not connected") || strings.Contains(said, "WARN") {
			t.Errorf("alarms over an absence that was announced:\n%s", said)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(log.String(), "away for longer than it said"); n != 1 {
			t.Errorf("it was said %d times that the hub stays away:\n%s", n, log.String())
		}
		h.lead(1)
		within(t, 3*time.Second, "it comes back", func() bool { return h.connected(1, id) })
	})
}

func TestTheHubsThatWereLearntAreKeptOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubs(t, 3)
		var dir string
		l := h.linked(t, func(c *Config) { dir = c.Dir })
		within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, l.id.Runner) })
		h.down()
		h.nodes[0].fail("refuses") // the only one that the ticket names
		h.lead(2)
		r, err := New(Config{Dir: dir, Name: "linked", Self: "/bin/true", Dial: h.dial})
		if err != nil {
			t.Fatal(err)
		}
		again, _ := r.linkUp(t)
		within(t, 3*time.Second, "the new leader is found", func() bool { return h.connected(2, again.id.Runner) })
	})
}

// Hubs that have many runners ask for time, and get it.
func TestRunnersComeBackWhenTheyAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubs(t, 3)
		l := h.linked(t)
		within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, l.id.Runner) })
		for i := range 3000 {
			secret := "s" + itoa(i)
			h.must(&state.CreateTicket{Hash: wire.SecretHash(secret), TTL: time.Hour, Uses: 1})
			h.must(&state.Enrol{Ticket: wire.SecretHash(secret), ID: fleet.RunnerID("r-" + itoa(i)), Name: "n" + itoa(i), SignKey: make([]byte, 32), BoxKey: make([]byte, 32), MachineID: "m"})
		}
		time.Sleep(time.Minute)
		before := h.nodes[1].tries()
		h.lead(-1)
		h.nodes[0].srv.EndAll(fleet.SessionEnded, "this hub does not lead any more")
		time.Sleep(time.Minute)
		// 3,001 runners: about every 7 s.
		if n := h.nodes[1].tries() - before; n < 5 || n > 14 {
			t.Errorf("a hub that asked for 7 s was asked %d times in a minute", n)
		}
	})
}

// logged is a log that is read while it is written.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (n *hubNode) tries() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session != nil
}
