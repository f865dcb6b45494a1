package state

import (
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

const tablePasskeys = "passkeys"

var (
	_ = register(func() Command { return new(AddPasskey) })
	_ = register(func() Command { return new(RemovePasskey) })
)

// AddPasskey records that an authenticator's key is as good as a token for signing in.
type AddPasskey struct {
	Passkey fleet.Passkey `json:"passkey"`
}

func (*AddPasskey) kind() Kind { return 77 }

func (c *AddPasskey) apply(t *txn) Result {
	p := c.Passkey
	switch {
	case p.ID == "" || len(p.ID) > fleet.MaxPasskeyID || len(p.Key) == 0 || len(p.Key) > fleet.MaxPasskeyKey:
		return refuse(fleet.BadRequest, "a passkey has an id of at most %d bytes and a public key of at most %d", fleet.MaxPasskeyID, fleet.MaxPasskeyKey)
	case len(p.Name) > fleet.MaxPasskeyName || strings.ContainsAny(p.Name, "\x00\n\r"):
		return refuse(fleet.BadRequest, "a passkey's name has at most %d bytes and no line break", fleet.MaxPasskeyName)
	case first[fleet.Passkey](t.Txn, tablePasskeys, "id", p.ID) != nil:
		return refuse(fleet.Conflict, "this passkey is registered already")
	}
	k := first[fleet.Token](t.Txn, tableTokens, "id", string(p.Token))
	if k == nil || !TokenWorks(k, t.now()) {
		return refuse(fleet.Unauthorised, "token %s is unknown, revoked or expired", p.Token)
	}
	if n := len((View{t.Txn}).PasskeysOf(p.Token)); n >= fleet.MaxPasskeys {
		return refuse(fleet.Conflict, "the token has %d passkeys, the bound; remove one that is not used", n)
	}
	p.CreatedAt, p.UsedAt = t.now(), nil
	t.putPasskey(&p)
	return Result{ID: shortPasskey(p.ID)}
}

// RemovePasskey forgets a passkey of a token.
type RemovePasskey struct {
	ID    string        `json:"id"`
	Token fleet.TokenID `json:"token"`
}

func (*RemovePasskey) kind() Kind { return 78 }

func (c *RemovePasskey) apply(t *txn) Result {
	p := first[fleet.Passkey](t.Txn, tablePasskeys, "id", c.ID)
	if p == nil || p.Token != c.Token {
		return refuse(fleet.NotFound, "the token has no such passkey")
	}
	t.dropPasskey(p)
	return Result{ID: shortPasskey(c.ID)}
}

// shortPasskey names a passkey where its whole id would be long.
func shortPasskey(id string) string { return fleet.CutText(id, 24) }

// PasskeyUse is what a passkey told when it was used.
type PasskeyUse struct {
	ID    string `json:"id"`
	Count uint32 `json:"count"`
	Flags byte   `json:"flags"`
}

// showed records that a passkey of a token was used.
func (t *txn) showed(u *PasskeyUse, k fleet.TokenID) Result {
	p := first[fleet.Passkey](t.Txn, tablePasskeys, "id", u.ID)
	switch {
	case p == nil || p.Token != k:
		return refuse(fleet.Unauthorised, "the passkey is not registered")
	case u.Count < p.Count, u.Count == p.Count && u.Count > 0:
		return refuse(fleet.Unauthorised, "the passkey has counted %d signatures before and tells %d now: it may have been copied", p.Count, u.Count)
	}
	n := *p
	n.Count, n.Flags, n.UsedAt = u.Count, u.Flags, at(t.now())
	t.putPasskey(&n)
	return Result{}
}

func (t *txn) putPasskey(p *fleet.Passkey) {
	t.insert(tablePasskeys, p)
	t.changed(Change{What: "sign_in"})
}

func (t *txn) dropPasskey(p *fleet.Passkey) {
	t.delete(tablePasskeys, p)
	t.changed(Change{What: "sign_in"})
}

// Passkey gives one passkey by the id of its credential.
func (v View) Passkey(id string) (*fleet.Passkey, bool) {
	p := first[fleet.Passkey](v.tx, tablePasskeys, "id", id)
	return p, p != nil
}

// PasskeysOf gives the passkeys of a token, by id.
func (v View) PasskeysOf(k fleet.TokenID) []*fleet.Passkey {
	var out []*fleet.Passkey
	each(v.tx, tablePasskeys, "token", func(p *fleet.Passkey) bool { out = append(out, p); return true }, string(k))
	return out
}
