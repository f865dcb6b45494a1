package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// How a peer's path is watched.
const (
	quiet      = 2 * time.Second        // no word for this long: ask
	silent     = 3 * time.Second        // no word for this long: the path may be wrong
	sessionMax = 180 * time.Second      // WireGuard's keys are void after this
	retryFirst = 500 * time.Millisecond // between attempts to find a silent peer,
	retryMax   = 5 * time.Second        // doubling up to this
	precedence = 250 * time.Millisecond // by which one of two lets the other greet first
	rekeyTry   = 400 * time.Millisecond // no word for this long after a new key: greet again
	sessionTry = 250 * time.Millisecond // a session that carried nothing for so long is void
	resolveMax = 2 * time.Second        // for one name
	resolveAge = 30 * time.Second       // a name that answered is not asked again before
	candidates = 8                      // addresses tried at once
)

// watch starts the goroutine that keeps the path to a node. The caller holds mu.
func (m *Mesh) watch(p *member) {
	ctx, stop := context.WithCancel(m.ctx)
	p.stop = stop
	m.wg.Go(func() {
		w := &watcher{mesh: m, p: p}
		if w.second() {
			select {
			case <-ctx.Done():
				return
			case <-p.ready:
			case <-time.After(jitter(precedence)):
			}
		}
		for {
			wait := w.step(ctx)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			case <-p.kick:
				// Whoever is in a hurry may be so twice a second, not more.
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(w.last.Add(retryFirst))):
				}
				w.retry = 0
			}
		}
	})
}

// watcher keeps the path to one node. While the node is heard it touches nothing:
// WireGuard learns where packets come from, and what it learnt is better than any
// configuration. A silent node is asked at every address known, the learnt one first.
type watcher struct {
	mesh  *Mesh
	p     *member
	last  time.Time
	retry time.Duration

	names    []string // what was resolved,
	resolved []string // to what,
	at       time.Time
}

// step looks once and says when to look again.
func (w *watcher) step(ctx context.Context) time.Duration {
	w.last = time.Now()
	silence, ask, limit := w.silence()
	if silence < ask {
		w.retry = 0
		return jitter(quiet / 2)
	}
	if silence >= limit {
		w.search(ctx)
	}
	w.mesh.mu.Lock()
	links := slices.Clone(w.p.links)
	w.mesh.mu.Unlock()
	for _, l := range links {
		w.mesh.tun.probe(l, probeAsk, uint64(w.mesh.tun.now()))
	}
	if silence < limit {
		return min(jitter(quiet/4), limit-silence)
	}
	w.retry = min(max(2*w.retry, retryFirst), retryMax)
	return jitter(w.retry)
}

// silence is how long nothing was heard of the node, for ever at first; and after how
// much of it to ask, and to search. After a change of this node's key both come soon,
// since all sessions are new then, and soonest for the one of two that goes first.
func (w *watcher) silence() (silence, ask, limit time.Duration) {
	heard, rekeyed, now := w.p.heard.Load(), w.mesh.rekeyed.Load(), w.mesh.tun.now()
	switch {
	case heard == 0:
		return silent, quiet, silent
	case heard > rekeyed:
		return time.Duration(now - heard), quiet, silent
	case w.second():
		return time.Duration(now - rekeyed), 0, 2 * rekeyTry
	}
	return time.Duration(now - rekeyed), 0, rekeyTry
}

// second says that the other end goes first: two that greet at the same moment may
// end with a session of which one side lacks half.
func (w *watcher) second() bool { return w.p.addr.Less(w.mesh.cfg.addr) }

func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.4*float64(d))
}

// search points WireGuard at every address that the node may have and makes it greet.
func (w *watcher) search(ctx context.Context) {
	m, p := w.mesh, w.p
	m.mu.Lock()
	names := slices.Clone(p.endpoints)
	m.mu.Unlock()
	addrs := w.resolve(ctx, names)
	state, err := m.describe()
	if err != nil || ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if silence, _, limit := w.silence(); p.gone || silence < limit {
		return
	}
	var known []string // where any of its keys was last seen
	for _, l := range p.links {
		for _, e := range state.peers[l.key].endpoints {
			if !slices.Contains(known, e) {
				known = append(known, e)
			}
		}
	}
	for _, a := range addrs {
		if !slices.Contains(known, a) {
			known = append(known, a)
		}
	}
	if len(known) == 0 {
		return // it has to call us
	}
	if len(known) > candidates { // what was only once seen goes first
		known = append(known[:1:1], addrs[:min(len(addrs), candidates-1)]...)
	}
	var config strings.Builder
	for _, l := range p.links {
		at := state.peers[l.key].handshake
		if m.void(l, at) {
			// Without a session there is nothing to lose by starting over, and
			// WireGuard would wait five seconds before it greets again.
			fmt.Fprintf(&config, "public_key=%s\nremove=true\n", l.key.hex())
			config.WriteString(l.config(strings.Join(known, ","), true))
		} else {
			fmt.Fprintf(&config, "public_key=%s\nupdate_only=true\nendpoint=%s\n", l.key.hex(), strings.Join(known, ","))
		}
	}
	if err := m.dev.IpcSet(config.String()); err != nil {
		m.log.Debug("point the tunnel at a peer", "node", p.id, "err", err)
		return
	}
	for _, l := range p.links {
		if peer := m.dev.LookupPeer(device.NoisePublicKey(l.key)); peer != nil {
			peer.SendHandshakeInitiation(false)
		}
	}
}

// void says that the session of a key, greeted at the given time, carries nothing.
func (m *Mesh) void(l *link, greeted time.Time) bool {
	heard, rekeyed := m.tun.began.Add(time.Duration(l.heard.Load())), m.tun.began.Add(time.Duration(m.rekeyed.Load()))
	age := time.Since(greeted)
	return age > sessionMax || greeted.Before(rekeyed) || age > sessionTry && heard.Before(greeted)
}

// resolve turns endpoints into addresses. A name that fails is left out this time;
// the addresses it had are kept while it can't be asked.
func (w *watcher) resolve(ctx context.Context, names []string) []string {
	if slices.Equal(names, w.names) && time.Since(w.at) < resolveAge {
		return w.resolved
	}
	var all []string
	var failed error
	for _, name := range names {
		got, err := resolve(ctx, name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, a := range got {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	if failed != nil {
		w.mesh.log.Debug("resolve an endpoint", "node", w.p.id, "err", failed)
		if slices.Equal(names, w.names) && len(all) < len(w.resolved) {
			return w.resolved
		}
		w.at = time.Time{}
	} else {
		w.at = time.Now()
	}
	w.names, w.resolved = names, all
	return all
}

// resolve gives the addresses of one host:port.
func resolve(ctx context.Context, name string) ([]string, error) {
	if a, err := netip.ParseAddrPort(name); err == nil {
		return []string{netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()}, nil
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveMax)
	defer cancel()
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ip := range ips {
		out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(n)).String())
	}
	return out, nil
}
