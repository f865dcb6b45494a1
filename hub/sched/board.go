package sched

import (
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// Board is a state as one look sees it, prepared as far as it is asked. It is for one
// goroutine.
type Board struct {
	v state.View
	l Look
	m *Memo

	floor    int64 // of the disk, for an automation to be placed
	presence map[fleet.RunnerID]fleet.Presence
	seen     bool // presence was asked for
	set      bool // candidates are there: in the memo

	// What follows counts what is flying, and what was picked.
	lines   *circuit.Set
	every   []*fleet.Circuit
	near    []circuit.Near           // of each candidate
	bars    map[line]set             // candidates that circuits or Docker keep from work
	away    map[fleet.JobID]bool     // jobs that are flying
	held    map[string]*int          // slots by origin
	holders map[string]fleet.JobID   // of concurrency keys that were looked up; empty: nobody
	spent   map[string]*fleet.Budget // by origin
	broke   map[asked]time.Time      // budgets that had no room, and until when, if that is known
	care    *raised
}

// See prepares a look.
func See(v state.View, l Look) *Board {
	b := &Board{v: v, l: l, m: l.Memo, floor: fleet.FloorsOf(v.Meta().Settings).Select}
	if b.m == nil {
		b.m = new(Memo)
	}
	return b
}

func (b *Board) present() map[fleet.RunnerID]fleet.Presence {
	if !b.seen && b.l.Presence != nil {
		b.presence = b.l.Presence()
	}
	b.seen = true
	return b.presence
}

// candidates gives all runners, by id, with what is left of them: what runs there and
// what is flying is taken.
func (b *Board) candidates() []candidate {
	if b.set {
		return b.m.candidates
	}
	b.set = true
	rs, seen := b.v.Runners(), b.present()
	b.m.meet(rs)
	cs := slices.Grow(b.m.candidates[:0], len(rs))[:len(rs)]
	for i, r := range rs {
		cs[i].set(r, seen[r.ID], b.l.Now)
	}
	b.m.candidates = cs
	b.held = map[string]*int{}
	b.occupied(cs)
	b.flying(cs)
	return cs
}

// occupied takes what attempts hold. They come by runner, as the candidates do.
func (b *Board) occupied(cs []candidate) {
	i, origin, n := 0, "", 0
	var since int64
	b.v.Occupied(func(o state.Occupied) bool {
		if o.Origin != origin {
			*b.slots(origin) += n
			origin, n = o.Origin, 0
		}
		n++
		if i >= len(cs) || cs[i].r.ID != o.Runner {
			for i < len(cs) && cs[i].r.ID < o.Runner {
				i++
			}
			if i < len(cs) && cs[i].r.ID == o.Runner {
				since = cs[i].sampled(b.l.Now).UnixNano()
			}
		}
		if i < len(cs) && cs[i].r.ID == o.Runner {
			reserve := o.Reserve
			if reserve > 0 && o.Since.UnixNano() <= since {
				reserve = 0 // the sample tells what of it is used, and what is reserved
			}
			cs[i].take(o.Automated, reserve)
		}
		return true
	})
	*b.slots(origin) += n
}

// flying takes what was proposed and is not yet to be seen in the state.
func (b *Board) flying(cs []candidate) {
	b.away = map[fleet.JobID]bool{}
	b.holders = map[string]fleet.JobID{}
	for id, a := range b.l.Flying {
		j, ok := b.v.Job(id)
		if !ok || !a.waits(j) {
			continue
		}
		b.away[id] = true
		if i, ok := at(cs, a.Runner); ok {
			cs[i].take(j.Spec.Automated(), a.Reserve)
		}
		b.count(j, a.Probes)
	}
}

// count takes what a job's assignment takes beside its runner's.
func (b *Board) count(j *fleet.Job, probes []string) {
	if k := j.Spec.ConcurrencyKey; k != "" {
		b.holders[k] = j.ID
	}
	*b.slots(j.Spec.Origin.OriginKey())++
	if len(probes) > 0 {
		b.circuits().Take(probes, j.ID)
	}
	b.spend(j)
}

// slots counts those of an origin.
func (b *Board) slots(origin string) *int {
	n := b.held[origin]
	if n == nil {
		n = new(int)
		b.held[origin] = n
	}
	return n
}

// at finds a runner among candidates.
func at(cs []candidate, id fleet.RunnerID) (int, bool) {
	return slices.BinarySearchFunc(cs, id, func(c candidate, id fleet.RunnerID) int { return strings.Compare(string(c.r.ID), string(id)) })
}

// circuits gives the circuits that are not closed, those that are being tried marked.
func (b *Board) circuits() *circuit.Set {
	if b.lines == nil {
		b.every = b.v.Circuits()
		for i, c := range b.every {
			if name := b.v.ActorName(c.Actor); name != "" { // whom people know by that
				named := *c
				named.Actor = name
				b.every[i] = &named
			}
		}
		b.lines = circuit.NewSet(b.every)
	}
	return b.lines
}

// tried says whether there are any circuits.
func (b *Board) tried() bool { return b.circuits() != nil && len(b.every) > 0 }

// wanted works out what a job wants, as one look needs it.
func (b *Board) wanted(j *fleet.Job) *wanted {
	w := &wanted{want: wantOf(j)}
	b.expect(w)
	return w
}

// expect finds out what a job is expected to take of its runner's disk.
func (b *Board) expect(w *wanted) {
	w.cache, w.reserve = w.cacheOf(), 0
	if w.cache != "" {
		w.reserve = b.v.Footprint(w.cache) + fleet.FootprintRoom
	}
}

// waits says whether the proposal for the assignment would still be taken: the job waits
// as it was seen then.
func (a Assignment) waits(j *fleet.Job) bool {
	return j.State == fleet.Queued && j.Turn().N == a.Turn && len(j.Turn().Attempts) == a.Attempts
}
