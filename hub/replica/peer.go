package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	inFlight   = 4 << 20 // bytes on their way to one peer, not answered for
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// peer is another node: the connection to it, what is known of it, and the streams
// of which it lacks something while this node leads.
type peer struct {
	r      *Replica
	id     string
	ctx    context.Context
	cancel context.CancelFunc
	asked  chan struct{} // ping now

	mu      sync.Mutex
	link    *link // nil: not connected
	status  status
	heard   time.Time // when status came
	need    uint64    // the comparison that has to end before its debt is known; 0: not asked
	queue   []*stream
	waiting []*stream     // to be tried again at the next ping
	flight  int           // bytes on their way
	owed    int64         // bytes of blobs that it was told to store and has not answered for
	work    chan struct{} // there is something in queue, or room for it
	told    string        // the last failure to connect, so that it is logged once
	made    time.Time
}

// meetTime is how long after a node has heard of another one may still be unknown there.
const meetTime = 10 * time.Second

func newPeer(r *Replica, id string, ctx context.Context) *peer {
	p := &peer{r: r, id: id, made: time.Now(), asked: make(chan struct{}, 1), work: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// run keeps a connection until the peer is a member no more.
func (p *peer) run() {
	defer p.cancel()
	backoff := minBackoff
	for p.ctx.Err() == nil {
		began := time.Now()
		err := p.session()
		if p.ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		if text := err.Error(); errors.Is(err, fleet.Forbidden) && time.Since(p.made) < meetTime {
			p.r.log.Debug("another node does not know this one yet", "node", p.id)
		} else if text != p.told {
			p.told = text
			p.r.log.Warn("no connection to copy to another node", "node", p.id, "err", err)
		}
		// Jitter, so that nodes that lost each other do not meet in step for ever.
		wait := time.NewTimer(backoff/2 + rand.N(backoff/2))
		select {
		case <-p.ctx.Done():
		case <-p.asked:
		case <-wait.C:
		}
		wait.Stop()
		backoff = min(2*backoff, maxBackoff)
	}
}

// session is the life of one connection.
func (p *peer) session() error {
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	conn, err := p.r.cfg.Dial(ctx, p.id)
	cancel()
	if err != nil {
		return err
	}
	l, err := connect(conn, p.r.cfg.Self, p.id)
	if err != nil {
		conn.Close()
		return err
	}
	p.mu.Lock()
	p.link, p.need, p.flight, p.told = l, 0, 0, ""
	p.mu.Unlock()
	p.r.log.Debug("connected to copy to another node", "node", p.id)
	var wg sync.WaitGroup
	wg.Go(func() { l.run(p.ctx.Done()) })
	wg.Go(func() { p.ping(l) })
	wg.Go(func() { p.push(l) })
	wg.Go(func() { p.greet(l) })
	<-l.done
	p.mu.Lock()
	p.link = nil
	p.queue, p.waiting = nil, nil
	p.mu.Unlock()
	if t := p.r.leading(); t != nil {
		t.gone(p)
	}
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, errHungUp)
}

// up gives the connection, or nil.
func (p *peer) up() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

// ping asks how the peer is, tells it who leads, and ends a connection on which
// nothing is heard.
func (p *peer) ping(l *link) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		m := &message{Kind: kindPing}
		t := p.r.leading()
		if t != nil {
			m.Ballot = t.ballot
		}
		l.send(m, func(a *message, err error) { p.pong(l, t, a, err) })
		select {
		case <-l.done:
			return
		case <-p.asked:
		case <-tick.C:
		}
		if l.silent() > deadAfter {
			l.close(errHungUp)
			return
		}
		p.mu.Lock()
		p.queue, p.waiting = append(p.queue, p.waiting...), nil
		p.mu.Unlock()
		poke(p.work)
	}
}

func (p *peer) pong(l *link, t *term, a *message, err error) {
	if a == nil {
		return
	}
	if err == nil {
		p.mu.Lock()
		freed := p.status.Full && !a.Status.Full
		p.status, p.heard = a.Status, time.Now()
		p.mu.Unlock()
		if freed && t != nil {
			t.requeue(p)
		}
	}
	if t != nil {
		t.granted(p, a.Promised, err == nil)
	}
}

// greet is what follows on a new connection: the peer compares itself with the
// others, and this node with it.
func (p *peer) greet(l *link) {
	p.r.debts.doubt()
	poke(p.r.compare)
	p.demand(l)
	if t := p.r.leading(); t != nil {
		t.welcome(p)
	}
}

// demand has the peer compare itself with the others: until that is done, its debt
// is not known.
func (p *peer) demand(l *link) {
	a, err := l.call(p.ctx, &message{Kind: kindCompare})
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == l {
		p.need = a.Status.Begun + 1
	}
}

// missed says that something did not reach the peer which it finds only when it
// compares itself.
func (p *peer) missed() {
	p.mu.Lock()
	l := p.link
	p.need = 0
	p.mu.Unlock()
	if l != nil {
		p.r.spawn(func(context.Context) { p.demand(l) })
	}
}

// fullNow marks the peer as one that takes no more until it says otherwise.
func (p *peer) fullNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Full = true
}

// enqueue asks for a look at what the peer lacks of a stream.
func (p *peer) enqueue(s *stream) {
	p.mu.Lock()
	if p.link != nil {
		p.queue = append(p.queue, s)
	}
	p.mu.Unlock()
	poke(p.work)
}

// later is enqueue at the next ping.
func (p *peer) later(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		p.waiting = append(p.waiting, s)
	}
}

// push takes streams from the queue and sends what is missing.
func (p *peer) push(l *link) {
	for {
		p.mu.Lock()
		var s *stream
		if p.flight < inFlight && len(p.queue) > 0 {
			s = p.queue[0]
			p.queue = p.queue[1:]
		}
		full := p.status.Full
		p.mu.Unlock()
		if s != nil {
			s.push(p, l, full)
			continue
		}
		select {
		case <-p.work:
		case <-l.done:
			return
		}
	}
}

// took counts bytes on their way.
func (p *peer) took(l *link, n int) {
	p.mu.Lock()
	if p.link == l {
		p.flight += n
	}
	p.mu.Unlock()
	if n < 0 {
		poke(p.work)
	}
}

// owe counts bytes of blobs that the peer is to store.
func (p *peer) owe(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed += n
}

// spawn runs f in a goroutine that Run waits for; false if Run does not run.
func (r *Replica) spawn(f func(ctx context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := r.running
	if ctx == nil {
		return false
	}
	r.wg.Go(func() { f(ctx) })
	return true
}

var errNotRunning = fmt.Errorf("the copies are not kept just now: %w", fleet.Unavailable)
