package consensus

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxInFlight is how many appends may be on their way to a node at a time, at least
// 2. While one waits for its place, what comes in becomes one larger append.
const maxInFlight = 2

// pipeline sends appends without waiting for the answers, which come in turn. raft's
// loop waits for a place, and with that for the other node.
type pipeline struct {
	conn    *conn
	flying  chan *appended
	done    chan raft.AppendFuture
	closing chan struct{}
	once    sync.Once
	ended   chan struct{} // closed when receive has returned
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
	return err
}
