package mesh

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// member is one that this node takes packets from: a node, a guest or a runner.
// It lives as long as it is in the set; one that comes back is a new member.
type member struct {
	id    string // "" for a guest
	class Class
	addr  netip.Addr // what connections see
	since time.Time

	links []*link              // one for each key, newest last; replaced, never changed
	out   atomic.Pointer[link] // the key to send to: the one that last spoke
	heard atomic.Int64         // when, in ns since the mesh began; 0 = never
	rtt   atomic.Int64         // ns; of the last answered probe

	once  sync.Once
	ready chan struct{} // closed when it was heard for the first time
	kick  chan struct{} // wakes the watcher: somebody wants this peer
	left  chan struct{} // closed when it is no longer in the set

	// Guarded by Mesh.mu.
	endpoints []string
	conns     map[*Conn]struct{}
	gone      bool
	stop      context.CancelFunc // ends the watcher; nil when there is none
}

// link is one key of a member.
type link struct {
	key   PublicKey
	addr  netip.Addr // the key's own, inside the tunnel
	of    *member
	rank  int // greater is newer
	heard atomic.Int64
}

// staleKey is how long the newest key must have been silent before an older one may
// take the traffic back: packets that were under way when it changed must not.
const staleKey = 3 * time.Second

// hear notes that an authenticated packet of this key came in.
func (l *link) hear(now int64) {
	m := l.of
	l.heard.Store(now)
	m.heard.Store(now)
	if cur := m.out.Load(); cur != l && (cur.rank < l.rank || cur.heard.Load() == 0 || now-cur.heard.Load() > int64(staleKey)) {
		m.out.Store(l)
	}
	m.once.Do(func() { close(m.ready) })
}

// wake makes the watcher look now.
func (m *member) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// table is what the data path looks packets up in. It is replaced as a whole.
type table struct {
	byKey  map[[16]byte]*link
	byAddr map[[16]byte]*member
}

func newTable(members []*member) *table {
	t := &table{byKey: map[[16]byte]*link{}, byAddr: map[[16]byte]*member{}}
	for _, m := range members {
		t.byAddr[m.addr.As16()] = m
		for _, l := range m.links {
			t.byKey[l.addr.As16()] = l
		}
	}
	return t
}

// relink gives the member the keys, keeping the links of those it had. It says
// which keys are new and which are no more.
func (m *member) relink(cluster string, keys []PublicKey) (added, dropped []*link) {
	old := m.links
	m.links = nil
	for i, k := range keys {
		j := slices.IndexFunc(old, func(l *link) bool { return l.key == k })
		if j < 0 || old[j].rank != i {
			l := &link{key: k, addr: keyAddr(cluster, k), of: m, rank: i}
			if j < 0 {
				added = append(added, l)
			} else {
				l.heard.Store(old[j].heard.Load())
			}
			m.links = append(m.links, l)
			continue
		}
		m.links = append(m.links, old[j])
	}
	for _, l := range old {
		if !slices.Contains(keys, l.key) {
			dropped = append(dropped, l)
		}
	}
	// What was sent to stays, under its new link; else the newest is tried first.
	next := m.links[len(m.links)-1]
	if cur := m.out.Load(); cur != nil {
		for _, l := range m.links {
			if l.key == cur.key {
				next = l
			}
		}
	}
	m.out.Store(next)
	return added, dropped
}
