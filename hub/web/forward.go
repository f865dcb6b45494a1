package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Peers are the other nodes of the cluster.
type Peers interface {
	// Leading says whether this node leads and its term has begun.
	Leading() bool
	// Forwarded says that another node handed the request on, and its RemoteAddr is
	// the client's. Such a request is answered here or refused, never handed on.
	Forwarded(r *http.Request) bool
	// Forward has the leader answer. An error says that nothing was answered yet: it
	// wraps fleet.OutcomeUnknown where the request may have been done.
	Forward(w http.ResponseWriter, r *http.Request) error
}

const (
	reachTime      = 5 * time.Second // for a change that a reader knows of to get here
	ownWriteTime   = 2 * time.Second // for a writer's own change to get here
	consistentTime = 5 * time.Second // for the other nodes to confirm the leader
	reachLook      = 5 * time.Millisecond
	newJob         = 30 * time.Second // by its id, and by clocks that may differ a little: who asks for it may be ahead of this node
)

// byLeader marks an operation that only the leader can answer, although it reads.
func byLeader(o huma.Operation) huma.Operation {
	o.Metadata["leader"] = true
	return o
}

// reads says whether an operation changes nothing.
func reads(o *huma.Operation) bool { return o.Method == http.MethodGet || o.Method == http.MethodHead }

// consistent says whether a caller wants an answer that no earlier write is missing from.
func consistent(r *http.Request) bool {
	q := r.URL.Query()
	v := q.Get("consistent")
	return q.Has("consistent") && v != "0" && v != "false"
}

// follower says whether another node leads, or none.
func (s *Server) follower() bool { return s.cfg.Peers != nil && !s.cfg.Peers.Leading() }

// place decides which node answers. A plain read is answered here; everything else
// by the leader, who also sees whether the caller may: what a follower knows of
// tokens may be old.
func (s *Server) place(ctx huma.Context, next func(huma.Context)) {
	if !s.follower() {
		next(ctx)
		return
	}
	r, w := humago.Unwrap(ctx)
	_, leaders := ctx.Operation().Metadata["leader"]
	switch {
	case s.cfg.Peers.Forwarded(r):
		s.fail(w, r, wrong(fleet.Unavailable, "this hub node was asked as the leader and is it no more; nothing was done, ask again"))
	case !reads(ctx.Operation()) || leaders || consistent(r):
		s.forward(w, r)
	default:
		next(ctx)
	}
}

// forward has the leader answer, or says what is known where it did not.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	err := s.cfg.Peers.Forward(&seeing{ResponseWriter: w, server: s, request: r}, r)
	if err == nil {
		return
	}
	s.log.Debug("request not handed on", "err", err)
	if !errors.Is(err, fleet.OutcomeUnknown) {
		s.fail(w, r, err)
		return
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		s.fail(w, r, wrong(fleet.OutcomeUnknown, "the hub node that leads took the request and did not answer; it may have been done: repeat it with the same Idempotency-Key %s", quote(key)))
		return
	}
	s.fail(w, r, wrong(fleet.OutcomeUnknown, "the hub node that leads took the request and did not answer; it may have been done, and without an Idempotency-Key it might be done twice: look first whether it was"))
}

// seeing holds the answer to a write back until this node has the change too, so
// that its writer can go on reading here.
type seeing struct {
	http.ResponseWriter
	server  *Server
	request *http.Request
	begun   bool
}

func (w *seeing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *seeing) WriteHeader(status int) {
	if !w.begun && status >= 200 {
		w.begun = true
		if i, err := strconv.ParseUint(w.Header().Get(api.IndexHeader), 10, 64); err == nil && w.request.Method != http.MethodGet {
			_ = w.server.reach(w.request.Context(), i, ownWriteTime) // it is done, whether seen here or not
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// reach waits until this node's state has an entry. A node that leads waits for
// none: it has all there are.
func (s *Server) reach(ctx context.Context, index uint64, patience time.Duration) error {
	if !s.follower() || s.cfg.Log.View().Meta().Index >= index {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(reachLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return wrong(fleet.Unavailable, "this hub node has changes up to %d and not yet %d, which was asked for; ask again, or another node", s.cfg.Log.View().Meta().Index, index)
		case <-tick.C:
			if !s.follower() || s.cfg.Log.View().Meta().Index >= index {
				return nil
			}
		}
	}
}

// fresh sees that a read is as new as was asked for, and that an answer says of
// which entry it is.
func (s *Server) fresh(ctx huma.Context, next func(huma.Context)) {
	if !reads(ctx.Operation()) {
		next(stamped{ctx, s})
		return
	}
	if err := s.freshen(ctx); err != nil {
		s.streamFail(ctx, err)
		return
	}
	s.arrive(ctx)
	ctx.SetHeader(api.IndexHeader, s.index())
	next(ctx)
}

// arrive waits a moment for a job that was made lately by its id, and is not known on
// this node: whoever was given the id by another node may ask here next, by a command
// of its own, which knows of no index.
func (s *Server) arrive(ctx huma.Context) {
	if !s.follower() || !strings.HasPrefix(ctx.Operation().Path, "/v1/jobs/{id}") {
		return
	}
	id, err := ulid.ParseStrict(strings.ToUpper(ctx.Param("id")))
	if err != nil || now().Sub(ulid.Time(id.Time())).Abs() > newJob {
		return
	}
	bound, cancel := context.WithTimeout(ctx.Context(), ownWriteTime)
	defer cancel()
	tick := time.NewTicker(reachLook)
	defer tick.Stop()
	for {
		if _, ok := s.cfg.Log.View().Job(fleet.JobID(strings.ToLower(id.String()))); ok || !s.follower() {
			return
		}
		select {
		case <-tick.C:
		case <-bound.Done():
			return
		}
	}
}

func (s *Server) freshen(ctx huma.Context) error {
	r, _ := humago.Unwrap(ctx)
	if s.cfg.Consistent != nil && consistent(r) {
		c, cancel := context.WithTimeout(r.Context(), consistentTime)
		defer cancel()
		if err := s.cfg.Consistent(c); err != nil {
			s.log.Debug("read not confirmed", "err", err)
			return wrong(fleet.Unavailable, "the other hub nodes did not confirm in time that this one leads; ask again, or without consistent for what this node knows")
		}
	}
	text := r.Header.Get(api.IndexHeader)
	if text == "" {
		return nil
	}
	want, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return wrong(fleet.BadRequest, "%s %s is not the index of an entry", api.IndexHeader, quote(text))
	}
	return s.reach(r.Context(), want, reachTime)
}

func (s *Server) index() string { return strconv.FormatUint(s.cfg.Log.View().Meta().Index, 10) }

// stamped is the context of a write: its answer names an entry that is not before
// the one that the write made.
type stamped struct {
	inner
	server *Server
}

type inner huma.Context // under a name that is none of its methods

func (c stamped) Unwrap() huma.Context { return c.inner }

func (c stamped) SetStatus(status int) {
	c.SetHeader(api.IndexHeader, c.server.index())
	c.inner.SetStatus(status)
}

// leaders is an answer that the leader gives in this node's place.
func (s *Server) leaders() *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		s.forward(w, r)
	}}
}

// lacks says that bytes of a stream are neither on this node nor on another one that
// it can ask for them; the leader may still have them.
func (s *Server) lacks(ctx context.Context, k spool.Key, a *fleet.Attempt) bool {
	if !s.follower() || !a.Log.Sealed {
		return false
	}
	had := a.Log.Durable
	if k.Name == spool.Events {
		had = a.Log.Events
	}
	size, _ := s.cfg.Spool.Size(k)
	return size < had && s.cfg.Spool.Longest(ctx, k) < had
}

// lacksEither says the same of the two streams of an attempt.
func (s *Server) lacksEither(ctx context.Context, j fleet.JobID, a *fleet.Attempt) bool {
	return a != nil && (s.lacks(ctx, spool.Key{Job: j, Fence: a.Fence, Name: spool.Output}, a) ||
		s.lacks(ctx, spool.Key{Job: j, Fence: a.Fence, Name: spool.Events}, a))
}

// known says whether anybody knows the runners' connections.
func (s *Server) known() bool {
	if s.cfg.Seen == nil {
		return true
	}
	from, _ := s.cfg.Seen()
	return from != ""
}

// seen says who saw the runners' connections. No node did where the leader has not
// been heard.
func (s *Server) seen() api.Seen {
	if s.cfg.Seen == nil {
		return api.Seen{From: s.cfg.Node}
	}
	from, age := s.cfg.Seen()
	return api.Seen{From: from, Age: age.Milliseconds()}
}
