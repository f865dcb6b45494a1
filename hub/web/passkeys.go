package web

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web/passkey"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	ceremonyTime  = 5 * time.Minute
	maxCeremonies = 1024
)

// ceremonies are those that have begun, in the memory of the node that leads. Each is
// ended once.
type ceremonies struct {
	mu    sync.Mutex
	begun []ceremony // oldest first
}

type ceremony struct {
	id    string
	token fleet.TokenID // that registers; empty: somebody signs in
	until time.Time
	*passkey.Ceremony
}

func (c *ceremonies) add(k fleet.TokenID, p *passkey.Ceremony, at time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.begun) > 0 && (len(c.begun) >= maxCeremonies || !at.Before(c.begun[0].until)) {
		c.begun = c.begun[1:]
	}
	one := ceremony{NewSecret(""), k, at.Add(ceremonyTime), p}
	c.begun = append(c.begun, one)
	return one.id
}

func (c *ceremonies) take(id string, k fleet.TokenID, at time.Time) (*passkey.Ceremony, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, one := range c.begun {
		if one.id == id && one.token == k && at.Before(one.until) {
			c.begun = append(c.begun[:i:i], c.begun[i+1:]...)
			return one.Ceremony, nil
		}
	}
	return nil, wrong(fleet.Conflict, "this was begun too long ago, has ended, or was begun at a hub node that leads no more; begin again")
}

// partyOf gives the party of a page whose origin authenticators may be asked at, or says
// why there is none: a browser uses passkeys only under a name that it trusts.
func partyOf(public string, ownCA bool) (p *passkey.Party, whyNot string) {
	if public == "" {
		return nil, "the hub was started without --public-url, and a passkey belongs to the name that people reach it by; sign in with a token"
	}
	u, err := url.Parse(public)
	switch {
	case err != nil:
		return nil, "--public-url is no URL"
	case u.Hostname() == "localhost":
	case net.ParseIP(u.Hostname()) != nil:
		return nil, "--public-url is an address, and a passkey belongs to a name; sign in with a token"
	case u.Scheme != "https":
		return nil, "--public-url is not https; sign in with a token"
	case ownCA:
		return nil, "the hub's certificate is of its own authority, which no browser trusts with passkeys: give it one that is trusted (--tls-cert), or a proxy in front; until then sign in with a token"
	}
	if p, err = passkey.New(public); err != nil {
		return nil, "the name in --public-url cannot have passkeys (" + err.Error() + "); sign in with a token"
	}
	return p, ""
}

type begunOut struct{ Body api.PasskeyBegun }

func (s *Server) passkeyRoutes() {
	huma.Register(s.api, open(op(http.MethodGet, "/v1/session/ways", "list-ways-in", "How a browser may sign in", fleet.RoleViewer)), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.WaysIn }, error) {
		return &struct{ Body api.WaysIn }{api.WaysIn{Passkeys: api.Offer{Offered: s.party != nil, WhyNot: s.noParty}}}, nil
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/session/passkeys/register/begin", "begin-passkey", "Begin to register a passkey for the token that asks", fleet.RoleViewer), wrap(s, func(ctx context.Context, _ *struct{}) (*begunOut, error) {
		if err := s.offered(); err != nil {
			return nil, err
		}
		k := caller(ctx)
		options, c, err := s.party.Register(s.holder(s.cfg.Log.View(), k))
		if err != nil {
			return nil, err
		}
		return &begunOut{api.PasskeyBegun{Ceremony: s.ceremonies.add(k.ID, c, now()), Options: options}}, nil
	}))
	finish := op(http.MethodPost, "/v1/session/passkeys/register/finish", "add-passkey", "Register a passkey for the token that asks: it is good for signing in, for as long as the token works", fleet.RoleViewer)
	finish.DefaultStatus = http.StatusCreated
	huma.Register(s.api, finish, wrap(s, s.addPasskey))
	huma.Register(s.api, open(op(http.MethodPost, "/v1/session/passkeys/login/begin", "begin-sign-in", "Begin to sign in with a passkey", fleet.RoleViewer)), wrap(s, func(ctx context.Context, _ *struct{}) (*begunOut, error) {
		if err := s.offered(); err != nil {
			return nil, err
		}
		if err := s.mayTry(ctx); err != nil {
			return nil, err
		}
		options, c, err := s.party.Login()
		if err != nil {
			return nil, err
		}
		return &begunOut{api.PasskeyBegun{Ceremony: s.ceremonies.add("", c, now()), Options: options}}, nil
	}))
	huma.Register(s.api, open(op(http.MethodPost, "/v1/session/passkeys/login/finish", "sign-in-by-passkey", "Begin a browser's session with a passkey", fleet.RoleViewer)), wrap(s, s.signInByPasskey))
	huma.Register(s.api, op(http.MethodGet, "/v1/session/passkeys", "list-passkeys", "Passkeys of the token that asks", fleet.RoleViewer), wrap(s, func(ctx context.Context, _ *struct{}) (*struct{ Body api.Passkeys }, error) {
		out := api.Passkeys{Passkeys: []api.Passkey{}}
		for _, p := range s.cfg.Log.View().PasskeysOf(caller(ctx).ID) {
			out.Passkeys = append(out.Passkeys, showPasskey(p))
		}
		return &struct{ Body api.Passkeys }{out}, nil
	}))
	remove := op(http.MethodDelete, "/v1/session/passkeys/{id}", "remove-passkey", "Forget a passkey of the token that asks; sessions that it began go on", fleet.RoleViewer)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, wrap(s, func(ctx context.Context, in *struct {
		ID string `path:"id" doc:"of the passkey"`
	}) (*struct{}, error) {
		return &struct{}{}, s.do(ctx, &state.RemovePasskey{ID: in.ID, Token: caller(ctx).ID})
	}))
}

func (s *Server) offered() error {
	if s.party == nil {
		return wrong(fleet.Conflict, "passkeys are not offered here: %s", s.noParty)
	}
	return nil
}

func (s *Server) holder(v state.View, k *fleet.Token) passkey.Holder {
	name := k.Name
	if name == "" {
		name = string(k.Role) + " of " + v.Meta().Cluster
	}
	return passkey.Holder{Token: k.ID, Name: name, Passkeys: v.PasskeysOf(k.ID)}
}

// backedUp is the flag of a passkey that is on more than one device.
const backedUp = 1 << 4

func showPasskey(p *fleet.Passkey) api.Passkey {
	return api.Passkey{ID: p.ID, Name: p.Name, CreatedAt: p.CreatedAt.UTC(), UsedAt: utc(p.UsedAt), Synced: p.Flags&backedUp != 0}
}

func (s *Server) addPasskey(ctx context.Context, in *struct{ Body api.PasskeyAnswer }) (*struct{ Body api.Passkey }, error) {
	if err := s.offered(); err != nil {
		return nil, err
	}
	k := caller(ctx)
	c, err := s.ceremonies.take(in.Body.Ceremony, k.ID, now())
	if err != nil {
		return nil, err
	}
	answer, err := json.Marshal(in.Body.Response)
	if err != nil {
		return nil, err
	}
	p, err := s.party.Registered(s.holder(s.cfg.Log.View(), k), c, answer)
	if err != nil {
		return nil, wrong(fleet.BadRequest, "%s", sentence(err, fleet.Unauthorised))
	}
	p.Name = in.Body.Name
	if err := s.do(ctx, &state.AddPasskey{Passkey: p}); err != nil {
		return nil, err
	}
	made, ok := s.cfg.Log.View().Passkey(p.ID)
	if !ok {
		return nil, wrong(fleet.Conflict, "the passkey was removed as it was registered")
	}
	return &struct{ Body api.Passkey }{showPasskey(made)}, nil
}

func (s *Server) signInByPasskey(ctx context.Context, in *struct{ Body api.PasskeyAnswer }) (*signInOut, error) {
	if err := s.offered(); err != nil {
		return nil, err
	}
	c, err := s.ceremonies.take(in.Body.Ceremony, "", now())
	if err != nil {
		return nil, err
	}
	answer, err := json.Marshal(in.Body.Response)
	if err != nil {
		return nil, err
	}
	v := s.cfg.Log.View()
	var k *fleet.Token
	p, err := s.party.LoggedIn(c, answer, func(id string) (passkey.Holder, bool) {
		known, ok := v.Passkey(id)
		if !ok {
			return passkey.Holder{}, false
		}
		if k, ok = v.Token(known.Token); !ok || !state.TokenWorks(k, s.time(v)) {
			return passkey.Holder{}, false
		}
		return s.holder(v, k), true
	})
	if err != nil {
		return nil, wrong(fleet.Unauthorised, "%s; sign in with a token, and register the passkey anew", sentence(err, fleet.Unauthorised))
	}
	return s.begin(ctx, k, &state.PasskeyUse{ID: p.ID, Count: p.Count, Flags: p.Flags})
}
