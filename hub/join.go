package hub

import (
	"context"
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
)

// newSessions makes the server of the runners' connections.
func (h *Hub) newSessions() (*session.Server, error) {
	c := session.Config{
		Proposer: h.entries, Spool: h.copies, Blobs: h.copies.Blobs(), Keys: h.sessionKeys,
		Standing: func() session.Standing {
			m := h.entries.View().Meta()
			return session.Standing{Epoch: m.Epoch, Term: h.node.Status().Term, Index: m.Index}
		},
		Leading:  h.leading.Load,
		Seen:     h.seenEpoch,
		Leader:   h.leaderURL,
		Hubs:     h.hubURLs,
		Judge:    judge,
		OnBeat:   func(fleet.RunnerID) { h.poke() },
		OnFree:   h.poke,
		Update:   updateOf,
		OnLive:   h.live,
		OnHealth: h.onHealth, OnPressure: h.onPressure,
		Errands: h.errands.asked, OnErrand: h.errands.answered,
		Provision: h.provisions.next, OnProvision: h.provisions.heard,
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
		Node: h.id.Node, Log: h.entries, Feed: changes{h.feed}, Spool: h.copies, Blobs: h.copies.Blobs(),
		Derive: h.secrets.derive, Proxies: h.cfg.TrustedProxies, ProxiesOnly: h.cfg.inTheClear(),
		Presence: h.sessions.Presence, Status: h.status, Ready: h.serves, AcceptClock: h.acceptClock, Settled: h.isSettled, Ticket: h.ticket, Now: h.entries.now,
		URL: h.url, PublicURL: strings.TrimSuffix(h.cfg.PublicURL, "/"),
		OwnCA: !h.cfg.plain() && h.cfg.TLSCert == "" && len(h.cfg.TrustedProxies) == 0,
		Keys:  h.showKeys, Rotate: h.rotate, RotateMesh: h.RotateMesh, Runners: runners, Version: h.cfg.Version, Logger: h.log,
		HealthHistory:   h.healthHistory,
		GiveCredentials: h.provisions.give, ProvisionStanding: h.provisions.standing, Nudge: func(r fleet.RunnerID) { h.sessions.Nudge(r) },
		Sessions: h.errands.sessions, LastSessions: h.errands.last, Session: h.errands.session,
		InstallLine: h.InstallLine, Script: h.installScript, Program: h.program, Signature: h.signature,
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
		Warnings: unreadable(h.entries.View().Meta().Settings),
		Node:     h.id.Node, Leader: st.Leader, Term: st.Term, StartedAt: h.started.UTC(),
		Retention: api.Retention{Jobs: r.Jobs.String(), MaxJobs: r.MaxJobs, Output: r.Output.String(), OutputBytes: r.OutputBytes, Audit: r.Audit.String()},
		Disk:      api.Disk{LogBytes: st.LogBytes, SpoolBytes: spooled, BlobBytes: stored, FreeBytes: freeBytes(h.cfg.Dir)},
	}
}
