package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// ledger is what of the disk is promised to attempts that have not used it yet. Whoever
// wants more is measured against all of it, one after the other, so that two attempts
// never count on the same bytes. The zero value is ready.
type ledger struct {
	mu   sync.Mutex
	held map[fleet.Fence]int64
}

// take promises bytes to an attempt, in the place of what it was promised before, if
// look says that floor stays free then. It gives what was free, and what of it is
// promised to others. ok is false where there is not enough, and where look does not
// know; then nothing has changed. Look must be bounded: the others wait.
func (l *ledger) take(f fleet.Fence, bytes, floor int64, look func() fleet.Volume) (v fleet.Volume, others int64, ok bool) {
	bytes = max(bytes, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	others = l.sum() - l.held[f]
	if v = look(); !v.Known || !enough(v.Free, others, bytes, floor) {
		return v, others, false
	}
	l.set(f, bytes)
	return v, others, true
}

// enough says whether floor stays free once everything promised is used. None of the
// sums can overflow: all are sizes of files.
func enough(free, others, bytes, floor int64) bool {
	return free-others-bytes >= floor
}

// put promises bytes without a look; none takes a promise back.
func (l *ledger) put(f fleet.Fence, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(f, bytes)
}

func (l *ledger) set(f fleet.Fence, bytes int64) {
	if bytes <= 0 {
		delete(l.held, f)
		return
	}
	if l.held == nil {
		l.held = map[fleet.Fence]int64{}
	}
	l.held[f] = bytes
}

// total gives all that is promised.
func (l *ledger) total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum()
}

func (l *ledger) sum() int64 {
	var sum int64
	for _, n := range l.held {
		sum += n
	}
	return sum
}

// restore takes up what an earlier life promised, by its journal.
func (l *ledger) restore(all []journal.Attempt) {
	for _, rec := range all {
		if p := rec.Progress; !p.Finished && !p.Ended {
			l.put(rec.Fence, p.Reserve)
		}
	}
}

// space is what attempts know of the disk.
type space struct{ r *Runner }

func (s space) Look(ctx context.Context, path string) fleet.Volume { return s.r.fresh(ctx, path) }

func (s space) Reserve(ctx context.Context, f fleet.Fence, bytes, floor int64) (fleet.Volume, int64, bool) {
	return s.r.ledger.take(f, bytes, floor, func() fleet.Volume { return s.r.fresh(ctx, s.r.cfg.workspace()) })
}

func (s space) Promise(f fleet.Fence, bytes int64) { s.r.ledger.put(f, bytes) }

func (s space) Footprint(cache string) int64 { return s.r.footprints.of(cache) }

func (s space) Cold(cache string) bool {
	h := s.r.health
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.caches != nil && len(h.caches) < cachesTold && !slices.Contains(h.caches, cache)
}

func (s space) Learn(cache string, bytes int64) {
	if err := s.r.footprints.learn(cache, bytes, time.Now()); err != nil {
		s.r.log.Warn("what a repository takes can't be kept", "err", err)
	}
}
