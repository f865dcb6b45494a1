package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// Term is one time of leading.
type Term struct {
	Epoch uint64 // of the cluster
	Term  uint64 // of the log
	// Since is the index of the last entry before this term. A stream whose fence
	// is newer was begun by nobody else, so that nobody has to be asked about it.
	// 0: ask about every stream.
	Since uint64
}

// term is what the replica knows while it leads.
type term struct {
	r      *Replica
	ballot Ballot
	since  uint64
	ctx    context.Context // ends with the term
	end    context.CancelCauseFunc
	ready  chan struct{} // closed once a majority obeys

	mu      sync.Mutex
	obeys   map[string]bool
	streams map[spool.Key]*stream
	settled map[*peer]*link // peers whose streams were compared with ours, on which connection
}

var (
	errNotLeading = fmt.Errorf("this node does not lead: %w", fleet.Unavailable)
	errDeposed    = fmt.Errorf("another node leads by now: %w", fleet.Unavailable)
	errNoMajority = fmt.Errorf("no majority of the hub nodes answers: %w", fleet.Unavailable)
)

// Lead has the replica lead until ctx ends, and returns when a majority of the
// voters obeys, or ctx has ended. Before that, what Append, Seal and the rest have
// to do waits, and so it does when the caller has not come to calling Lead yet.
// Errors: fleet.Unavailable if another leads by now, the cause of ctx's end.
func (r *Replica) Lead(ctx context.Context, in Term) error {
	t := &term{
		r: r, ballot: Ballot{Epoch: in.Epoch, Term: in.Term}, since: in.Since, ready: make(chan struct{}),
		obeys: map[string]bool{}, streams: map[spool.Key]*stream{}, settled: map[*peer]*link{},
	}
	t.ctx, t.end = context.WithCancelCause(ctx)
	ok, err := r.record.raise(t.ballot, r.cfg.Self)
	switch {
	case err != nil:
		return fmt.Errorf("lead in term %d: %w", in.Term, err)
	case !ok:
		return fmt.Errorf("lead in term %d of epoch %d: %w", in.Term, in.Epoch, errDeposed)
	}
	r.look()
	r.mu.Lock()
	old := r.lead
	r.lead = t
	r.leads.Store(true)
	close(r.turned)
	r.turned = make(chan struct{})
	peers := make([]*peer, 0, len(r.peers))
	for _, p := range r.peers {
		peers = append(peers, p)
	}
	r.mu.Unlock()
	if old != nil {
		old.end(errDeposed)
	}
	context.AfterFunc(t.ctx, func() { r.resign(t) })
	t.recount()
	for _, p := range peers {
		poke(p.asked)
		if p.up() != nil {
			r.spawn(func(context.Context) { t.welcome(p) })
		}
	}
	select {
	case <-t.ready:
		return nil
	case <-t.ctx.Done():
		return fmt.Errorf("lead in term %d: %w", in.Term, context.Cause(t.ctx))
	}
}

// resign forgets a term that has ended; whoever waits in it is told.
func (r *Replica) resign(t *term) {
	r.mu.Lock()
	if r.lead == t {
		r.lead = nil
		r.leads.Store(false)
		close(r.turned)
		r.turned = make(chan struct{})
	}
	r.mu.Unlock()
}

// leading gives the present term, or nil.
func (r *Replica) leading() *term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead
}

// enter waits until this node leads and a majority obeys.
func (r *Replica) enter(ctx context.Context) (*term, error) {
	for {
		r.mu.Lock()
		t, turned := r.lead, r.turned
		r.mu.Unlock()
		var ready <-chan struct{}
		if t != nil {
			ready = t.ready
		}
		select {
		case <-ready:
			if t.ctx.Err() == nil {
				return t, nil
			}
			select { // its successor, if there is one
			case <-turned:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case <-turned:
		case <-ctx.Done():
			if t == nil {
				return nil, errNotLeading
			}
			return nil, context.Cause(ctx)
		}
	}
}

// patient bounds how long a call waits for others.
func (r *Replica) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.cfg.Patience, errNoMajority)
}

// granted takes note of whom a peer obeys.
func (t *term) granted(p *peer, promised Ballot, obeys bool) {
	switch c := promised.Compare(t.ballot); {
	case c > 0:
		t.end(errDeposed)
		return
	case c < 0, !obeys:
		return
	}
	t.mu.Lock()
	t.obeys[p.id] = true
	t.mu.Unlock()
	t.recount()
}

// recount looks again at what the voters, who may have changed, have agreed to.
func (t *term) recount() {
	v := t.r.view.Load()
	t.mu.Lock()
	n := 0
	for id := range v.voters {
		if id == v.self || t.obeys[id] {
			n++
		}
	}
	if n >= v.majority() {
		select {
		case <-t.ready:
		default:
			close(t.ready)
		}
	}
	t.mu.Unlock()
	for _, s := range t.all() {
		s.recount()
	}
}

// all gives the streams that the term knows.
func (t *term) all() []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*stream, 0, len(t.streams))
	for _, s := range t.streams {
		out = append(out, s)
	}
	return out
}

// requeue has every stream looked at for a peer.
func (t *term) requeue(p *peer) {
	for _, s := range t.all() {
		s.offer(p)
	}
}

// gone says that the connection to a peer ended.
func (t *term) gone(p *peer) {
	t.mu.Lock()
	delete(t.settled, p)
	t.mu.Unlock()
}

// welcome brings a peer that came up what it lacks of the streams that are not
// sealed. What is sealed it fetches itself.
func (t *term) welcome(p *peer) {
	l := p.up()
	if l == nil {
		return
	}
	select {
	case <-t.ready:
	case <-t.ctx.Done():
		return
	case <-l.done:
		return
	}
	t.requeue(p)
	if t.settle(p, l) {
		t.mu.Lock()
		t.settled[p] = l
		t.mu.Unlock()
	}
}

// openAtOnce bounds the streams that are opened at once for a peer that came up.
const openAtOnce = 32

// settle compares the streams that are not sealed, and opens those that differ.
func (t *term) settle(p *peer, l *link) bool {
	r := t.r
	want := r.cfg.Wanted()
	theirs := map[spool.Key]holding{}
	err := eachHolding(t.ctx, l, unsealed, func(h holding) { theirs[h.Key] = h })
	if err != nil {
		return false
	}
	var differ []spool.Key
	r.spool.Each(func(i spool.Info) bool {
		h := theirs[i.Key]
		delete(theirs, i.Key)
		if !i.Sealed && !(h.Size == i.Size && h.Stamp == r.record.stampOf(i.Key)) && want.job(i.Key.Job) {
			differ = append(differ, i.Key)
		}
		return true
	})
	for k := range theirs {
		if info, _ := r.spool.Peek(k); !info.Sealed && want.job(k.Job) && !r.isDropped(string(k.Job)) {
			differ = append(differ, k)
		}
	}
	var failed atomic.Bool
	var wg sync.WaitGroup
	turns := make(chan struct{}, openAtOnce)
	for _, k := range differ {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := r.patient(t.ctx)
			defer cancel()
			s, err := t.open(ctx, k)
			if err != nil {
				failed.Store(true)
				return
			}
			s.offer(p)
			s.leave()
		})
	}
	wg.Wait()
	return !failed.Load()
}

// tidy forgets streams that nobody uses and every connected peer has whole.
func (t *term) tidy(now time.Time) {
	for _, s := range t.all() {
		if s.idle(now) {
			t.mu.Lock()
			delete(t.streams, s.key)
			t.mu.Unlock()
		}
	}
}
