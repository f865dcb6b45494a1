package consensus

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"pgregory.net/rapid"
)

// sampleLogs gives entries of every kind and size of field.
func sampleLogs() []*raft.Log {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	var out []*raft.Log
	for i, n := range []int{0, 1, 31, 32, 255, 256, 65535, 65536} {
		out = append(out, &raft.Log{
			Index: uint64(i + 1), Term: uint64(n), Type: raft.LogType(i % 6), Data: bytes.Repeat([]byte{byte(i)}, n),
			Extensions: []byte("x"), AppendedAt: at.In(time.FixedZone("", 3600*i)),
		})
	}
	return append(out,
		&raft.Log{Index: 127, Term: 128}, &raft.Log{Index: 1 << 32, Term: 1<<64 - 1, AppendedAt: at}, &raft.Log{Index: 1<<63 + 1, Data: []byte("d"), AppendedAt: at})
}

// TestStoreFormat: what raft-boltdb wrote is read here, and the other way round.
func TestStoreFormat(t *testing.T) {
	want := sampleLogs()
	dir := t.TempDir()
	theirs, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "theirs")})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := openBolt(filepath.Join(dir, "ours"))
	if err != nil {
		t.Fatal(err)
	}
	type store interface {
		raft.LogStore
		raft.StableStore
		io.Closer
	}
	for _, s := range []store{theirs, ours} {
		if err := errors.Join(s.StoreLogs(want), s.SetUint64([]byte("term"), 7), s.Set([]byte("vote"), []byte("n1")), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if ours, err = openBolt(filepath.Join(dir, "theirs")); err != nil {
		t.Fatal(err)
	}
	if theirs, err = raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "ours")}); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]store{"ours": theirs, "theirs": ours} {
		for _, w := range want {
			var got raft.Log
			if err := s.GetLog(w.Index, &got); err != nil {
				t.Fatalf("%s: entry %d: %v", name, w.Index, err)
			}
			if d := cmp.Diff(*w, got); d != "" {
				t.Errorf("%s: entry %d (-want +got):\n%s", name, w.Index, d)
			}
		}
		term, err := s.GetUint64([]byte("term"))
		if vote, err2 := s.Get([]byte("vote")); err != nil || err2 != nil || term != 7 || string(vote) != "n1" {
			t.Errorf("%s: term %d, vote %s, %v, %v", name, term, vote, err, err2)
		}
		if _, err := s.Get([]byte("none")); err == nil || err.Error() != raftboltdb.ErrKeyNotFound.Error() {
			t.Errorf("%s: a key that is not there gave %v", name, err)
		}
		if err := s.GetLog(5000, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("%s: an entry that is not there gave %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDecodeLog: what was encoded comes back, and no part of it passes for the whole.
func TestDecodeLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytesOrNil := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
		want := raft.Log{
			Index: rapid.Uint64().Draw(t, "index"), Term: rapid.Uint64().Draw(t, "term"), Type: raft.LogType(rapid.Byte().Draw(t, "type")),
			Data: bytesOrNil.Draw(t, "data"), Extensions: bytesOrNil.Draw(t, "extensions"),
			AppendedAt: time.Unix(0, rapid.Int64().Draw(t, "time")).UTC(),
		}
		b, err := appendLog(nil, &want)
		if err != nil {
			t.Fatal(err)
		}
		if room := maxHead + len(want.Data) + len(want.Extensions); len(b) > room {
			t.Errorf("%d bytes, room for %d", len(b), room)
		}
		var got raft.Log
		if err := decodeLog(b, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		if err := decodeLog(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")], &got); err == nil {
			t.Error("a part was taken for the whole")
		}
		if err := decodeLog(append(b, 0), &got); err == nil {
			t.Error("more than the whole was taken")
		}
	})
}

// FuzzDecodeLog: any bytes are an entry or an error.
func FuzzDecodeLog(f *testing.F) {
	for _, l := range sampleLogs()[:4] {
		b, err := appendLog(nil, l)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, again raft.Log
		if decodeLog(b, &l) != nil {
			return
		}
		c, err := appendLog(nil, &l)
		if err != nil {
			return // a time that is read and not written, with seconds in its zone
		}
		if err := decodeLog(c, &again); err != nil || !l.AppendedAt.Equal(again.AppendedAt) || l.Index != again.Index || !bytes.Equal(l.Data, again.Data) {
			t.Errorf("%+v became %+v, %v", l, again, err)
		}
	})
}
