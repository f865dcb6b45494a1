package consensus

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// maxInFlight is how many appends may be on their way to a node at a time, at least
// 2. While one waits for its place, what comes in becomes one larger append.
const maxInFlight = 2

// repeatEvery is how often a node is told again what it has confirmed. raft says it
// some thirteen times a second, which through a tunnel is most of what an idle cluster
// does. That the leader lives is told by heartbeats; what is left to a repeat is to find
// that the other node began anew, and has to hear again what is committed.
const repeatEvery = 500 * time.Millisecond

// pipeline sends appends without waiting for the answers, which come in turn. raft's
// loop waits for a place, and with that for the other node.
type pipeline struct {
	conn    *conn
	flying  chan *appended
	done    chan raft.AppendFuture
	closing chan struct{}
	once    sync.Once
	ended   chan struct{} // closed when receive has returned

	sent      *appended                // the last one; of AppendEntries
	confirmed atomic.Pointer[appended] // the last one that was answered with success
}

// appended is one append of a pipeline; raft sees it once it is answered.
type appended struct {
	start time.Time
	req   *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
}

func (a *appended) Error() error                          { return nil }
func (a *appended) Start() time.Time                      { return a.start }
func (a *appended) Request() *raft.AppendEntriesRequest   { return a.req }
func (a *appended) Response() *raft.AppendEntriesResponse { return a.resp }

func newPipeline(c *conn) *pipeline {
	c.SetDeadline(time.Time{})
	p := &pipeline{
		conn: c, flying: make(chan *appended, maxInFlight-2), done: make(chan raft.AppendFuture),
		closing: make(chan struct{}), ended: make(chan struct{}),
	}
	go p.receive()
	return p
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	select {
	case <-p.ended:
		return nil, net.ErrClosed
	default:
	}
	trim(req)
	a := &appended{time.Now(), req, resp}
	if p.knows(a) {
		return a, nil
	}
	p.sent = a
	p.conn.SetWriteDeadline(a.start.Add(appendTimeout))
	if err := p.conn.send(req); err != nil {
		return nil, err
	}
	select {
	case p.flying <- a:
		return a, nil
	case <-p.ended:
		return nil, net.ErrClosed
	case <-p.closing:
		return nil, net.ErrClosed
	}
}

// knows says whether the other node has just confirmed all that an append tells. raft
// waits for no answer to such a one.
func (p *pipeline) knows(a *appended) bool {
	last := p.confirmed.Load()
	return last != nil && last == p.sent && len(a.req.Entries) == 0 && a.start.Sub(last.start) < repeatEvery &&
		a.req.Term == last.req.Term && a.req.LeaderCommitIndex == last.req.LeaderCommitIndex && a.req.PrevLogEntry == end(last.req)
}

// end is the index that a request reaches to.
func end(req *raft.AppendEntriesRequest) uint64 {
	if n := len(req.Entries); n > 0 {
		return req.Entries[n-1].Index
	}
	return req.PrevLogEntry
}

// receive reads the answers. It ends at the first error or refusal, which the next
// append meets: raft's loop looks at no answer behind a refusal.
func (p *pipeline) receive() {
	defer close(p.ended)
	for {
		var a *appended
		select {
		case a = <-p.flying:
		case <-p.closing:
			return
		}
		p.conn.SetReadDeadline(time.Now().Add(appendTimeout))
		err := p.conn.receive(a.resp)
		p.conn.link.heard(true, err)
		if err != nil {
			p.conn.Close()
			return
		}
		p.conn.link.has(a.req, a.resp)
		if a.resp.Success {
			p.confirmed.Store(a)
		}
		select {
		case p.done <- a:
		case <-p.closing:
			return
		}
		if !a.resp.Success {
			return
		}
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.done }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closing) })
	err := p.conn.Close()
	<-p.ended
	p.refuse()
	return err
}

// refuse ends who still waits for answers: where a failed read of the log has ended raft's
// loop, nothing else tells that to raft's reader of the answers, and raft waits for that one.
func (p *pipeline) refuse() {
	t := p.conn.link.wire
	t.serving.Go(func() {
		late := time.NewTimer(time.Second)
		defer late.Stop()
		select {
		case p.done <- &appended{time.Now(), new(raft.AppendEntriesRequest), new(raft.AppendEntriesResponse)}:
		case <-late.C:
		case <-t.closing:
		}
	})
}
