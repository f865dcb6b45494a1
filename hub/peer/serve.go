package peer

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Headers between nodes. They mean something on the inner port only: a node
// overwrites what a client sent under these names.
const (
	byHeader     = "Tugline-Forwarded-By"  // the node that handed the request on; it goes no further
	clientHeader = "Tugline-Forwarded-For" // address of the original client
	keyHeader    = "Tugline-Forwarded-Key" // its Idempotency-Key
)

const idempotencyKey = "Idempotency-Key"

type (
	fromKey      struct{} // context key of the id of the node that a connection comes from
	forwardedKey struct{} // context key of a request that was handed on
)

// server is what the other nodes reach.
func (p *Peers) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /presence", p.streamPresence)
	mux.HandleFunc("GET /status", p.answerStatus)
	mux.HandleFunc("POST /calls/{name}", p.answerCall)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !p.enter() {
				refuse(w, fleet.Unavailable, "this node is stopping")
				return
			}
			defer p.wg.Done()
			// A stream before it may have left a deadline on the connection.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
			switch from, _ := r.Context().Value(fromKey{}).(string); {
			case from == "":
				refuse(w, fleet.Forbidden, "only the nodes of the cluster talk here")
			case r.Header.Get(byHeader) != "":
				p.cfg.Handler.ServeHTTP(w, received(r))
			default:
				mux.ServeHTTP(w, r)
			}
		}),
		BaseContext:       func(net.Listener) context.Context { return p.life },
		ConnContext:       identify,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       4 * idleTime,
		MaxHeaderBytes:    80 << 10, // those of a client, and our own
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
}

// enter counts something served in, unless the service has ended.
func (p *Peers) enter() bool {
	p.flying.mu.Lock()
	defer p.flying.mu.Unlock()
	if p.life.Err() != nil {
		return false
	}
	p.wg.Add(1)
	return true
}

// identify notes on a connection which node it comes from.
func identify(ctx context.Context, c net.Conn) context.Context {
	from := ""
	if k, ok := c.(interface{ Peer() string }); ok {
		from = k.Peer()
	}
	return context.WithValue(ctx, fromKey{}, from)
}

// received gives a request that another node handed on as its client had made it.
func received(r *http.Request) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true))
	h := r.Header
	if a := h.Get(clientHeader); a != "" {
		r.RemoteAddr = a
	}
	if k, ok := h[keyHeader]; ok {
		h[idempotencyKey] = k
	}
	h.Del(byHeader)
	h.Del(clientHeader)
	h.Del(keyHeader)
	return r
}

// Forwarded says that another node handed the request on: its RemoteAddr is the
// original client's, and it is answered here or refused.
func (p *Peers) Forwarded(r *http.Request) bool {
	yes, _ := r.Context().Value(forwardedKey{}).(bool)
	return yes
}

// statuses gives the HTTP status of the codes that calls end in.
var statuses = map[fleet.Code]int{
	fleet.BadRequest: 400, fleet.Unauthorised: 401, fleet.Forbidden: 403, fleet.NotFound: 404,
	fleet.TicketInvalid: 403, fleet.TicketExpired: 403, fleet.TicketUsed: 403,
	fleet.Conflict: 409, fleet.TooLarge: 413, fleet.Unavailable: 503, fleet.OutcomeUnknown: 503,
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, code fleet.Code, detail string) {
	status := statuses[code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// Whoever went away needs no answer.
	_ = json.NewEncoder(w).Encode(api.Problem{
		Type: "about:blank#" + string(code), Title: http.StatusText(status), Status: status, Detail: detail, Code: code,
	})
}
