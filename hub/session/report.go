package session

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	maxItems    = 512 // items of one report
	maxParallel = 8   // attempts of one report that are settled side by side
	maxDetail   = 4 << 10
	maxRef      = 512       // bytes of the name of a ref
	maxEvidence = 128 << 10 // bytes of evidence as JSON; half of what an entry may have
)

// report settles the items of a report and gives the body of its acknowledgement.
// Items of one attempt go in order, different attempts side by side, so that they
// share commits.
func (x *session) report(ctx context.Context, body []byte) ([]byte, error) {
	var rep wire.Report
	if err := wire.Decode(body, &rep); err != nil {
		return nil, fmt.Errorf("decode report: %w", err)
	}
	if len(rep.Items) > maxItems {
		return nil, fmt.Errorf("report of %d items, at most %d: %w", len(rep.Items), maxItems, fleet.TooLarge)
	}
	acks := make([]wire.ItemAck, len(rep.Items))
	rows := map[fleet.Fence][]int{}
	var order []fleet.Fence
	for i, it := range rep.Items {
		if rows[it.Fence] == nil {
			order = append(order, it.Fence)
		}
		rows[it.Fence] = append(rows[it.Fence], i)
	}
	settle := func(row []int) {
		for n, i := range row {
			acks[i] = x.settle(ctx, &rep.Items[i])
			if !acks[i].Retry {
				continue
			}
			// What comes after it about the same attempt must not overtake it.
			for _, later := range row[n+1:] {
				acks[later] = wire.ItemAck{Seq: rep.Items[later].Seq, Code: acks[i].Code, Retry: true, Detail: "an earlier item of the attempt must be repeated first"}
			}
			return
		}
	}
	var wg sync.WaitGroup
	room := make(chan struct{}, maxParallel)
	for n, f := range order {
		if n == len(order)-1 { // the last one, often the only one, needs no goroutine
			settle(rows[f])
			break
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			settle(rows[f])
		})
	}
	wg.Wait()
	return wire.Encode(wire.ReportAck{Items: acks})
}

// settle commits one item. A refusal is final; only what may go otherwise next time
// is to be repeated.
func (x *session) settle(ctx context.Context, it *wire.ReportItem) wire.ItemAck {
	ack := wire.ItemAck{Seq: it.Seq}
	err := x.commit(ctx, it)
	if err == nil {
		return ack
	}
	ack.Code, ack.Detail, ack.Retry = codeOf(err), sentence(err), transient(err)
	if it.Renewed != nil && ack.Code == fleet.StaleEpoch {
		ack.Retry = false // the next set has an order for the present one
	}
	if ack.Retry {
		x.srv.cfg.Logger.Warn("report item to be repeated", "runner", x.runner, "job", it.Job, "fence", it.Fence.String(), "err", err)
	}
	return ack
}

// commit turns an item into its command and waits for it to be committed.
func (x *session) commit(ctx context.Context, it *wire.ReportItem) error {
	s := x.srv
	if !s.cfg.Leading() {
		return fmt.Errorf("this hub does not lead: %w", fleet.Unavailable)
	}
	v := s.cfg.Proposer.View()
	if err := s.current(v); err != nil {
		return err
	}
	j, t, a, err := x.own(v, it.Job, it.Fence)
	if err != nil && !x.unrecorded(v, it.Job, it.Fence) {
		return err
	}
	set := 0
	for _, b := range []bool{it.Accepted != nil, it.Declined != nil, len(it.Facts) > 0, it.Finished != nil, it.Lost != nil, it.Gone, it.Sealed != nil, it.Evidence != nil, it.Pushed != nil, it.Renewed != nil} {
		if b {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("report item %d says %d things instead of one: %w", it.Seq, set, fleet.BadRequest)
	}
	if err != nil {
		return x.orphan(ctx, v, it, err)
	}
	switch {
	case it.Accepted != nil:
		return s.propose(ctx, &state.AcceptAttempt{Job: it.Job, Fence: it.Fence, Permissions: it.Accepted.Permissions, BaseCommit: it.Accepted.BaseCommit, Notes: it.Accepted.Notes})
	case it.Declined != nil:
		d := it.Declined
		err := s.propose(ctx, &state.DeclineAttempt{Job: it.Job, Fence: it.Fence, Code: d.Code, Detail: d.Detail, RetryAfter: d.RetryAfter, Block: d.Block})
		s.cfg.OnFree()
		return err
	case len(it.Facts) > 0:
		return s.propose(ctx, x.facts(a, it))
	case it.Finished != nil:
		return x.finish(ctx, v, j, t, a, it)
	case it.Lost != nil && a.State == fleet.AttemptFinished && !a.Log.Sealed:
		return x.cut(ctx, a, it)
	case it.Lost != nil:
		return s.propose(ctx, &state.LoseAttempt{Job: it.Job, Fence: it.Fence, Detail: it.Lost.Detail})
	case it.Gone:
		err := s.propose(ctx, &state.AttemptGone{Job: it.Job, Fence: it.Fence})
		s.cfg.OnFree()
		return err
	case it.Sealed != nil:
		return x.seal(ctx, a, it)
	case it.Renewed != nil:
		return s.propose(ctx, &state.RenewAttempt{Job: it.Job, Fence: it.Fence, Epoch: it.Renewed.Epoch, Accepted: it.Renewed.Permitted})
	case it.Evidence != nil:
		if err := checkSizes(&it.Evidence.Evidence); err != nil {
			return err
		}
		return s.propose(ctx, &state.UpdateEvidence{Job: it.Job, Fence: it.Fence, Evidence: recordable(&it.Evidence.Evidence)})
	default:
		p := it.Pushed
		if len(p.Ref) > maxRef || len(p.SHA) > maxRef {
			return fmt.Errorf("a push of a ref of %d bytes, at most %d: %w", len(p.Ref), maxRef, fleet.TooLarge)
		}
		return s.propose(ctx, &state.RecordPush{Job: it.Job, Fence: it.Fence, Ref: p.Ref, SHA: p.SHA, Result: fleet.CutText(p.Result, maxDetail)})
	}
}

// own finds the attempt that an item is about and sees that it is this runner's.
func (x *session) own(v state.View, id fleet.JobID, f fleet.Fence) (*fleet.Job, *fleet.Turn, *fleet.Attempt, error) {
	j, ok := v.Job(id)
	if !ok {
		return nil, nil, nil, fmt.Errorf("there is no job %s: %w", id, fleet.NotFound)
	}
	t, a := j.Find(f)
	if a == nil || a.Runner != x.runner {
		return nil, nil, nil, fmt.Errorf("job %s has no attempt %s of this runner: %w", id, f, fleet.StaleFence)
	}
	return j, t, a, nil
}

// facts gives the command for an item's facts.
func (x *session) facts(a *fleet.Attempt, it *wire.ReportItem) *state.RecordFacts {
	c := &state.RecordFacts{Job: it.Job, Fence: it.Fence}
	for _, f := range it.Facts {
		var at time.Time
		if f.Kind == "started" && json.Unmarshal(f.Value, &at) == nil {
			if b, err := json.Marshal(x.plausible(a, at)); err == nil {
				f.Value = b
			}
		}
		c.Facts = append(c.Facts, state.Fact{Kind: f.Kind, Value: f.Value, Seq: f.Seq})
	}
	return c
}

// finish records the end of an attempt, once its signature was verified.
func (x *session) finish(ctx context.Context, v state.View, j *fleet.Job, t *fleet.Turn, a *fleet.Attempt, it *wire.ReportItem) error {
	r, ok := v.Runner(x.runner)
	if !ok {
		return fmt.Errorf("runner %s is not enrolled: %w", x.runner, fleet.RunnerUnknown)
	}
	f := it.Finished
	if err := wire.VerifyFinished(ed25519.PublicKey(r.SignKey), it.Job, it.Fence, f); err != nil {
		return err
	}
	if err := checkSizes(f.Evidence, f.Output, f.Text, f.Events, f.Dropped); err != nil {
		return err
	}
	err := x.srv.propose(ctx, &state.FinishAttempt{
		Job: it.Job, Fence: it.Fence, Exit: f.Exit, Class: f.Class, Detail: fleet.CutText(f.Detail, maxDetail), ResetAt: f.ResetAt,
		SessionID: f.SessionID, Model: f.Model, Usage: f.Usage, StartedAt: x.plausible(a, f.StartedAt), FinishedAt: x.plausible(a, f.FinishedAt),
		Output: f.Output, Text: f.Text, Events: f.Events, Dropped: f.Dropped, Evidence: recordable(f.Evidence), Verdict: x.srv.cfg.Judge(j, t, f),
		RetryAfter: min(max(f.RetryAfter, 0), fleet.QuotaFarthest), StatedEnd: fleet.CutText(f.StatedEnd, maxPath), Acted: f.Acted,
		Account: fleet.CutText(f.Account, maxPath), Footprint: min(max(f.Footprint, 0), fleet.MaxFloor),
	})
	x.srv.cfg.OnFree()
	return err
}

// checkSizes refuses what no runner of ours can say of what it has.
func checkSizes(e *fleet.Evidence, sizes ...int64) error {
	if e != nil {
		sizes = append(sizes, e.BundleSize, e.PatchSize, int64(e.CommitCount))
		for _, f := range e.Artifacts {
			sizes = append(sizes, f.Size)
		}
	}
	for _, n := range sizes {
		if n < 0 {
			return fmt.Errorf("a length or count of %d is below zero: %w", n, fleet.BadRequest)
		}
	}
	return nil
}

// plausible gives a time that a runner tells of an attempt. One that is more than a
// day before the assignment or after now is the word of a clock that nobody can go
// by: the hub's own stands in for it.
func (x *session) plausible(a *fleet.Attempt, t time.Time) time.Time {
	const off = 24 * time.Hour
	now := x.srv.now()
	switch {
	case t.IsZero():
		return t
	case t.After(now.Add(off)):
		return now.Round(0).UTC()
	case t.Before(a.AssignedAt.Add(-off)):
		return a.AssignedAt.UTC()
	}
	return t
}

// recordable gives evidence as it may be recorded: without what only the hub may say
// of it, and cut to what an entry of the log holds. An end must never be refused for
// its length: nobody could settle the job then.
func recordable(from *fleet.Evidence) *fleet.Evidence {
	if from == nil {
		return nil
	}
	e := *from
	e.BundleChecked, e.BundleError = false, ""
	cut := false
	for {
		b, err := json.Marshal(e)
		if err != nil || len(b) <= maxEvidence {
			break
		}
		cut = true
		e.Commits, e.Artifacts, e.Notes = e.Commits[:len(e.Commits)/2], e.Artifacts[:len(e.Artifacts)/2], e.Notes[:len(e.Notes)/2]
		if len(e.Commits)+len(e.Artifacts)+len(e.Notes) == 0 {
			e.Closure = fleet.CutText(e.Closure, maxDetail)
			break
		}
	}
	if cut {
		e.Notes = append(slices.Clone(e.Notes), "the lists of this evidence were cut: they were longer than a record may be")
	}
	return &e
}

// seal closes both streams at their promised lengths, then records it. Where bytes
// are missing, the runner is told from where to send again.
func (x *session) seal(ctx context.Context, a *fleet.Attempt, it *wire.ReportItem) error {
	if a.State == fleet.AttemptAssigned || a.State == fleet.AttemptRunning {
		return fmt.Errorf("attempt %s of job %s is %s; a log is sealed after its end is recorded: %w", it.Fence, it.Job, a.State, fleet.Conflict)
	}
	if err := x.sealStreams(ctx, it); err != nil {
		return err
	}
	return x.srv.propose(ctx, &state.SealLog{Job: it.Job, Fence: it.Fence, Output: it.Sealed.Output, Events: it.Sealed.Events})
}

// sealStreams closes both streams of an attempt.
func (x *session) sealStreams(ctx context.Context, it *wire.ReportItem) error {
	if err := checkSizes(nil, it.Sealed.Output, it.Sealed.Events); err != nil {
		return err
	}
	var events error
	var wg sync.WaitGroup
	if it.Sealed.Events > 0 && it.Sealed.Output > 0 { // side by side, so that they share the disk's commit
		wg.Go(func() { events = x.sealStream(ctx, it, wire.StreamEvents, it.Sealed.Events) })
	} else {
		events = x.sealStream(ctx, it, wire.StreamEvents, it.Sealed.Events)
	}
	output := x.sealStream(ctx, it, wire.StreamOutput, it.Sealed.Output)
	wg.Wait()
	return cmp.Or(output, events)
}

// sealStream closes one stream. Of an empty one the record of the job says enough.
func (x *session) sealStream(ctx context.Context, it *wire.ReportItem, name wire.Stream, length int64) (err error) {
	key := streamKey(it.Job, it.Fence, name)
	if length == 0 {
		err = x.srv.cfg.Spool.SealEmpty(ctx, key)
	} else {
		err = x.srv.cfg.Spool.Seal(ctx, key, length, "")
	}
	var gap *spool.GapError
	if errors.As(err, &gap) {
		if b, encErr := wire.Encode(wire.OutputAck{Job: it.Job, Fence: it.Fence, Stream: name, Durable: gap.Want, Code: fleet.SpoolGap, Detail: sentence(err), Retry: true}); encErr == nil {
			x.out.send(wire.TypeOutputAck, b)
		}
	}
	if err != nil {
		return fmt.Errorf("seal %s of job %s: %w", name, it.Job, err)
	}
	return nil
}

// permit asks the log for leave to push and gives the body of the answer.
func (x *session) permit(ctx context.Context, body []byte) ([]byte, error) {
	var p wire.Permit
	if err := wire.Decode(body, &p); err != nil {
		return nil, fmt.Errorf("decode permit: %w", err)
	}
	rep := wire.PermitReply{ID: p.ID}
	if err := x.grant(ctx, p); err != nil {
		rep.Code, rep.Detail = codeOf(err), sentence(err)
	} else {
		rep.Granted = true
	}
	return wire.Encode(rep)
}

func (x *session) grant(ctx context.Context, p wire.Permit) error {
	if !x.srv.cfg.Leading() {
		return fmt.Errorf("this hub does not lead: %w", fleet.Unavailable)
	}
	v := x.srv.cfg.Proposer.View()
	if err := x.srv.current(v); err != nil {
		return err
	}
	j, t, a, err := x.own(v, p.Job, p.Fence)
	if err != nil {
		if x.unrecorded(v, p.Job, p.Fence) {
			return x.noPermit(v, p.Job, p.Fence)
		}
		return err
	}
	c := &state.GrantPush{Job: p.Job, Fence: p.Fence, Remote: p.Remote, Ref: p.Ref, SHA: p.SHA}
	// A refusal that is plain to see takes no room in the log.
	if no := c.Refused(v.Meta().Epoch, j, t, a); no.Code != "" {
		return no.Err()
	}
	return x.srv.propose(ctx, c)
}

// live passes partial events on to those who watch, if the attempt is the current one.
func (x *session) live(body []byte) error {
	var l wire.Live
	if err := wire.Decode(body, &l); err != nil {
		return fmt.Errorf("decode live events: %w", err)
	}
	j, _, a, err := x.own(x.srv.cfg.Proposer.View(), l.Job, l.Fence)
	if err == nil && j.Current() == a {
		x.srv.cfg.OnLive(l.Job, l.Events)
	}
	return nil
}

// final are the codes that will not change when the same thing is said again.
var final = []fleet.Code{
	fleet.BadRequest, fleet.Forbidden, fleet.NotFound, fleet.Conflict, fleet.TooLarge, fleet.RunnerUnknown,
	fleet.BadSignature, fleet.StaleFence, fleet.NotCurrent, fleet.CancelRequested, fleet.AlreadyFinished,
	fleet.SpoolMismatch, fleet.LogSealed, fleet.BlobDigest, fleet.Superseded,
}

// transient says whether an error may go away by itself. What is not known to be
// final is repeated: repeating is harmless, dropping is not.
func transient(err error) bool { return !slices.Contains(final, codeOf(err)) }

// sentence gives an error's text without the codes that it ends with: they are sent
// beside it.
func sentence(err error) string {
	text := err.Error()
	for code := codeOf(err); strings.HasSuffix(text, ": "+string(code)); {
		text = strings.TrimSuffix(text, ": "+string(code))
	}
	return text
}

// codeOf gives the code that an error carries. One without any has an outcome that
// is not known.
func codeOf(err error) fleet.Code {
	var c fleet.Code
	switch {
	case errors.As(err, &c):
		return c
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fleet.OutcomeUnknown
	}
	return fleet.Internal
}
