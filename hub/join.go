package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// newSessions makes the server of the runners' connections.
func (h *Hub) newSessions() (*session.Server, error) {
	c := session.Config{
		Proposer: h.entries, Spool: h.copies, Blobs: h.copies.Blobs(), Keys: h.sessionKeys,
		Standing: func() session.Standing {
			m := h.entries.View().Meta()
			return session.Standing{Epoch: m.Epoch, Term: h.node.Status().Term, Index: m.Index}
		},
		Leading: h.leading.Load,
		Seen:    h.seenEpoch,
		Leader:  h.leaderURL,
		Hubs:    h.hubURLs,
		Judge:   judge,
		OnBeat:  func(fleet.RunnerID) { h.poke() },
		OnFree:  h.poke,
		OnLive:  h.live,
		Logger:  h.log,
		URL:     h.url,
		Tunnels: h.tunnels,
		Now:     h.entries.now,
	}
	if h.network != nil {
		c.Forward = func(w http.ResponseWriter, r *http.Request) error { return h.peers.ForwardLasting(w, r) }
		c.Forwarded = func(r *http.Request) bool { return h.peers.Forwarded(r) }
	}
	return session.New(c)
}

// newWeb makes the interface for people, which also carries the runners' paths.
func (h *Hub) newWeb() *web.Server {
	runners := http.NewServeMux()
	h.sessions.Register(runners)
	c := web.Config{
		Log: h.entries, Feed: changes{h.feed}, Spool: h.copies, Blobs: h.copies.Blobs(),
		Derive: h.secrets.derive, Proxies: h.cfg.TrustedProxies, ProxiesOnly: h.cfg.inTheClear(),
		Presence: h.sessions.Presence, Status: h.status, Ready: h.serves, AcceptClock: h.acceptClock, Settled: h.isSettled, Ticket: h.ticket, Now: h.entries.now,
		Keys: h.showKeys, Rotate: h.rotate, RotateMesh: h.RotateMesh, Runners: runners, Version: h.cfg.Version, Logger: h.log,
		HubTicket: h.hubTicket, MeshTicket: h.meshTicket, Guest: guestKey, Cluster: h, Archives: h,
	}
	if h.peers != nil {
		c.Peers, c.Consistent = h.peers, h.node.VerifyLeader
		c.Presence = func() []fleet.Presence { all, _, _ := h.peers.Presence(); return all }
		c.Seen = func() (string, time.Duration) { _, from, age := h.peers.Presence(); return from, age }
	}
	return web.New(c)
}

// handler is the interface, for those who need it before it is made.
type handler struct{ hub *Hub }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.hub.web.Handler().ServeHTTP(w, r)
}

// live hands partial events to those who watch, on whichever node.
func (h *Hub) live(j fleet.JobID, e []fleet.Event) {
	h.web.Live(j, e)
	if h.peers != nil {
		h.peers.Live(j, e)
	}
}

// changes gives the feed as the interface reads it.
type changes struct{ feed *consensus.Feed }

func (c changes) Subscribe(after uint64) (web.Subscription, error) {
	sub, err := c.feed.Subscribe(after)
	if err != nil {
		return nil, err
	}
	return subscription{sub}, nil
}

type subscription struct{ *consensus.Subscription }

func (s subscription) Next(ctx context.Context) (uint64, bool, state.Change, error) {
	ev, err := s.Subscription.Next(ctx)
	if err != nil {
		return 0, false, state.Change{}, err
	}
	c, ok := ev.Data.(state.Change)
	if !ok {
		return 0, false, state.Change{}, fmt.Errorf("the feed carries a %T", ev.Data)
	}
	return ev.Index, ev.Last, c, nil
}

// status is what the node knows beyond the state.
func (h *Hub) status() api.Status {
	st, r := h.node.Status(), h.cfg.Retention
	spooled, _ := h.spool.Usage()
	stored, _ := h.blobs.Usage()
	return api.Status{
		Node: h.id.Node, Leader: st.Leader, Term: st.Term, StartedAt: h.started.UTC(),
		Retention: api.Retention{Jobs: r.Jobs.String(), MaxJobs: r.MaxJobs, Output: r.Output.String(), OutputBytes: r.OutputBytes, Audit: r.Audit.String()},
		Disk:      api.Disk{LogBytes: st.LogBytes, SpoolBytes: spooled, BlobBytes: stored, FreeBytes: freeBytes(h.cfg.Dir)},
	}
}

// isSettled says whether the state holds all that was committed before this start.
func (h *Hub) isSettled() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

// serves says whether the node can take a write.
func (h *Hub) serves() error {
	if err := h.node.Err(); err != nil {
		return err
	}
	switch {
	case h.leading.Load():
	case h.peers == nil:
		return fmt.Errorf("this node does not lead: %w", fleet.Unavailable)
	default:
		if err := h.peers.Ready(); err != nil {
			return err
		}
	}
	if !h.isSettled() {
		return fmt.Errorf("this node has not caught up with the cluster yet: %w", fleet.Unavailable)
	}
	if err := h.disk.room(); err != nil {
		return err
	}
	return h.entries.timely()
}

// ticket writes a join ticket around a secret, and the command to paste.
func (h *Hub) ticket(secret string, expires time.Time) (text, command string) {
	text = h.runnerTicket(secret, expires).String()
	// In the environment it is not for everybody on that machine to read.
	return text, "TUGLINE_TICKET=" + text + " tugline runner run --data-dir ~/.local/share/tugline/runner"
}

func (h *Hub) runnerTicket(secret string, expires time.Time) wire.Ticket {
	t := wire.Ticket{Hubs: h.hubURLs(), Cluster: h.id.Cluster, Secret: secret, ExpiresAt: expires}
	switch {
	case strings.HasPrefix(h.url, "http://"):
		t.Plain = true
	case h.cfg.TLSCert != "" || h.cfg.PublicURL != "" && h.cfg.plain():
		t.Trust = wire.TrustSystem
	default:
		t.Trust = wire.TrustPin
		u := h.secrets.use.Load()
		t.Pin = wire.CAPin(u.issuer.ca)
		for _, k := range u.trusted {
			if k != u.issuer {
				t.Pins = append(t.Pins, wire.CAPin(k.ca))
			}
		}
	}
	return t
}

// Ticket makes a join ticket with the defaults, for whoever started the node.
func (h *Hub) Ticket(ctx context.Context, ttl time.Duration, labels map[string]string) (text, command string, err error) {
	secret := web.NewSecret("")
	res, err := h.entries.Propose(ctx, &state.CreateTicket{Hash: web.HashSecret(secret), TTL: ttl, Uses: 1, Labels: labels})
	if err = errors.Join(err, res.Err()); err != nil {
		return "", "", fmt.Errorf("make a join ticket: %w", err)
	}
	text, command = h.ticket(secret, time.Now().Add(ttl).UTC())
	return text, command, nil
}

// hubTicket writes a ticket for a machine that is to become a hub node.
func (h *Hub) hubTicket(secret string, expires time.Time) (text, command string, err error) {
	t := wire.HubTicket{Cluster: h.id.Cluster, Secret: secret, ExpiresAt: expires}
	for _, n := range h.entries.View().Nodes() {
		if len(n.Endpoints) > 0 {
			t.Nodes = append(t.Nodes, wire.HubAddress{Node: n.ID, Key: hex.EncodeToString(n.MeshKey), Endpoints: n.Endpoints})
		}
	}
	if len(t.Nodes) == 0 {
		return "", "", fmt.Errorf("this hub runs without --mesh-listen, so that no node can join it; start it again with --mesh-listen :7441: %w", fleet.Conflict)
	}
	text = t.String()
	// In the environment it is not for everybody on that machine to read.
	return text, "TUGLINE_TICKET=" + text + " tugline hub run --data-dir /var/lib/tugline --listen 0.0.0.0:7440 --mesh-listen :7441", nil
}

// guestKey is what the hubs know the holder of a hub ticket's secret by.
func guestKey(secret string) []byte {
	seed, err := wire.GuestKey(secret)
	if err != nil { // only for a length that no key has
		panic(err)
	}
	return key(mesh.KeyFromSeed(seed))
}
