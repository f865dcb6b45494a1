package session

import (
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Keys are the secrets of the cluster that sessions need, as they are at one moment.
// What it refers to is never changed: other keys are another value.
type Keys struct {
	Cluster string // the cluster's id

	Masters map[uint64][]byte // HMAC master keys by generation; runners' keys of all of them are taken
	Master  uint64            // the generation that new keys of runners come from; 0: the greatest
	Ended   map[uint64][]byte // replaced so long ago that a runner with a key of theirs is sent away

	Signing   ed25519.PrivateKey // signs orders
	SigningID string             // its id, which is the last in Chain
	Chain     []wire.SigningKey  // order-signing keys, each signed by the one before

	CAs []wire.CAKey // that certify hubs now, oldest first; empty: runners are told nothing of CAs
	Pin []string     // wire.PinText of each of them
}

func (k *Keys) check() error {
	switch {
	case k.Cluster == "" || len(k.Masters) == 0:
		return fmt.Errorf("no cluster id or master keys: %w", fleet.BadRequest)
	case k.Masters[k.master()] == nil:
		return fmt.Errorf("no master key of generation %d: %w", k.Master, fleet.BadRequest)
	case len(k.Signing) != ed25519.PrivateKeySize || len(k.Chain) == 0:
		return fmt.Errorf("no order-signing key or chain: %w", fleet.BadRequest)
	case k.Chain[len(k.Chain)-1].ID != k.SigningID:
		return fmt.Errorf("the signing key %q does not end its chain: %w", k.SigningID, fleet.BadRequest)
	case len(k.CAs) != len(k.Pin):
		return fmt.Errorf("%d CAs with %d pins: %w", len(k.CAs), len(k.Pin), fleet.BadRequest)
	}
	return nil
}

// master gives the generation that new keys of runners come from.
func (k *Keys) master() uint64 {
	if k.Master != 0 || len(k.Masters) == 0 {
		return k.Master
	}
	return slices.Max(slices.Collect(maps.Keys(k.Masters)))
}

// verify finds the master key that the runner's key was derived from, the newest
// first. With ended the key is right and yet good for nothing any more.
func (k *Keys) verify(challenge, hello []byte, h wire.Hello) (key []byte, master uint64, ended, ok bool) {
	for _, set := range []map[uint64][]byte{k.Masters, k.Ended} {
		all := slices.Sorted(maps.Keys(set))
		for _, g := range slices.Backward(all) {
			key, err := wire.RunnerKey(set[g], h.Runner, h.Generation)
			if err == nil && wire.VerifyHello(key, challenge, hello) == nil {
				return key, g, k.Masters[g] == nil, true
			}
		}
	}
	return nil, 0, false, false
}

// ended says to a runner whose key comes from a master key that counts for nothing
// any more what is to be done.
func ended(r *fleet.Runner, master uint64) wire.Goodbye {
	return wire.Goodbye{Code: fleet.RunnerRevoked, Final: true, Detail: fmt.Sprintf(
		"the runner's key comes from generation %d of the cluster's HMAC key, which was replaced more than %d days ago, and the runner did not come for another one; enrol it again with `tugline hub ticket --for %s`",
		master, int(fleet.HMACKeep.Hours()/24), r.ID)}
}

// newKey gives a runner's key under the newest master key, sealed to the runner.
func (s *Server) newKey(k *Keys, r *fleet.Runner) (*wire.NewKey, error) {
	key, err := wire.RunnerKey(k.Masters[k.master()], r.ID, r.Generation)
	if err != nil {
		return nil, err
	}
	sealed, err := wire.SealTo(r.BoxKey, s.cfg.Rand, key)
	if err != nil {
		return nil, err
	}
	return &wire.NewKey{Master: k.master(), Generation: r.Generation, Key: sealed}, nil
}

// news gives what the runner does not hold of the keys in use, or nil. A runner that
// never said what it holds is told nothing: it would not understand.
func (x *session) news(k *Keys, r *fleet.Runner) *wire.KeyNews {
	x.mu.Lock()
	held := x.held
	x.mu.Unlock()
	if held == nil || r == nil {
		return nil
	}
	var n wire.KeyNews
	if held.HMAC != k.master() {
		key, err := x.srv.newKey(k, r)
		if err != nil {
			x.srv.cfg.Logger.Error("make the runner's new key", "runner", x.runner, "err", err)
		}
		n.HMAC = key
	}
	if held.Signing != k.SigningID {
		n.Signing = k.Chain
	}
	if !sameSet(held.CA, k.Pin) && slices.ContainsFunc(held.CA, func(p string) bool { return slices.Contains(k.Pin, p) }) {
		n.CA = k.CAs
	}
	if n.HMAC == nil && n.Signing == nil && n.CA == nil {
		return nil
	}
	return &n
}

func sameSet(a, b []string) bool {
	in := func(list []string) func(string) bool { return func(s string) bool { return !slices.Contains(list, s) } }
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// KeysChanged tells every runner of keys that have taken the place of others: the hub
// calls it whenever Keys gives another value. Nothing is lost where it is not called,
// for what a heartbeat shows is compared in any case.
func (s *Server) KeysChanged() {
	id := s.cfg.Keys().SigningID
	for _, x := range s.sessions() {
		x.mu.Lock()
		deaf := x.full && x.held == nil && x.signing != id
		x.mu.Unlock()
		if deaf { // a new handshake shows it the chain
			x.end(wire.Goodbye{Code: fleet.SessionEnded, Detail: "the order-signing key was replaced"})
			continue
		}
		x.out.nudge()
	}
}

// PinnedByAll says whether every connected runner that pins CAs at all pins the one
// with the given wire.PinText.
func (s *Server) PinnedByAll(pin string) bool {
	for _, x := range s.sessions() {
		x.mu.Lock()
		ok := x.held != nil && (len(x.held.CA) == 0 || slices.Contains(x.held.CA, pin))
		x.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}
