package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// tokenLook is how often an open stream looks whether its token still works.
const tokenLook = time.Second

type (
	tokenKey   struct{}
	signInKey  struct{} // of a browser's session
	fromKey    struct{} // the address that is recorded of a request
	browserKey struct{} // who asks without being known
)

// needed gives the role that an operation asks for.
func needed(op *huma.Operation) fleet.Role {
	if r, ok := op.Metadata["role"].(fleet.Role); ok {
		return r
	}
	return fleet.RoleAdmin
}

// unsettled says why nothing is answered yet.
func (s *Server) unsettled() error {
	if s.cfg.Peers != nil {
		return wrong(fleet.Unavailable, "this hub node has started and not heard yet from the one that leads, if one does; try again in a moment, or ask another node")
	}
	return wrong(fleet.Unavailable, "the hub has just started and is still reading its log; try again in a moment")
}

// token finds the token of an Authorization header, by the hash of its secret.
func (s *Server) token(header string, need fleet.Role) (*fleet.Token, error) {
	// Until the log is applied whole, every look-up would lie: a good token would be
	// unknown, a job that was accepted would not exist.
	if s.cfg.Settled != nil && !s.cfg.Settled() {
		return nil, s.unsettled()
	}
	secret, ok := strings.CutPrefix(header, "Bearer ")
	if !ok || secret == "" {
		return nil, wrong(fleet.Unauthorised, "this needs an operator token: send it as `Authorization: Bearer TOKEN`, or give the command line --token or TUGLINE_TOKEN")
	}
	v := s.cfg.Log.View()
	k, ok := v.TokenByHash(HashSecret(secret))
	if !ok || !state.TokenWorks(k, s.time(v)) {
		return nil, wrong(fleet.Unauthorised, "the hub does not know this token, or it was revoked or has expired; ask an admin for a new one (`tugline token create`)")
	}
	if k.Role.Rank() < need.Rank() {
		return nil, wrong(fleet.Forbidden, "this needs the role %s; the token has %s", need, k.Role)
	}
	return k, nil
}

// works says whether a token, and the session that came by it if one did, still opens
// anything. While the log is being read nothing is known against it.
func (s *Server) works(k *fleet.Token, si *fleet.SignIn) bool {
	if s.cfg.Settled != nil && !s.cfg.Settled() {
		return true
	}
	v := s.cfg.Log.View()
	if si != nil {
		if is, ok := v.SignIn(si.ID); !ok || !state.SignInWorks(is, s.time(v)) {
			return false
		}
	}
	is, ok := v.TokenByHash(k.Hash)
	return ok && state.TokenWorks(is, s.time(v))
}

// allowed gives a context for an answer that may take long: it ends with the
// request, with the server, and soon after the caller's token no longer works.
func (s *Server) allowed(ctx context.Context) (context.Context, func()) {
	k, si := caller(ctx), signInOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(tokenLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !s.works(k, si) {
					cancel()
					return
				}
			}
		}
	})
	return ctx, func() {
		stop()
		cancel()
		wg.Wait()
	}
}

// guard protects a plain handler.
func (s *Server) guard(need fleet.Role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := s.credential(r, need); err != nil {
			s.fail(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// caller gives the token that made the request.
func caller(ctx context.Context) *fleet.Token { return ctx.Value(tokenKey{}).(*fleet.Token) }

// asker is the head of a command: who asks, and from where.
func asker(ctx context.Context) state.Head {
	from, _ := ctx.Value(fromKey{}).(string)
	return state.Head{Actor: string(caller(ctx).ID), From: from}
}

// admin refuses a caller of a lesser role, for options that need more than their route.
func admin(ctx context.Context, what string) error {
	if k := caller(ctx); k.Role.Rank() < fleet.RoleAdmin.Rank() {
		return wrong(fleet.Forbidden, "%s needs the role admin; the token has %s", what, k.Role)
	}
	return nil
}

// head makes the head of a command: who asks, and for a creation the key under
// which it happens once.
func head(ctx context.Context, route, key string, body any) (state.Head, error) {
	h := asker(ctx)
	if key == "" {
		return h, nil
	}
	if len(key) > 200 || strings.ContainsAny(key, "\x00\r\n") {
		return h, wrong(fleet.BadRequest, "Idempotency-Key is %d bytes; at most 200 printable ones", len(key))
	}
	b, err := json.Marshal(body)
	if err != nil {
		return h, err
	}
	sum := sha256.Sum256(b)
	h.Key, h.Route, h.Hash = key, route, fleet.Digest(hex.EncodeToString(sum[:]))
	return h, nil
}

// HashSecret is what the state remembers of a credential.
func HashSecret(s string) fleet.Digest {
	sum := sha256.Sum256([]byte(s))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}
