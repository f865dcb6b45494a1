package runner

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

var (
	errRekeyed    = errors.New("a new key of this runner is there; connecting anew with it")
	errChainAgain = errors.New("the order is signed by a key that is not known yet; asking for the chain anew")
)

// rekey is a new key of this runner that no hub has welcomed yet.
type rekey struct {
	Master uint64 `json:"master"` // generation of the cluster's HMAC key that it comes from
	Key    []byte `json:"key"`
}

// keyring is that part of the identity which changes while a link lives: the key for
// hellos, the chain of order-signing keys, the pinned CAs. Whatever it takes in is
// durable before anybody is told that it is here.
type keyring struct {
	dir string

	mu sync.Mutex
	id *identity
}

// hello gives the key for the next hello: a new one that was not welcomed yet goes
// first.
func (k *keyring) hello() (key []byte, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.id.Rekey != nil {
		return k.id.Rekey.Key, true
	}
	return k.id.HMACKey, false
}

// former gives the key that was welcomed last.
func (k *keyring) former() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.id.HMACKey
}

// pinned is the order-signing key from which newer ones are followed.
func (k *keyring) pinned() ed25519.PublicKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.id.pinned()
}

func (k *keyring) pins() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.id.pins()
}

// held says what is here, as heartbeats tell it.
func (k *keyring) held() wire.KeysHeld {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := wire.KeysHeld{HMAC: max(k.id.Master, 1)}
	if k.id.Rekey != nil {
		h.HMAC = k.id.Rekey.Master
	}
	if n := len(k.id.Signing); n > 0 {
		h.Signing = k.id.Signing[n-1].ID
	}
	if !k.id.Plain && k.id.Trust == wire.TrustPin {
		for _, p := range k.id.pins() {
			h.CA = append(h.CA, wire.PinText(p))
		}
	}
	return h
}

// change edits the identity and puts it on disk; where that fails it is as before.
func (k *keyring) change(f func(*identity)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := *k.id
	f(&n)
	if err := n.save(k.dir); err != nil {
		return err
	}
	k.id.HMACKey, k.id.Master, k.id.Rekey, k.id.Signing, k.id.Pin, k.id.Pins = n.HMACKey, n.Master, n.Rekey, n.Signing, n.Pin, n.Pins
	k.id.Known = n.Known
	return nil
}

// welcomed takes in what a handshake has proven: a new key works, and is the only one
// from now on, or does not while the former one does; the chain of the challenge is
// the hub's.
func (k *keyring) welcomed(fresh bool, chain []wire.SigningKey) error {
	k.mu.Lock()
	settled := k.id.Rekey == nil
	known := len(k.id.Signing) > 0 && len(chain) > 0 && k.id.Signing[len(k.id.Signing)-1].ID == chain[len(chain)-1].ID
	k.mu.Unlock()
	if settled && known {
		return nil
	}
	return k.change(func(id *identity) {
		if id.Rekey != nil && fresh {
			id.HMACKey, id.Master = id.Rekey.Key, id.Rekey.Master
		}
		id.Rekey = nil
		id.Signing = slices.Clone(chain)
	})
}

// newKey takes in a new key of this runner, for the next hello.
func (k *keyring) newKey(n wire.NewKey) error {
	k.mu.Lock()
	generation, pub, priv := k.id.Generation, k.id.BoxPub, k.id.BoxPriv
	k.mu.Unlock()
	if n.Generation != generation {
		return fmt.Errorf("a key of enrolment %d came for enrolment %d: %w", n.Generation, generation, fleet.BadRequest)
	}
	key, err := wire.OpenBox(pub, priv, n.Key)
	if err != nil {
		return err
	}
	return k.change(func(id *identity) { id.Rekey = &rekey{Master: n.Master, Key: key} })
}

// newChain takes in a chain that leads on from the pinned key and gives the keys that
// orders may be signed with.
func (k *keyring) newChain(chain []wire.SigningKey) (map[string]ed25519.PublicKey, error) {
	keys, err := wire.VerifyChain(k.pinned(), chain)
	if err != nil {
		return nil, err
	}
	return keys, k.change(func(id *identity) { id.Signing = slices.Clone(chain) })
}

// newPins takes in CAs that a pinned one leads to, in place of those pinned before.
func (k *keyring) newPins(all []wire.CAKey) error {
	pins, err := wire.VerifyCAs(k.pins(), all)
	if err != nil {
		return err
	}
	return k.change(func(id *identity) { id.Pin, id.Pins = pins[0], pins[1:] })
}

// takeNews takes in keys that came with a desired set, before the set is looked at.
func (l *link) takeNews(s *session, n *wire.KeyNews) {
	if n == nil {
		return
	}
	var failed []error
	did := func(what string, err error) bool {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
			return false
		}
		l.r.log.Info("the hub has replaced a key", "what", what)
		return true
	}
	if len(n.Signing) > 0 {
		keys, err := l.keys.newChain(n.Signing)
		if did("order-signing key", err) {
			for id, key := range s.keys { // what it signed before is on its way
				keys[id] = key
			}
			s.keys = keys
		}
	}
	if len(n.CA) > 0 {
		did("CA", l.keys.newPins(n.CA))
	}
	if n.HMAC != nil && did("key of this runner", l.keys.newKey(*n.HMAC)) {
		select {
		case s.rekeyed <- struct{}{}:
		default:
		}
	}
	if err := errors.Join(failed...); err != nil {
		l.r.log.Error("a key that the hub has replaced cannot be taken in; it comes again", "err", err)
		l.r.alert("keys", fmt.Sprintf("a key that the hub has replaced cannot be taken in: %v", err))
		return
	}
	l.r.alert("keys", "")
	l.beat(true)
}

// moves ends a session that was opened with a former key, at a moment of its own so
// that a whole fleet does not connect at once.
func (l *link) moves(ctx context.Context, s *session) {
	select {
	case <-s.rekeyed:
	case <-ctx.Done():
		return
	}
	s.clockMu.Lock()
	interval := s.interval
	s.clockMu.Unlock()
	timer := time.NewTimer(rand.N(2 * interval))
	defer timer.Stop()
	select {
	case <-timer.C:
		s.end(errRekeyed)
	case <-ctx.Done():
	}
}

// chainAgain says whether an unknown key that signed an order is to be looked for in
// the chain of a new handshake, which is done once for each.
func (l *link) chainAgain(s *session, key string) bool {
	if l.unknown == key {
		return false
	}
	l.unknown = key
	s.end(errChainAgain)
	return true
}
