package state

import (
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const tableBudgets = "budgets"

// maxBudgets bounds the budgets on record, and maxOrigin the name of one.
const (
	maxBudgets = 1000
	maxOrigin  = 200
)

var _ = register(func() Command { return new(SetBudget) })

// SetBudget bounds what an origin may spend, or takes the bounds away. What was spent
// and is held under a budget stays with it when its bounds change.
type SetBudget struct {
	Budget fleet.Budget `json:"budget"` // the bounds and the origin; the rest is not looked at
	Remove bool         `json:"remove,omitempty"`
}

func (*SetBudget) kind() Kind { return 54 }

func (c *SetBudget) apply(t *txn) Result {
	b := c.Budget
	was := t.budget(b.Origin)
	switch {
	case b.Origin == "" || len(b.Origin) > maxOrigin:
		return refuse(fleet.BadRequest, "a budget is of an origin: manual, automation or automation:NAME")
	case c.Remove && was == nil:
		return refuse(fleet.NotFound, "%s has no budget", b.Origin)
	case c.Remove:
		t.delete(tableBudgets, was)
		t.add("budgets", -1)
		return Result{ID: b.Origin}
	case b.Runs < 0 || b.Tokens < 0 || b.Wall < 0 || b.Window < 0:
		return refuse(fleet.BadRequest, "the bounds of a budget are not below zero")
	case b.Runs == 0 && b.Tokens == 0 && b.Wall == 0:
		return refuse(fleet.BadRequest, "a budget bounds runs, tokens or time; take one away with remove")
	case was == nil && t.count("budgets") >= maxBudgets:
		return refuse(fleet.TooLarge, "there are %d budgets, the bound", maxBudgets)
	}
	n := &fleet.Budget{Origin: b.Origin}
	if was == nil {
		t.add("budgets", 1)
	} else {
		n = was.At(t.now())
	}
	n.Runs, n.Tokens, n.Wall, n.Window, n.SetBy, n.SetAt = b.Runs, b.Tokens, b.Wall, b.Window, t.head.Actor, t.now()
	t.insert(tableBudgets, n)
	return Result{ID: n.Origin}
}

func (t *txn) budget(origin string) *fleet.Budget {
	if t.count("budgets") == 0 {
		return nil
	}
	return first[fleet.Budget](t.Txn, tableBudgets, "id", origin)
}

// affordable refuses an attempt at a job for which a budget of its origin has no room.
func (t *txn) affordable(j *fleet.Job) Result {
	for _, key := range j.Spec.Origin.OriginKeys() {
		if b := t.budget(key); b != nil {
			if _, no, _ := b.Room(&j.Spec, t.now()); no != "" {
				return refuse(fleet.BudgetSpent, "%s", no)
			}
		}
	}
	return Result{}
}

// draw keeps the budgets of a job's origin in step with its attempts: one that came to
// occupy a slot holds what it may use, one that no longer does gives that back, and has
// spent what it used if it was permitted to start. Either record may be nil.
func (t *txn) draw(old, j *fleet.Job) {
	if t.count("budgets") == 0 {
		return
	}
	var now, before []*fleet.Attempt
	spec := &fleet.Spec{}
	if old != nil {
		before, spec = holders(old), &old.Spec
	}
	if j != nil {
		now, spec = holders(j), &j.Spec
	}
	same := func(a *fleet.Attempt) func(*fleet.Attempt) bool {
		return func(b *fleet.Attempt) bool { return a.Fence == b.Fence }
	}
	for _, a := range before {
		if slices.ContainsFunc(now, same(a)) {
			continue
		}
		if j != nil {
			if _, is := j.Find(a.Fence); is != nil {
				a = is
			}
		}
		t.settle(spec, a)
	}
	for _, a := range now {
		if !slices.ContainsFunc(before, same(a)) {
			t.reserve(old, j, a)
		}
	}
}

// holders gives the attempts of a job that occupy slots.
func holders(j *fleet.Job) []*fleet.Attempt {
	var out []*fleet.Attempt
	for _, tu := range j.Turns {
		for _, a := range tu.Attempts {
			if a.HoldsSlot() {
				out = append(out, a)
			}
		}
	}
	return out
}

// reserve holds what an attempt may use. One that comes back to life after its
// reservation was given back holds it even where there is no room left.
func (t *txn) reserve(old, j *fleet.Job, a *fleet.Attempt) {
	for _, key := range j.Spec.Origin.OriginKeys() {
		b := t.budget(key)
		if b == nil {
			continue
		}
		r, no, _ := b.Room(&j.Spec, t.now())
		if no != "" {
			r = fleet.Reservation{Tokens: j.Spec.MaxTokens, Wall: max(j.Spec.Timeouts.Total, 0)}
		}
		n := b.At(t.now())
		if n.Begun.IsZero() {
			n.Begun = t.now()
		}
		r.Job, r.Fence = j.ID, a.Fence
		n.Held = append(n.Held[:len(n.Held):len(n.Held)], r)
		t.insert(tableBudgets, n)
	}
}

// settle gives the reservations of an attempt back, and spends what it used.
func (t *txn) settle(s *fleet.Spec, a *fleet.Attempt) {
	for _, key := range s.Origin.OriginKeys() {
		b := t.budget(key)
		if b == nil {
			continue
		}
		i := slices.IndexFunc(b.Held, func(r fleet.Reservation) bool { return r.Fence == a.Fence })
		if i < 0 {
			continue // the budget is younger than the attempt
		}
		n := b.At(t.now())
		n.Held = slices.Delete(slices.Clone(n.Held), i, i+1)
		if a.AcceptedAt != nil {
			n.Spent = n.Spent.Add(t.used(b, a))
			if n.Begun.IsZero() {
				n.Begun = t.now()
			}
		}
		t.insert(tableBudgets, n)
	}
}

// used gives what an attempt used. Where it left no word of its tokens, as one that was
// lost, that is what a run takes on average.
func (t *txn) used(b *fleet.Budget, a *fleet.Attempt) fleet.Spending {
	s := fleet.Spending{Runs: 1}
	switch {
	case a.Usage != nil:
		s.Tokens = max(a.Usage.InputTokens, 0) + max(a.Usage.OutputTokens, 0)
	case a.State != fleet.AttemptFinished:
		s.Tokens = b.Mean().Tokens
	}
	from, to := *a.AcceptedAt, t.now()
	if a.StartedAt != nil && a.FinishedAt != nil { // by one clock, the runner's
		from, to = *a.StartedAt, *a.FinishedAt
	}
	s.Wall = max(to.Sub(from), 0)
	return s
}

// Budgets gives all budgets by origin. Their windows are as they were when something
// was last drawn on them; see At.
func (v View) Budgets() []*fleet.Budget {
	var out []*fleet.Budget
	each(v.tx, tableBudgets, "id", func(b *fleet.Budget) bool { out = append(out, b); return true })
	return out
}

// Budget gives the budget of an origin: "manual", "automation" or "automation:NAME".
func (v View) Budget(origin string) (*fleet.Budget, bool) {
	b := first[fleet.Budget](v.tx, tableBudgets, "id", origin)
	return b, b != nil
}

// Afford says why the budgets of a job's origin have no room for it at a time, and when
// they may have, if that is known; empty where they have.
func (v View) Afford(s *fleet.Spec, now time.Time) (refused string, until *time.Time) {
	for _, key := range s.Origin.OriginKeys() {
		if b, ok := v.Budget(key); ok {
			if _, no, end := b.Room(s, now); no != "" {
				return no, end
			}
		}
	}
	return "", nil
}
