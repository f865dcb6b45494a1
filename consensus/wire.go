package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Between nodes: who connects sends hello, then requests; each is answered in turn.
//
//	request   kind (1 byte), length (4 bytes), body
//	response  0 or 1 (1 byte), length (4 bytes), body; after 1 the body is an error's text
//
// A snapshot's bytes follow its request. Numbers in bodies are unsigned varints,
// bytes have their length in front.
const (
	hello = "TGR1"

	headLen = 5

	// maxFrame bounds the body of a message: maxAppend and one entry over it.
	maxFrame = 16 << 20

	// maxAppend is about how many bytes of entries one request carries.
	maxAppend = 8 << 20
)

const (
	kindAppend = iota + 1
	kindVote
	kindPreVote
	kindSnapshot
	kindTimeoutNow
	kindQuestion
)

var errWire = errors.New("not a message of this version")

func appendUint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

func appendBytes(b, v []byte) []byte { return append(appendUint(b, uint64(len(v))), v...) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendHeader(b []byte, h raft.RPCHeader) []byte {
	return appendBytes(appendBytes(appendUint(b, uint64(h.ProtocolVersion)), h.ID), h.Addr)
}

// appendRequest appends the body of a request and gives its kind.
func appendRequest(b []byte, req any) ([]byte, byte) {
	switch r := req.(type) {
	case *raft.AppendEntriesRequest:
		b = appendHeader(b, r.RPCHeader)
		for _, n := range []uint64{r.Term, r.PrevLogEntry, r.PrevLogTerm, r.LeaderCommitIndex, uint64(len(r.Entries))} {
			b = appendUint(b, n)
		}
		for _, l := range r.Entries {
			b = appendEntry(b, l)
		}
		return b, kindAppend
	case *raft.RequestVoteRequest:
		b = appendHeader(b, r.RPCHeader)
		b = appendUint(appendUint(appendUint(b, r.Term), r.LastLogIndex), r.LastLogTerm)
		return appendBool(b, r.LeadershipTransfer), kindVote
	case *raft.RequestPreVoteRequest:
		b = appendHeader(b, r.RPCHeader)
		return appendUint(appendUint(appendUint(b, r.Term), r.LastLogIndex), r.LastLogTerm), kindPreVote
	case *raft.InstallSnapshotRequest:
		b = appendHeader(b, r.RPCHeader)
		for _, n := range []uint64{uint64(r.SnapshotVersion), r.Term, r.LastLogIndex, r.LastLogTerm, r.ConfigurationIndex, uint64(r.Size)} {
			b = appendUint(b, n)
		}
		return appendBytes(b, r.Configuration), kindSnapshot
	case *raft.TimeoutNowRequest:
		return appendHeader(b, r.RPCHeader), kindTimeoutNow
	case *question:
		return r.append(b), kindQuestion
	}
	panic(fmt.Sprintf("no message for a %T", req))
}

func appendEntry(b []byte, l *raft.Log) []byte {
	b = appendUint(appendUint(append(b, byte(l.Type)), l.Index), l.Term)
	at := uint64(0)
	if !l.AppendedAt.IsZero() {
		at = uint64(l.AppendedAt.UnixNano())
	}
	return appendBytes(appendBytes(appendUint(b, at), l.Data), l.Extensions)
}

// parseRequest reads the body of a request, whose entries stay parts of b.
func parseRequest(kind byte, b []byte) (any, error) {
	c := &cursor{b: b}
	h := c.header()
	var req any
	switch kind {
	case kindAppend:
		r := &raft.AppendEntriesRequest{
			RPCHeader: h, Leader: h.Addr, Term: c.uint(), PrevLogEntry: c.uint(), PrevLogTerm: c.uint(), LeaderCommitIndex: c.uint(),
		}
		n := c.uint()
		if n > uint64(len(c.b)) { // an entry takes more than a byte
			return nil, errWire
		}
		if n > 0 {
			logs := make([]raft.Log, n)
			r.Entries = make([]*raft.Log, n)
			for i := range logs {
				c.entry(&logs[i])
				r.Entries[i] = &logs[i]
			}
		}
		req = r
	case kindVote:
		req = &raft.RequestVoteRequest{
			RPCHeader: h, Candidate: h.Addr, Term: c.uint(), LastLogIndex: c.uint(), LastLogTerm: c.uint(), LeadershipTransfer: c.bool(),
		}
	case kindPreVote:
		req = &raft.RequestPreVoteRequest{RPCHeader: h, Term: c.uint(), LastLogIndex: c.uint(), LastLogTerm: c.uint()}
	case kindSnapshot:
		req = &raft.InstallSnapshotRequest{
			RPCHeader: h, Leader: h.Addr, SnapshotVersion: raft.SnapshotVersion(c.uint()), Term: c.uint(), LastLogIndex: c.uint(),
			LastLogTerm: c.uint(), ConfigurationIndex: c.uint(), Size: int64(c.uint()), Configuration: c.bytes(),
		}
	case kindTimeoutNow:
		req = &raft.TimeoutNowRequest{RPCHeader: h}
	case kindQuestion:
		req = c.question(h)
	}
	if req == nil || c.bad || len(c.b) > 0 {
		return nil, errWire
	}
	return req, nil
}

// appendResponse appends the body of a response.
func appendResponse(b []byte, resp any) []byte {
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		b = appendUint(appendUint(appendHeader(b, r.RPCHeader), r.Term), r.LastLog)
		return appendBool(appendBool(b, r.Success), r.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		return appendBool(appendUint(appendHeader(b, r.RPCHeader), r.Term), r.Granted)
	case *raft.RequestPreVoteResponse:
		return appendBool(appendUint(appendHeader(b, r.RPCHeader), r.Term), r.Granted)
	case *raft.InstallSnapshotResponse:
		return appendBool(appendUint(appendHeader(b, r.RPCHeader), r.Term), r.Success)
	case *raft.TimeoutNowResponse:
		return appendHeader(b, r.RPCHeader)
	case *answer:
		return r.append(b)
	}
	panic(fmt.Sprintf("no message for a %T", resp))
}

// parseResponse reads the body of a response into resp.
func parseResponse(b []byte, resp any) error {
	c := &cursor{b: b}
	h := c.header()
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		*r = raft.AppendEntriesResponse{RPCHeader: h, Term: c.uint(), LastLog: c.uint(), Success: c.bool(), NoRetryBackoff: c.bool()}
	case *raft.RequestVoteResponse:
		*r = raft.RequestVoteResponse{RPCHeader: h, Term: c.uint(), Granted: c.bool()}
	case *raft.RequestPreVoteResponse:
		*r = raft.RequestPreVoteResponse{RPCHeader: h, Term: c.uint(), Granted: c.bool()}
	case *raft.InstallSnapshotResponse:
		*r = raft.InstallSnapshotResponse{RPCHeader: h, Term: c.uint(), Success: c.bool()}
	case *raft.TimeoutNowResponse:
		*r = raft.TimeoutNowResponse{RPCHeader: h}
	case *answer:
		*r = c.answer(h)
	}
	if c.bad || len(c.b) > 0 {
		return errWire
	}
	return nil
}

// cursor takes values off b; what does not fit is bad, and zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) uint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) bytes() []byte {
	n := c.uint()
	if n > uint64(len(c.b)) {
		c.b, c.bad = nil, true
	}
	if n == 0 || c.bad {
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.bad = true
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) bool() bool {
	v := c.byte()
	c.bad = c.bad || v > 1
	return v == 1
}

func (c *cursor) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(c.uint()), ID: c.bytes(), Addr: c.bytes()}
}

func (c *cursor) entry(l *raft.Log) {
	l.Type, l.Index, l.Term = raft.LogType(c.byte()), c.uint(), c.uint()
	if at := c.uint(); at != 0 {
		l.AppendedAt = time.Unix(0, int64(at)).UTC()
	}
	l.Data, l.Extensions = c.bytes(), c.bytes()
}
