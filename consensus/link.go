package consensus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// link is what a node has to one other: connections, and how far that one is. Quick
// messages, which no disk may hold up, have connections of their own.
type link struct {
	id   string
	wire *wire

	mu    sync.Mutex
	quick []*conn // idle
	bulk  []*conn // idle
	all   map[*conn]bool
	late  bool // quick messages go unanswered
	away  bool // it was told that the other does not answer

	failing time.Time // since when no message was answered, zero while they are
	contact time.Time // of the last answer
	match   uint64    // newest entry that the other is known to have
	term    uint64    // of that entry
	reign   uint64    // the leader's term in which that became known
	vote    uint64    // newest term that the other answered a candidate in
}

// maxIdle is how many connections of a kind are kept for later.
const maxIdle = 2

// conn is a connection that this node made.
type conn struct {
	net.Conn
	link *link
	bulk bool
	r    *bufio.Reader
	out  []byte // the message being written
}

// dial gives an idle connection or a new one.
func (l *link) dial(bulk bool, timeout time.Duration) (*conn, error) {
	l.mu.Lock()
	idle := &l.quick
	if bulk {
		idle = &l.bulk
	}
	if n := len(*idle); n > 0 {
		c := (*idle)[n-1]
		*idle = (*idle)[:n-1]
		l.mu.Unlock()
		return c, nil
	}
	l.mu.Unlock()
	raw, err := l.wire.stream.Dial(l.id, timeout)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, link: l, bulk: bulk, r: bufio.NewReader(raw), out: []byte(hello)}
	l.mu.Lock()
	l.all[c] = true
	l.mu.Unlock()
	return c, nil
}

// keep puts an idle connection by.
func (c *conn) keep() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	idle := &c.link.quick
	if c.bulk {
		idle = &c.link.bulk
	}
	if !c.link.all[c] || len(*idle) >= maxIdle {
		delete(c.link.all, c)
		c.Conn.Close()
		return
	}
	*idle = append(*idle, c)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.all, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// send writes a request.
func (c *conn) send(req any) error {
	at := len(c.out) // behind the hello of a new connection
	b, kind := appendRequest(append(c.out, make([]byte, headLen)...), req)
	b[at] = kind
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-headLen))
	_, err := c.Write(b)
	if c.out = b[:0]; cap(b) > 1<<20 {
		c.out = nil
	}
	return err
}

// errRemote is what the other node answered instead of a response.
type errRemote string

func (e errRemote) Error() string { return string(e) }

// receive reads a response. An errRemote leaves the connection as good as before.
func (c *conn) receive(resp any) error {
	var head [headLen]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame || head[0] > 1 {
		return errWire
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return err
	}
	if head[0] == 1 {
		return errRemote(body)
	}
	return parseResponse(body, resp)
}

// call sends a request and waits for its response. then, where it is not nil, sends
// what comes behind the request.
func (l *link) call(bulk bool, timeout time.Duration, req, resp any, then func(*conn) error) error {
	c, err := l.dial(bulk, min(timeout, dialTimeout))
	if err == nil {
		c.SetDeadline(time.Now().Add(timeout))
		err = c.send(req)
		if err == nil && then != nil {
			err = then(c)
		}
		if err == nil {
			err = c.receive(resp)
		}
	}
	var remote errRemote
	switch {
	case err == nil || errors.As(err, &remote):
		c.keep()
	case c != nil:
		c.Close()
	}
	l.heard(bulk, err)
	if err != nil {
		return fmt.Errorf("node %s: %w", l.id, err)
	}
	return nil
}

// heard notes whether the other node answers. Once it does so again, connections
// that were made before are given up: on those, bytes may wait long for a repeat.
func (l *link) heard(bulk bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var remote errRemote
	answered := err == nil || errors.As(err, &remote)
	l.news(answered, err)
	if answered {
		l.contact = time.Now()
	}
	switch {
	case bulk:
	case !answered:
		var slow net.Error
		l.late = l.late || errors.As(err, &slow) && slow.Timeout()
	case l.late:
		l.late = false
		for c := range l.all {
			if c.bulk {
				c.Conn.Close()
				delete(l.all, c)
			}
		}
		l.bulk = nil
	}
}

// has notes that the other node holds what req ends with.
func (l *link) has(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if !resp.Success || req.LeaderCommitIndex == 0 {
		return
	}
	index, term := req.PrevLogEntry, req.PrevLogTerm
	if n := len(req.Entries); n > 0 {
		index, term = req.Entries[n-1].Index, req.Entries[n-1].Term
	}
	l.holds(index, term, req.Term)
}

func (l *link) holds(index, term, reign uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.match, l.term, l.reign = index, term, reign
}

// votes notes that the other node has taken part in a term.
func (l *link) votes(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vote = max(l.vote, term)
}

// confirmed is the newest entry that the node id has had in the log that this one had then,
// 0 where none is known, and the newest term that it answered this one in as a candidate.
func (t *wire) confirmed(id string) (index, term, vote uint64) {
	l := t.link(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.match, l.term, l.vote
}

// progress is how far another node is, as the leader sees it.
type progress struct {
	contact time.Time // zero: it never answered
	match   uint64    // 0: not known in this term
	term    uint64
}

// progress of the node id, to the leader of the term reign.
func (t *wire) progress(id string, reign uint64) progress {
	l := t.link(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reign != reign {
		return progress{contact: l.contact}
	}
	return progress{l.contact, l.match, l.term}
}
