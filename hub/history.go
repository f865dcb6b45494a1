package hub

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// What the leader remembers of the health of runners: one sample a minute for a day, and
// beside that one every ten seconds for the last hour. It is this node's memory alone. A
// sample is packed as what differs from the one before it, in steps that are fine enough
// to look at: a day and an hour of a machine of which everything moves take 22 KiB, of one
// that rests 4 KiB, so that those of 10,000 runners take 40 to 220 MiB.
const (
	fineStep, fineKeep, fineGap       = 10 * time.Second, time.Hour, 90 * time.Second
	coarseStep, coarseKeep, coarseGap = time.Minute, 24 * time.Hour, 3 * time.Minute

	chunkPoints = 64 // that go together when they are too old
)

// The figures of a sample, those that change most often first. All but figDocker are one
// more than their value, and 0 where it is not known.
const (
	figMemory = iota // available, MiB
	figLoad          // of the last minute, in hundredths
	figUsed          // of the processors, percent
	figFree          // of the workspace, MiB
	figBusy          // of the busiest disk, percent
	figCache         // free where repositories are cached, MiB
	figDocker        // place among dockerStates
	figCount         // at most 7: what changed of them is told by one byte
)

// figures are one sample as it is kept.
type figures [figCount]uint32

// history remembers samples of all runners. All methods may be called from many
// goroutines. Time is this node's monotonic clock.
type history struct {
	base time.Time

	mu     sync.Mutex
	tracks map[fleet.RunnerID]*track
}

func newHistory(base time.Time) *history {
	return &history{base: base, tracks: map[fleet.RunnerID]*track{}}
}

// track is the history of one runner.
type track struct{ fine, coarse series }

// add takes in a sample that was received at a time. One that is no newer than what is
// known, or that comes too soon after it, changes nothing.
func (h *history) add(id fleet.RunnerID, s *fleet.Health, received time.Time) {
	at, f := received.Add(-s.Age).Sub(h.base), figuresOf(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[id]
	if t == nil {
		t = &track{}
		h.tracks[id] = t
	}
	t.fine.add(seconds(at), f, fineStep, fineKeep)
	t.coarse.add(seconds(at), f, coarseStep, coarseKeep)
}

// prune lets go of what is too old, and of all of the runners that are not to be kept.
func (h *history) prune(now time.Time, keep func(fleet.RunnerID) bool) {
	at := seconds(now.Sub(h.base))
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, t := range h.tracks {
		t.fine.drop(at, fineKeep)
		t.coarse.drop(at, coarseKeep)
		if !keep(id) || len(t.fine.chunks)+len(t.coarse.chunks) == 0 {
			delete(h.tracks, id)
		}
	}
}

// sighted is one sample of a runner's history; gap says that there was nothing for a while before it.
type sighted struct {
	age time.Duration
	gap bool
	figures
}

// points gives the last so much of a runner's history, oldest first: up to an hour in
// fine steps, beyond that in coarse ones, up to a day.
func (h *history) points(id fleet.RunnerID, window time.Duration, now time.Time) []sighted {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[id]
	if t == nil {
		return nil
	}
	from, gap := &t.fine, fineGap
	if window > fineKeep {
		from, gap = &t.coarse, coarseGap
	}
	var out []sighted
	at, last := now.Sub(h.base), time.Duration(-1)
	from.each(func(sec uint32, f figures) {
		p := time.Duration(sec) * time.Second
		if age := at - p; age <= window {
			out = append(out, sighted{max(age, 0), last >= 0 && p-last > gap, f})
		}
		last = p
	})
	return out
}

// bytes is what the history of a runner takes, without what the map itself needs.
func (h *history) bytes(id fleet.RunnerID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[id]
	if t == nil {
		return 0
	}
	n := 0
	for _, s := range []series{t.fine, t.coarse} {
		n += 4*figCount + 24 + cap(s.chunks)*40
		for _, c := range s.chunks {
			n += cap(c.data)
		}
	}
	return n
}

func seconds(d time.Duration) uint32 { return uint32(max(d, 0) / time.Second) }

// series is one sample a step, newest last.
type series struct {
	chunks []chunk
	last   figures // the newest
}

// chunk is a stretch of a series. Its first sample is whole.
type chunk struct {
	first, last uint32 // seconds
	n           int
	data        []byte
}

// add appends a sample where the step of time that it falls into has none yet.
func (s *series) add(at uint32, f figures, step, keep time.Duration) {
	n := len(s.chunks)
	if n > 0 && at/seconds(step) <= s.chunks[n-1].last/seconds(step) {
		return
	}
	if n == 0 || s.chunks[n-1].n == chunkPoints {
		if n > 0 {
			full := &s.chunks[n-1]
			full.data = slices.Clone(full.data) // nothing is added to it any more
		}
		s.drop(at, keep)
		s.chunks = append(s.chunks, chunk{first: at, last: at})
		s.last = figures{}
	}
	c := &s.chunks[len(s.chunks)-1]
	c.data = s.last.pack(c.data, at-c.last, f)
	c.last, s.last = at, f
	c.n++
}

// drop lets go of chunks of which all is too old.
func (s *series) drop(now uint32, keep time.Duration) {
	old := 0
	for old < len(s.chunks) && now > s.chunks[old].last && now-s.chunks[old].last > seconds(keep) {
		old++
	}
	if old > 0 {
		s.chunks = slices.Clone(s.chunks[old:])
	}
}

// each walks the samples, oldest first.
func (s *series) each(f func(at uint32, v figures)) {
	for _, c := range s.chunks {
		at, v, data := c.first, figures{}, c.data
		for range c.n {
			var since uint32
			since, data = v.unpack(data)
			at += since
			f(at, v)
		}
	}
}

// pack appends how a sample differs from the one before it.
func (f figures) pack(b []byte, since uint32, next figures) []byte {
	mask := uint64(0)
	for i := range f {
		if f[i] != next[i] {
			mask |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, uint64(since))
	b = binary.AppendUvarint(b, mask)
	for i := range f {
		if f[i] != next[i] {
			b = binary.AppendVarint(b, int64(next[i])-int64(f[i]))
		}
	}
	return b
}

// unpack takes one sample from what pack wrote, and gives the seconds since the one before.
func (f *figures) unpack(b []byte) (since uint32, rest []byte) {
	s, n := binary.Uvarint(b)
	b = b[n:]
	mask, n := binary.Uvarint(b)
	b = b[n:]
	for i := range f {
		if mask&(1<<i) != 0 {
			d, n := binary.Varint(b)
			b = b[n:]
			f[i] = uint32(int64(f[i]) + d)
		}
	}
	return uint32(s), b
}
