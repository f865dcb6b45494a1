package cluster

import (
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// obey acts on a desired set.
func (l *life) obey(set wire.HeartbeatReply) error {
	b := l.book
	switch {
	case set.Epoch < b.Epoch || set.Epoch == b.Epoch && (set.Term < b.Term || set.Term == b.Term && set.Index < b.Index):
		return nil // older than one that was obeyed
	}
	changed := set.Epoch != b.Epoch || set.Term != b.Term || set.Limits != nil
	if set.Limits != nil {
		b.Limits = set.Limits
	}
	b.Epoch, b.Term, b.Index = set.Epoch, set.Term, set.Index
	for _, d := range set.Desired {
		r := b.find(d.Fence)
		switch d.Intent {
		case wire.IntentRun:
			did, err := l.wanted(d, r)
			if err != nil {
				return err
			}
			changed = did || changed
		case wire.IntentStop:
			if d.Order == nil {
				break
			}
			if _, err := l.s.verify(d, b.Epoch); err != nil {
				return fmt.Errorf("an order to stop: %w", err)
			}
			changed = l.stop(d, r) || changed
		case wire.IntentForget:
			if r != nil && (r.Progress.Ended || r.Progress.Finished) && !b.owes(d.Fence) {
				l.drop(d.Fence)
				changed = true
			}
		}
	}
	if changed && !l.m.sync(l.ctx, b) {
		return l.ctx.Err()
	}
	return nil
}

// wanted acts on a line that says run.
func (l *life) wanted(d wire.Desired, r *record) (bool, error) {
	b := l.book
	switch {
	case r != nil:
		if d.Accepted && r.Asked && !r.Progress.Acked && !r.Progress.Ended {
			l.m.w.ledger.permit(d.Job, d.Fence)
			r.Progress.Acked = true
			return true, nil
		}
		return false, nil
	case d.Accepted:
		return l.missing(d, true), nil
	case d.Order == nil:
		return false, nil
	}
	o, err := l.s.verify(d, b.Epoch)
	if err != nil {
		return false, fmt.Errorf("an assignment: %w", err)
	}
	if o.Kind != wire.OrderAssign || b.Orders[o.ID] {
		return false, nil
	}
	var as wire.Assignment
	if err := wire.Decode(d.Body, &as); err != nil {
		return false, err
	}
	b.Orders[o.ID] = true
	p := l.m.w.plans.of(d.Job, d.Fence)
	r = &record{
		Job: d.Job, Fence: d.Fence, Rerun: as.Spec.OnLost == "rerun", Automated: as.Spec.Origin.Kind == fleet.Automation,
		Docker: as.Docker, Model: as.Model,
	}
	if as.Spec.Kind == fleet.KindAgent {
		r.Harness = as.Spec.Harness
	}
	if no := l.declines(r, p); no != nil {
		b.put(wire.ReportItem{Job: d.Job, Fence: d.Fence, Declined: no})
		return true, nil
	}
	b.Attempts = append(b.Attempts, r)
	if !l.m.sync(l.ctx, b) { // the fence is journaled before anything is done
		return false, l.ctx.Err()
	}
	l.ready[d.Fence] = time.Now().Add(p.prepare)
	return false, nil
}

// declines says why a runner gives an assignment back, if it does.
func (l *life) declines(r *record, p *plan) *wire.Declined {
	b := l.book
	manual, automation := 0, 0
	for _, o := range b.Attempts {
		switch {
		case o.Progress.Ended || o.Progress.Finished:
		case o.Automated:
			automation++
		default:
			manual++
		}
	}
	free, known := l.m.disk()
	no := func(code fleet.Code, detail string) *wire.Declined {
		return &wire.Declined{Code: code, Detail: detail, RetryAfter: time.Second}
	}
	switch {
	case !r.Automated && manual >= l.m.offered():
		return no(fleet.NoSlot, "all slots are in use")
	case r.Automated && b.Limits == nil:
		return no(fleet.AutomationOff, "no hub has said how many slots automation has")
	case r.Automated && automation >= b.Limits.Automation:
		return no(fleet.NoSlot, "all slots for automation are in use")
	case r.Automated && (!known || free < b.Limits.Floors.Start):
		return no(fleet.Storage, "too little is free")
	case p.decline:
		return no(fleet.OwnerPolicy, "not now")
	}
	return nil
}

// stop acts on a line that says stop.
func (l *life) stop(d wire.Desired, r *record) bool {
	switch {
	case r == nil:
		return l.missing(d, false)
	case r.Progress.Ended || r.Progress.Finished || r.Progress.Stop != "":
		return false
	case r.Progress.Intent:
		r.Progress.Stop = d.Reason
		l.m.stop(d.Fence)
	default:
		r.Progress.Stop, r.Progress.Ended = d.Reason, true
		l.say(r, wire.ReportItem{Gone: true})
	}
	return true
}

// missing answers, once a session, for an attempt of which nothing is here.
func (l *life) missing(d wire.Desired, lost bool) bool {
	if l.answered[d.Fence] || l.book.owes(d.Fence) {
		return false
	}
	l.answered[d.Fence] = true
	if lost {
		l.book.put(wire.ReportItem{Job: d.Job, Fence: d.Fence, Lost: &wire.Lost{Detail: "there is no record of it"}})
	}
	l.book.put(wire.ReportItem{Job: d.Job, Fence: d.Fence, Gone: true})
	return true
}

func (l *life) drop(f fleet.Fence) {
	kept := l.book.Attempts[:0]
	for _, r := range l.book.Attempts {
		if r.Fence != f {
			kept = append(kept, r)
		}
	}
	l.book.Attempts = kept
	l.m.drop(f)
}

// settled takes in what the hub answered to the items of a report.
func (l *life) settled(ack wire.ReportAck) bool {
	retry, changed := false, false
	for _, a := range ack.Items {
		i := -1
		for k, it := range l.book.Outbox {
			if it.Seq == a.Seq {
				i = k
			}
		}
		switch {
		case i < 0:
		case a.Retry:
			retry = true
		default:
			it := l.book.Outbox[i]
			l.book.Outbox = append(l.book.Outbox[:i:i], l.book.Outbox[i+1:]...)
			changed = true
			l.answer(it, a)
		}
	}
	if retry {
		l.s.again()
	} else {
		l.s.patience = 0
	}
	return !changed || l.m.sync(l.ctx, l.book)
}

// answer takes in the answer to one item, which is final.
func (l *life) answer(it wire.ReportItem, a wire.ItemAck) {
	l.m.w.ledger.answered(it, a)
	r := l.book.find(it.Fence)
	if r == nil || it.Accepted == nil || r.Progress.Ended {
		return
	}
	if a.Code == "" {
		r.Progress.Acked = true
		return
	}
	r.Progress.Ended = true // the hub has given it to somebody else, or to nobody
	l.say(r, wire.ReportItem{Gone: true})
}
