package consensus

import (
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// cacheEntries and cacheBytes bound what a cache holds.
	cacheEntries = 2048
	cacheBytes   = 16 << 20
)

// cache is a log store that keeps the newest entries in memory: followers apply, and
// replication reads, what was stored a moment ago.
type cache struct {
	raft.LogStore
	mu     sync.Mutex
	ring   [cacheEntries]*raft.Log
	oldest uint64 // of the entries in the ring, which have no gaps
	newest uint64 // 0: it is empty
	bytes  int
}

// GetLog implements raft.LogStore.
func (c *cache) GetLog(index uint64, l *raft.Log) error {
	c.mu.Lock()
	if c.newest > 0 && index >= c.oldest && index <= c.newest {
		*l = *c.ring[index%cacheEntries]
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	return c.LogStore.GetLog(index, l)
}

// StoreLog implements raft.LogStore.
func (c *cache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (c *cache) StoreLogs(logs []*raft.Log) error {
	if err := c.LogStore.StoreLogs(logs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if l.Index != c.newest+1 {
			c.drop()
		}
		if c.newest == 0 {
			c.oldest = l.Index
		}
		c.newest = l.Index
		for c.newest-c.oldest >= cacheEntries || c.bytes > cacheBytes && c.oldest < c.newest {
			c.evict()
		}
		c.ring[l.Index%cacheEntries] = l
		c.bytes += len(l.Data) + len(l.Extensions)
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (c *cache) DeleteRange(lo, hi uint64) error {
	c.mu.Lock()
	switch {
	case c.newest == 0 || hi < c.oldest || lo > c.newest:
	case hi >= c.newest:
		c.drop()
	default:
		for c.oldest <= hi {
			c.evict()
		}
	}
	c.mu.Unlock()
	return c.LogStore.DeleteRange(lo, hi)
}

func (c *cache) evict() {
	at := &c.ring[c.oldest%cacheEntries]
	c.bytes -= len((*at).Data) + len((*at).Extensions)
	*at = nil
	c.oldest++
}

func (c *cache) drop() {
	clear(c.ring[:])
	c.oldest, c.newest, c.bytes = 0, 0, 0
}
