package sched

import (
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// alone is what keeps a job waiting whatever runners there are, in the order in which it
// is told.
type alone uint8

const (
	nothing  alone = iota
	retry          // the pause before it is tried again
	keyHeld        // another job holds its concurrency key
	noBudget       // of its origin
	begun          // a runner runs it, or may, by a record that is lost
)

// alone gives the first thing that keeps a job waiting, and until when, if time alone
// ends it.
func (b *Board) alone(j *fleet.Job) (alone, time.Time) {
	b.candidates() // what is flying counts
	if t := j.Turn(); t.NotBefore != nil && b.l.Now.Before(*t.NotBefore) {
		return retry, *t.NotBefore
	}
	if k := j.Spec.ConcurrencyKey; k != "" && b.holder(k, j.ID) != "" {
		return keyHeld, time.Time{}
	}
	if b.budgets(); len(b.spent) > 0 {
		if until, broke := b.isBroke(j, b.drawnOn(nil, j.Spec.Automated(), j.Spec.Origin.OriginKey())); broke {
			return noBudget, until
		}
	}
	if b.careful().any {
		if _, until, kept := b.care.keeps(j, b.l.Now); kept {
			return begun, until
		}
	}
	return nothing, time.Time{}
}

// tell says the same in words.
func (b *Board) tellAlone(j *fleet.Job) Reason {
	what, until := b.alone(j)
	r := Reason{}
	if !until.IsZero() {
		r.Until = &until
	}
	switch what {
	case retry:
		r.Code, r.Detail, r.Change = fleet.RetryWaits, fmt.Sprintf("waits until %s before it is tried again%s", stamp(until), lastly(j.Turn())), "that time"
	case keyHeld:
		by := b.holder(j.Spec.ConcurrencyKey, j.ID)
		r.Code, r.Detail = fleet.KeyHeld, fmt.Sprintf("waits for job %s, which holds the concurrency key %q", by, j.Spec.ConcurrencyKey)
		r.Change = fmt.Sprintf("the end of job %s", by)
	case noBudget:
		r.Code = fleet.BudgetSpent
		for _, key := range j.Spec.Origin.OriginKeys() {
			if u := b.spent[key]; u != nil && r.Detail == "" {
				if _, r.Detail, _ = u.Room(&j.Spec, b.l.Now); r.Detail != "" {
					r.Change = ifAny("the end of a run under it, ", len(u.Held) > 0) + ifAny("a new window, ", r.Until != nil)
					r.Change += ifAny("or ", r.Change != "") + "more: `tugline budget set`"
				}
			}
		}
	case begun:
		r.Code, r.Change = fleet.Conflict, "what the runners say of it"
		name, _, _ := b.care.keeps(j, b.l.Now)
		r.Detail = b.care.why(name)
	}
	return r
}

// lastly says what the turn's last execution came to, which is why it is tried again.
func lastly(t *fleet.Turn) string {
	for i := len(t.Attempts) - 1; i >= 0; i-- {
		a := t.Attempts[i]
		if a.AcceptedAt == nil {
			continue
		}
		why := string(a.Failure)
		if why == "" {
			why = string(a.State)
		}
		return fmt.Sprintf(": attempt %d on %s ended with %s", a.N, a.RunnerName, why)
	}
	return ""
}

// holder gives another job that holds the key, or is about to; empty: none does. A job
// that waits to run again may hold its own.
func (b *Board) holder(key string, id fleet.JobID) fleet.JobID {
	by, known := b.holders[key]
	if !known {
		by, _ = b.v.Holder(key, "")
		b.holders[key] = by
	}
	if by == id {
		by, _ = b.v.Holder(key, id)
	}
	return by
}

// careful says what a raise of the cluster's epoch leaves to be careful about.
func (b *Board) careful() *raised {
	if b.care == nil {
		r := raisedIn(b.v, b.present, b.l.Since, b.l.Now)
		b.care = &r
	}
	return b.care
}

// asked is all of a job that a budget goes by.
type asked struct {
	of     *fleet.Budget
	agent  bool
	tokens int64
	wall   time.Duration
}

// drawnOn gives the budgets that an origin draws on.
func (b *Board) drawnOn(out []*fleet.Budget, automated bool, origin string) []*fleet.Budget {
	if u := b.spent[origin]; u != nil {
		out = append(out, u)
	}
	kind := fleet.Manual
	if automated {
		kind = fleet.Automation
	}
	if u := b.spent[kind]; u != nil && kind != origin {
		out = append(out, u)
	}
	return out
}

// isBroke says whether one of the budgets has no room for the job, and until when, if that
// is known. One that has none has none for the rest of the look.
func (b *Board) isBroke(j *fleet.Job, of []*fleet.Budget) (until time.Time, broke bool) {
	for _, u := range of {
		a := asked{u, j.Spec.Kind == fleet.KindAgent, j.Spec.MaxTokens, j.Spec.Timeouts.Total}
		if until, broke = b.broke[a]; broke {
			return until, true
		}
		if _, no, end := u.Room(&j.Spec, b.l.Now); no != "" {
			if end != nil {
				until = *end
			}
			b.broke[a] = until
			return until, true
		}
	}
	return time.Time{}, false
}

// spend holds what the job may use.
func (b *Board) spend(j *fleet.Job) {
	if b.budgets(); len(b.spent) == 0 {
		return
	}
	for _, key := range j.Spec.Origin.OriginKeys() {
		if u := b.spent[key]; u != nil {
			r, _, _ := u.Room(&j.Spec, b.l.Now)
			r.Job = j.ID
			u.Held = append(u.Held, r)
		}
	}
}

// budgets has the budgets as they are now, in copies that may be drawn on.
func (b *Board) budgets() {
	if b.spent != nil {
		return
	}
	b.spent, b.broke = map[string]*fleet.Budget{}, map[asked]time.Time{}
	for _, u := range b.v.Budgets() {
		c := u.At(b.l.Now)
		c.Held = append([]fleet.Reservation(nil), c.Held...)
		b.spent[u.Origin] = c
	}
}
