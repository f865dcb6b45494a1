// Package sched decides which queued job goes to which runner, and says for every
// job that goes nowhere exactly why. It is a function of a view of the state, of
// what the leader sees of connections, and of the time it is given.
package sched

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// Look is what a decision is made from beside the state. All of it is given: equal looks
// at equal states come to equal decisions.
type Look struct {
	// Presence is what the leader sees of each runner's connection. It is called at most
	// once, and only if something depends on it: with many runners it is much to gather.
	Presence func() map[fleet.RunnerID]fleet.Presence

	Since time.Time // presence has been gathered since then: this node began to lead
	Now   time.Time // by the clock that presence was stamped with

	// Flying is what was decided before and proposed. As long as the state does not show
	// what became of it, its job is not given away again, and what it takes is taken.
	Flying map[fleet.JobID]Assignment

	Floors fleet.Floors // as set on the hub; zero: the defaults
	Limit  int          // of what a plan may hold: assignments, or jobs to block

	// Alive says whether the runner has shown the attempt lately: a lease to try a circuit
	// ends with it. Nil: all attempts are alive.
	Alive func(fleet.RunnerID, fleet.Fence) bool

	// Memo is what is kept from look to look for speed; it changes no decision. It belongs
	// to one look at a time. Nil: nothing is kept.
	Memo *Memo
}

// Assignment is one decision: the proposal for it assumes what was seen.
type Assignment struct {
	Job        fleet.JobID
	Runner     fleet.RunnerID
	Turn       int
	Attempts   int      // made so far in the turn
	Base       int      // slots that the runner offers, beside those for automation
	Automation int      // slots for automation that hub and owner allow there now
	Choice     int      // the turn's place in the list of choices
	Reserve    int64    // bytes of disk that it is expected to take; 0: it works in no repository
	Probes     []string // circuits that it tries
}

// Block takes a job out of the queue that has waited longer than it may.
type Block struct {
	Job    fleet.JobID
	Turn   int
	Code   string
	Detail string
}

// Plan is what a look at the queue comes to.
type Plan struct {
	Assign []Assignment
	Block  []Block
	Next   time.Time // when time alone may change the answer; zero: never
}

// Reason is why one runner does not take one job, or why no runner is asked at all.
type Reason struct {
	Runner string     `json:"runner,omitempty"` // its name; empty: it is not one runner's reason
	Code   fleet.Code `json:"code,omitempty"`   // empty: nothing stands against it
	Detail string     `json:"detail"`
	Until  *time.Time `json:"until,omitempty"`  // it may be over then by itself
	Change string     `json:"change,omitempty"` // what would change it
}

// Explanation says why a job stands where it stands.
type Explanation struct {
	Summary string     `json:"summary"`
	Code    fleet.Code `json:"code,omitempty"` // of what the summary says; empty: nothing stands against it
	Until   *time.Time `json:"until,omitempty"`
	Change  string     `json:"change,omitempty"`
	Ahead   int        `json:"ahead"` // queued jobs before it, counted up to 1,000
	Index   uint64     `json:"index"` // of the state that was looked at
	At      time.Time  `json:"at"`    // of the presence that was looked at
	Runners []Reason   `json:"runners,omitempty"`
	More    int        `json:"more,omitempty"`  // runners that are left out
	Notes   []string   `json:"notes,omitempty"` // warnings: they keep nobody from taking it
}

// Memo is what looks of one leader keep for the next.
type Memo struct{}

// Board is a state as one look sees it, prepared as far as it is asked. It is for one
// goroutine.
type Board struct {
	v state.View
	l Look

	presence map[fleet.RunnerID]fleet.Presence
	seen     bool
}

// See prepares a look.
func See(v state.View, l Look) *Board { return &Board{v: v, l: l} }

func (b *Board) present() map[fleet.RunnerID]fleet.Presence {
	if !b.seen && b.l.Presence != nil {
		b.presence = b.l.Presence()
	}
	b.seen = true
	return b.presence
}

// Pick decides which queued jobs go to which runners now.
func (b *Board) Pick() Plan { return pick(b.v, b.present(), b.l.Since, b.l.Now, b.l.Limit, b.l.Flying) }

// overdue finds queued jobs that have waited longer than their queue timeout, and when
// the next one will have.
func (b *Board) Overdue() Plan { return overdue(b.v, b.present, b.l.Now, b.l.Limit) }

// Explain says of a queued job exactly why it is not running, runner by runner; of any
// other job, the reason that is recorded.
func (b *Board) Explain(j *fleet.Job) Explanation { return explain(b.v, b.present(), j, b.l.Now) }

// Why says the same in one sentence, which is the summary of Explain.
func (b *Board) Why(j *fleet.Job) Reason {
	e := b.Explain(j)
	return Reason{Code: e.Code, Detail: e.Summary, Until: e.Until, Change: e.Change}
}

// Refusal gives the first thing that stands against a runner's taking a queued job; an
// empty code means that nothing does.
func (b *Board) Refusal(j *fleet.Job, r *fleet.Runner) Reason {
	for _, c := range candidates(b.v, b.present()) {
		if c.r.ID == r.ID {
			return fits(j, c, b.l.Now)
		}
	}
	return Reason{Runner: r.Name, Code: fleet.RunnerUnknown, Detail: "was removed"}
}

// Misplaced says why an assignment that its runner has not accepted yet would not be made
// now, so that it had better go back to the queue; an empty code means that it would.
func (b *Board) Misplaced(j *fleet.Job, a *fleet.Attempt) Reason { return Reason{} }

// Capable says whether the runner could take the job were it connected, free and well:
// nothing that only a person changes stands against it.
func (b *Board) Capable(j *fleet.Job, r *fleet.Runner) bool {
	_, ok := capable(j, r)
	return ok
}

// candidate is a runner with what is left of its slots.
type candidate struct {
	r    *fleet.Runner
	p    fleet.Presence
	free int
}

// pick walks the queue in order and gives every job that can run to the best
// runner: the one with the most free slots, by id where equal. It stops when no
// slot is free anywhere or limit assignments are made. Presence has been gathered
// since the given time, when this node began to lead. What is flying has been decided
// before, and proposed: as long as the state does not show what became of it, its job is
// not given away again, and its slot and its concurrency key are taken.
//
// Which runners could take a job at all is worked out once for all jobs alike, so
// that a long queue of jobs that nobody can take costs little.
func pick(v state.View, presence map[fleet.RunnerID]fleet.Presence, since, now time.Time, limit int, flying map[fleet.JobID]Assignment) Plan {
	var plan Plan
	var cs []candidate // that would take something now
	free := 0
	holders := map[string]fleet.JobID{} // of the concurrency keys looked up so far, those given out in this plan included
	taken, away := map[fleet.RunnerID]int{}, map[fleet.JobID]bool{}
	for id, a := range flying {
		if j, ok := v.Job(id); ok && a.open(j) {
			away[id] = true
			taken[a.Runner]++
			if k := j.Spec.ConcurrencyKey; k != "" {
				holders[k] = id
			}
		}
	}
	for _, c := range candidates(v, presence) {
		if c.free -= taken[c.r.ID]; c.ready().Code == "" {
			cs = append(cs, c)
			free += c.free
		}
	}
	if free == 0 || limit <= 0 {
		return plan
	}
	care := raisedIn(v, presence, since, now)
	able := map[shape][]int{} // indexes into cs
	v.Queue(func(j *fleet.Job) bool {
		if away[j.ID] {
			return true
		}
		if why, until := care.holds(j, now); why != "" {
			plan.wake(until)
			return true
		}
		s := shapeOf(j)
		list, known := able[s]
		if !known {
			for i, c := range cs {
				if _, ok := capable(j, c.r); ok {
					list = append(list, i)
				}
			}
			able[s] = list
		}
		if len(list) == 0 {
			return true
		}
		k := j.Spec.ConcurrencyKey
		if k != "" && heldByOther(v, holders, k, j.ID) {
			return true
		}
		best := -1
		for _, i := range list {
			if cs[i].free <= 0 || best >= 0 && cs[i].free <= cs[best].free {
				continue
			}
			if r, until := excluded(j, cs[i].r, now); r.Code != "" {
				plan.wake(until)
				continue
			}
			best = i
		}
		if best < 0 {
			return true
		}
		cs[best].free--
		free--
		if k != "" {
			holders[k] = j.ID
		}
		plan.Assign = append(plan.Assign, Assignment{Job: j.ID, Runner: cs[best].r.ID, Turn: j.Turn().N, Attempts: len(j.Turn().Attempts), Base: cs[best].p.Slots, Choice: j.Turn().Choice})
		return free > 0 && len(plan.Assign) < limit
	})
	return plan
}

// open says whether the proposal for the assignment would still be taken: the job waits
// as it was seen then.
func (a Assignment) open(j *fleet.Job) bool {
	return j.State == fleet.Queued && j.Turn().N == a.Turn && len(j.Turn().Attempts) == a.Attempts
}

// heldByOther says whether another job than the given one holds the key, and
// remembers the holder; a job that waits to run again may hold its own.
func heldByOther(v state.View, holders map[string]fleet.JobID, key string, id fleet.JobID) bool {
	by, known := holders[key]
	if !known {
		by, _ = v.Holder(key, "")
		holders[key] = by
	}
	if by == id {
		by, _ = v.Holder(key, id)
	}
	return by != ""
}

// shape is all of a job that decides which runners could take it at all.
type shape struct {
	bound                             fleet.RunnerID
	withRepo                          bool
	on, origin, repo, harness, others string
}

func shapeOf(j *fleet.Job) shape {
	s := shape{bound: j.Turn().On, on: j.Spec.On, origin: j.Spec.Origin.Kind, harness: j.Spec.Harness}
	if r := j.Spec.Repo; r != nil {
		s.repo, s.withRepo = r.URL, true
	}
	if len(j.Spec.Require)+len(j.Spec.Secrets) > 0 {
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(j.Spec.Require)) {
			b.WriteString(k + "=" + j.Spec.Require[k] + "\x00")
		}
		b.WriteByte(0)
		for _, name := range j.Spec.Secrets {
			b.WriteString(name + "\x00")
		}
		s.others = b.String()
	}
	return s
}

// overdue finds queued jobs that have waited longer than their queue timeout, and
// when the next one will have. What it says of each runner is as the leader sees
// it at that moment; presence is called only if there is such a job.
func overdue(v state.View, presence func() map[fleet.RunnerID]fleet.Presence, now time.Time, limit int) Plan {
	var plan Plan
	if limit <= 0 {
		return plan
	}
	var cs []candidate
	v.Queue(func(j *fleet.Job) bool {
		q := j.Spec.Timeouts.Queue
		if q <= 0 {
			return true
		}
		if at := j.Turn().QueuedAt.Add(q); now.Before(at) {
			plan.wake(at)
			return true
		}
		if cs == nil {
			cs = candidates(v, presence())
		}
		plan.Block = append(plan.Block, Block{j.ID, j.Turn().N, "queue_timeout",
			fmt.Sprintf("waited longer than its queue timeout of %s: %s", q, obstacle(v, cs, j, now))})
		return len(plan.Block) < limit
	})
	return plan
}

func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.Next.IsZero() || at.Before(p.Next)) {
		p.Next = at
	}
}

func candidates(v state.View, presence map[fleet.RunnerID]fleet.Presence) []candidate {
	rs := v.Runners()
	cs := make([]candidate, 0, len(rs)) // in the order of ids
	for _, r := range rs {
		p := presence[r.ID]
		c := candidate{r: r, p: p}
		if p.Connected && p.Full {
			c.free = p.Slots - v.Held(r.ID)
		}
		cs = append(cs, c)
	}
	return cs
}
