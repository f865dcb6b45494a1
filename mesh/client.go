package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// ClientConfig describes one that calls hubs and is not called: a joiner with the key
// of its ticket, or a runner with its own.
type ClientConfig struct {
	Cluster string
	Key     PrivateKey
	Hubs    []Hub        // at least one
	Listen  string       // as in Config
	MTU     int          // as in Config
	Logger  *slog.Logger // nil: nothing is logged
}

// Hub is a node to call.
type Hub struct {
	ID        string      // may be empty: a ticket need not tell it
	Keys      []PublicKey // as in Peer
	Endpoints []string    // as in Peer
	Hosts     []string    // host or host:port of its public URLs, by which Client.Dial finds it
}

// Client is a tunnel to hubs.
type Client struct {
	mesh *Mesh

	mu   sync.Mutex
	hubs []Hub
}

// NewClient brings the tunnel up; it calls the hubs at once.
func NewClient(c ClientConfig) (*Client, error) {
	if c.Cluster == "" {
		return nil, fmt.Errorf("enter the mesh: it needs the cluster's id: %w", fleet.BadRequest)
	}
	key := c.Key.Public()
	m, err := start(Config{
		Cluster: c.Cluster, ID: key.String(), Key: c.Key, Listen: c.Listen, MTU: c.MTU, Logger: c.Logger,
		class: ClassGuest, addr: GuestAddr(c.Cluster, key),
	})
	if err != nil {
		return nil, err
	}
	v := &Client{mesh: m}
	if err := v.SetHubs(c.Hubs); err != nil {
		m.Close()
		return nil, err
	}
	return v, nil
}

// SetHubs gives the exact set of hubs to call, in order of preference.
func (v *Client) SetHubs(hubs []Hub) error {
	if len(hubs) == 0 {
		return fmt.Errorf("enter the mesh: there is no hub to call: %w", fleet.BadRequest)
	}
	hubs = slices.Clone(hubs)
	peers := make([]Peer, 0, len(hubs))
	for i, h := range hubs {
		if len(h.Keys) == 0 || len(h.Endpoints) == 0 {
			return fmt.Errorf("enter the mesh: hub %q has no key or no endpoint: %w", h.ID, fleet.BadRequest)
		}
		if h.ID == "" { // any name will do on this side of the tunnel
			hubs[i].ID = h.Keys[0].String()
		}
		peers = append(peers, Peer{ID: hubs[i].ID, Keys: h.Keys, Endpoints: h.Endpoints})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hubs = hubs
	v.mesh.SetPeers(peers)
	return nil
}

// Rekey is as Mesh.Rekey.
func (v *Client) Rekey(key PrivateKey) error { return v.mesh.Rekey(key) }

// Close cuts the tunnel.
func (v *Client) Close() error { return v.mesh.Close() }

// stagger is how long a hub is given before the next is called too.
const stagger = 300 * time.Millisecond

// DialPort connects to a port of the first hub that answers.
func (v *Client) DialPort(ctx context.Context, port int) (net.Conn, error) {
	v.mu.Lock()
	hubs := v.hubs
	v.mu.Unlock()
	return v.race(ctx, hubs, port)
}

// Dial connects to the runners' port of the hub whose id or Hosts the address names,
// and, where it names none, of the first that answers. It has the form that HTTP and
// WebSocket clients take.
func (v *Client) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	v.mu.Lock()
	hubs := v.hubs
	v.mu.Unlock()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	for _, h := range hubs {
		if h.ID == host || slices.Contains(h.Hosts, host) || slices.Contains(h.Hosts, addr) {
			hubs = []Hub{h}
			break
		}
	}
	return v.race(ctx, hubs, PortRunner)
}

// race calls one hub after the other without waiting for the first to fail.
func (v *Client) race(ctx context.Context, hubs []Hub, port int) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	next, running := 0, 0
	begin := func() {
		id := hubs[next].ID
		next++
		running++
		go func() {
			conn, err := v.mesh.Dial(all, id, port)
			results <- result{conn, err}
		}()
	}
	begin()
	tick := time.NewTicker(stagger)
	defer tick.Stop()
	var won net.Conn
	var failed error
	for running > 0 {
		select {
		case <-tick.C:
			if next < len(hubs) && won == nil {
				begin()
			}
		case r := <-results:
			running--
			switch {
			case r.err != nil:
				failed = errors.Join(failed, r.err)
				if running == 0 && next < len(hubs) && won == nil && ctx.Err() == nil {
					begin()
				}
			case won != nil:
				r.conn.Close()
			default:
				won = r.conn
				cancel() // the others end at once
			}
		}
	}
	if won == nil {
		return nil, failed
	}
	return won, nil
}

// JoinDial brings up a tunnel with a ticket's key and gives a function that connects
// to the join port of a hub. The caller calls end when it has joined.
func JoinDial(c ClientConfig) (dial func(context.Context) (net.Conn, error), end func() error, err error) {
	v, err := NewClient(c)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (net.Conn, error) { return v.DialPort(ctx, PortJoin) }, v.Close, nil
}

// RunnerDial brings up a tunnel with a runner's key and gives a function that dials
// the runners' port of hubs through it, in the form that HTTP clients take.
func RunnerDial(c ClientConfig) (dial func(ctx context.Context, network, addr string) (net.Conn, error), end func() error, err error) {
	v, err := NewClient(c)
	if err != nil {
		return nil, nil, err
	}
	return v.Dial, v.Close, nil
}
