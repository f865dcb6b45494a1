package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// methods that some route may have; HEAD goes with GET.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// nothing answers what no route takes: the page has what is not the interface's, and a
// wrong method says which are right.
func (s *Server) nothing(w http.ResponseWriter, r *http.Request) {
	var allow []string
	if !reserved(r.URL.Path) && s.page.Has(r) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			s.page.ServeHTTP(w, r)
			return
		}
		allow = []string{http.MethodGet, http.MethodHead}
	}
	for _, m := range methods {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		s.fail(w, r, wrong(fleet.NotFound, "there is nothing at %s; the interface is described at /openapi.json", r.URL.Path))
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	p := wrong(fleet.BadRequest, "%s is not possible at %s; possible: %s", r.Method, r.URL.Path, strings.Join(allow, ", "))
	p.Status = http.StatusMethodNotAllowed
	s.fail(w, r, p)
}

// reserved says whether a path is the interface's, so that nothing there is the page's.
func reserved(p string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	switch first {
	case "v1", "metrics", "healthz", "readyz", "install.sh":
		return true
	}
	return strings.HasPrefix(first, "openapi")
}

// protect sees who asks, refuses what no route should have to think about, and
// sets what every answer carries.
func (s *Server) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An answer before it may have left a deadline on the connection.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		// No answer but the page's own is ever run or framed by a browser.
		w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				panic(cause)
			default: // a bug of ours: one request pays for it, not the node
				s.fail(w, r, fmt.Errorf("panic at %s %s: %v\n%s", r.Method, r.URL.Path, cause, debug.Stack()))
			}
		}()
		if from, ok := s.origin(r); ok {
			r.RemoteAddr = from
		} else {
			s.fail(w, r, wrong(fleet.Forbidden, "this hub is reached through its proxy, which ends TLS; a direct connection would carry credentials in the clear"))
			return
		}
		if p := r.URL.Path; p != "*" && p != "/" && path.Clean(p) != strings.TrimSuffix(p, "/") {
			// The library would redirect, which a client may follow with its token.
			s.fail(w, r, wrong(fleet.BadRequest, "the path %q is not in its shortest form", p))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// origin gives the address that a request came from: of the connection, or as a
// trusted proxy says. False means that it may not come this way.
func (s *Server) origin(r *http.Request) (string, bool) {
	if s.cfg.Peers != nil && s.cfg.Peers.Forwarded(r) {
		return r.RemoteAddr, true // the node that handed it on looked
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr, !s.cfg.ProxiesOnly
	}
	if !s.trusted(peer.Addr()) {
		return r.RemoteAddr, !s.cfg.ProxiesOnly || peer.Addr().Unmap().IsLoopback()
	}
	// The rightmost address that no trusted proxy has was seen by a trusted one;
	// what stands left of it anybody may have written.
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		a, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		if !s.trusted(a) {
			return net.JoinHostPort(a.String(), "0"), true
		}
	}
	return r.RemoteAddr, true
}

// hostOf is an address without its port, which says nothing behind a proxy.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func (s *Server) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(s.cfg.Proxies, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}
