package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	maxBatch      = 128       // items of one report
	maxBatchBytes = 512 << 10 // of their bodies
	lookAhead     = 1024      // items of the outbox that are looked at
	minRetry      = 200 * time.Millisecond
	maxRetry      = 10 * time.Second
)

// outbox is what one session has sent of the journal's outbox. Items of one attempt
// go one report at a time, so that none overtakes another; different attempts do not
// wait for each other.
type outbox struct {
	sent  map[uint64]fleet.Fence // unacknowledged, by number
	busy  map[fleet.Fence]int    // of these, how many of an attempt
	retry map[fleet.Fence]retry  // attempts whose item must be repeated
	open  int                    // reports without their acknowledgement
}

type retry struct {
	at   time.Time
	wait time.Duration
}

// settled is one acknowledgement, on its way from the reader to the reporter.
type settled struct {
	seq   uint64
	retry bool
}

// reports sends the outbox of the journal, in order, until the session ends.
func (l *link) reports(ctx context.Context, s *session) {
	o := &outbox{sent: map[uint64]fleet.Fence{}, busy: map[fleet.Fence]int{}, retry: map[fleet.Fence]retry{}}
	acks := make(chan []settled, wire.ReportInFlight)
	l.r.mu.Lock()
	l.r.acks = acks
	l.r.mu.Unlock()
	moved := time.Now() // when a report was last acknowledged, or sent while none was open
	for {
		for o.open < wire.ReportInFlight {
			items := o.pick(l.r.journal.Pending(0, lookAhead), l.weight, time.Now())
			if len(items) == 0 {
				break
			}
			rep, bad := l.wording(items)
			if len(bad) > 0 { // what can't be said waits, and with it what follows of its attempt
				o.settle(bad, time.Now())
			}
			if len(rep.Items) == 0 {
				continue
			}
			if err := sendReport(s, rep); err != nil {
				s.end(err)
				return
			}
			if o.open++; o.open == 1 {
				moved = time.Now()
			}
		}
		timer := time.NewTimer(o.until(time.Now()))
		select {
		case <-l.r.journal.Changed():
		case list := <-acks:
			o.open--
			moved = time.Now()
			o.settle(list, moved)
		case <-timer.C:
			if o.open > 0 && time.Since(moved) >= ackTime {
				s.end(fmt.Errorf("the hub does not acknowledge reports: %w", context.DeadlineExceeded))
				return
			}
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// pick gives the next report's items and takes them for sent. weight gives the bytes
// of one.
func (o *outbox) pick(pending []journal.Item, weight func(journal.Item) int, now time.Time) []journal.Item {
	var out []journal.Item
	bytes := 0
	held := map[fleet.Fence]bool{}
	for _, it := range pending {
		if _, sent := o.sent[it.Seq]; sent || held[it.Fence] || o.busy[it.Fence] > 0 || o.retry[it.Fence].at.After(now) {
			held[it.Fence] = true
			continue
		}
		n := weight(it)
		if len(out) > 0 && (len(out) >= maxBatch || bytes+n > maxBatchBytes) {
			break
		}
		bytes += n
		out = append(out, it)
	}
	for _, it := range out {
		o.sent[it.Seq] = it.Fence
		o.busy[it.Fence]++
	}
	return out
}

func (o *outbox) settle(list []settled, now time.Time) {
	again := map[fleet.Fence]bool{}
	for _, k := range list {
		f, ok := o.sent[k.seq]
		if !ok {
			continue
		}
		delete(o.sent, k.seq)
		if o.busy[f]--; o.busy[f] <= 0 {
			delete(o.busy, f)
		}
		again[f] = again[f] || k.retry
	}
	for f, retried := range again {
		if !retried {
			delete(o.retry, f)
			continue
		}
		w := min(max(2*o.retry[f].wait, minRetry), maxRetry)
		o.retry[f] = retry{at: now.Add(jitter(w)), wait: w}
	}
}

// until gives the time to the next repetition.
func (o *outbox) until(now time.Time) time.Duration {
	d := ackTime
	for _, r := range o.retry {
		if r.at.After(now) {
			d = min(d, r.at.Sub(now))
		}
	}
	return d
}

// wording gives the report of items. One that can't be put into words keeps back what
// follows of its attempt, and nothing else.
func (l *link) wording(items []journal.Item) (rep wire.Report, bad []settled) {
	held := map[fleet.Fence]bool{}
	for _, it := range items {
		if !held[it.Fence] {
			w, err := l.reportItem(it)
			if err == nil {
				rep.Items = append(rep.Items, w)
				continue
			}
			held[it.Fence] = true
			l.r.log.Error("report can't be sent", "job", string(it.Job), "fence", it.Fence.String(), "kind", it.Kind, "err", err)
			l.r.alert("outbox", fmt.Sprintf("a report about attempt %s of job %s can't be sent: %v", it.Fence, it.Job, err))
		}
		bad = append(bad, settled{it.Seq, true})
	}
	return rep, bad
}

func sendReport(s *session, rep wire.Report) error {
	body, err := wire.Encode(rep)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return s.send(wire.TypeReport, body)
}

// reportItem puts an item of the outbox into the words of the protocol. Signing the
// same result again gives the same bytes.
func (l *link) reportItem(it journal.Item) (wire.ReportItem, error) {
	w := wire.ReportItem{Seq: it.Seq, Job: it.Job, Fence: it.Fence}
	var into any
	switch it.Kind {
	case attempt.KindAccepted:
		w.Accepted = new(wire.Accepted)
		into = w.Accepted
	case attempt.KindDeclined:
		w.Declined = new(wire.Declined)
		into = w.Declined
	case attempt.KindFacts:
		into = &w.Facts
	case attempt.KindLost:
		w.Lost = new(wire.Lost)
		into = w.Lost
	case attempt.KindSealed:
		w.Sealed = new(wire.Sealed)
		into = w.Sealed
	case attempt.KindPushed:
		w.Pushed = new(wire.Pushed)
		into = w.Pushed
	case attempt.KindRenewed:
		w.Renewed = new(wire.Renewed)
		into = w.Renewed
	case attempt.KindGone:
		w.Gone = true
		return w, nil
	case attempt.KindFinished:
		var f attempt.Finished
		err := json.Unmarshal(it.Body, &f)
		if err != nil {
			return w, fmt.Errorf("read the result of %s in the outbox: %w", it.Fence, err)
		}
		w.Finished = &wire.Finished{
			Exit: f.Exit, Class: f.Class, Detail: f.Detail, ResetAt: f.ResetAt, SessionID: f.SessionID, Model: f.Model, Usage: f.Usage,
			StartedAt: f.StartedAt, FinishedAt: f.FinishedAt, Output: f.Output, Text: f.Text, Events: f.Events, Dropped: f.Dropped, Evidence: f.Evidence,
			RetryAfter: f.RetryAfter, StatedEnd: f.StatedEnd, Acted: f.Acted, Account: f.Account, Footprint: f.Footprint,
		}
		if w.Origin, err = l.origin(it.Fence); err != nil {
			return w, err
		}
		return w, wire.SignFinished(l.id.signKey(), it.Job, it.Fence, w.Finished)
	default:
		return w, fmt.Errorf("item %d of the outbox is of kind %q, which this program does not know; run the newer program", it.Seq, it.Kind)
	}
	if err := json.Unmarshal(it.Body, into); err != nil {
		return w, fmt.Errorf("read %s of %s in the outbox: %w", it.Kind, it.Fence, err)
	}
	return w, nil
}

// origin gives the order by which an attempt began, where the cluster's epoch was
// raised since and nothing of the attempt was said in it: the hub may have no record.
func (l *link) origin(f fleet.Fence) (*wire.Origin, error) {
	rec, ok := l.r.journal.Attempt(f)
	if !ok || rec.Authority() >= l.r.journal.Desired().Epoch || len(rec.Proof) == 0 {
		return nil, nil
	}
	from := &wire.Origin{Body: rec.Assignment}
	if err := wire.Decode(rec.Proof, &from.Order); err != nil {
		return nil, fmt.Errorf("read the order of %s in the journal: %w", f, err)
	}
	return from, nil
}

// weight is how many bytes of a report an item takes.
func (l *link) weight(it journal.Item) int {
	n := len(it.Body)
	if rec, ok := l.r.journal.Attempt(it.Fence); ok && it.Kind == attempt.KindFinished && rec.Authority() < l.r.journal.Desired().Epoch {
		n += (len(rec.Assignment) + len(rec.Proof)) * 4 / 3
	}
	return n
}

// settle takes the hub's answer to one report: what is settled leaves the outbox, an
// accept becomes the permit to start, a refused one ends its attempt.
func (l *link) settle(_ *session, ack wire.ReportAck) error {
	r := l.r
	pending := map[uint64]journal.Item{}
	for _, it := range r.journal.Pending(0, lookAhead) {
		pending[it.Seq] = it
	}
	var done []uint64
	list := make([]settled, len(ack.Items))
	for i, k := range ack.Items {
		list[i] = settled{k.Seq, k.Retry}
		if !k.Retry {
			done = append(done, k.Seq)
		}
	}
	if err := r.journal.Ack(done...); err != nil {
		// They stay in the outbox and are said again; the hub knows them by their numbers.
		r.trouble(err)
		return err
	}
	for _, k := range ack.Items {
		it, ok := pending[k.Seq]
		if !ok {
			continue
		}
		r.mu.Lock()
		h := r.attempts[it.Fence]
		r.mu.Unlock()
		if k.Retry {
			if h != nil && it.Kind == attempt.KindSealed && k.Code == fleet.SpoolGap {
				h.attempt.Gap()
			}
			continue
		}
		if k.Code != "" {
			r.log.Info("hub refused a report", "job", string(it.Job), "fence", it.Fence.String(), "kind", it.Kind, "code", string(k.Code), "detail", k.Detail)
		}
		if h == nil {
			continue
		}
		if it.Kind == attempt.KindAccepted {
			if k.Code == "" {
				h.attempt.Permit()
			} else {
				h.attempt.Stop("the hub refused the accept: " + string(k.Code))
			}
		}
		h.attempt.Acked()
	}
	r.mu.Lock()
	acks := r.acks
	r.mu.Unlock()
	if acks != nil {
		select {
		case acks <- list:
		default: // one report was answered more than once
		}
	}
	return nil
}
