package sched

import (
	"slices"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// Memo is what the looks of one leader keep for the next: the queue, job by job, as it was
// worked out, and which runners are able to do what. A look compares it with the state
// and works out what has changed. No decision depends on it. The zero value is empty;
// it belongs to one look at a time.
type Memo struct {
	rows, other []row // the queue in its order; and memory for the next
	wants       []*wanted
	places      map[want]int32
	lanes       []*lane
	byLane      map[laneKey]int32

	runners    []*fleet.Runner // as last met
	listed     bool            // one of them has a list of repositories
	ables      map[want]*able
	candidates []candidate
	room       [2][fleet.MaxSlots + 1]set // candidates by how many slots they have left, for manual work and for automation
	takers     set                        // candidates with slots left, for either
	scratch    set
	caches     map[string][]int32 // candidates with a warm cache, by its name
	keys       []key
	byKey      map[string]int32
	rests      []bool // by want: nobody takes such a job any more in this look
}

// maxWants bounds the kinds of jobs that are remembered although none is queued, and
// maxKeys the concurrency keys.
const (
	maxWants = 4096
	maxKeys  = 2 * state.MaxQueue
)

// row is a queued job.
type row struct {
	job    *fleet.Job
	seq    uint64
	queued int64 // since then, in nanoseconds of Unix time
	want   int32
	lane   int32
	key    int32 // its concurrency key, counted from 1; 0: it has none
	again  bool  // it was queued later than submitted

	notBefore int64 // a retry waits until then, as queued; 0: it does not
}

// key is a concurrency key with what one look finds out about it.
type key struct {
	name  string
	known bool
	held  bool
	by    *fleet.Job // that holds it; nil: one that was picked
}

// wanted is a want with what one look finds out about it.
type wanted struct {
	want
	rows    int  // in the queue
	ready   bool // the rest is of this look
	pool    set  // candidates that would take it, as far as is known: who turns out not to is dropped
	cache   string
	reserve int64
}

// room is what must be free where the job works: what it requires and, of an automation,
// what it is expected to take; a person may try whether it fits all the same.
func (w *wanted) room() int64 {
	if w.automated() {
		return max(w.needs.Disk, w.reserve)
	}
	return w.needs.Disk
}

// laneKey names the jobs that wait behind each other: the oldest goes first.
type laneKey struct {
	origin   string
	priority int
}

// lane is a part of the queue in which the oldest job goes first.
type lane struct {
	laneKey
	rows []int32 // of the queue
	late []int32 // those that were queued again, behind jobs submitted after them

	next, nextLate int
	automated      bool
	held           *int            // slots of its origin, in this look
	spent          []*fleet.Budget // of its origin
}

// able is who is able to do what is wanted.
type able struct {
	want want
	set  set
}

// meet takes in the runners: whoever has changed is looked at anew.
func (m *Memo) meet(rs []*fleet.Runner) {
	same := len(rs) == len(m.runners)
	for i := 0; same && i < len(rs); i++ {
		same = rs[i].ID == m.runners[i].ID
	}
	if !same {
		m.ables = nil
	} else {
		for i, r := range rs {
			if r == m.runners[i] {
				continue
			}
			if !m.listed && len(r.Facts.Repos) > 0 {
				m.ables = nil // a repository matters from now on
				break
			}
			for _, a := range m.ables {
				a.set.put(i, a.want.unable(r) == open)
			}
		}
	}
	m.runners = rs
	if m.ables == nil {
		m.ables, m.listed = map[want]*able{}, false
		for _, r := range rs {
			m.listed = m.listed || len(r.Facts.Repos) > 0
		}
	}
}

// able gives who is able to do what is wanted.
func (m *Memo) able(w want) set {
	if !m.listed {
		w.inRepo, w.repo, w.bundle = false, "", ""
	}
	w.fallback, w.docker, w.needs.Disk, w.needs.Memory, w.needs.Docker = 0, false, 0, 0, false
	a := m.ables[w]
	if a == nil {
		if len(m.ables) > maxWants {
			clear(m.ables)
		}
		a = &able{want: w, set: set(nil).room(len(m.runners))}
		for i, r := range m.runners {
			if w.unable(r) == open {
				a.set.add(i)
			}
		}
		m.ables[w] = a
	}
	return a.set
}

// read brings the queue up to the state: what has not changed since is kept.
func (m *Memo) read(v state.View) {
	if m.places == nil || len(m.wants)+len(m.lanes) > maxWants && len(m.wants) > 2*m.live() || len(m.lanes) > 4*maxWants || len(m.keys) > maxKeys {
		*m = Memo{runners: m.runners, listed: m.listed, ables: m.ables, candidates: m.candidates, room: m.room, takers: m.takers, places: map[want]int32{}, byLane: map[laneKey]int32{}, byKey: map[string]int32{}}
	}
	for _, w := range m.wants {
		w.rows, w.ready = 0, false
	}
	for i := range m.keys {
		m.keys[i].known, m.keys[i].held, m.keys[i].by = false, false, nil
	}
	for _, l := range m.lanes {
		l.rows, l.late, l.next, l.nextLate = l.rows[:0], l.late[:0], 0, 0
	}
	old, rows, at := m.rows, slices.Grow(m.other[:0], v.Count("queued")), 0
	v.Queue(func(j *fleet.Job) bool {
		if at < len(old) && old[at].job == j {
			rows = append(rows, old[at])
			at++
		} else {
			for at < len(old) && old[at].seq < j.Seq {
				at++
			}
			switch {
			case at < len(old) && old[at].job == j:
				rows = append(rows, old[at])
				at++
			default:
				if at < len(old) && old[at].seq == j.Seq {
					at++
				}
				rows = append(rows, m.rowOf(j))
			}
		}
		i := len(rows) - 1
		m.wants[rows[i].want].rows++
		m.lanes[rows[i].lane].add(rows, int32(i))
		return true
	})
	clear(old)
	m.rows, m.other = rows, old
	for _, l := range m.lanes {
		l.settle(rows)
	}
	if cap(m.rests) < len(m.wants) {
		m.rests = make([]bool, len(m.wants), 2*len(m.wants))
	}
	m.rests = m.rests[:len(m.wants)]
	clear(m.rests)
}

func (m *Memo) live() (n int) {
	for _, w := range m.wants {
		if w.rows > 0 {
			n++
		}
	}
	return n
}

// rowOf works out a job.
func (m *Memo) rowOf(j *fleet.Job) row {
	t := j.Turn()
	r := row{job: j, seq: j.Seq, queued: t.QueuedAt.UnixNano(), again: !t.QueuedAt.Equal(j.CreatedAt)}
	if t.NotBefore != nil {
		r.notBefore = t.NotBefore.UnixNano()
	}
	if k := j.Spec.ConcurrencyKey; k != "" {
		i, ok := m.byKey[k]
		if !ok {
			m.keys = append(m.keys, key{name: k})
			i = int32(len(m.keys))
			m.byKey[k] = i
		}
		r.key = i
	}
	w := wantOf(j)
	i, ok := m.places[w]
	if !ok {
		i = int32(len(m.wants))
		m.wants = append(m.wants, &wanted{want: w})
		m.places[w] = i
	}
	r.want = i
	k := laneKey{j.Spec.Origin.OriginKey(), j.Spec.Priority}
	if i, ok = m.byLane[k]; !ok {
		i = int32(len(m.lanes))
		m.lanes = append(m.lanes, &lane{laneKey: k, automated: j.Spec.Automated()})
		m.byLane[k] = i
	}
	r.lane = i
	return r
}

// add takes a job in. They come in the order of their submits.
func (l *lane) add(rows []row, i int32) {
	if n := len(l.rows); rows[i].again || n > 0 && rows[i].before(&rows[l.rows[n-1]]) {
		l.late = append(l.late, i)
		return
	}
	l.rows = append(l.rows, i)
}

// settle puts those in order that did not come in it.
func (l *lane) settle(rows []row) {
	slices.SortFunc(l.late, func(a, b int32) int {
		if rows[a].before(&rows[b]) {
			return -1
		}
		return 1
	})
}

// head gives the job of the lane that goes first, or nil.
func (l *lane) head(rows []row) *row {
	switch {
	case l.nextLate == len(l.late):
		if l.next == len(l.rows) {
			return nil
		}
		return &rows[l.rows[l.next]]
	case l.next == len(l.rows):
		return &rows[l.late[l.nextLate]]
	}
	a, b := &rows[l.rows[l.next]], &rows[l.late[l.nextLate]]
	if b.before(a) {
		return b
	}
	return a
}

// pass goes on behind the head.
func (l *lane) pass(head *row, rows []row) {
	if l.next < len(l.rows) && head == &rows[l.rows[l.next]] {
		l.next++
	} else {
		l.nextLate++
	}
}

// before says whether a job goes before another one of its lane.
func (r *row) before(o *row) bool {
	return r.queued < o.queued || r.queued == o.queued && r.seq < o.seq
}

// urgency is a job's priority with what it has waited.
func (l *lane) urgency(r *row, now time.Time) int {
	return l.priority + int(max(now.UnixNano()-r.queued, 0)/int64(fleet.PriorityAge))
}
