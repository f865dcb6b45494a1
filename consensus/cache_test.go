package consensus

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// TestCacheIsSeenThrough: a store behind a cache answers as one without.
func TestCacheIsSeenThrough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		behind, alone := shallow{}, shallow{}
		c := &cache{LogStore: behind}
		last := uint64(rapid.IntRange(0, 3000).Draw(rt, "last"))
		data := make([]byte, rapid.SampledFrom([]int{1, 64 << 10}).Draw(rt, "size"))
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0, 1:
				if rapid.IntRange(0, 9).Draw(rt, "gap") == 0 {
					last += 5
				}
				logs := entries(last+1, rapid.IntRange(1, 300).Draw(rt, "n"))
				for _, l := range logs {
					l.Data = data
				}
				last += uint64(len(logs))
				if err := errors.Join(c.StoreLogs(logs), alone.StoreLogs(logs)); err != nil {
					rt.Fatal(err)
				}
			case 2: // a conflicting end
				lo := last - min(last, uint64(rapid.IntRange(0, 400).Draw(rt, "back")))
				if err := errors.Join(c.DeleteRange(lo+1, last), alone.DeleteRange(lo+1, last)); err != nil {
					rt.Fatal(err)
				}
				last = lo
			case 3: // the old end
				hi := last - min(last, uint64(rapid.IntRange(1, 1000).Draw(rt, "kept")))
				if err := errors.Join(c.DeleteRange(0, hi), alone.DeleteRange(0, hi)); err != nil {
					rt.Fatal(err)
				}
			}
			if c.bytes > cacheBytes+len(data) || c.newest > 0 && c.newest-c.oldest >= cacheEntries {
				rt.Errorf("%d bytes, entries %d to %d", c.bytes, c.oldest, c.newest)
			}
			for i := last - min(last, 2500); i <= last+2; i += 7 {
				var got, want raft.Log
				e1, e2 := c.GetLog(i, &got), alone.GetLog(i, &want)
				if e1 != e2 || got.Index != want.Index || len(got.Data) != len(want.Data) {
					rt.Fatalf("entry %d: %v, want %v: %v", i, e1, e2, got.Index)
				}
			}
		}
	})
}

// shallow is a log store that copies nothing.
type shallow map[uint64]*raft.Log

func (s shallow) FirstIndex() (uint64, error) { return 0, nil }
func (s shallow) LastIndex() (uint64, error)  { return 0, nil }
func (s shallow) StoreLog(l *raft.Log) error  { return s.StoreLogs([]*raft.Log{l}) }
func (s shallow) DeleteRange(lo, hi uint64) error {
	for i := range s {
		if i >= lo && i <= hi {
			delete(s, i)
		}
	}
	return nil
}

func (s shallow) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		s[l.Index] = l
	}
	return nil
}

func (s shallow) GetLog(index uint64, l *raft.Log) error {
	have, ok := s[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*l = *have
	return nil
}
