// Package sched decides which queued job goes to which runner, and says for every
// job that goes nowhere exactly why. It is a function of a view of the state, of
// what the leader sees of connections, and of the time it is given.
package sched

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// Assignment is one decision: the proposal for it assumes what was seen.
type Assignment struct {
	Job      fleet.JobID
	Runner   fleet.RunnerID
	Turn     int
	Attempts int // made so far in the turn
	Slots    int // offered by the runner
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

// Reason is why one runner does not take one job.
type Reason struct {
	Runner string     `json:"runner"`
	Code   fleet.Code `json:"code"`
	Detail string     `json:"detail"`
}

// candidate is a runner with what is left of its slots.
type candidate struct {
	r    *fleet.Runner
	p    fleet.Presence
	free int
}

// Pick walks the queue in order and gives every job that can run to the best
// runner: the one with the most free slots, by id where equal. It stops when no
// slot is free anywhere or limit assignments are made.
func Pick(v state.View, presence map[fleet.RunnerID]fleet.Presence, now time.Time, limit int) Plan {
	var plan Plan
	cs := candidates(v, presence)
	free := 0
	for _, c := range cs {
		free += max(c.free, 0)
	}
	if free == 0 {
		return plan
	}
	taken := map[string]bool{} // concurrency keys given out in this plan
	v.Queue(func(j *fleet.Job) bool {
		if k := j.Spec.ConcurrencyKey; k != "" {
			if _, held := v.Holder(k, j.ID); held || taken[k] {
				return true
			}
		}
		best := -1
		for i := range cs {
			r, until := fits(j, cs[i], now)
			if r.Code == "" && (best < 0 || cs[i].free > cs[best].free) {
				best = i
			}
			plan.wake(until)
		}
		if best < 0 {
			return true
		}
		cs[best].free--
		free--
		taken[j.Spec.ConcurrencyKey] = j.Spec.ConcurrencyKey != ""
		plan.Assign = append(plan.Assign, Assignment{j.ID, cs[best].r.ID, j.Turn().N, len(j.Turn().Attempts), cs[best].p.Slots})
		return free > 0 && len(plan.Assign) < limit
	})
	return plan
}

// Overdue finds queued jobs that have waited longer than their queue timeout, and
// when the next one will have.
func Overdue(v state.View, now time.Time, limit int) Plan {
	var plan Plan
	v.Queue(func(j *fleet.Job) bool {
		q := j.Spec.Timeouts.Queue
		if q <= 0 {
			return true
		}
		if at := j.Turn().QueuedAt.Add(q); now.Before(at) {
			plan.wake(at)
			return true
		}
		why := Explain(v, nil, j, now)
		plan.Block = append(plan.Block, Block{j.ID, j.Turn().N, "queue_timeout",
			fmt.Sprintf("waited longer than its queue timeout of %s: %s", q, why.Summary)})
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
	var cs []candidate
	for _, r := range v.Runners() {
		p := presence[r.ID]
		c := candidate{r: r, p: p}
		if p.Connected && p.Full {
			c.free = p.Slots - v.Held(r.ID)
		}
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b candidate) int { return cmp.Compare(a.r.ID, b.r.ID) })
	return cs
}
