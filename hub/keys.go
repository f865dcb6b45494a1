package hub

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// rows are what the log says of the keys, by kind, the active one last.
type rows map[string][]*fleet.ClusterKey

func rowsOf(v state.View) rows {
	r := rows{}
	for _, kind := range fleet.KeyKinds {
		r[kind] = v.Keys(kind)
	}
	return r
}

func (r rows) equal(o rows) bool {
	for _, kind := range fleet.KeyKinds {
		if !slices.Equal(r[kind], o[kind]) { // a row that changed is another row
			return false
		}
	}
	return true
}

func (r rows) of(k *heldKey) *fleet.ClusterKey {
	for _, row := range r[k.Kind] {
		if k.is(row) {
			return row
		}
	}
	return nil
}

// inUse is what follows from the keys that a node holds and from what the log says of
// them at one moment. It is never changed.
type inUse struct {
	session session.Keys
	masters [][]byte   // all there are, the active one first
	trusted []*heldKey // CAs, the newest last
	issuer  *heldKey   // the CA that certifies this node
	above   [][]byte   // what is shown behind a certificate of the issuer, as DER
	until   time.Time  // of state time; then it is another; zero: never
}

// chain tells two values apart whose certificates differ.
func (u *inUse) chain() string {
	var b strings.Builder
	for _, der := range u.above {
		b.Write(der)
	}
	return b.String()
}

// inUse works out what is in use at a moment of state time. It is called with mu held,
// or before anybody else knows of s.
func (s *secrets) inUse(r rows, now time.Time) *inUse {
	u := &inUse{session: session.Keys{Cluster: s.cluster, Masters: map[uint64][]byte{}, Ended: map[uint64][]byte{}}}
	holds := func(k *heldKey) bool {
		row := r.of(k)
		if row == nil || row.Until == nil {
			return true
		}
		if !row.Holds(now) {
			return false
		}
		if u.until.IsZero() || row.Until.Before(u.until) {
			u.until = *row.Until
		}
		return true
	}
	for _, k := range s.used(fleet.KeyHMAC) {
		u.masters = append(u.masters, k.Secret)
		if u.session.Master = k.Generation; holds(k) {
			u.session.Masters[k.Generation] = k.Secret
		} else {
			u.session.Ended[k.Generation] = k.Secret
		}
	}
	slices.Reverse(u.masters)
	for _, k := range s.used(fleet.KeySigning) {
		u.session.Signing, u.session.SigningID = ed25519.NewKeyFromSeed(k.Secret), k.ID
		u.session.Chain = append(u.session.Chain, wire.SigningKey{ID: k.ID, Key: k.Public, Sig: k.Proof})
	}
	if n := len(u.session.Chain); n > wire.MaxChain { // runners pin the newest that they saw
		u.session.Chain = u.session.Chain[n-wire.MaxChain:]
	}
	cas := s.used(fleet.KeyCA)
	serves := len(cas) - 1
	for serves > 0 && !cas[serves].Served {
		serves--
	}
	u.issuer = cas[serves]
	u.above = append(u.above, u.issuer.Public)
	for i, k := range cas {
		if i < serves && !holds(k) {
			continue
		}
		u.trusted = append(u.trusted, k)
		u.session.CAs = append(u.session.CAs, wire.CAKey{Cert: k.Public, Cross: k.Proof})
		u.session.Pin = append(u.session.Pin, wire.PinText(wire.CAPin(k.ca)))
	}
	for i := serves; i > 0 && slices.Contains(u.trusted, cas[i-1]); i-- {
		u.above = append(u.above, cas[i].Proof, cas[i-1].Public)
	}
	if n := len(u.session.CAs); n > wire.MaxCAs {
		u.session.CAs, u.session.Pin = u.session.CAs[n-wire.MaxCAs:], u.session.Pin[n-wire.MaxCAs:]
	}
	return u
}

// follow makes use of what the log says. It gives the keys that this node must hold
// and does not, and whether anything is another than before. An error says that what
// is in use is not on disk; it is in use all the same, and the log will say it again.
func (s *secrets) follow(v state.View) (missing []*fleet.ClusterKey, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, now, was := rowsOf(v), v.Meta().Time, s.use.Load()
	keys, marked := s.marked(r)
	for _, kind := range fleet.KeyKinds {
		for _, row := range r[kind] {
			if row.Holds(now) && !slices.ContainsFunc(keys, func(k *heldKey) bool { return k.is(row) }) {
				missing = append(missing, row)
			}
		}
	}
	ended := !was.until.IsZero() && !now.Before(was.until)
	if !marked && !ended && s.seen.equal(r) {
		return missing, false, nil
	}
	if marked {
		if err = s.save(keys); err != nil {
			s.keys = keys
		}
	}
	s.seen = r
	s.use.Store(s.inUse(r, now))
	return missing, true, err
}

// marked gives the keys with the marks that the log asks for, and without pending ones
// that can no longer become active.
func (s *secrets) marked(r rows) (keys []*heldKey, changed bool) {
	last := map[string]uint64{}
	for kind, list := range r {
		if len(list) > 0 {
			last[kind] = list[len(list)-1].Generation
		}
	}
	for _, k := range s.keys {
		row := r.of(k)
		served := row != nil && row.ServesAt != nil
		switch {
		case row == nil && !k.Used && k.Generation <= last[k.Kind]:
			changed = true // another one of its generation, or of a later one, is active
			continue
		case row != nil && !k.Used, served && !k.Served:
			n := *k
			n.Used, n.Served = true, k.Served || served
			k, changed = &n, true
		}
		keys = append(keys, k)
	}
	return keys, changed
}

// derive gives 32 bytes that only this cluster can derive from the text, under the
// HMAC key that is active, or under the one so many generations back; nil where there
// is none.
func (s *secrets) derive(text string, back int) []byte {
	masters := s.use.Load().masters
	if back >= len(masters) {
		return nil
	}
	m := hmac.New(sha256.New, masters[back])
	m.Write([]byte("tugline hub derive\x00" + text))
	return m.Sum(nil)
}
