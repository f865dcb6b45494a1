package sched

import (
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// Overdue finds queued jobs that have waited longer than their queue timeout, and when
// the next one will have. It says of each runner what it was doing at that moment.
func (b *Board) Overdue() Plan {
	var plan Plan
	if b.l.Limit <= 0 {
		return plan
	}
	b.v.Queue(func(j *fleet.Job) bool {
		q := j.Spec.Timeouts.Queue
		if q <= 0 {
			return true
		}
		if at := j.Turn().QueuedAt.Add(q); b.l.Now.Before(at) {
			plan.wake(at)
			return true
		}
		plan.Block = append(plan.Block, Block{j.ID, j.Turn().N, "queue_timeout", fmt.Sprintf("waited longer than its queue timeout of %s: %s", q, b.obstacle(j))})
		return len(plan.Block) < b.l.Limit
	})
	return plan
}
