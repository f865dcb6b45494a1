package consensus

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestIdlePipeline: what a node has just confirmed is not told again each time that raft
// would, and what is new is told at once.
func TestIdlePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := &wire{closing: make(chan struct{})}
		defer func() { close(w.closing); w.serving.Wait() }()
		p := newPipeline(&conn{Conn: near, link: &link{wire: w, all: map[*conn]bool{}}, r: bufio.NewReader(near)})
		defer far.Close()
		defer p.Close()
		var told atomic.Int64
		var mute atomic.Bool
		go func() { // the other node
			var head [headLen]byte
			for {
				if _, err := io.ReadFull(far, head[:]); err != nil {
					return
				}
				if _, err := io.CopyN(io.Discard, far, int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
					return
				}
				told.Add(1)
				if mute.Load() {
					continue
				}
				b := appendResponse(make([]byte, headLen), &raft.AppendEntriesResponse{Term: 3, Success: true})
				binary.BigEndian.PutUint32(b[1:], uint32(len(b)-headLen))
				if _, err := far.Write(b); err != nil {
					return
				}
			}
		}()
		go func() { // raft
			for {
				select {
				case <-p.Consumer():
				case <-p.ended:
					return
				}
			}
		}()
		tell := func(commit, prev uint64, entries ...*raft.Log) (sent bool) {
			t.Helper()
			before := told.Load()
			req := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: prev, PrevLogTerm: 3, LeaderCommitIndex: commit, Entries: entries}
			if _, err := p.AppendEntries(req, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return told.Load() > before
		}
		is := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Errorf("%s: sent is %v", what, got)
			}
		}
		is("the first", tell(8, 8), true)
		is("entries", tell(8, 8, &raft.Log{Index: 9, Term: 3}), true)
		is("the same", tell(8, 9), false)
		is("what is committed now", tell(9, 9), true)
		is("the same", tell(9, 9), false)
		before := told.Load()
		for range 20 { // two seconds
			time.Sleep(100 * time.Millisecond)
			tell(9, 9)
		}
		if n := told.Load() - before; n != 4 {
			t.Errorf("%d repeats in two seconds, want 4", n)
		}
		mute.Store(true)
		is("an entry", tell(9, 9, &raft.Log{Index: 10, Term: 3}), true)
		// What follows waits for its place behind the one that is not answered.
		go p.AppendEntries(&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 10, PrevLogTerm: 3, LeaderCommitIndex: 9}, new(raft.AppendEntriesResponse))
		synctest.Wait()
		if n := told.Load() - before; n != 6 {
			t.Errorf("what was not confirmed is not told again")
		}
	})
}
