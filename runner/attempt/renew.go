package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// Renew takes an epoch of the cluster up for the attempt: it is durable, with the
// report of it, when Renew returns. One that was taken up before is reported again
// while the hub asks for it. The process, if there is one, notices nothing.
func (a *Attempt) Renew(epoch uint64) error {
	rec, ok := a.host.Journal.Attempt(a.asg.Fence)
	if !ok {
		return nil // it ended meanwhile, and the hub knows
	}
	if rec.Authority() > epoch || rec.Authority() == epoch && a.host.Journal.PendingOf(a.asg.Fence, KindRenewed) {
		return nil
	}
	p := rec.Progress
	it, err := a.item(KindRenewed, Renewed{Epoch: epoch, Permitted: p.Acked || p.Intent || p.Finished})
	if err != nil {
		return err
	}
	if err := a.host.Journal.Update(a.asg.Fence, journal.Durable, func(p *journal.Progress) { p.Epoch = max(p.Epoch, epoch) }, it); err != nil {
		return fmt.Errorf("renew attempt %s for epoch %d: %w", a.asg.Fence, epoch, err)
	}
	a.log.Info("renewed in a later epoch of the cluster", "epoch", epoch)
	return nil
}

// permitSoon asks for a permit, again while the hub cannot decide yet.
func (a *Attempt) permitSoon(ctx context.Context, p journal.Push) error {
	for wait := minPermitWait; ; wait = min(2*wait, 2*time.Second) {
		err := a.host.Hub.Permit(ctx, a.asg.Job, a.asg.Fence, p)
		if !errors.Is(err, fleet.Unavailable) || !pause(ctx, wait) {
			return err
		}
	}
}
