package attempt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	olderPatience = 10 * time.Minute // for an older attempt of the job to end
	sweepAgain    = 5 * time.Second  // between two tries to end processes
)

// enter makes an attempt known to the others of its job.
func (h *Host) enter(a *Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.here == nil {
		h.here = map[fleet.JobID][]*Attempt{}
	}
	h.here[a.asg.Job] = append(h.here[a.asg.Job], a)
}

func (h *Host) leave(a *Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.here[a.asg.Job]), func(o *Attempt) bool { return o == a })
	if h.here[a.asg.Job] = left; len(left) == 0 {
		delete(h.here, a.asg.Job)
	}
}

// older lists the attempts of the same job with a lower fence.
func (h *Host) older(a *Attempt) []*Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*Attempt
	f := a.asg.Fence
	for _, o := range h.here[a.asg.Job] {
		if g := o.asg.Fence; cmp.Or(cmp.Compare(g.Epoch, f.Epoch), cmp.Compare(g.Index, f.Index)) < 0 {
			out = append(out, o)
		}
	}
	return out
}

// alone waits until no older attempt of the job can touch its directory any more: its
// processes are proven gone and its result is taken in. Two attempts of one job never
// work side by side.
func (a *Attempt) alone(ctx context.Context) error {
	timer := time.NewTimer(olderPatience)
	defer timer.Stop()
	for _, o := range a.host.older(a) {
		select {
		case <-o.over:
			continue
		default:
		}
		a.log.Info("waiting for an older attempt of the job to end", "older", o.asg.Fence.String())
		a.tell(fmt.Sprintf("waits until attempt %s of the job has ended on this runner", o.asg.Fence))
		a.host.Hub.Changed()
		select {
		case <-o.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return &decline{code: fleet.Conflict, after: retryAfter,
				detail: fmt.Sprintf("attempt %s of the job still runs on this runner and does not end", o.asg.Fence)}
		}
	}
	return nil
}
