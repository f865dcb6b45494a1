package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// The time between two requests for the permit to push: the verdict may be a matter
// of milliseconds or of a person, who has a week.
const (
	minPermitWait = 100 * time.Millisecond
	maxPermitWait = 5 * time.Minute
	permitPeriod  = 7 * 24 * time.Hour
)

// upload brings the files of the evidence to the hub once it knows the result: it
// takes only blobs that a result names.
func (a *Attempt) upload(ctx context.Context) error {
	d, err := a.loadDelivery()
	if err != nil {
		a.log.Error("files of the result can't be sent", "err", err)
	}
	if len(d.Blobs) == 0 {
		a.delivered = err == nil
		return nil
	}
	if !a.resultKnown(ctx) {
		return nil
	}
	a.tell("uploading the result")
	all := err == nil
	for _, b := range d.Blobs {
		err := a.host.Hub.Store(ctx, b.Digest, b.Path)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			all = false
			a.log.Warn("hub did not take a file of the result", "digest", string(b.Digest), "err", err)
		} else if b.Digest == d.Bundle {
			a.published()
		}
	}
	a.delivered = all
	return nil
}

// published notes that the hub has the job's commits: they are not on this machine alone.
func (a *Attempt) published() {
	store, err := a.host.Trees()
	if err == nil {
		err = store.Delivered(a.asg.Job, a.asg.Fence)
	}
	if err != nil {
		a.log.Warn("the job's commits count as being here alone", "err", err)
	}
}

// resultKnown waits until the hub has the result; false is the end of ctx.
func (a *Attempt) resultKnown(ctx context.Context) bool {
	for a.host.Journal.PendingOf(a.asg.Fence, KindFinished) {
		select {
		case <-a.settle:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// untilForgotten does what is still owed after the result, then keeps the records
// until the hub needs nothing more.
func (a *Attempt) untilForgotten(ctx context.Context) error {
	a.enter(Ended, "finished", "")
	if err := a.push(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if !a.settled(ctx) {
		return nil
	}
	_ = os.Remove(a.hiddenFile()) // nothing is masked any more
	a.enter(Settled, "finished", "")
	select {
	case <-a.forget:
	case <-ctx.Done():
		return nil
	}
	a.freeScratch()
	a.erase()
	return a.drop(ctx)
}

// push pushes where that was asked for, as soon as the hub grants it: it does so for
// the attempt that holds the authority, once its result is accepted.
func (a *Attempt) push(ctx context.Context) error {
	rec, ok := a.host.Journal.Attempt(a.asg.Fence)
	if !ok || rec.Progress.Push == nil {
		return nil
	}
	if !a.resultKnown(ctx) {
		return nil
	}
	p, forget, begun := *rec.Progress.Push, a.forget, time.Now()
	for wait := minPermitWait; ; wait = min(2*wait, maxPermitWait) {
		err := a.host.Hub.Permit(ctx, a.asg.Job, a.asg.Fence, p)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			return a.pushPermitted(ctx, p)
		case finalRefusal(err) || time.Since(begun) > permitPeriod:
			a.log.Info("push refused", "err", err)
			return a.pushed(ctx, p, "refused: "+fleet.CutText(err.Error(), fleet.MaxDetail))
		}
		a.tell("waiting for the permit to push")
		select {
		case <-time.After(wait):
		case <-forget: // the verdict has fallen
			forget, wait = nil, minPermitWait
		case <-ctx.Done():
			return nil
		}
	}
}

// finalRefusal says whether asking again for a permit is of no use. That there is no
// verdict yet may change.
func finalRefusal(err error) bool {
	for _, c := range []fleet.Code{fleet.Conflict, fleet.TooLarge, fleet.StaleFence, fleet.NotCurrent, fleet.CancelRequested, fleet.Forbidden, fleet.NotFound,
		fleet.BadRequest, fleet.Superseded, fleet.OwnerPolicy} {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

func (a *Attempt) pushPermitted(ctx context.Context, p journal.Push) error {
	if a.host.Policy().Push == "never" {
		return a.pushed(ctx, p, "the owner of this runner lets nothing be pushed from it")
	}
	a.tell("pushing " + p.Ref)
	var t *worktree.Tree
	store, err := a.host.Trees()
	if err == nil {
		t, err = store.Reopen(ctx, a.asg.Job)
	}
	if err == nil {
		err = t.Push(ctx, worktree.PushRequest{Remote: p.Remote, Branch: p.Ref, SHA: p.SHA, Env: a.remoteEnv(), Progress: a.tell})
	}
	if ctx.Err() != nil {
		return nil // a push may be repeated: it succeeds where the branch is there already
	}
	if err != nil {
		a.log.Warn("push failed", "err", err)
		return a.pushed(ctx, p, fleet.CutText(err.Error(), fleet.MaxDetail))
	}
	return a.pushed(ctx, p, "pushed")
}

func (a *Attempt) pushed(ctx context.Context, p journal.Push, result string) error {
	body := Pushed{Ref: p.Ref, SHA: p.SHA, Result: result}
	if err := a.put(ctx, journal.Durable, KindPushed, body, func(g *journal.Progress) { g.Push = nil }); err != nil {
		return fmt.Errorf("report push: %w", err)
	}
	return nil
}

// remoteEnv lets the runner's own git ask the owner's store for a password, to fetch and to push.
func (a *Attempt) remoteEnv() []string {
	if a.host.CredentialFile == "" {
		return nil
	}
	if _, err := os.Stat(a.host.CredentialFile); err != nil {
		return nil
	}
	return []string{
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=credential.helper", "GIT_CONFIG_VALUE_0=" + helperCommand(a.host.Self),
		credentialFileVar + "=" + a.host.CredentialFile,
	}
}
