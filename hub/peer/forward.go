package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	maxHandedOn = 1024           // requests of people that are handed on at once
	maxLasting  = 16384          // links and exchanges of runners
	maxBody     = 8<<20 + 64<<10 // bytes of a body: one part of an upload
	smallBody   = 1 << 20        // bytes of one that arrives soon
	smallTime   = 30 * time.Second
	largeTime   = 5 * time.Minute
	slowest     = 30 * time.Second // a client that takes no byte for so long is dropped
)

var errMoved = errors.New("the node that the request was handed to does not lead any more")

// bounds hold one token for each request that is handed on.
type bounds struct{ short, lasting chan struct{} }

func newBounds() bounds {
	return bounds{make(chan struct{}, maxHandedOn), make(chan struct{}, maxLasting)}
}

// Forward has the leader answer a request, whatever it is: a write, a stream, an
// upgrade. An error says that nothing was answered yet: it wraps
// fleet.OutcomeUnknown where the request reached the leader and is not one that
// merely reads, else fleet.Unavailable, and the client may ask again.
//
// It is asked once. A request that another node handed on already is refused.
func (p *Peers) Forward(w http.ResponseWriter, r *http.Request) error {
	return p.forward(w, r, p.bounds.short)
}

// ForwardLasting is Forward for what belongs to a runner's session and may last as
// long as it; such requests don't take the room of others.
func (p *Peers) ForwardLasting(w http.ResponseWriter, r *http.Request) error {
	return p.forward(w, r, p.bounds.lasting)
}

func (p *Peers) forward(w http.ResponseWriter, r *http.Request, room chan struct{}) error {
	if p.Forwarded(r) {
		return fmt.Errorf("the request was handed on once, and this node does not lead: %w", fleet.Unavailable)
	}
	to := p.cfg.Leader()
	if to == "" || to == p.cfg.Self {
		return fleet.Say(fleet.Unavailable, "no hub node leads now; try again in a moment; `tugline hub members` says which ones are away")
	}
	if r.ContentLength > maxBody {
		return fmt.Errorf("the body has %d bytes, at most %d are handed on: %w", r.ContentLength, maxBody, fleet.TooLarge)
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	default:
		return fmt.Errorf("this node hands on %d requests, its bound: %w", cap(room), fleet.Unavailable)
	}
	if !p.enter() {
		return fmt.Errorf("this node is stopping: %w", fleet.Unavailable)
	}
	defer p.wg.Done()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(p.life, func() { cancel(fleet.Restarting) })()
	defer p.flying.add(to, cancel)()
	return p.carry(ctx, w, r, to)
}

// carry hands the request to a node and its answer back.
func (p *Peers) carry(ctx context.Context, w http.ResponseWriter, r *http.Request, to string) (failed error) {
	var sent atomic.Bool // the head has left: it may be done
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	r = r.WithContext(ctx)
	if r.ContentLength != 0 && r.Body != nil {
		r.Body = newTimely(w, r)
	}
	proxy := httputil.ReverseProxy{
		Transport:     p.wire,
		FlushInterval: -1,
		BufferPool:    &buffers,
		ErrorLog:      slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", to, pr.In.Host
			h := pr.Out.Header
			h.Set(byHeader, p.cfg.Self)
			h.Set(clientHeader, pr.In.RemoteAddr)
			h.Del(keyHeader)
			if k, ok := h[idempotencyKey]; ok {
				// The transport would take it for leave to send the request again.
				h[keyHeader] = k
				h.Del(idempotencyKey)
			}
		},
		ModifyResponse: func(res *http.Response) error {
			for k := range res.Header {
				w.Header().Del(k) // else it would stand there twice
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			failed = outcome(r.Method, to, sent.Load(), err)
		},
	}
	rc := http.NewResponseController(w)
	proxy.ServeHTTP(patient{w, rc}, r)
	_ = rc.SetWriteDeadline(time.Time{}) // the connection may serve others
	return failed
}

// outcome says what is known of a request that got no answer.
func outcome(method, to string, sent bool, err error) error {
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return fmt.Errorf("the body has over %d bytes: %w", big.Limit, fleet.TooLarge)
	case !sent:
		return fmt.Errorf("%w: %v", fleet.Say(fleet.Unavailable, "hub node %s cannot be reached from the one that was asked; try again in a moment", to), err)
	case method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions:
		return fmt.Errorf("%w: %v", fleet.Say(fleet.Unavailable, "hub node %s did not answer the one that was asked; try again in a moment", to), err)
	}
	return fmt.Errorf("node %s did not answer: %v: %w", to, err, fleet.OutcomeUnknown)
}

// timely is a body that is bounded in size and in the time that it takes to come.
type timely struct {
	io.ReadCloser
	rc *http.ResponseController
}

func newTimely(w http.ResponseWriter, r *http.Request) timely {
	rc, patience := http.NewResponseController(w), largeTime
	if 0 <= r.ContentLength && r.ContentLength <= smallBody {
		patience = smallTime
	}
	_ = rc.SetReadDeadline(time.Now().Add(patience)) // where the writer has deadlines
	return timely{http.MaxBytesReader(w, r.Body, maxBody), rc}
}

func (t timely) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil {
		_ = t.rc.SetReadDeadline(time.Time{}) // the answer may take longer
	}
	return n, err
}

// patient gives up on a client that takes nothing.
type patient struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w patient) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w patient) Write(b []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(slowest))
	return w.ResponseWriter.Write(b)
}

// flights are the requests that are with another node now.
type flights struct {
	mu  sync.Mutex
	all map[*flight]bool
}

type flight struct {
	to     string
	cancel context.CancelCauseFunc
	left   time.Time // when it was first seen that its node does not lead
}

func (f *flights) add(to string, cancel context.CancelCauseFunc) (remove func()) {
	one := &flight{to: to, cancel: cancel}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*flight]bool{}
	}
	f.all[one] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.all, one)
	}
}

// cut ends what is with a node that has not been the leader for a while: it would
// answer by now if it could.
func (f *flights) cut(leader string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.all {
		switch {
		case one.to == leader:
			one.left = time.Time{}
		case one.left.IsZero():
			one.left = now
		case now.Sub(one.left) > leaveTime:
			one.cancel(errMoved)
		}
	}
}

// look sees every moment who leads, for what is with other nodes.
func (p *Peers) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.flying.cut(p.cfg.Leader(), now)
		}
	}
}

// pool lends the space through which answers go.
type pool struct{ sync.Pool }

var buffers = pool{sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}}

func (p *pool) Get() []byte  { return *p.Pool.Get().(*[]byte) }
func (p *pool) Put(b []byte) { p.Pool.Put(&b) }
