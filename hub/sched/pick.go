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
	b.budgets()
	for _, l := range m.lanes {
		l.held, l.spent = b.slots(l.origin), b.drawnOn(l.spent[:0], l.automated, l.origin)
	}
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
		if job.key > 0 {
			m.keys[job.key-1].held, m.keys[job.key-1].by = true, nil
		}
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
	b.m.takers = b.m.takers.room(len(cs))
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
		b.m.takers.add(i)
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
		if r == nil || !b.m.rests[r.want] && !b.waits(l, r, plan) {
			return r
		}
		l.pass(r, b.m.rows)
	}
}

// waits is alone for many jobs: what it needs of a job is at hand.
func (b *Board) waits(l *lane, r *row, plan *Plan) bool {
	if r.notBefore > b.l.Now.UnixNano() {
		plan.wake(*r.job.Turn().NotBefore)
		return true
	}
	if r.key > 0 && b.keyHeld(r) {
		return true
	}
	if len(b.away) > 0 && b.away[r.job.ID] {
		return true
	}
	if len(l.spent) > 0 {
		if until, broke := b.isBroke(r.job, l.spent); broke {
			plan.wake(until)
			return true
		}
	}
	if b.care.any {
		if _, until, kept := b.care.keeps(r.job, b.l.Now); kept {
			plan.wake(until)
			return true
		}
	}
	return false
}

// keyHeld says whether another job holds the concurrency key.
func (b *Board) keyHeld(r *row) bool {
	k := &b.m.keys[r.key-1]
	if !k.known {
		k.known = true
		if by := b.holder(k.name, ""); by != "" {
			k.held = true
			k.by, _ = b.v.Job(by)
		}
	}
	return k.held && (k.by != r.job || b.holder(k.name, r.job.ID) != "")
}

// find gives the best runner that takes the job now, or -1.
func (b *Board) find(w *wanted, r *row, plan *Plan) (int, []string) {
	m := b.m
	if !w.ready {
		b.prepare(w, r.job)
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
	try := func(i int) (ok bool, probes []string) {
		got, probes := b.then(w, r.job, &m.candidates[i])
		if got != open {
			pool.drop(i)
			w.pool.drop(i) // for everybody who wants the same: what is taken stays taken
		}
		return got == open, probes
	}
	for i := b.warm(w, pool); i >= 0; i = b.warm(w, pool) {
		if ok, probes := try(i); ok {
			return i, probes
		}
	}
	for k := len(room) - 1; k > 0; k-- {
		for i := nextOf(pool, room[k], 0); i >= 0; i = nextOf(pool, room[k], i+1) {
			if ok, probes := try(i); ok {
				return i, probes
			}
		}
	}
	m.rests[r.want] = b.nobody(w, room)
	return -1, nil
}

// nobody says whether no candidate with a slot is left for what is wanted.
func (b *Board) nobody(w *wanted, room *[fleet.MaxSlots + 1]set) bool {
	for k := len(room) - 1; k > 0; k-- {
		if nextOf(w.pool, room[k], 0) >= 0 {
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
func (b *Board) prepare(w *wanted, j *fleet.Job) {
	w.ready = true
	w.pool = append(w.pool[:0], b.m.able(w.want)...)
	for i, bits := range b.barred(w, j) {
		w.pool[i] &^= bits
	}
	b.expect(w)
}

// line is all that circuits go by, but for the runner.
type line struct {
	harness, model           string
	agent, docker, automated bool
}

// barred gives the candidates with slots that circuits keep from such work, or that have
// no Docker and need it. It is worked out once for all that is of one line.
func (b *Board) barred(w *wanted, j *fleet.Job) set {
	circuits := b.circuits()
	if !b.tried() && !w.docker {
		return nil
	}
	m, key := b.m, line{w.harness, w.model, w.agent, w.docker, w.automated()}
	if s, ok := b.bars[key]; ok {
		return s
	}
	s := set(nil).room(len(m.candidates))
	if b.near == nil {
		b.near = make([]circuit.Near, len(m.candidates))
		for i := range b.near {
			b.near[i] = circuits.Near(m.candidates[i].r.ID)
		}
	}
	var ask circuit.Ask
	for i := range m.candidates {
		c := &m.candidates[i]
		switch {
		case !m.takers.has(i):
			continue
		case w.docker && !c.docker(b.l.Now):
			s.add(i)
			continue
		case b.near[i].None():
			continue
		}
		if ask.Runner == "" {
			if ask = circuit.AskOf(j, c.r); circuits.RefusesAll(ask, b.l.Now) {
				copy(s, m.takers)
				break
			}
		}
		ask.Runner = c.r.ID
		for n := range c.r.Facts.Harnesses {
			if h := &c.r.Facts.Harnesses[n]; h.Name == w.harness && w.agent {
				ask.Account = h.AccountOf(ask.Provider)
				break
			}
		}
		s.put(i, b.near[i].Refuses(ask, b.l.Now))
	}
	if b.bars == nil {
		b.bars = map[line]set{}
	}
	b.bars[key] = s
	return s
}

// wakes says when time alone may let somebody take what nobody takes now.
func (b *Board) wakes(plan *Plan) {
	for i := range b.m.candidates {
		if h := b.m.candidates[i].r.Hold; h != nil && h.Until != nil && b.l.Now.Before(*h.Until) {
			plan.wake(*h.Until)
		}
	}
	b.circuits()
	for _, c := range b.every {
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
