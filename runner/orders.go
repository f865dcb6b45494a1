package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// busyRetry is after how long an assignment that found no free slot may come back.
const busyRetry = 10 * time.Second

// limitsRetry is the same of one for which automations have no slot here.
const limitsRetry = 30 * time.Second

// reconciles takes one desired set after the other.
func (l *link) reconciles(ctx context.Context, s *session, sets <-chan wire.HeartbeatReply) {
	for {
		select {
		case rep := <-sets:
			l.takeNews(s, rep.Keys)
			if rep.Limits != nil {
				l.r.takeLimits(*rep.Limits)
			}
			if err := l.r.reconcile(s, rep); err != nil {
				l.r.trouble(err) // what was not done is in the next set again
			}
			l.r.takeOffer(s, rep.Update)
			l.r.takeProvision(s, rep.Provision)
		case <-ctx.Done():
			return
		}
	}
}

// reconcile compares a desired set with what is here and does what the plan says.
// The error is one of the journal.
func (r *Runner) reconcile(s *session, rep wire.HeartbeatReply) error {
	counts, err := r.journal.See(journal.Desired{Epoch: rep.Epoch, Term: rep.Term, Index: rep.Index})
	if err != nil {
		return err
	}
	if !counts {
		r.log.Debug("an older desired set is passed over", "term", rep.Term, "index", rep.Index)
		return nil
	}
	var failed error
	named := make(map[fleet.Fence]bool, len(rep.Desired))
	for _, d := range rep.Desired {
		named[d.Fence] = true
		if err := r.line(s, d); err != nil {
			failed = errors.Join(failed, err) // of one attempt; the others go on
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for f, h := range r.attempts {
		h.unlisted = !named[f]
	}
	return failed
}

// line does what the plan says about one line of a desired set.
func (r *Runner) line(s *session, d wire.Desired) error {
	var w want
	switch d.Intent {
	case wire.IntentRun:
		w = wantRun
		if d.Accepted {
			w = wantAccepted
		}
	case wire.IntentStop:
		w = wantStop
	case wire.IntentForget:
		w = wantForget
	default:
		r.log.Warn("desired set has an intent that this version does not know", "intent", string(d.Intent), "fence", d.Fence.String())
		return nil
	}
	r.mu.Lock()
	here := r.attempts[d.Fence]
	r.mu.Unlock()
	if kindOf(d) == wire.OrderRenew {
		if here == nil && w == wantRun {
			return nil // it ended a moment ago
		}
		if err := r.renew(s, d, here); err != nil {
			return err
		}
	}
	switch plan[w][r.have(here, d)] {
	case doPrepare:
		return r.assign(s, d)
	case doPermit:
		here.attempt.Permit()
	case doStop:
		return r.stop(s, d, here.attempt)
	case doForget:
		here.attempt.Forget()
	case doReportLost:
		return r.missing(d, true)
	case doReportGone:
		return r.missing(d, false)
	}
	return nil
}

func (r *Runner) have(h *held, d wire.Desired) have {
	if h != nil {
		switch h.attempt.Stage() {
		case attempt.Preparing:
			return havePreparing
		case attempt.Running:
			return haveRunning
		case attempt.Stopping:
			return haveStopping
		case attempt.Ending:
			return haveEnding
		case attempt.Ended:
			return haveEnded
		default:
			return haveSettled
		}
	}
	if d.Order != nil {
		var o wire.Order
		if wire.Decode(d.Order.Order, &o) == nil && o.Kind == wire.OrderAssign && r.journal.SeenOrder(o.ID) {
			return haveForgotten
		}
	}
	return haveNone
}

// kindOf gives the kind of a line's order, which nobody has verified yet.
func kindOf(d wire.Desired) string {
	var o wire.Order
	if d.Order == nil || wire.Decode(d.Order.Order, &o) != nil {
		return ""
	}
	return o.Kind
}

// renew takes a raised epoch up for an attempt that is here, before anything else is
// done about it in that epoch.
func (r *Runner) renew(s *session, d wire.Desired, here *held) error {
	if here == nil {
		return nil
	}
	o, err := r.verify(s, d, wire.OrderRenew)
	var body wire.Renew
	if err == nil {
		err = wire.Decode(d.Body, &body)
	}
	if err == nil && body.Epoch != o.Epoch {
		err = fmt.Errorf("order %s of epoch %d is to renew for epoch %d: %w", o.ID, o.Epoch, body.Epoch, fleet.BadSignature)
	}
	if err != nil {
		r.log.Warn("renewal without a valid order is passed over", "job", string(d.Job), "fence", d.Fence.String(), "err", err)
		return nil
	}
	return here.attempt.Renew(body.Epoch)
}

// verify checks the order of a line. An expired one is no reason to decline: the hub
// sends a fresh one.
func (r *Runner) verify(s *session, d wire.Desired, kind string) (wire.Order, error) {
	if d.Order == nil {
		return wire.Order{}, fmt.Errorf("the line has no order: %w", fleet.OrderExpired)
	}
	o, err := r.open(s, *d.Order, d.Body)
	if err != nil {
		return o, err
	}
	if o.Kind != kind || o.Job != d.Job || o.Fence != d.Fence {
		return o, fmt.Errorf("order %s is to %s job %s under fence %s, the line is of another: %w", o.ID, o.Kind, o.Job, o.Fence, fleet.BadSignature)
	}
	return o, nil
}

// open checks an order and its body, whatever they are about.
func (r *Runner) open(s *session, signed wire.Signed, body []byte) (wire.Order, error) {
	o, err := wire.VerifyOrder(s.keys, signed, body, wire.Want{Cluster: r.id.Cluster, Epoch: r.journal.Desired().Epoch, Runner: r.id.Runner}, s.now())
	if errors.Is(err, fleet.SigningKeyUnknown) && r.link.chainAgain(s, signed.Key) {
		return o, errChainAgain
	}
	return o, err
}

// assign takes a new assignment on, or declines it.
func (r *Runner) assign(s *session, d wire.Desired) error {
	o, err := r.verify(s, d, wire.OrderAssign)
	if errors.Is(err, fleet.OrderExpired) || errors.Is(err, errChainAgain) {
		r.log.Warn("assignment without a valid order is left for the next desired set", "job", string(d.Job), "fence", d.Fence.String(), "err", err)
		return nil
	}
	if err != nil {
		var c fleet.Code
		if !errors.As(err, &c) {
			c = fleet.BadSignature
		}
		return r.decline(d, attempt.Declined{Code: c, Detail: err.Error()})
	}
	var as wire.Assignment
	if err := wire.Decode(d.Body, &as); err != nil || as.Fence != d.Fence || as.Job != d.Job {
		return r.decline(d, attempt.Declined{Code: fleet.BadRequest, Detail: "the assignment cannot be read"})
	}
	if no := r.admits(&as.Spec); no != nil {
		return r.decline(d, *no)
	}
	proof, err := wire.Encode(d.Order)
	if err != nil {
		return r.decline(d, attempt.Declined{Code: fleet.BadRequest, Detail: "the order cannot be kept: " + err.Error()})
	}
	a, err := r.host.Begin(assignmentOf(as), o.ID, d.Body, proof)
	if errors.Is(err, fleet.BadRequest) {
		return r.decline(d, attempt.Declined{Code: fleet.BadRequest, Detail: err.Error()})
	}
	if err != nil {
		r.trouble(err)
		return r.decline(d, attempt.Declined{Code: fleet.Storage, Detail: err.Error(), RetryAfter: time.Minute})
	}
	r.log.Info("assignment taken on", "job", string(as.Job), "fence", as.Fence.String(), "attempt", as.Attempt)
	r.start(a)
	r.link.beat(false)
	return nil
}

// admits looks whether there is room for a job, by the owner's rules and by what the hub
// itself said last; nil is yes.
func (r *Runner) admits(spec *fleet.Spec) *attempt.Declined {
	now := r.offer()
	if now.declining != "" {
		no := &attempt.Declined{Code: fleet.OwnerPolicy, Detail: now.declining, RetryAfter: time.Minute}
		if strings.HasPrefix(now.declining, "storage: ") {
			no.Code, no.RetryAfter = fleet.Storage, attempt.StorageAfter
		}
		return no
	}
	told, ever := r.limits()
	automation := told.Automation
	if now.automation != nil {
		automation = min(automation, *now.automation)
	}
	people, automations := r.busy()
	full := func(n int, whose string) *attempt.Declined {
		detail := fmt.Sprintf("all %s%s of this runner are in use", countOf(n, "slot"), whose)
		if len(now.limitedBy) > 0 {
			detail += " (" + strings.Join(now.limitedBy, "; ") + ")"
		}
		return &attempt.Declined{Code: fleet.NoSlot, Detail: detail, RetryAfter: busyRetry}
	}
	switch {
	case spec.Automated() && !ever:
		return &attempt.Declined{Code: fleet.AutomationOff, RetryAfter: limitsRetry, Detail: "the hub has not told this runner yet how many jobs of automations it may take"}
	case spec.Automated() && automation == 0:
		why := "the hub allows this runner no jobs of automations"
		if told.Automation > 0 {
			why = "no jobs of automations are taken now: " + strings.Join(now.limitedBy, "; ")
		}
		return &attempt.Declined{Code: fleet.AutomationOff, RetryAfter: limitsRetry, Detail: why}
	case spec.Automated() && automations >= automation:
		return full(automation, " for automations")
	case !spec.Automated() && people >= now.base:
		return full(now.base, "")
	case people+automations >= now.base+automation:
		return full(now.base+automation, "")
	}
	return nil
}

// decline gives back what was not even begun. One that is in the outbox is not said
// twice.
func (r *Runner) decline(d wire.Desired, body attempt.Declined) error {
	if r.journal.PendingOf(d.Fence) {
		return nil
	}
	r.log.Info("assignment declined", "job", string(d.Job), "fence", d.Fence.String(), "code", string(body.Code), "detail", body.Detail)
	body.Detail = fleet.CutText(body.Detail, fleet.MaxDetail)
	return r.put(d, attempt.KindDeclined, body)
}

// stop obeys a stop order.
func (r *Runner) stop(s *session, d wire.Desired, a *attempt.Attempt) error {
	o, err := r.verify(s, d, wire.OrderStop)
	if err != nil {
		r.log.Warn("stop without a valid order is passed over", "job", string(d.Job), "fence", d.Fence.String(), "err", err)
		return nil
	}
	if err := r.journal.RecordOrder(o.ID); err != nil {
		return err
	}
	var body wire.Stop
	if err := wire.Decode(d.Body, &body); err != nil {
		r.log.Warn("stop order cannot be read", "fence", d.Fence.String(), "err", err)
		return nil
	}
	r.log.Info("told to stop", "job", string(d.Job), "fence", d.Fence.String(), "reason", body.Reason)
	a.Stop(body.Reason)
	return nil
}

// missing answers for an attempt of which nothing is here, once a session. A process
// of it may be here all the same, where the journal was set back: it is ended first.
func (r *Runner) missing(d wire.Desired, lost bool) error {
	if _, ok := r.journal.Attempt(d.Fence); ok || r.journal.PendingOf(d.Fence) {
		return nil
	}
	r.mu.Lock()
	said := r.answered[d.Fence]
	r.mu.Unlock()
	if said {
		return nil
	}
	n, err := r.host.Clear(d.Fence)
	if err != nil { // nothing is said before it is proven; the next set asks again
		r.log.Error("processes of an attempt without a record could not be ended", "job", string(d.Job), "fence", d.Fence.String(), "err", err)
		return nil
	}
	r.log.Warn("nothing of an attempt is here", "job", string(d.Job), "fence", d.Fence.String(), "accepted", lost, "ended", n)
	detail := "the runner has no record and no process of the attempt"
	if n > 0 {
		detail = fmt.Sprintf("the runner has no record of the attempt; %d of its processes were found and ended", n)
	}
	if lost {
		if err := r.put(d, attempt.KindLost, attempt.Lost{Detail: detail}); err != nil {
			return err
		}
	}
	if err := r.put(d, attempt.KindGone, nil); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answered) > 10000 {
		clear(r.answered)
	}
	r.answered[d.Fence] = true
	return nil
}

func assignmentOf(as wire.Assignment) attempt.Assignment {
	out := attempt.Assignment{
		Job: as.Job, Turn: as.Turn, Attempt: as.Attempt, Fence: as.Fence, Spec: as.Spec, Prompt: as.Prompt, PromptText: as.PromptText,
		Model: as.Model, Fresh: as.Fresh, Branch: as.Branch, CreatedAt: as.CreatedAt,
		Again: as.Again, Docker: as.Docker, Reserve: as.Reserve,
	}
	if res := as.Resume; res != nil {
		out.Resume = &attempt.Resume{SessionID: res.SessionID, BaseCommit: res.BaseCommit, Bundle: res.Bundle, Tip: res.Tip, Usage: res.Usage}
	}
	return out
}
