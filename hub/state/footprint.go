package state

import (
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const tableFootprints = "footprints"

const (
	recentFootprints = 8                   // jobs whose worktrees are remembered of a repository
	keepFootprints   = 90 * 24 * time.Hour // since the last one
	maxFootprint     = 1 << 50             // bytes; more is no footprint
)

// Footprint is what the worktrees of a repository's last jobs came to take.
type Footprint struct {
	Cache string    `json:"cache"` // see CacheOf
	Bytes []int64   `json:"bytes"` // oldest first
	At    time.Time `json:"at"`    // of the last
}

// tread records what the worktree of one more job took.
func (t *txn) tread(r *fleet.Repo, bytes int64) {
	if r == nil || bytes <= 0 || bytes > maxFootprint {
		return
	}
	f := &Footprint{Cache: r.CacheOf(), At: t.now()}
	if was := first[Footprint](t.Txn, tableFootprints, "id", f.Cache); was != nil {
		f.Bytes = was.Bytes
	}
	f.Bytes = append(slices.Clone(f.Bytes), bytes)
	if n := len(f.Bytes) - recentFootprints; n > 0 {
		f.Bytes = f.Bytes[n:]
	}
	t.insert(tableFootprints, f)
}

// forgetFootprints deletes at most so many footprints that are too old to go by.
func (t *txn) forgetFootprints(limit int) {
	var old []*Footprint
	each(t.Txn, tableFootprints, "id", func(f *Footprint) bool {
		if len(old) < limit && t.now().Sub(f.At) > keepFootprints {
			old = append(old, f)
		}
		return len(old) < limit
	})
	for _, f := range old {
		t.delete(tableFootprints, f)
	}
}

// Footprint gives the most that a worktree of a repository took of late, its growth
// included, in bytes; 0 where none is known.
func (v View) Footprint(cache string) int64 {
	if f := first[Footprint](v.tx, tableFootprints, "id", cache); f != nil && len(f.Bytes) > 0 {
		return slices.Max(f.Bytes)
	}
	return 0
}
