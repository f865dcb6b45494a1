package state

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	tableSignIns = "signins"

	// browserGeneration is that of browsers' sessions.
	browserGeneration = 7

	maxSignInID = 64 // bytes
)

var (
	_ = register(func() Command { return new(SignIn) })
	_ = register(func() Command { return new(SignOut) })
)

// SignIn records a browser's session of a token by the hash of its secret. It ends
// after TTL whatever is done with it, and with its token.
type SignIn struct {
	ID    string        `json:"id"`
	Hash  fleet.Digest  `json:"hash"`
	Token fleet.TokenID `json:"token"`
	TTL   time.Duration `json:"ttl_ns"`
	Agent string        `json:"agent,omitempty"`

	Passkey *PasskeyUse `json:"passkey,omitempty"` // that was shown in the token's place
}

func (*SignIn) kind() Kind { return 75 }

func (c *SignIn) apply(t *txn) Result {
	switch {
	case c.ID == "" || len(c.ID) > maxSignInID || !c.Hash.Valid():
		return refuse(fleet.BadRequest, "a session has an id of at most %d bytes and is recorded by the SHA-256 of its secret", maxSignInID)
	case c.TTL <= 0 || c.TTL > fleet.SignInTime:
		return refuse(fleet.BadRequest, "a session lasts for at most %s, not for %s", fleet.SignInTime, c.TTL)
	case first[fleet.SignIn](t.Txn, tableSignIns, "id", c.ID) != nil:
		return refuse(fleet.Conflict, "there is a session %s already", c.ID)
	}
	k := first[fleet.Token](t.Txn, tableTokens, "id", string(c.Token))
	if k == nil || !TokenWorks(k, t.now()) {
		return refuse(fleet.Unauthorised, "token %s is unknown, revoked or expired", c.Token)
	}
	if c.Passkey != nil {
		if bad := t.showed(c.Passkey, c.Token); bad.Code != "" {
			return bad
		}
	}
	mine := (View{t.Txn}).SignInsOf(c.Token)
	for i, s := range mine {
		if i <= len(mine)-fleet.MaxSignIns || !SignInWorks(s, t.now()) {
			t.delete(tableSignIns, s)
		}
	}
	s := &fleet.SignIn{ID: c.ID, Hash: c.Hash, Token: c.Token, CreatedAt: t.now(), ExpiresAt: t.now().Add(c.TTL), From: t.head.From, Agent: fleet.CutText(c.Agent, fleet.MaxAgent)}
	if k.ExpiresAt != nil && k.ExpiresAt.Before(s.ExpiresAt) {
		s.ExpiresAt = *k.ExpiresAt
	}
	t.insert(tableSignIns, s)
	t.changed(Change{What: "sign_in"})
	return Result{ID: c.ID}
}

// SignOut ends a browser's session at once.
type SignOut struct {
	ID string `json:"id"`
}

func (*SignOut) kind() Kind { return 76 }

func (c *SignOut) apply(t *txn) Result {
	s := first[fleet.SignIn](t.Txn, tableSignIns, "id", c.ID)
	if s == nil {
		return refuse(fleet.NotFound, "there is no session %s; it has ended", c.ID)
	}
	t.delete(tableSignIns, s)
	t.changed(Change{What: "sign_in"})
	return Result{ID: c.ID}
}

// signOutAll ends every session of a token, and forgets its passkeys.
func (t *txn) signOutAll(k fleet.TokenID) {
	for _, s := range (View{t.Txn}).SignInsOf(k) {
		t.delete(tableSignIns, s)
		t.changed(Change{What: "sign_in"})
	}
	for _, p := range (View{t.Txn}).PasskeysOf(k) {
		t.dropPasskey(p)
	}
}

// expireSignIns deletes sessions that are over, at most so many.
func (t *txn) expireSignIns(limit int) {
	var over []*fleet.SignIn
	each(t.Txn, tableSignIns, "id", func(s *fleet.SignIn) bool {
		if !SignInWorks(s, t.now()) {
			over = append(over, s)
		}
		return len(over) < limit
	})
	for _, s := range over {
		t.delete(tableSignIns, s)
	}
}

// SignInWorks says whether a session has not ended by itself at the given time. Whether
// its token works is another question.
func SignInWorks(s *fleet.SignIn, now time.Time) bool { return now.Before(s.ExpiresAt) }

// SignInByHash gives the session whose secret has the given hash.
func (v View) SignInByHash(h fleet.Digest) (*fleet.SignIn, bool) {
	s := first[fleet.SignIn](v.tx, tableSignIns, "hash", string(h))
	return s, s != nil
}

// SignIn gives one session by id.
func (v View) SignIn(id string) (*fleet.SignIn, bool) {
	s := first[fleet.SignIn](v.tx, tableSignIns, "id", id)
	return s, s != nil
}

// SignIns gives all sessions, by id.
func (v View) SignIns() []*fleet.SignIn {
	var out []*fleet.SignIn
	each(v.tx, tableSignIns, "id", func(s *fleet.SignIn) bool { out = append(out, s); return true })
	return out
}

// SignInsOf gives the sessions of a token, oldest first where their ids are in order.
func (v View) SignInsOf(k fleet.TokenID) []*fleet.SignIn {
	var out []*fleet.SignIn
	each(v.tx, tableSignIns, "token", func(s *fleet.SignIn) bool { out = append(out, s); return true }, string(k))
	return out
}
