package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// newSessions makes the server of the runners' connections.
func (h *Hub) newSessions() (*session.Server, error) {
	return session.New(session.Config{
		Proposer: h.entries, Spool: h.copies, Blobs: h.copies.Blobs(), Keys: h.sessionKeys,
		Standing: func() session.Standing {
			m := h.entries.View().Meta()
			return session.Standing{Epoch: m.Epoch, Term: h.node.Status().Term, Index: m.Index}
		},
		Leading: h.leading.Load,
		Leader:  func() string { return h.url },
		Hubs:    func() []string { return []string{h.url} },
		Judge:   judge,
		OnBeat:  func(fleet.RunnerID) { h.poke() },
		OnFree:  h.poke,
		OnLive:  func(j fleet.JobID, e []fleet.Event) { h.web.Live(j, e) },
		Logger:  h.log,
	})
}

// newWeb makes the interface for people, which also carries the runners' paths.
func (h *Hub) newWeb() *web.Server {
	runners := http.NewServeMux()
	h.sessions.Register(runners)
	return web.New(web.Config{
		Log: h.entries, Feed: changes{h.feed}, Spool: h.copies, Blobs: h.copies.Blobs(),
		Derive: h.secrets.derive, Proxies: h.cfg.TrustedProxies, ProxiesOnly: h.cfg.inTheClear(),
		Presence: h.sessions.Presence, Status: h.status, Ready: h.serves, AcceptClock: h.acceptClock, Settled: h.isSettled, Ticket: h.ticket,
		Keys: h.showKeys, Rotate: h.rotate, Runners: runners, Version: h.cfg.Version, Logger: h.log,
	})
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
	if !h.leading.Load() {
		return fmt.Errorf("this node does not lead: %w", fleet.Unavailable)
	}
	if !h.isSettled() {
		return fmt.Errorf("the cluster is being founded: %w", fleet.Unavailable)
	}
	if err := h.disk.room(); err != nil {
		return err
	}
	return h.entries.timely()
}

// ticket writes a join ticket around a secret, and the command to paste.
func (h *Hub) ticket(secret string, expires time.Time) (text, command string) {
	t := wire.Ticket{Hubs: []string{h.url}, Cluster: h.id.Cluster, Secret: secret, ExpiresAt: expires}
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
	text = t.String()
	// In the environment it is not for everybody on that machine to read.
	return text, "TUGLINE_TICKET=" + text + " tugline runner run --data-dir ~/.local/share/tugline/runner"
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
