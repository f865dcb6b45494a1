package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// signIn gives a command that must be obeyed where the token works.
func signIn(id string, k fleet.TokenID) *SignIn {
	return &SignIn{ID: id, Hash: digest("cookie " + id), Token: k, TTL: fleet.SignInTime, Agent: "a browser"}
}

func (g *rig) token(id fleet.TokenID, role fleet.Role) {
	g.t.Helper()
	g.do(&CreateToken{Token: fleet.Token{ID: id, Role: role, Hash: digest(string(id))}})
}

// signedIn says which sessions there are.
func (g *rig) signedIn() string {
	var ids []string
	for _, s := range g.m.View().SignIns() {
		ids = append(ids, s.ID)
	}
	return strings.Join(ids, " ")
}

func TestSignIn(t *testing.T) {
	g := newRig(t)
	g.token("t-1", fleet.RoleAdmin)
	g.token("t-2", fleet.RoleViewer)
	g.do(&CreateToken{Token: fleet.Token{ID: "t-short", Role: fleet.RoleViewer, Hash: digest("short")}, TTL: time.Hour})
	if res, _ := g.apply(Head{Actor: "t-1", From: "192.0.2.7"}, signIn("s-1", "t-1")); res.Code != "" || res.ID != "s-1" {
		t.Fatalf("signed in: %+v", res)
	}
	s, ok := g.m.View().SignInByHash(digest("cookie s-1"))
	if !ok || s.Token != "t-1" || s.From != "192.0.2.7" || s.Agent != "a browser" || !s.CreatedAt.Equal(g.now) || !s.ExpiresAt.Equal(g.now.Add(12*time.Hour)) {
		t.Fatalf("recorded as %+v", s)
	}
	if a := g.m.View().Audit(0, 1)[0]; a.Command != "session.begin" || a.Subject != "s-1" || a.Actor != "t-1" {
		t.Errorf("audited as %+v", a)
	}
	g.do(signIn("s-2", "t-short"))
	if s, _ := g.m.View().SignIn("s-2"); !s.ExpiresAt.Before(g.now.Add(time.Hour)) {
		t.Errorf("a session of a token that ends before it ends at %s", s.ExpiresAt)
	}
	for name, spoil := range map[string]func(*SignIn){
		"no id": func(c *SignIn) { c.ID = "" }, "a long id": func(c *SignIn) { c.ID = strings.Repeat("x", maxSignInID+1) },
		"no hash": func(c *SignIn) { c.Hash = "" }, "no end": func(c *SignIn) { c.TTL = 0 }, "too long": func(c *SignIn) { c.TTL++ },
	} {
		t.Run(name, func(t *testing.T) {
			c := signIn("s-3", "t-1")
			spoil(c)
			g.refused(fleet.BadRequest, c)
		})
	}
	g.refused(fleet.Conflict, signIn("s-1", "t-1"))
	g.refused(fleet.Unauthorised, signIn("s-3", "t-none"))
	g.do(&SignOut{ID: "s-2"})
	g.refused(fleet.NotFound, &SignOut{ID: "s-2"})

	g.do(signIn("s-3", "t-2"))
	g.do(&RevokeToken{ID: "t-2"})
	if got := g.signedIn(); got != "s-1" {
		t.Errorf("after its token was revoked there are %q; want the other's alone", got)
	}
	g.refused(fleet.Unauthorised, signIn("s-4", "t-2"))
	g.now = g.now.Add(fleet.SignInTime)
	g.do(&Expire{Limit: 9, AuditAge: time.Hour})
	if got := g.signedIn(); got != "" {
		t.Errorf("after their time there are %q", got)
	}
}

// A token has a bounded number of sessions, and the oldest goes.
func TestSignInsOfATokenAreBounded(t *testing.T) {
	g := newRig(t)
	g.token("t-1", fleet.RoleAdmin)
	g.token("t-2", fleet.RoleAdmin)
	g.do(signIn("s-other", "t-2"))
	for i := range fleet.MaxSignIns + 3 {
		g.do(signIn(fmt.Sprintf("s-%03d", i), "t-1"))
	}
	mine := g.m.View().SignInsOf("t-1")
	if len(mine) != fleet.MaxSignIns || mine[0].ID != "s-003" || len(g.m.View().SignInsOf("t-2")) != 1 {
		t.Errorf("%d sessions, the oldest %s", len(mine), mine[0].ID)
	}
}
