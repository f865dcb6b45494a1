package consensus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// appendTimeout bounds one append, with the follower's disk in it.
	appendTimeout = 10 * time.Second

	// voteTimeout bounds a vote, which the other node fsyncs.
	voteTimeout = 5 * time.Second

	// dialTimeout bounds a dial.
	dialTimeout = 5 * time.Second

	// idleTimeout ends a connection on which nobody asked anything.
	idleTimeout = 5 * time.Minute

	// snapshotRate is the number of bytes a second that a snapshot at least moves at,
	// its installation included.
	snapshotRate = 256 << 10
)

// wire is raft's transport over a Transport. A node's address is its id.
type wire struct {
	stream *stream
	id     raft.ServerAddress
	log    *slog.Logger
	quick  time.Duration // bounds a message that needs no disk
	guard  guard
	calls  chan raft.RPC

	mu        sync.Mutex
	links     map[string]*link
	heartbeat func(raft.RPC)

	closing chan struct{}
	once    sync.Once
	serving sync.WaitGroup
}

// guard is what the node has to say about requests, before and after raft.
type guard interface {
	// refuse answers a request in raft's place, or returns nil and nil.
	refuse(req any) (resp any, err error)
	// answered sees raft's answer before the other node does.
	answered(req, resp any)
	// stands says whether this node may ask for votes.
	stands() bool
	// mayVote says whether it is known that it has forgotten none.
	mayVote() bool
}

func newWire(cfg Config, log *slog.Logger, g guard) *wire {
	t := &wire{
		stream: &stream{Transport: cfg.Transport, open: map[*tracked]bool{}},
		id:     raft.ServerAddress(cfg.NodeID), log: log, guard: g,
		quick: max(2*cfg.Heartbeat, 500*time.Millisecond),
		calls: make(chan raft.RPC), links: map[string]*link{}, closing: make(chan struct{}),
	}
	t.serving.Go(t.accept)
	return t
}

// Consumer implements raft.Transport.
func (t *wire) Consumer() <-chan raft.RPC { return t.calls }

// LocalAddr implements raft.Transport.
func (t *wire) LocalAddr() raft.ServerAddress { return t.id }

// EncodePeer implements raft.Transport.
func (t *wire) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer implements raft.Transport.
func (t *wire) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport.
func (t *wire) SetHeartbeatHandler(fn func(raft.RPC)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heartbeat = fn
}

// link is what there is to the node id, which is made where there is none.
func (t *wire) link(id string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[id]
	if l == nil {
		l = &link{id: id, wire: t, all: map[*conn]bool{}}
		t.links[id] = l
	}
	return l
}

// AppendEntries implements raft.Transport.
func (t *wire) AppendEntries(_ raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	l := t.link(string(to))
	if isHeartbeat(req) {
		return l.call(false, t.quick, req, resp, nil)
	}
	trim(req)
	err := l.call(true, appendTimeout, req, resp, nil)
	if err == nil {
		l.has(req, resp)
	}
	return err
}

// isHeartbeat says whether a request is one that only shows that the leader lives.
func isHeartbeat(r *raft.AppendEntriesRequest) bool {
	return r.Term != 0 && r.PrevLogEntry == 0 && r.PrevLogTerm == 0 && len(r.Entries) == 0 && r.LeaderCommitIndex == 0
}

// trim cuts the entries of a request down to what one message should carry. raft goes
// on behind the last one that is in it.
func trim(r *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range r.Entries {
		if size += len(e.Data) + len(e.Extensions); size > maxAppend && i > 0 {
			r.Entries = r.Entries[:i]
			return
		}
	}
}

// AppendEntriesPipeline implements raft.Transport.
func (t *wire) AppendEntriesPipeline(_ raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	c, err := t.link(string(to)).dial(true, dialTimeout)
	if err != nil {
		return nil, err
	}
	return newPipeline(c), nil
}

// RequestVote implements raft.Transport.
func (t *wire) RequestVote(_ raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !t.guard.mayVote() {
		return errAbstains
	}
	l := t.link(string(to))
	err := l.call(false, voteTimeout, req, resp, nil)
	if err == nil {
		l.votes(resp.Term)
	}
	return err
}

// ask asks a node what it has heard of this one.
func (t *wire) ask(id string, q *question, a *answer) error {
	return t.link(id).call(false, t.quick, q, a, nil)
}

// RequestPreVote implements raft.WithPreVote.
func (t *wire) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if !t.guard.mayVote() || !t.guard.stands() {
		return errAbstains
	}
	return t.link(string(to)).call(false, t.quick, req, resp, nil)
}

// TimeoutNow implements raft.Transport.
func (t *wire) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.link(string(to)).call(false, t.quick, req, resp, nil)
}

// InstallSnapshot implements raft.Transport.
func (t *wire) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	l := t.link(string(to))
	timeout := appendTimeout + time.Duration(req.Size)*time.Second/snapshotRate
	err := l.call(true, timeout, req, resp, func(c *conn) error {
		_, err := io.CopyN(c, data, req.Size)
		return err
	})
	if err == nil && resp.Success {
		l.holds(req.LastLogIndex, req.LastLogTerm, req.Term)
	}
	return err
}

// Close implements raft.WithClose. It waits until nothing of the transport runs.
func (t *wire) Close() error {
	t.once.Do(func() {
		close(t.closing)
		t.stream.Close()
	})
	t.serving.Wait()
	return nil
}

// accept serves what connects until Close.
func (t *wire) accept() {
	for pause := 5 * time.Millisecond; ; {
		c, err := t.stream.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			t.serving.Go(func() {
				defer c.Close()
				if err := t.serve(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.log.Debug("connection of another node ended", "from", c.RemoteAddr(), "err", err)
				}
			})
			continue
		}
		retry := time.NewTimer(pause)
		select {
		case <-retry.C:
			t.log.Info("connections of other nodes are not accepted", "err", err)
			pause = min(2*pause, time.Second)
		case <-t.closing:
			retry.Stop()
			return
		}
	}
}

// serve answers the requests of one connection.
func (t *wire) serve(c net.Conn) error {
	r := bufio.NewReaderSize(c, 64<<10)
	var head [headLen]byte
	c.SetReadDeadline(time.Now().Add(idleTimeout))
	if _, err := io.ReadFull(r, head[:len(hello)]); err != nil {
		return err
	}
	if string(head[:len(hello)]) != hello {
		return errWire
	}
	var out []byte
	for {
		c.SetReadDeadline(time.Now().Add(idleTimeout))
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxFrame {
			return errWire
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		req, err := parseRequest(head[0], body)
		if err != nil {
			return err
		}
		rpc := raft.RPC{Command: req}
		var data *io.LimitedReader
		if s, ok := req.(*raft.InstallSnapshotRequest); ok {
			c.SetReadDeadline(time.Now().Add(appendTimeout + time.Duration(s.Size)*time.Second/snapshotRate))
			data = &io.LimitedReader{R: r, N: s.Size}
			rpc.Reader = data
		}
		resp, err := t.dispatch(rpc)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		out = slices.Grow(out[:0], headLen)[:headLen]
		if out[0] = 0; err != nil {
			out[0] = 1
			out = append(out, err.Error()...)
		} else {
			out = appendResponse(out, resp)
		}
		binary.BigEndian.PutUint32(out[1:], uint32(len(out)-headLen))
		c.SetWriteDeadline(time.Now().Add(appendTimeout))
		if _, err := c.Write(out); err != nil {
			return err
		}
		if data != nil && data.N > 0 {
			return errWire // what is left of a snapshot is no request
		}
	}
}

// dispatch has raft, or the node in its place, answer a request.
func (t *wire) dispatch(rpc raft.RPC) (any, error) {
	if resp, err := t.guard.refuse(rpc.Command); resp != nil || err != nil {
		return resp, err
	}
	answer := make(chan raft.RPCResponse, 1)
	rpc.RespChan = answer
	handled := false
	if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && isHeartbeat(a) {
		t.mu.Lock()
		fn := t.heartbeat
		t.mu.Unlock()
		if handled = fn != nil; handled {
			fn(rpc)
		}
	}
	if !handled {
		select {
		case t.calls <- rpc:
		case <-t.closing:
			return nil, net.ErrClosed
		}
	}
	select {
	case a := <-answer:
		if a.Error == nil {
			t.guard.answered(rpc.Command, a.Response)
		}
		return a.Response, a.Error
	case <-t.closing:
		return nil, net.ErrClosed
	}
}
