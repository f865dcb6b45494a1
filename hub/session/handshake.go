package session

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// challenge makes the frame that opens a handshake, and its nonce.
func (s *Server) challenge() (frame, nonce []byte, err error) {
	nonce, err = wire.NewNonce(s.cfg.Rand)
	if err != nil {
		return nil, nil, err
	}
	k := s.cfg.Keys()
	body, err := wire.Encode(wire.Challenge{
		Versions: wire.Versions,
		Nonce:    nonce,
		Time:     s.cfg.Now().UTC(),
		Cluster:  k.Cluster,
		Epoch:    s.cfg.Standing().Epoch,
		Signing:  k.Chain,
	})
	if err != nil {
		return nil, nil, err
	}
	return wire.Plain(wire.TypeChallenge, body), nonce, nil
}

// refusal is a handshake that failed. The goodbye is sealed where the hello proved
// that the runner holds its key, so that a stranger cannot forge one.
type refusal struct {
	bye wire.Goodbye
	key *wire.SessionKey
}

// frame gives the goodbye as the first frame of a direction.
func (r *refusal) frame(dir wire.Direction) []byte {
	body, err := wire.Encode(r.bye)
	if err != nil {
		body = []byte(`{"code":"internal","detail":"","final":false}`)
	}
	if r.key == nil {
		return wire.Plain(wire.TypeGoodbye, body)
	}
	return wire.Seal(*r.key, dir, wire.TypeGoodbye, 1, body)
}

// admit checks a hello and makes the session that it opens. It changes the
// replicated state only for a runner that proved who it is.
func (s *Server) admit(ctx context.Context, path fleet.RunnerID, challenge, nonce, hello []byte) (*session, *refusal) {
	deny := func(code fleet.Code, format string, args ...any) *refusal {
		return &refusal{bye: wire.Goodbye{Code: code, Detail: fmt.Sprintf(format, args...)}}
	}
	h, err := wire.ParseHello(hello)
	if err != nil {
		return nil, deny(codeOf(err), "the hello cannot be read: %v", err)
	}
	if !slices.Contains(wire.Versions, h.Version) {
		return nil, deny(fleet.ProtocolVersion, "the hub speaks protocol versions %v, the runner chose %d; update the older of the two", wire.Versions, h.Version)
	}
	if h.Runner != path {
		return nil, deny(fleet.BadRequest, "the hello is of runner %q, the address of %q", h.Runner, path)
	}
	r, known := s.cfg.Proposer.View().Runner(h.Runner)
	if !known {
		return nil, deny(fleet.RunnerUnknown, "this hub does not know the runner; enrol it with a new ticket")
	}
	k := s.cfg.Keys()
	key, master, late, ok := k.verify(challenge, hello, h)
	if !ok {
		return nil, deny(fleet.BadSignature, "the hello does not verify by the runner's key")
	}
	sk, err := wire.DeriveSession(key, nonce, h.Nonce, k.Cluster, h.Runner)
	if err != nil {
		return nil, deny(codeOf(err), "%v", err)
	}
	// From here on the runner is known to be a holder of the key.
	deny = func(code fleet.Code, format string, args ...any) *refusal {
		final := code == fleet.RunnerUnknown || code == fleet.RunnerRevoked || code == fleet.ClonedIdentity || code == fleet.ClusterMismatch
		return &refusal{key: &sk, bye: wire.Goodbye{Code: code, Detail: fmt.Sprintf(format, args...), Final: final}}
	}
	if bye := barred(r, h.Generation); bye != nil {
		return nil, &refusal{bye: *bye, key: &sk}
	}
	if late {
		return nil, &refusal{bye: ended(r, master), key: &sk}
	}
	if e := s.cfg.Standing().Epoch; h.Cluster != k.Cluster || h.Epoch > e {
		return nil, deny(fleet.ClusterMismatch, "the runner belongs to cluster %s and has seen epoch %d; this is cluster %s in epoch %d", h.Cluster, h.Epoch, k.Cluster, e)
	}
	if b, err := json.Marshal([]any{h.Name, h.Labels, h.Facts}); err != nil || len(b) > maxFollow {
		return nil, deny(fleet.TooLarge, "the runner's facts have %d bytes, at most %d", len(b), maxFollow)
	}
	if why := s.cloned(r, h); why != "" {
		return nil, s.conflict(ctx, r, why, sk)
	}
	if err := s.introduce(ctx, r, h, master); err != nil {
		s.cfg.Logger.Warn("runner not admitted", "runner", r.ID, "err", err)
		return nil, deny(codeOf(err), "the hub cannot record the session now: %v", err)
	}
	id, err := s.newID()
	if err != nil {
		return nil, deny(fleet.Internal, "%v", err)
	}
	if at := s.cfg.Now(); at.Sub(h.Time).Abs() > maxSkew {
		s.cfg.Logger.Warn("clocks differ", "runner", r.ID, "hub_time", at.UTC(), "runner_time", h.Time.UTC())
	}
	x := s.newSession(id, h, sk)
	x.master, x.signing = master, k.SigningID
	return x, nil
}

// barred says why a runner may have no session, or nil.
func barred(r *fleet.Runner, generation uint64) *wire.Goodbye {
	switch {
	case r.Removed:
		return &wire.Goodbye{Code: fleet.RunnerUnknown, Detail: "the runner was removed from the cluster; enrol it with a new ticket", Final: true}
	case generation < r.Floor:
		return &wire.Goodbye{Code: fleet.RunnerRevoked, Final: true,
			Detail: fmt.Sprintf("the runner's key of generation %d was revoked; enrol it again with `tugline hub ticket --for %s`", generation, r.ID)}
	case r.Conflict != "":
		return &wire.Goodbye{Code: fleet.ClonedIdentity, Detail: r.Conflict, Final: true}
	}
	return nil
}

// cloned says why a hello looks like a second holder of the same identity. A runner
// whose machine is not recorded is taken as it comes.
func (s *Server) cloned(r *fleet.Runner, h wire.Hello) string {
	if r.MachineID == "" {
		return ""
	}
	if h.MachineID != r.MachineID {
		return fmt.Sprintf("the identity of runner %s came from machine %s, it was enrolled on %s; remove the copy, then clear the conflict with `tugline runner trust`, or enrol one of the two anew", r.Name, short(h.MachineID), short(r.MachineID))
	}
	if h.JournalID != r.JournalID {
		return ""
	}
	if last := max(r.JournalCount, s.counted(r.ID, h.JournalID)); h.JournalCount < last {
		return fmt.Sprintf("the journal of runner %s went back from %d to %d: its data directory was copied or restored; remove the copy, then clear the conflict with `tugline runner trust`", r.Name, last, h.JournalCount)
	}
	return ""
}

// conflict records that two hold one identity and ends both until a person decides.
func (s *Server) conflict(ctx context.Context, r *fleet.Runner, why string, sk wire.SessionKey) *refusal {
	s.cfg.Logger.Warn("identity is in conflict", "runner", r.ID, "why", why)
	bye := wire.Goodbye{Code: fleet.ClonedIdentity, Detail: why, Final: true}
	if err := s.propose(ctx, &state.FlagRunner{ID: r.ID, Conflict: &why}); err != nil {
		s.cfg.Logger.Error("record identity conflict", "runner", r.ID, "err", err)
		bye.Final = false // it is not recorded: the next try must find it again
	}
	s.mu.Lock()
	x := s.live[r.ID]
	s.mu.Unlock()
	if x != nil {
		x.end(bye)
	}
	return &refusal{bye: bye, key: &sk}
}

// introduce records what a hello says that the state does not know yet. A new
// journal makes the state lose the runner's accepted attempts.
func (s *Server) introduce(ctx context.Context, r *fleet.Runner, h wire.Hello, master uint64) error {
	u := &state.UpdateRunner{ID: r.ID, MachineID: h.MachineID, JournalID: h.JournalID, JournalCount: h.JournalCount}
	if !reflect.DeepEqual(normal(r.Facts), normal(h.Facts)) {
		u.Facts = &h.Facts
	}
	if master != max(r.Master, 1) {
		u.Master = master
	}
	if u.Facts == nil && u.Master == 0 && h.MachineID == r.MachineID && h.JournalID == r.JournalID && h.JournalCount <= r.JournalCount {
		return nil
	}
	return s.propose(ctx, u)
}

// normal gives facts as they are after a trip through JSON, so that an empty list
// and none compare as equal.
func normal(f fleet.RunnerFacts) (n fleet.RunnerFacts) {
	b, err := json.Marshal(f)
	if err != nil || json.Unmarshal(b, &n) != nil {
		return f
	}
	if len(n.Harnesses) == 0 {
		n.Harnesses = nil
	}
	for i := range n.Harnesses {
		if len(n.Harnesses[i].Capabilities) == 0 {
			n.Harnesses[i].Capabilities = nil
		}
	}
	return n
}

// propose commits a command within proposeTime and gives a refusal as an error.
func (s *Server) propose(ctx context.Context, cmd state.Command) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	res, err := s.cfg.Proposer.Propose(ctx, cmd)
	if err != nil {
		return err
	}
	return res.Err()
}

// newID gives 16 random bytes in hex.
func (s *Server) newID() (string, error) {
	b := make([]byte, 16)
	if _, err := io.ReadFull(s.cfg.Rand, b); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// welcome gives the body of the frame that ends a handshake.
func (s *Server) welcome(x *session) ([]byte, error) {
	return wire.Encode(wire.Welcome{Session: x.id, Interval: s.cfg.ActiveInterval, Leader: s.cfg.Leader(), Hubs: x.hubNews(), Mesh: x.tunnels(s.cfg.Proposer.View())})
}

// short cuts an id for people to compare.
func short(id string) string {
	if len(id) > 12 {
		return id[:12] + "…"
	}
	return id
}
