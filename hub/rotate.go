package hub

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// signingKeep is how long after its replacement a signing key counts: as long as an
// order that it signed may be obeyed.
const signingKeep = 10 * time.Minute

// The points of a rotation at which a crash leaves something behind.
const (
	keyMade        = "made"        // it is on this node's disk
	keyDistributed = "distributed" // it is on the disks of all voters
	keyActivated   = "activated"   // the log says so
)

// reached says to a test that a rotation came to a point.
func (h *Hub) reached(point string) {
	if h.points != nil {
		h.points(point)
	}
}

// rotate replaces one of the cluster's keys: the new one is on the disk of every voter
// before the log makes it active. keep is how long a CA that is replaced stays trusted.
func (h *Hub) rotate(ctx context.Context, head state.Head, kind string, keep time.Duration) (state.Result, error) {
	switch kind {
	case fleet.KeyHMAC:
		keep = fleet.HMACKeep
	case fleet.KeySigning:
		keep = signingKeep
	}
	if !h.rotating.TryLock() {
		return state.Result{Code: fleet.Conflict, Detail: "another rotation is under way; try again when it has ended"}, nil
	}
	defer h.rotating.Unlock()
	if err := h.serves(); err != nil {
		return state.Result{}, err
	}
	if err := h.followKeys(ctx); err != nil {
		return state.Result{}, fmt.Errorf("replace the %s key: %w: %w", kind, err, fleet.Internal)
	}
	k, err := h.secrets.next(kind, h.wall())
	if err != nil {
		return state.Result{}, fmt.Errorf("make a new %s key: %w", kind, err)
	}
	h.reached(keyMade)
	if h.keyPeers.distribute != nil {
		if err := h.keyPeers.distribute(ctx, k.sealable()); err != nil {
			return state.Result{}, fmt.Errorf("the %s key was not replaced: %w", kind, err)
		}
	}
	h.reached(keyDistributed)
	res, err := h.entries.ProposeAs(ctx, head, k.activation(keep))
	if err != nil {
		return res, err
	}
	h.reached(keyActivated)
	return res, h.followKeys(ctx)
}

func (k *heldKey) sealable() sealable {
	return sealable{Kind: k.Kind, Generation: k.Generation, Seal: func(box []byte) ([]byte, error) {
		b, err := k.payload()
		if err != nil {
			return nil, err
		}
		return wire.SealTo(box, rand.Reader, b)
	}}
}

func (k *heldKey) activation(keep time.Duration) *state.ActivateKeys {
	return &state.ActivateKeys{Kind: k.Kind, Generation: k.Generation, ID: k.ID, Public: k.Public, Proof: k.Proof, Digest: k.digest(), Keep: keep}
}

// recordKeys tells the log of keys that are in use and that it does not know: those of
// a new cluster, and those of one whose log is older than its keys.
func (l *term) recordKeys(ctx context.Context) {
	h := l.hub
	for _, kind := range fleet.KeyKinds {
		known := uint64(0)
		if rows := h.entries.View().Keys(kind); len(rows) > 0 {
			known = rows[len(rows)-1].Generation
		}
		for _, k := range h.secrets.all(kind) {
			if k.Generation > known {
				l.propose(ctx, k.activation(fleet.HMACKeep))
			}
			if k.Served && k.Generation > max(known, 1) {
				l.propose(ctx, &state.ActivateKeys{Kind: kind, Generation: k.Generation, Serve: true})
			}
		}
	}
}

// all gives the generations of a key that are or were active.
func (s *secrets) all(kind string) []*heldKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used(kind)
}

// serveCA has the hubs show certificates of a new CA once all who are connected know
// it, or the one before it has ended.
func (l *term) serveCA(ctx context.Context) {
	v := l.hub.entries.View()
	rows := v.Keys(fleet.KeyCA)
	serves := len(rows) - 1
	for serves > 0 && rows[serves].ServesAt == nil {
		serves--
	}
	for i := len(rows) - 1; i > serves; i-- {
		pin, ok := l.hub.secrets.pinOf(rows[i])
		over := i == serves+1 && !rows[serves].Holds(v.Meta().Time)
		if ok && (over || l.hub.sessions.PinnedByAll(pin)) {
			l.propose(ctx, &state.ActivateKeys{Kind: fleet.KeyCA, Generation: rows[i].Generation, Serve: true})
			poke(l.hub.keyNews)
			return
		}
	}
}

// pinOf gives what runners pin of a CA that this node holds.
func (s *secrets) pinOf(row *fleet.ClusterKey) (string, bool) {
	for _, k := range s.all(row.Kind) {
		if k.is(row) {
			return wire.PinText(wire.CAPin(k.ca)), true
		}
	}
	return "", false
}

// sessionKeys gives the keys that sessions use now.
func (h *Hub) sessionKeys() *session.Keys { return &h.secrets.use.Load().session }

// showKeys gives what people may know of the keys.
func (h *Hub) showKeys() api.Keys {
	v := h.entries.View()
	now := v.Meta().Time
	users := map[uint64]int{}
	for _, r := range v.Runners() {
		if r.Generation >= r.Floor {
			users[max(r.Master, 1)]++
		}
	}
	u := h.secrets.use.Load()
	out := api.Keys{Keys: []api.Key{}, Due: exposed(v)}
	for _, kind := range fleet.KeyKinds {
		held := h.secrets.all(kind)
		rows := v.Keys(kind)
		for i, row := range rows {
			k := api.Key{Kind: kind, Generation: row.Generation, ID: row.ID, ActiveSince: row.At.UTC(), Active: i == len(rows)-1, Until: utc(row.Until), Holds: row.Holds(now)}
			if kind == fleet.KeyHMAC {
				n := users[row.Generation]
				k.Runners, k.Holds = &n, u.session.Masters[row.Generation] != nil
			}
			for _, own := range held {
				if !own.is(row) {
					continue
				}
				if !own.MadeAt.IsZero() {
					k.MadeAt = &own.MadeAt
				}
				if kind != fleet.KeyCA {
					continue
				}
				k.Holds = slices.ContainsFunc(u.trusted, func(t *heldKey) bool { return t.ID == own.ID })
				if k.Holds {
					k.Serves = own.ID == u.issuer.ID
					k.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Public}))
				}
			}
			out.Keys = append(out.Keys, k)
		}
	}
	return out
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
