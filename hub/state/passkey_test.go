package state

import (
	"fmt"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func passkey(id string, k fleet.TokenID) *AddPasskey {
	return &AddPasskey{Passkey: fleet.Passkey{ID: id, Token: k, Name: "a laptop", Key: []byte("public " + id), Flags: 5}}
}

// byPasskey gives a command that signs in with one.
func byPasskey(id string, k fleet.TokenID, key string, count uint32) *SignIn {
	c := signIn(id, k)
	c.Passkey = &PasskeyUse{ID: key, Count: count, Flags: 29}
	return c
}

func TestPasskeys(t *testing.T) {
	g := newRig(t)
	g.token("t-1", fleet.RoleAdmin)
	g.token("t-2", fleet.RoleViewer)
	g.do(passkey("k-1", "t-1"))
	if p, ok := g.m.View().Passkey("k-1"); !ok || p.Token != "t-1" || p.Name != "a laptop" || !p.CreatedAt.Equal(g.now) || p.UsedAt != nil {
		t.Errorf("recorded as %+v", p)
	}
	if a := g.m.View().Audit(0, 1)[0]; a.Command != "passkey.add" || a.Subject != "k-1" {
		t.Errorf("audited as %+v", a)
	}
	for name, spoil := range map[string]func(*fleet.Passkey){
		"no id": func(p *fleet.Passkey) { p.ID = "" }, "a long id": func(p *fleet.Passkey) { p.ID = strings.Repeat("x", fleet.MaxPasskeyID+1) },
		"no key": func(p *fleet.Passkey) { p.Key = nil }, "a long key": func(p *fleet.Passkey) { p.Key = make([]byte, fleet.MaxPasskeyKey+1) },
		"a long name": func(p *fleet.Passkey) { p.Name = strings.Repeat("x", fleet.MaxPasskeyName+1) }, "two lines": func(p *fleet.Passkey) { p.Name = "a\nb" },
	} {
		t.Run(name, func(t *testing.T) {
			c := passkey("k-2", "t-1")
			spoil(&c.Passkey)
			g.refused(fleet.BadRequest, c)
		})
	}
	g.refused(fleet.Conflict, passkey("k-1", "t-2"))
	g.refused(fleet.Unauthorised, passkey("k-2", "t-none"))

	g.do(byPasskey("s-1", "t-1", "k-1", 3))
	if p, _ := g.m.View().Passkey("k-1"); p.Count != 3 || p.Flags != 29 || p.UsedAt == nil || !p.UsedAt.Equal(g.now) {
		t.Errorf("after its use: %+v", p)
	}
	g.refused(fleet.Unauthorised, byPasskey("s-2", "t-1", "k-1", 3)) // as a copy would
	g.refused(fleet.Unauthorised, byPasskey("s-2", "t-1", "k-1", 0))
	g.refused(fleet.Unauthorised, byPasskey("s-2", "t-2", "k-1", 4))
	g.refused(fleet.Unauthorised, byPasskey("s-2", "t-1", "k-none", 4))
	g.do(passkey("k-0", "t-1"))
	g.do(byPasskey("s-2", "t-1", "k-0", 0)) // it does not count
	g.do(byPasskey("s-3", "t-1", "k-0", 0))

	g.refused(fleet.NotFound, &RemovePasskey{ID: "k-1", Token: "t-2"})
	g.do(&RemovePasskey{ID: "k-1", Token: "t-1"})
	g.refused(fleet.NotFound, &RemovePasskey{ID: "k-1", Token: "t-1"})
	for i := range fleet.MaxPasskeys {
		g.do(passkey(fmt.Sprint("k-of-2-", i), "t-2"))
	}
	g.refused(fleet.Conflict, passkey("k-more", "t-2"))
	g.do(&RevokeToken{ID: "t-2"})
	if n := len(g.m.View().PasskeysOf("t-2")); n != 0 {
		t.Errorf("%d passkeys of a token that was revoked", n)
	}
}
