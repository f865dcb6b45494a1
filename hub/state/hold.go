package state

import (
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(HoldRunner) })
	_ = register(func() Command { return new(PassDeadline) })
)

// maxReason bounds what a person says of a hold, in bytes.
const maxReason = 1 << 10

// HoldRunner keeps new work from a runner by a person's decision, in place of any hold
// before; without a Hold it ends every hold there is. Since, Passed and Actor are not
// the proposer's to say.
type HoldRunner struct {
	ID   fleet.RunnerID `json:"id"`
	Hold *fleet.Hold    `json:"hold,omitempty"`
}

func (*HoldRunner) kind() Kind { return 49 }

func (c *HoldRunner) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	was := *r
	r.Hold, r.Cordoned = nil, false
	if c.Hold != nil {
		h := *c.Hold
		switch {
		case h.Until != nil && !h.Until.After(t.now()):
			return refuse(fleet.BadRequest, "the hold of runner %s would end at %s, which has passed", r.Name, h.Until.UTC().Format(time.RFC3339))
		case h.Deadline != nil && !h.Drain:
			return refuse(fleet.BadRequest, "only a drain has a deadline")
		case h.Cancel && h.Deadline == nil:
			return refuse(fleet.BadRequest, "work is cancelled at the deadline of a drain, and none is given")
		}
		h.Until, h.Deadline = utc(h.Until), utc(h.Deadline)
		h.Since, h.Actor, h.Passed, h.Reason = t.now(), t.head.Actor, false, fleet.CutText(h.Reason, maxReason)
		if was.Hold != nil && !was.Cordoned {
			again := *was.Hold
			again.Since, again.Actor, again.Passed = h.Since, h.Actor, h.Passed
			if sameRow(&again, &h) {
				return Result{ID: string(r.ID), Repeated: true}
			}
		}
		r.Hold = &h
	} else if was.Hold == nil && !was.Cordoned {
		return Result{ID: string(r.ID), Repeated: true}
	}
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// words tells a hold in the audit record.
func (c *HoldRunner) words() string {
	var words []string
	h := c.Hold
	if h == nil {
		return ""
	}
	if h.Until != nil {
		words = append(words, "until "+h.Until.UTC().Format(time.RFC3339))
	}
	if h.Deadline != nil {
		words = append(words, "deadline "+h.Deadline.UTC().Format(time.RFC3339))
	}
	if h.Cancel {
		words = append(words, "then cancel")
	}
	if h.Reason != "" {
		words = append(words, fleet.CutText(h.Reason, maxReason))
	}
	return strings.Join(words, "; ")
}

func utc(p *time.Time) *time.Time {
	if p == nil {
		return nil
	}
	return at(p.UTC())
}

// PassDeadline acts on the deadline of a runner's drain, once: what was not accepted
// goes back to the queue at no cost; what was goes on, or is cancelled where the drain
// says so, in the name of who drains.
type PassDeadline struct {
	Runner fleet.RunnerID `json:"runner"`
}

func (*PassDeadline) kind() Kind { return 57 }

func (c *PassDeadline) apply(t *txn) Result {
	r, bad := t.editRunner(c.Runner)
	if r == nil {
		return bad
	}
	switch {
	case r.Hold == nil || !r.Hold.Drain || r.Hold.Deadline == nil || !r.HeldAt(t.now()):
		return refuse(fleet.Conflict, "runner %s is not being drained until a deadline", r.Name)
	case r.Hold.Passed:
		return Result{ID: string(r.ID), Repeated: true}
	case t.now().Before(*r.Hold.Deadline):
		return refuse(fleet.Conflict, "the drain of runner %s goes on until %s", r.Name, r.Hold.Deadline.Format(time.RFC3339))
	}
	h := *r.Hold
	h.Passed, r.Hold = true, &h
	for _, o := range (View{t.Txn}).OpenOf(r.ID) {
		j := t.job(o.Job.ID).Clone() // as the attempts before it left the job
		_, a := j.Find(o.Attempt.Fence)
		switch {
		case a == pending(j.Turn()):
			t.giveBack(j, a, "the runner is being drained, and its deadline has passed")
			t.put(j)
		case h.Cancel && j.Current() == a && (j.State == fleet.Running || j.State == fleet.Lost):
			if res := t.cancelFor(j, h.Actor, because("the deadline of the drain of "+r.Name+" has passed", h.Reason)); res.Code != "" {
				return res
			}
		}
	}
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// cancelFor cancels a job in somebody's name, and keeps why where no cancel came before.
func (t *txn) cancelFor(j *fleet.Job, actor, why string) Result {
	was := t.head.Actor
	defer func() { t.head.Actor = was }()
	t.head.Actor = orElse(actor, was)
	if j.CancelRequestedAt == nil {
		j.CancelWhy = why
	}
	return t.cancel(j, false)
}
