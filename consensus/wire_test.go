package consensus

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func drawBytes(t *rapid.T, name string) []byte {
	b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name)
	if len(b) == 0 {
		return nil // nil and empty are the same between nodes
	}
	return b
}

// drawMessage draws a request and a response that belongs to it.
func drawMessage(t *rapid.T) (req, resp any) {
	num := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	header := func(name string) raft.RPCHeader {
		return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(rapid.IntRange(0, 9).Draw(t, name)), ID: drawBytes(t, name+"id"), Addr: drawBytes(t, name+"addr")}
	}
	h, g := header("h"), header("g")
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		r := &raft.AppendEntriesRequest{RPCHeader: h, Leader: h.Addr, Term: num("term"), PrevLogEntry: num("prev"), PrevLogTerm: num("prevterm"), LeaderCommitIndex: num("commit")}
		for i := range rapid.IntRange(0, 4).Draw(t, "entries") {
			l := &raft.Log{Index: num("index"), Term: num("t"), Type: raft.LogType(i), Data: drawBytes(t, "data"), Extensions: drawBytes(t, "ext")}
			if yes("timed") {
				l.AppendedAt = time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "at")).UTC()
			}
			r.Entries = append(r.Entries, l)
		}
		return r, &raft.AppendEntriesResponse{RPCHeader: g, Term: num("rterm"), LastLog: num("last"), Success: yes("ok"), NoRetryBackoff: yes("now")}
	case 1:
		return &raft.RequestVoteRequest{RPCHeader: h, Candidate: h.Addr, Term: num("term"), LastLogIndex: num("i"), LastLogTerm: num("t"), LeadershipTransfer: yes("transfer")},
			&raft.RequestVoteResponse{RPCHeader: g, Term: num("rterm"), Granted: yes("ok")}
	case 2:
		return &raft.RequestPreVoteRequest{RPCHeader: h, Term: num("term"), LastLogIndex: num("i"), LastLogTerm: num("t")},
			&raft.RequestPreVoteResponse{RPCHeader: g, Term: num("rterm"), Granted: yes("ok")}
	case 3:
		return &raft.InstallSnapshotRequest{RPCHeader: h, Leader: h.Addr, SnapshotVersion: 1, Term: num("term"), LastLogIndex: num("i"), LastLogTerm: num("t"),
				Configuration: drawBytes(t, "conf"), ConfigurationIndex: num("ci"), Size: rapid.Int64Range(0, 1<<40).Draw(t, "size")},
			&raft.InstallSnapshotResponse{RPCHeader: g, Term: num("rterm"), Success: yes("ok")}
	case 4:
		m := func(name string) mark { return mark{num(name + "term"), num(name + "index"), num(name + "vote")} }
		marks := func(name string) (all map[string]mark) {
			for _, id := range rapid.SliceOfNDistinct(rapid.StringN(1, 9, 9), 0, 4, rapid.ID).Draw(t, name) {
				if all == nil {
					all = map[string]mark{}
				}
				all[id] = m(name)
			}
			return all
		}
		run := runID(rapid.SliceOfN(rapid.Byte(), len(runID{}), len(runID{})).Draw(t, "run"))
		return &question{h, run, time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "up")), yes("cleared"), rapid.String().Draw(t, "refused"), m("held"), m("last"), marks("heard")},
			&answer{g, m("you"), yes("superseded"), marks("told")}
	}
	return &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{RPCHeader: g}
}

// TestMessages: what one node writes is what the other reads, and no part of it passes
// for the whole.
func TestMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req, resp := drawMessage(t)
		b, kind := appendRequest(nil, req)
		got, err := parseRequest(kind, b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(req, got); d != "" {
			t.Errorf("request (-want +got):\n%s", d)
		}
		if got, err := parseRequest(kind, b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]); err == nil {
			t.Errorf("a part was taken for %+v", got)
		}
		if got, err := parseRequest(kind, append(b, 0)); err == nil {
			t.Errorf("more than the whole was taken for %+v", got)
		}
		c := appendResponse(nil, resp)
		into := reflect.New(reflect.TypeOf(resp).Elem()).Interface()
		if err := parseResponse(c, into); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(resp, into); d != "" {
			t.Errorf("response (-want +got):\n%s", d)
		}
		if err := parseResponse(c[:rapid.IntRange(0, len(c)-1).Draw(t, "cut2")], into); err == nil {
			t.Error("a part of a response was taken for the whole")
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	for _, req := range []any{
		&raft.AppendEntriesRequest{Term: 3, Entries: entries(1, 2)}, &raft.RequestVoteRequest{Term: 1}, &raft.RequestPreVoteRequest{},
		&raft.InstallSnapshotRequest{Size: 10}, &raft.TimeoutNowRequest{},
		&question{Refused: "why", Heard: map[string]mark{"a": {1, 2, 3}, "b": {}}},
	} {
		b, kind := appendRequest(nil, req)
		f.Add(kind, b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		req, err := parseRequest(kind, b)
		if err != nil {
			return
		}
		again, _ := appendRequest(nil, req)
		back, err := parseRequest(kind, again)
		if err != nil || cmp.Diff(req, back) != "" {
			t.Errorf("%+v became %+v, %v", req, back, err)
		}
	})
}

func TestTrim(t *testing.T) {
	big := make([]byte, MaxEntry)
	r := &raft.AppendEntriesRequest{}
	for i := range 100 {
		r.Entries = append(r.Entries, &raft.Log{Index: uint64(i), Data: big})
	}
	trim(r)
	if n := len(r.Entries); n != maxAppend/MaxEntry {
		t.Errorf("%d entries of %d left", n, MaxEntry)
	}
	b, _ := appendRequest(nil, r)
	if len(b) > maxFrame {
		t.Errorf("a request of %d bytes", len(b))
	}
	r.Entries = []*raft.Log{{Data: make([]byte, maxAppend+1)}}
	if trim(r); len(r.Entries) != 1 {
		t.Error("nothing is left of one big entry")
	}
}

// TestStrangersAreHungUpOn: whoever does not speak this language gets no answer and
// harms nothing.
func TestStrangersAreHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a")
		defer l.end()
		a := l.leader()
		for _, words := range []string{"GET / HTTP/1.1\r\n\r\n", hello + "\x01\xff\xff\xff\xff", hello + "\x09\x00\x00\x00\x00", hello + "\x01\x00\x00\x00\x01\x00"} {
			c, err := meshPort{node: l.net.Node("x")}.Dial("a", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			c.Write([]byte(words))
			c.SetReadDeadline(time.Now().Add(time.Minute))
			var e interface{ Timeout() bool }
			if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 || errors.As(err, &e) && e.Timeout() {
				t.Errorf("%q: read %d, %v", words, n, err)
			}
			c.Close()
		}
		mustPropose(t, a, "x")
	})
}

// TestManyBigEntriesCatchUp: a node that lacks more than one message holds gets it all.
func TestManyBigEntriesCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		behind := l.others(leader)[0].cfg.NodeID
		l.cut(behind)
		big := strings.Repeat("x", MaxEntry)
		for range 3 * maxAppend / MaxEntry {
			mustPropose(t, leader, big)
		}
		l.cut()
		begun := time.Now()
		if got := l.same(); len(got) != 3*maxAppend/MaxEntry {
			t.Errorf("%d entries applied", len(got))
		}
		t.Logf("caught up in %v", time.Since(begun))
	})
}

// TestHealedLinkIsUsedAtOnce: what a cut left in old connections holds nobody up.
func TestHealedLinkIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		id := l.others(leader)[0].cfg.NodeID
		for range 5 {
			l.cut(id)
			for range 50 {
				mustPropose(t, leader, "x")
				time.Sleep(100 * time.Millisecond)
			}
			l.cut()
			healed := time.Now()
			for !slices.Equal(l.fsm[id].all(), l.fsm[leader.cfg.NodeID].all()) {
				time.Sleep(10 * time.Millisecond)
			}
			if d := time.Since(healed); d > 3*time.Second {
				t.Errorf("caught up after %v", d)
			}
			if l.leader() != leader {
				t.Error("leadership has moved")
			}
		}
	})
}

// TestBadNetworks runs whole groups in memory over a bad network, one after the
// other: they agree in the end, and lose nothing.
func TestBadNetworks(t *testing.T) {
	for seed := range 12 {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, "a", "b", "c")
			defer l.end()
			l.net.Delay(0, 20*time.Millisecond)
			l.net.Loss(0.02)
			var acked []string
			for i := range 100 {
				n := l.nodes[string(rune('a'+(seed+i)%3))]
				entry := fmt.Sprint(seed, "-", i)
				if _, index, err := n.Propose(within(t, 5*time.Second), []byte(entry)); err == nil {
					acked = append(acked, fmt.Sprint(index, " ", entry))
				}
				switch i % 20 {
				case 5:
					l.net.Isolate(string(rune('a' + (seed+i/20)%3)))
				case 15:
					l.net.Heal()
				}
				time.Sleep(100 * time.Millisecond)
			}
			l.net.Heal()
			l.net.Loss(0)
			mustPropose(t, l.leader(), "end")
			got := l.same()
			for _, e := range acked {
				if !slices.Contains(got, e) {
					t.Errorf("seed %d: %s is lost", seed, e)
				}
			}
			if len(acked) < 15 {
				t.Errorf("seed %d: %d of 100 acknowledged", seed, len(acked))
			}
		})
	}
}
