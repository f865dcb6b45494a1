package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Peer is another node of the cluster.
type Peer struct {
	ID        string
	Keys      []PublicKey // one, or two while it changes its key; the newest last
	Endpoints []string    // host:port of its UDP port, each an address or a name; may be empty
}

// Runner is one that reaches this node through the tunnel. It calls; it is not called.
type Runner struct {
	ID   string
	Keys []PublicKey // as in Peer
}

// errRemoved is what a connection gives whose peer left the set.
var errRemoved = fmt.Errorf("the peer is no longer a member of the mesh: %w", fleet.Forbidden)

// keepalive keeps the way through a NAT open, in seconds.
const keepalive = 25

// keysMax bounds what one peer may ask this node to hold.
const keysMax = 4

func newMember(id string, class Class, addr netip.Addr) *member {
	return &member{
		id: id, class: class, addr: addr, since: time.Now(),
		ready: make(chan struct{}), kick: make(chan struct{}, 1), left: make(chan struct{}), conns: map[*Conn]struct{}{},
	}
}

// name tells members of all classes apart.
func (m *member) name() string { return m.class.String() + " " + m.addr.String() }

// SetPeers gives the exact set of other nodes. Who is missing is refused and cut
// before it returns; so is who comes with none of the keys it had, since its
// connections were proven by a key that is no longer its own. This node itself may be
// in the set and is passed over. An endpoint that works is kept whatever the set says.
func (m *Mesh) SetPeers(peers []Peer) {
	want := make([]wanted, 0, len(peers))
	for _, p := range peers {
		if p.ID != m.cfg.ID || m.cfg.class != ClassNode {
			want = append(want, wanted{id: p.ID, addr: Addr(m.cfg.Cluster, p.ID), keys: p.Keys, endpoints: p.Endpoints})
		}
	}
	m.set(ClassNode, want)
}

// SetGuests gives the exact set of keys that may reach PortJoin, and nothing else.
func (m *Mesh) SetGuests(keys []PublicKey) {
	want := make([]wanted, 0, len(keys))
	for _, k := range keys {
		want = append(want, wanted{addr: GuestAddr(m.cfg.Cluster, k), keys: []PublicKey{k}})
	}
	m.set(ClassGuest, want)
}

// SetRunners gives the exact set of runners that may reach what ListenRunners opened.
func (m *Mesh) SetRunners(runners []Runner) {
	want := make([]wanted, 0, len(runners))
	for _, r := range runners {
		want = append(want, wanted{id: r.ID, addr: RunnerAddr(m.cfg.Cluster, r.ID), keys: r.Keys})
	}
	m.set(ClassRunner, want)
}

type wanted struct {
	id        string
	addr      netip.Addr
	keys      []PublicKey
	endpoints []string
}

// set makes the members of one class exactly those wanted.
func (m *Mesh) set(class Class, want []wanted) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	var (
		remove, config strings.Builder // removals first: a key may go from one to another
		cut            []*Conn
		seen           = map[string]bool{}
		taken          = map[PublicKey]string{m.key.Public(): "this node"}
		fresh          []*member
	)
	for name, p := range m.members {
		if p.class != class {
			for _, l := range p.links {
				taken[l.key] = name
			}
		}
	}
	for _, w := range want {
		next := newMember(w.id, class, w.addr)
		name := next.name()
		keys := m.usable(name, w.keys, taken)
		if seen[name] || len(keys) == 0 {
			m.log.Warn("peer left out of the mesh", "node", w.id, "class", class.String(), "err", errUnusable)
			continue
		}
		seen[name] = true
		cur := m.members[name]
		if cur != nil && !slices.ContainsFunc(cur.links, func(l *link) bool { return slices.Contains(keys, l.key) }) {
			m.log.Info("peer has a new key", "node", w.id)
			cut = append(cut, m.drop(&remove, cur)...)
			cur = nil
		}
		if cur == nil {
			cur = next
			m.members[name] = cur
			fresh = append(fresh, cur)
		}
		if !slices.Equal(cur.endpoints, w.endpoints) {
			cur.endpoints = slices.Clone(w.endpoints)
			cur.wake()
		}
		added, dropped := cur.relink(m.cfg.Cluster, keys)
		for _, l := range dropped {
			fmt.Fprintf(&remove, "public_key=%s\nremove=true\n", l.key.hex())
		}
		at := ""
		if len(added) > 0 && len(cur.links) > len(added) {
			at = m.place(cur)
		}
		for _, l := range added {
			config.WriteString(l.config(at, false)) // no greeting: whoever changes its key greets
		}
		if len(added) > 0 {
			cur.wake()
		}
	}
	for name, p := range m.members {
		if p.class == class && !seen[name] {
			cut = append(cut, m.drop(&remove, p)...)
		}
	}
	// The data path first: from here on nothing of a removed peer comes in.
	m.tun.table.Store(newTable(m.everybody()))
	if err := m.dev.IpcSet(remove.String() + config.String()); err != nil {
		m.log.Error("set the peers of the mesh", "err", err)
	}
	for _, p := range fresh {
		if class == ClassNode {
			m.watch(p)
		}
	}
	m.mu.Unlock()
	for _, c := range cut {
		c.cut(errRemoved)
	}
}

var errUnusable = errors.New("no usable key, or named twice")

// usable gives the keys that nobody else has, at most keysMax, the newest kept.
func (m *Mesh) usable(name string, keys []PublicKey, taken map[PublicKey]string) []PublicKey {
	var ok []PublicKey
	for _, k := range keys {
		if by := taken[k]; k.IsZero() || by != "" && by != name || slices.Contains(ok, k) {
			continue
		}
		taken[k] = name
		ok = append(ok, k)
	}
	return ok[max(0, len(ok)-keysMax):]
}

// place is where a member was last seen with any of its keys, for its new one.
func (m *Mesh) place(p *member) string {
	state, err := m.describe()
	if err != nil {
		return ""
	}
	best, at := "", int64(-1)
	for _, l := range p.links {
		if e := state.peers[l.key].endpoints; len(e) > 0 && l.heard.Load() > at {
			best, at = strings.Join(e, ","), l.heard.Load()
		}
	}
	return best
}

// config is the key's entry at WireGuard; an empty endpoint is left as it is.
func (l *link) config(endpoint string, keepAlive bool) string {
	s := fmt.Sprintf("public_key=%s\nreplace_allowed_ips=true\nallowed_ip=%s/128\n", l.key.hex(), l.addr)
	if endpoint != "" {
		s += fmt.Sprintf("endpoint=%s\n", endpoint)
	}
	if keepAlive {
		s += fmt.Sprintf("persistent_keepalive_interval=%d\n", keepalive)
	}
	return s
}

// drop takes a member out of the set and says which connections are to be cut. The
// caller holds mu.
func (m *Mesh) drop(config *strings.Builder, p *member) []*Conn {
	for _, l := range p.links {
		fmt.Fprintf(config, "public_key=%s\nremove=true\n", l.key.hex())
	}
	delete(m.members, p.name())
	return m.retire(p)
}

// retire ends a member: it takes no connection any more. The caller holds mu.
func (m *Mesh) retire(p *member) []*Conn {
	p.gone = true
	close(p.left)
	if p.stop != nil {
		p.stop()
	}
	return slices.Collect(maps.Keys(p.conns))
}

func (m *Mesh) everybody() []*member { return slices.Collect(maps.Values(m.members)) }

// node finds another node of the set by its id.
func (m *Mesh) node(id string) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == m.cfg.ID && m.cfg.class == ClassNode {
		return m.myself
	}
	return m.members[(&member{class: ClassNode, addr: Addr(m.cfg.Cluster, id)}).name()]
}

// Rekey changes this node's own key at once, without any connection ending. The
// others must have been given the new key beside the old one before.
func (m *Mesh) Rekey(key PrivateKey) error {
	if key.IsZero() {
		return fmt.Errorf("change the mesh key: there is none: %w", fleet.BadRequest)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("change the mesh key: the mesh is closed: %w", fleet.Unavailable)
	}
	if key == m.key {
		return nil
	}
	for _, p := range m.members {
		if slices.ContainsFunc(p.links, func(l *link) bool { return l.key == key.Public() }) {
			return fmt.Errorf("change the mesh key: %s has this key: %w", p.called(), fleet.Conflict)
		}
	}
	// No packet leaves between the two changes: it would bear the address of one key
	// and the seal of another.
	m.tun.rotate.Lock()
	err := m.dev.IpcSet("private_key=" + key.hex() + "\n")
	if err == nil {
		m.key = key
		m.rekeyed.Store(m.tun.now())
		m.tun.keys.Store(&ownKeys{now: keyAddr(m.cfg.Cluster, key.Public()).As16(), before: m.tun.keys.Load().now})
	}
	m.tun.rotate.Unlock()
	if err != nil {
		return fmt.Errorf("change the mesh key: %w", err)
	}
	// A word to every key of every peer: whichever it uses now, it hears the new key.
	for _, p := range m.members {
		for _, l := range p.links {
			m.tun.probe(l, probeAsk, uint64(m.tun.now()))
		}
		p.wake()
	}
	return nil
}

// called is the member's id, in words where it has none.
func (m *member) called() string { return cmp.Or(m.id, "a guest") }
