package state

import "tugline.dev/tugline/shared/fleet"

var _ = register(func() Command { return new(SetSlots) })

// SetSlots sets how many automation slots the hub allows on a runner; nil goes back to
// the default. What runs already runs on: it keeps its slot until it ends.
type SetSlots struct {
	ID         fleet.RunnerID `json:"id"`
	Automation *int           `json:"automation"`
}

func (*SetSlots) kind() Kind { return 58 }

func (c *SetSlots) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	if c.Automation != nil {
		switch n := *c.Automation; {
		case n < 0 || n > fleet.MaxAutomation:
			return refuse(fleet.BadRequest, "a runner has 0 to %d automation slots, not %d", fleet.MaxAutomation, n)
		case n > 0 && n+r.Facts.Slots > fleet.MaxSlots:
			return refuse(fleet.BadRequest, "runner %s has %d base slots, and %d is the most in all: at most %d are left for automation",
				r.Name, r.Facts.Slots, fleet.MaxSlots, max(fleet.MaxSlots-r.Facts.Slots, 0))
		}
	}
	if sameNumber(r.Automation, c.Automation) {
		return Result{ID: string(r.ID), Repeated: true}
	}
	r.Automation = c.Automation
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

func sameNumber(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }
