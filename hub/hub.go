// Package hub wires a hub node: the replicated state on its Raft log, the spool
// and blob stores, the sessions of runners, the REST interface, and the leader's
// loop that looks, decides and proposes.
//
// Start order: data directory lock, identity, keys, stores, log, listener, then the
// loops. Stop order: no new requests, sessions told and ended, leader loop ended,
// log closed, stores closed, lock released.
//
// It guarantees that what was answered with a 2xx or acknowledged to a runner is
// on disk before the answer leaves. What decides lies in hub/state, hub/sched and
// hub/gate and is pure; this package only feeds it.
package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

// Hub is one node. Make it with New, run it with Run.
type Hub struct {
	cfg Config
	log *slog.Logger

	lock     *flock.Flock
	id       identity
	keys     *selfKeys
	secrets  *secrets
	programs programs
	mesh     *mesh.Mesh // nil: alone, or in a test
	network  Network    // nil: alone
	peers    *peer.Peers
	gossip   *mesh.Gossip // nil: alone, or in a test
	feed     *consensus.Feed
	node     *consensus.Node
	entries  *log
	disk     *reserve
	spool    *spool.Store
	blobs    *blob.Store
	copies   *replica.Replica // of both, on the other nodes too
	sessions *session.Server
	web      *web.Server
	listener net.Listener
	cert     certificate // nil: plain
	url      string
	started  time.Time
	wall     func() time.Time

	keyPeers keyPeers
	keyNews  chan struct{}      // the log may say something else of the keys
	keysTold atomic.Value       // what the node's own log was told of them last
	rotating sync.Mutex         // held while a key is replaced
	points   func(point string) // of a rotation, for tests; nil: nobody listens

	idMu     sync.Mutex  // held while id changes: what of it changes is read with it
	rosterMu sync.Mutex  // held while roster changes, and to read it elsewhere
	parting  string      // the node that is being told that it was removed; with rosterMu
	gone     error       // this node was told so; with rosterMu
	roster   roster      // as on disk
	told     []mesh.Peer // as the mesh was told
	guests   []mesh.PublicKey

	meshRunners []mesh.Runner          // likewise
	heard       atomic.Pointer[clocks] // of the other voters

	missed    chan fleet.Digest // files that a verdict waits for
	removing  sync.Mutex        // held while a node is taken out
	restoring sync.Mutex        // held while the cluster is set back
	disposing sync.Mutex
	disposed  time.Time // when the disks were last looked through

	history     *history                 // of the health of runners, as heard here
	errands     *errands                 // what people want to know of runners' machines
	provisions  *provisions              // what of installations on them is no record
	vitals      atomic.Pointer[vitals]   // the same of now; nil: this node does not lead
	courier     atomic.Pointer[courier]  // of alerts; likewise
	badSettings atomic.Pointer[[]string] // settings that cannot be read, in words

	leading     atomic.Bool
	awaited     atomic.Pointer[awaited]
	draining    atomic.Bool
	pokes       chan struct{}
	rosterPokes chan struct{}
	once        sync.Once
	ready       chan struct{}
	closing     sync.Once
}

// New opens a node's data and its listener. It serves nothing until Run. An error
// leaves nothing open.
func New(cfg Config) (*Hub, error) {
	if cfg.Wall != nil {
		return newHub(cfg, cfg.Wall)
	}
	return newHub(cfg, time.Now)
}

func newHub(cfg Config, wall func() time.Time) (*Hub, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, log: cfg.Logger, pokes: make(chan struct{}, 1), keyNews: make(chan struct{}, 1), rosterPokes: make(chan struct{}, 1), missed: make(chan fleet.Digest, 16), ready: make(chan struct{}), started: time.Now(), wall: wall, history: newHistory(time.Now()), programs: programs{self: cfg.Program, dir: cfg.Programs}}
	if err := h.open(); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// open opens the node's data in order.
func (h *Hub) open() (err error) {
	cfg := h.cfg
	if h.lock, err = lockDir(cfg.Dir); err != nil {
		return err
	}
	if err := wasRemoved(cfg.Dir); err != nil {
		return err
	}
	if cfg.Ticket != "" {
		if err := h.enter(); err != nil {
			return err
		}
	}
	_, missing := os.Stat(filepath.Join(cfg.Dir, "raft"))
	fresh := errors.Is(missing, os.ErrNotExist)
	if err := h.mayListen(); err != nil {
		return err
	}
	if h.id, err = loadIdentity(cfg.Dir, cfg.Bootstrap, fresh); err != nil {
		return err
	}
	if fresh && h.id.Founded {
		return fmt.Errorf("the log of this node is gone from %s: put the data directory back from a backup, or begin anew with an empty one", cfg.Dir)
	}
	if h.secrets, err = loadSecrets(cfg.Dir, h.id.Cluster, fresh && !h.id.Joined); err != nil {
		return err
	}
	if h.keys, err = loadSelf(cfg.Dir); err != nil {
		return err
	}
	if err := h.openNetwork(); err != nil {
		return err
	}
	h.disk = &reserve{dir: cfg.Dir, keep: cfg.MinFree, stat: statFree, log: h.log, broken: make(chan error, 1)}
	if cfg.Network == nil { // else the process is a simulation, of many nodes
		h.disk.hold = cfg.MinFree / ballastShare
		h.disk.settle()
	}
	if h.spool, err = spool.Open(spool.Config{Dir: filepath.Join(cfg.Dir, "spool"), Logger: h.log, Room: h.disk.room, Broken: h.disk.broke}); err != nil {
		return err
	}
	if h.blobs, err = blob.Open(blob.Config{Dir: filepath.Join(cfg.Dir, "blobs"), Logger: h.log, Room: h.disk.room, Broken: h.disk.broke}); err != nil {
		return err
	}
	m := newMachine()
	h.feed = m.feed
	trans, err := h.transport()
	if err != nil {
		return err
	}
	c := consensus.Config{
		Dir: filepath.Join(cfg.Dir, "raft"), NodeID: h.id.Node, Bootstrap: !h.id.Joined, Join: h.id.Joined, FSM: m, Transport: trans, Logger: h.log,
		MakeRoom: h.disk.makeRoom,
		Packs:    func() bool { return !state.HeldPacks(m.state.Nodes()) },
	}
	if cfg.Log != nil {
		cfg.Log(&c)
	}
	h.node, err = consensus.Open(c)
	if err != nil {
		return h.whetherReplaced(err)
	}
	h.entries = &log{node: h.node, state: m.state, clock: newTimekeeper(cfg.Dir, h.wall, cfg.uptime, h.log), room: h.disk.room, voices: h.heardVoices, leads: h.leading.Load}
	if cfg.AcceptClock {
		h.entries.clock.say()
	}
	if err := h.openCopies(); err != nil {
		return err
	}
	if err := h.openGossip(); err != nil {
		return err
	}
	if err := h.listen(); err != nil {
		return err
	}
	if !cfg.plain() {
		if h.cert, err = h.certificates(); err != nil {
			return err
		}
	}
	h.provisions = newProvisions()
	h.errands = newErrands(h.leading.Load, func(r fleet.RunnerID) { h.sessions.Nudge(r) })
	if h.sessions, err = h.newSessions(); err != nil {
		return err
	}
	if err := h.openPeers(); err != nil {
		return err
	}
	h.web = h.newWeb()
	if cfg.Inspect != nil {
		cfg.Inspect(Insides{View: h.entries.View, Status: h.node.Status, Leading: h.leading.Load, Spool: h.spool, Blobs: h.blobs})
	}
	return nil
}

// listen opens the one TCP port and learns the node's URL.
func (h *Hub) listen() error {
	l, err := h.cfg.Listener, error(nil)
	if l == nil {
		l, err = net.Listen("tcp", h.cfg.Listen)
	}
	if err != nil {
		return noListening(h.cfg.Listen, "--listen", err)
	}
	h.listener = l
	scheme := "https"
	if h.cfg.plain() {
		scheme = "http"
	}
	host, _, _ := net.SplitHostPort(h.cfg.Listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			host = "localhost"
		}
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	h.url = scheme + "://" + net.JoinHostPort(host, port)
	if h.cfg.PublicURL != "" {
		h.url = strings.TrimSuffix(h.cfg.PublicURL, "/")
	}
	return nil
}

// URL is where people and runners reach the node.
func (h *Hub) URL() string { return h.url }

// TokenFile is where the bootstrap token was written.
func (h *Hub) TokenFile() string { return filepath.Join(h.cfg.Dir, "operator.token") }

// Joined says that the node came to a cluster that others had founded.
func (h *Hub) Joined() bool { return h.id.Joined }

// Ready is closed once the node serves and has heard the leader, or leads.
func (h *Hub) Ready() <-chan struct{} { return h.ready }

// Run serves until ctx ends, then stops in order. It returns nil after a planned
// stop and the cause otherwise; an entry of a newer version in the log is
// state.ErrUnknownEntry.
func (h *Hub) Run(ctx context.Context) error {
	defer h.Close()
	if err := h.writeURL(); err != nil {
		return err
	}
	if err := h.writeCA(); err != nil {
		return err
	}
	var unheard silent
	srv := h.server(h.web.Handler())
	srv.ConnState = unheard.state
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	fail := func(what string, err error) {
		switch err = h.whetherReplaced(err); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, ErrRemoved), errors.Is(err, ErrReplace): // it says all by itself
			stop(err)
		default:
			stop(fmt.Errorf("%s: %w", what, err))
		}
	}
	serve, leave := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { fail("serve", h.serve(srv, h.listener)) })
	wg.Go(func() { fail("sessions", h.sessions.Run(serve)) })
	wg.Go(func() { fail("watch", h.watch(serve)) })
	if h.cfg.Network == nil { // else the process is a simulation, of many nodes
		wg.Go(func() { collectSeldom(serve) })
	}
	wg.Go(func() { h.disk.tend(serve) })
	wg.Go(func() { h.tendKeys(serve) })
	wg.Go(func() { h.forgetHealth(serve) })
	wg.Go(func() { h.entries.clock.keep(serve, h.entries.state.Time) })
	wg.Go(func() { fail("members", h.keepRoster(serve)) })
	wg.Go(func() { fail("copies", h.copies.Run(serve)) })
	if h.gossip != nil {
		wg.Go(func() { h.keepGossip(serve) })
	}
	if h.peers != nil {
		wg.Go(func() { fail("copies", h.serveCopies(serve)) })
		wg.Go(func() { fail("peers", h.peers.Run(serve)) })
		wg.Go(func() { h.watchFitness(serve) })
		wg.Go(func() { h.tidy(serve) })
		wg.Go(func() { h.fetchFiles(serve) })
		if h.mesh != nil {
			wg.Go(func() { fail("runners in the tunnel", h.serveMeshRunners(serve)) })
		}
		wg.Go(func() { fail("autopilot", h.pilot(serve)) })
		wg.Go(func() { h.settleBehind(serve) })
	}
	lead, resign := context.WithCancel(context.WithoutCancel(ctx))
	led := make(chan struct{})
	go func() {
		defer close(led)
		fail("lead", h.node.WhileLeader(lead, h.lead))
	}()
	select {
	case <-ctx.Done():
	case <-h.node.Done():
		stop(h.whetherReplaced(h.node.Err()))
	case err := <-h.disk.broken:
		stop(fmt.Errorf("%w: %w", ErrDisk, err))
	}
	h.standDown(context.WithoutCancel(ctx))
	h.web.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	leave()
	unheard.close()
	h.sessions.Close() // before the server: a held poll would keep it waiting
	if err := srv.Shutdown(grace); err != nil {
		srv.Close()
	}
	resign()
	<-led
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// server serves people and runners, wherever it listens.
func (h *Hub) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
}

// serve serves until the server is shut down, over TLS where the node has a certificate.
func (h *Hub) serve(srv *http.Server, l net.Listener) error {
	if h.cert != nil {
		l = tls.NewListener(l, &tls.Config{GetCertificate: h.cert, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (h *Hub) writeURL() error {
	return writeFile(filepath.Join(h.cfg.Dir, "hub.url"), []byte(h.url+"\n"), 0o600)
}

// Close releases what New opened, newest first, for a node that is not run; Run
// does it by itself. It may be called again, but not while Run runs.
func (h *Hub) Close() { h.closing.Do(h.close) }

func (h *Hub) close() {
	if h.listener != nil {
		h.listener.Close()
	}
	if h.sessions != nil {
		h.sessions.Close()
	}
	if h.peers != nil {
		h.peers.Close()
	}
	if h.gossip != nil {
		h.gossip.Close()
	}
	if h.node != nil {
		if err := h.node.Close(); err != nil {
			h.log.Warn("closing the log failed", "err", err)
		}
	}
	if h.mesh != nil {
		h.mesh.Close()
	}
	if h.feed != nil {
		h.feed.Close()
	}
	if h.copies != nil {
		h.copies.Close()
	}
	if h.spool != nil {
		h.spool.Close()
	}
	if h.lock != nil {
		h.lock.Unlock()
	}
}
