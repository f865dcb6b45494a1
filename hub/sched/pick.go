package sched

import (
	"strings"
	"time"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

// Pick decides which queued jobs go to which runners now.
//
// The most urgent job goes first: priority, and a step more for every half an hour of
// waiting. Among equally urgent ones the origin goes first that has the fewest slots, and
// then the oldest job. Of the runners that would take it one is preferred that has the
// repository's cache, then the one with the most slots left for such work, then the
// least id. It ends when no slot is left or the limit is reached.
//
// Within a look nothing gets free, so that a job which nobody takes need not be looked at
// again, nor another one that wants the same.
func (b *Board) Pick() Plan {
	var plan Plan
	if b.l.Limit <= 0 {
		return plan
	}
	cs := b.candidates()
	b.wakes(&plan)
	if free := b.sort(cs); free == 0 {
		return plan
	}
	m := b.m
	m.read(b.v)
	for _, l := range m.lanes {
		l.held = b.slots(l.origin)
	}
	b.budgets()
	b.careful()
	for len(plan.Assign) < b.l.Limit {
		var best *lane
		var job *row
		urgent, least := 0, 0
		for _, l := range m.lanes {
			r := b.servable(l, &plan)
			if r == nil {
				continue
			}
			u, h := l.urgency(r, b.l.Now), *l.held
			if best == nil || u > urgent || u == urgent && (h < least || h == least && r.before(job)) {
				best, job, urgent, least = l, r, u, h
			}
		}
		if best == nil {
			break
		}
		best.pass(job, m.rows)
		w := m.wants[job.want]
		i, probes := b.find(w, job, &plan)
		if i < 0 {
			continue
		}
		c := &cs[i]
		t := job.job.Turn()
		plan.Assign = append(plan.Assign, Assignment{
			Job: job.job.ID, Runner: c.r.ID, Turn: t.N, Attempts: len(t.Attempts), Base: c.base, Automation: c.auto, Choice: t.Choice, Reserve: w.reserve, Probes: probes,
		})
		b.give(i, w)
		b.count(job.job, probes)
	}
	return plan
}

// sort puts the candidates that take anything at all into sets by how many slots they
// have left, and gives how many do.
func (b *Board) sort(cs []candidate) (n int) {
	for kind := range b.m.room {
		for k := range b.m.room[kind] {
			b.m.room[kind][k] = b.m.room[kind][k].room(len(cs))
		}
	}
	clear(b.m.caches)
	for i := range cs {
		c := &cs[i]
		if c.away(b.l.Now) != open || c.declining != "" {
			continue
		}
		manual, automation := c.free(false), c.free(true)
		if automation > 0 && (!c.recent || c.lowDisk(true, b.floor, 0) != open) {
			automation = 0
		}
		if manual <= 0 && automation <= 0 {
			continue
		}
		n++
		b.m.room[0][level(manual)].add(i)
		b.m.room[1][level(automation)].add(i)
	}
	return n
}

// level bounds a number of slots by what is told apart.
func level(free int) int { return max(0, min(free, fleet.MaxSlots)) }

func kindOf(auto bool) int {
	if auto {
		return 1
	}
	return 0
}

// give takes what the job needs from the runner it goes to.
func (b *Board) give(i int, w *wanted) {
	c := &b.m.candidates[i]
	var was [2]int
	for kind := range was {
		was[kind] = level(c.free(kind == 1))
	}
	c.take(w.automated(), w.reserve)
	for kind, k := range was {
		if s := b.m.room[kind][k]; s.has(i) {
			s.drop(i)
			b.m.room[kind][level(c.free(kind == 1))].add(i)
		}
	}
}

// servable goes on in a lane to the next job for which there may be somebody.
func (b *Board) servable(l *lane, plan *Plan) *row {
	for {
		r := l.head(b.m.rows)
		if r == nil || !b.m.rests[r.want] && (!b.special(r) || !b.waiting(r, plan)) {
			return r
		}
		l.pass(r, b.m.rows)
	}
}

// special says whether something beside the want and the runners may keep a job waiting.
func (b *Board) special(r *row) bool {
	return r.alone || len(b.away) > 0 || len(b.spent) > 0 || b.care.any
}

func (b *Board) waiting(r *row, plan *Plan) bool {
	if b.away[r.job.ID] {
		return true
	}
	why, until := b.alone(r.job)
	plan.wake(until)
	return why != nothing
}

// find gives the best runner that takes the job now, or -1.
func (b *Board) find(w *wanted, r *row, plan *Plan) (int, []string) {
	m := b.m
	if !w.ready {
		b.prepare(w)
	}
	room := &m.room[kindOf(w.automated())]
	pool := w.pool
	for _, x := range r.job.Excluded {
		i, ok := at(m.candidates, x.Runner)
		if !ok {
			continue
		}
		if x, out := excluded(r.job, m.candidates[i].r, b.l.Now); out {
			if x.Until != nil {
				plan.wake(*x.Until)
			}
			if &pool[0] == &w.pool[0] {
				m.scratch = append(m.scratch[:0], pool...)
				pool = m.scratch
			}
			pool.drop(i)
		}
	}
	any := false
	for {
		i := b.warm(w, pool)
		for k := len(room) - 1; i < 0 && k > 0; k-- {
			i = firstOf(pool, room[k])
		}
		if i < 0 {
			break
		}
		any = true
		got, probes := b.then(&w.want, r.job, &m.candidates[i])
		if got == open {
			return i, probes
		}
		pool.drop(i)
		w.pool.drop(i) // for everybody who wants the same: what is taken stays taken
	}
	if !any {
		m.rests[r.want] = b.nobody(w, room)
	}
	return -1, nil
}

// nobody says whether no candidate with a slot is left for what is wanted.
func (b *Board) nobody(w *wanted, room *[fleet.MaxSlots + 1]set) bool {
	for k := len(room) - 1; k > 0; k-- {
		if firstOf(w.pool, room[k]) >= 0 {
			return false
		}
	}
	return true
}

// warm gives the best candidate of the pool that has the repository's cache, or -1.
func (b *Board) warm(w *wanted, pool set) int {
	if w.cache == "" {
		return -1
	}
	best, most := -1, 0
	auto := w.automated()
	room := &b.m.room[kindOf(auto)]
	for _, i := range b.warmed()[w.cache] {
		if pool.has(int(i)) {
			if free := level(b.m.candidates[i].free(auto)); free > most && room[free].has(int(i)) {
				best, most = int(i), free
			}
		}
	}
	return best
}

// warmed gives the candidates by the caches they have.
func (b *Board) warmed() map[string][]int32 {
	m := b.m
	if len(m.caches) > 0 {
		return m.caches
	}
	if m.caches == nil {
		m.caches = map[string][]int32{}
	}
	m.caches[""] = nil // not again in this look
	for i := range m.candidates {
		for name := range strings.FieldsSeq(m.candidates[i].caches) {
			m.caches[name] = append(m.caches[name], int32(i))
		}
	}
	return m.caches
}

// prepare finds out who would take what is wanted, slots aside.
func (b *Board) prepare(w *wanted) {
	w.ready = true
	w.pool = append(w.pool[:0], b.m.able(w.want)...)
	w.cache = w.cacheOf()
	w.reserve = b.reserve(&w.want)
}

// wakes says when time alone may let somebody take what nobody takes now.
func (b *Board) wakes(plan *Plan) {
	for i := range b.m.candidates {
		if h := b.m.candidates[i].r.Hold; h != nil && h.Until != nil && b.l.Now.Before(*h.Until) {
			plan.wake(*h.Until)
		}
	}
	for _, c := range b.v.Circuits() {
		if c.Until != nil && circuit.At(c, b.l.Now) == fleet.CircuitOpen {
			plan.wake(*c.Until)
		}
	}
}

func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.Next.IsZero() || at.Before(p.Next)) {
		p.Next = at
	}
}
