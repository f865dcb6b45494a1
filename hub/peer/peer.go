// Package peer is how hub nodes talk to each other about everything but the log
// and the bytes: a follower hands requests to the leader, hears from it who is
// connected, and answers what it knows of itself; keys and joins go the same way.
//
// It guarantees that a request is handed on at most once and never twice, that
// whoever asked is told whether a request that broke may have been done, and that a
// slow or hung node costs a bounded wait and bounded memory. It trusts the network
// to say which node a connection comes from, and leaves to others who leads, who is
// a member, and what a request or a call does.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Ports inside the network of the nodes.
const (
	Port     = 7302 // between nodes
	PortJoin = 7305 // the only one that a guest reaches
)

// Network connects the nodes by their ids. An accepted connection tells with a
// method Peer() string which node it comes from, nothing for a guest.
type Network interface {
	Listen(port int) (net.Listener, error)
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
}

// Config is what the service of a node is made of. Functions are called from many
// goroutines and must not wait, save for Handler, Calls and Join.
type Config struct {
	Self    string          // id of this node; required
	Network Network         // required
	Leading func() bool     // true only once this node's term has begun; required
	Leader  func() string   // id of the node that leads, empty if unknown; required
	Members func() []string // ids of all nodes, this one may be among them; required
	Facts   func() Facts    // what this node says of itself; required

	// Handler serves what other nodes hand on. Forwarded tells such a request, and
	// its RemoteAddr is the address of the original client. Required.
	Handler http.Handler

	// Presence gives the runners' connections of this node, to be relayed while it
	// leads. Default: none.
	Presence func() []fleet.Presence
	// OnLive takes partial events that the leader relays. Default: dropped.
	OnLive func(fleet.JobID, []fleet.Event)

	// Calls are what other nodes may ask for by name.
	Calls map[string]Call
	// Join takes the request of a guest. It runs on the leader, whichever node was
	// asked. Without it the join port stays closed.
	Join func(ctx context.Context, guest string, body []byte) ([]byte, error)

	Wall     func() time.Time // the node's wall clock; default time.Now
	Patience time.Duration    // for the leader's answer to begin; default 45 s, over the longest held poll
	Logger   *slog.Logger     // default: discard
}

const (
	dialTime  = 3 * time.Second        // to reach a node
	callTime  = 15 * time.Second       // for a call, where its context says nothing shorter
	stopTime  = 5 * time.Second        // for requests in flight when the service stops
	leaveTime = 2 * time.Second        // for the former leader to answer what it was handed
	lookEvery = 200 * time.Millisecond // at who leads
	idleTime  = 30 * time.Second       // of a pooled connection; the far side waits four times as long
	maxIdle   = 64                     // pooled connections to a node
)

// Peers is the service of one node. All methods may be called from many goroutines.
type Peers struct {
	cfg    Config
	log    *slog.Logger
	wire   *http.Transport
	calls  *http.Client
	relay  *relay
	heard  *heard
	polls  *polls
	flying flights
	bounds bounds

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // what is served
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Peers, error) {
	switch {
	case c.Self == "" || c.Network == nil || c.Handler == nil:
		return nil, errors.New("peer service: it needs the id of the node, its network and a handler")
	case c.Leading == nil || c.Leader == nil || c.Members == nil || c.Facts == nil:
		return nil, errors.New("peer service: it needs to be told who leads, the members and the facts of the node")
	}
	for name, call := range c.Calls {
		if name == "" || name == joinCall || call.Do == nil {
			return nil, fmt.Errorf("peer service: call %q has no function or not a name of its own", name)
		}
	}
	if c.Presence == nil {
		c.Presence = func() []fleet.Presence { return nil }
	}
	if c.OnLive == nil {
		c.OnLive = func(fleet.JobID, []fleet.Event) {}
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Patience <= 0 {
		c.Patience = 45 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Peers{cfg: c, log: c.Logger, relay: newRelay(), heard: &heard{}, polls: newPolls(), bounds: newBounds()}
	p.life, p.end = context.WithCancel(context.Background())
	p.wire = &http.Transport{
		DialContext:           p.dial,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   maxIdle,
		IdleConnTimeout:       idleTime,
		ResponseHeaderTimeout: c.Patience,
		ExpectContinueTimeout: time.Second,
	}
	p.calls = &http.Client{Transport: p.wire, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return p, nil
}

// dial reaches the node that an address of the form ID:80 names.
func (p *Peers) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	id, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return p.cfg.Network.Dial(ctx, id, Port)
}

// Run serves the other nodes, and follows the leader or leads, until ctx ends. It
// returns nil then, and the cause where it cannot listen.
func (p *Peers) Run(ctx context.Context) error {
	defer p.Close()
	inner, err := p.cfg.Network.Listen(Port)
	if err != nil {
		return fmt.Errorf("listen for the other nodes: %w", err)
	}
	defer inner.Close()
	servers := []*http.Server{p.server()}
	listeners := []net.Listener{inner}
	if p.cfg.Join != nil {
		l, err := p.cfg.Network.Listen(PortJoin)
		if err != nil {
			return fmt.Errorf("listen for joining nodes: %w", err)
		}
		defer l.Close()
		servers, listeners = append(servers, p.joinServer()), append(listeners, newLimited(l, maxGuests))
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for i, srv := range servers {
		wg.Go(func() {
			if err := srv.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				stop(fmt.Errorf("serve the other nodes: %w", err))
			}
		})
	}
	wg.Go(func() { p.tell(run) })
	wg.Go(func() { p.ask(run) })
	wg.Go(func() { p.follow(run) })
	wg.Go(func() { p.look(run) })
	<-run.Done()
	p.relay.close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	for _, srv := range servers {
		if err := srv.Shutdown(grace); err != nil {
			srv.Close()
		}
	}
	p.Close()
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(run)
}

// Close ends what is handed on and served, and waits for it. It may be called again.
func (p *Peers) Close() {
	p.flying.mu.Lock()
	p.end() // from here on nothing enters
	p.flying.mu.Unlock()
	p.relay.close()
	p.wire.CloseIdleConnections()
	p.wg.Wait()
}

// Leading says whether this node leads.
func (p *Peers) Leading() bool { return p.cfg.Leading() }
