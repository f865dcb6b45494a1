package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// A browser signs in with a token once and gets a cookie, which is good on every hub
// node and wherever a token is: its session is a record of the log, by the hash of the
// cookie's secret. What a cookie lets in must come from the hub's own page.

const (
	cookieName = "tugline_session"
	cookieMark = "tgs_"
	maxWaiting = 64 // cookies that a node waits to hear of at once
)

// open marks an operation that nobody needs to be known for. It is the page's alone.
func open(o huma.Operation) huma.Operation {
	o.Metadata["open"] = true
	o.Description = "Needs no token."
	o.Extensions = nil
	o.Security = []map[string][]string{{}}
	return o
}

func isOpen(o *huma.Operation) bool { return o.Metadata["open"] == true }

// signInRoutes let browsers in and out.
func (s *Server) signInRoutes() {
	in := open(op(http.MethodPost, "/v1/session", "sign-in", "Begin a browser's session with a token: its cookie is good wherever a token is, for 12 hours", fleet.RoleViewer))
	huma.Register(s.api, in, wrap(s, s.signIn))
	huma.Register(s.api, op(http.MethodGet, "/v1/session", "get-sign-in", "Who asks", fleet.RoleViewer), wrap(s, func(ctx context.Context, _ *struct{}) (*struct{ Body api.SignedIn }, error) {
		return &struct{ Body api.SignedIn }{s.signedIn(caller(ctx), signInOf(ctx))}, nil
	}))
	out := op(http.MethodDelete, "/v1/session", "sign-out", "End the browser's session that asks", fleet.RoleViewer)
	out.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, out, wrap(s, func(ctx context.Context, _ *struct{}) (*cookieOut, error) {
		si := signInOf(ctx)
		if si == nil {
			return nil, wrong(fleet.BadRequest, "a token asked, and there is no session to end; to end the token revoke it (`tugline token revoke`)")
		}
		gone := s.cookie("", time.Unix(1, 0))
		gone.MaxAge = -1
		return &cookieOut{gone}, s.do(ctx, &state.SignOut{ID: si.ID})
	}))
	huma.Register(s.api, op(http.MethodGet, "/v1/sign-ins", "list-sign-ins", "Browsers' sessions that are open", fleet.RoleAdmin), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.SignIns }, error) {
		out, v := api.SignIns{SignIns: []api.SignIn{}}, s.cfg.Log.View()
		for _, si := range v.SignIns() {
			if k, ok := v.Token(si.Token); ok && s.opens(v, si, k) {
				out.SignIns = append(out.SignIns, api.SignIn{ID: si.ID, Token: k.ID, Name: k.Name, Role: k.Role,
					CreatedAt: si.CreatedAt.UTC(), ExpiresAt: si.ExpiresAt.UTC(), Address: si.From, Agent: si.Agent})
			}
		}
		return &struct{ Body api.SignIns }{out}, nil
	}))
	end := op(http.MethodDelete, "/v1/sign-ins/{id}", "end-sign-in", "End a browser's session at once", fleet.RoleAdmin)
	end.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, end, wrap(s, func(ctx context.Context, in *struct {
		ID string `path:"id" doc:"of the session"`
	}) (*struct{}, error) {
		return &struct{}{}, s.do(ctx, &state.SignOut{ID: in.ID})
	}))
}

type cookieOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

type signInOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      api.SignedIn
}

// browser is who asks without being known.
type browser struct{ address, agent string }

func (s *Server) signIn(ctx context.Context, in *struct{ Body api.SignInRequest }) (*signInOut, error) {
	if err := s.mayTry(ctx); err != nil {
		return nil, err
	}
	k, err := s.token("Bearer "+in.Body.Token, fleet.RoleViewer)
	if err != nil {
		return nil, err
	}
	return s.begin(ctx, k, nil)
}

// mayTry refuses those who try to sign in too often.
func (s *Server) mayTry(ctx context.Context) error {
	if wait, ok := s.often.take(ctx.Value(browserKey{}).(browser).address, now()); !ok {
		return wrong(fleet.TooOften, "too many tries to sign in; try again in %d seconds", int(wait/time.Second)+1)
	}
	return nil
}

// begin records a session of a token for a browser that showed it has it, or a passkey of
// it, and gives the session's cookie.
func (s *Server) begin(ctx context.Context, k *fleet.Token, by *state.PasskeyUse) (*signInOut, error) {
	who := ctx.Value(browserKey{}).(browser)
	s.often.back(who.address)
	ctx = context.WithValue(ctx, tokenKey{}, k)
	id := strings.ToLower(ulid.Make().String())
	secret := cookieMark + id + "." + NewSecret("")
	cmd := &state.SignIn{ID: id, Hash: HashSecret(secret), Token: k.ID, TTL: fleet.SignInTime, Passkey: by, Agent: fleet.CutText(strings.ToValidUTF8(who.agent, ""), fleet.MaxAgent)}
	if err := s.do(ctx, cmd); err != nil {
		return nil, err
	}
	si, ok := s.cfg.Log.View().SignIn(id)
	if !ok {
		return nil, wrong(fleet.Unavailable, "the session ended as it began; sign in again")
	}
	return &signInOut{s.cookie(secret, si.ExpiresAt), s.signedIn(k, si)}, nil
}

// cookie gives the cookie of a session. Only the page's own requests bring it back.
func (s *Server) cookie(secret string, until time.Time) http.Cookie {
	return http.Cookie{
		Name: cookieName, Value: secret, Path: "/", Expires: until.UTC(), HttpOnly: true,
		Secure: strings.HasPrefix(s.cfg.URL, "https:"), SameSite: http.SameSiteStrictMode,
	}
}

func (s *Server) signedIn(k *fleet.Token, si *fleet.SignIn) api.SignedIn {
	out := api.SignedIn{Token: k.ID, Name: k.Name, Role: k.Role, ExpiresAt: utc(k.ExpiresAt), Cluster: s.cfg.Log.View().Meta().Cluster, Node: s.cfg.Node}
	if si != nil {
		out.Session, out.ExpiresAt = si.ID, utc(&si.ExpiresAt)
	}
	return out
}

// opens says whether a session of a token opens anything.
func (s *Server) opens(v state.View, si *fleet.SignIn, k *fleet.Token) bool {
	return state.SignInWorks(si, s.time(v)) && state.TokenWorks(k, s.time(v))
}

// session finds the session of a cookie, and the token that it is of.
func (s *Server) session(r *http.Request, secret string, need fleet.Role) (*fleet.Token, *fleet.SignIn, error) {
	if s.cfg.Settled != nil && !s.cfg.Settled() {
		return nil, nil, s.unsettled()
	}
	if err := s.fromPage(r); err != nil {
		return nil, nil, err
	}
	h := HashSecret(secret)
	s.awaitSession(r.Context(), secret, h)
	v := s.cfg.Log.View()
	si, ok := v.SignInByHash(h)
	if !ok {
		return nil, nil, ended()
	}
	k, ok := v.Token(si.Token)
	if !ok || !s.opens(v, si, k) {
		return nil, nil, ended()
	}
	if k.Role.Rank() < need.Rank() {
		return nil, nil, wrong(fleet.Forbidden, "this needs the role %s; the session's token has %s", need, k.Role)
	}
	return k, si, nil
}

func ended() error {
	return wrong(fleet.Unauthorised, "the session has ended; sign in again with an operator token")
}

// fromPage refuses what another site's page asks for, also to read: this browser would
// send the cookie along where that page is on the same machine's other port.
func (s *Server) fromPage(r *http.Request) error {
	asked := *r
	asked.Method = http.MethodPost // of any method
	if err := s.origins.Check(&asked); err != nil {
		return wrong(fleet.Forbidden, "a page of another site asked, and only the hub's own may use its sessions; a program sends a token as `Authorization: Bearer TOKEN`")
	}
	return nil
}

// awaitSession waits a moment for a session that began lately, by its cookie, and is not
// known on this node: the page may ask here next.
func (s *Server) awaitSession(ctx context.Context, secret string, h fleet.Digest) {
	if !s.follower() {
		return
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(secret, cookieMark), ".")
	id, err := ulid.ParseStrict(strings.ToUpper(text))
	if err != nil || now().Sub(ulid.Time(id.Time())).Abs() > newJob || !s.waiting.TryAcquire() {
		return
	}
	defer s.waiting.Release()
	bound, cancel := context.WithTimeout(ctx, ownWriteTime)
	defer cancel()
	tick := time.NewTicker(reachLook)
	defer tick.Stop()
	for {
		if _, ok := s.cfg.Log.View().SignInByHash(h); ok || !s.follower() {
			return
		}
		select {
		case <-tick.C:
		case <-bound.Done():
			return
		}
	}
}

// credential finds who asks: by a token, or by the cookie of a session.
func (s *Server) credential(r *http.Request, need fleet.Role) (*fleet.Token, *fleet.SignIn, error) {
	header := r.Header.Get("Authorization")
	if c, err := r.Cookie(cookieName); err == nil && header == "" {
		return s.session(r, c.Value, need)
	}
	k, err := s.token(header, need)
	return k, nil, err
}

// authenticate checks who asks, and that their role allows the operation.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	if isOpen(ctx.Operation()) {
		err := s.fromPage(r)
		if err == nil && !reads(ctx.Operation()) && s.cfg.Settled != nil && !s.cfg.Settled() {
			err = s.unsettled()
		}
		if err != nil {
			s.streamFail(ctx, err)
			return
		}
		ctx = huma.WithValue(ctx, browserKey{}, browser{r.RemoteAddr, r.UserAgent()})
	} else {
		k, si, err := s.credential(r, needed(ctx.Operation()))
		if err != nil {
			s.streamFail(ctx, err)
			return
		}
		ctx = huma.WithValue(ctx, tokenKey{}, k)
		if si != nil {
			ctx = huma.WithValue(ctx, signInKey{}, si)
		}
	}
	if !reads(ctx.Operation()) && s.cfg.Log.View().MayTellFrom() {
		ctx = huma.WithValue(ctx, fromKey{}, hostOf(ctx.RemoteAddr()))
	}
	next(ctx)
}

// signInOf gives the session that made the request; nil: a token did.
func signInOf(ctx context.Context) *fleet.SignIn {
	si, _ := ctx.Value(signInKey{}).(*fleet.SignIn)
	return si
}
