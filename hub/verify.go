package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/gate"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// judge gives the verdict that may ride with the end of an attempt: where nothing
// has to be looked up first.
func judge(j *fleet.Job, _ *fleet.Turn, f *wire.Finished) *fleet.Verdict {
	if e := f.Evidence; e != nil && e.CommitCount > 0 {
		return nil // the bundle must be checked
	}
	v := gate.Judge(j.Spec, &fleet.Attempt{Exit: &f.Exit, Failure: f.Class, Detail: f.Detail, Evidence: f.Evidence, Acted: f.Acted, SessionID: f.SessionID})
	if v.Decision == fleet.Unknown {
		return nil
	}
	return &v
}

// verify completes the evidence of finished attempts and settles their jobs. A job
// whose evidence is incomplete waits for it while it may still come; then a person is
// asked, and evidence that comes later still settles it.
func (l *term) verify(ctx context.Context) {
	var due []state.Open
	l.hub.entries.View().OpenAtRest(func(o state.Open) bool {
		if o.Job.State == fleet.Verifying && o.Job.Current() == o.Attempt {
			due = append(due, o)
		}
		return true
	})
	for _, o := range due {
		l.decide(ctx, o.Job, o.Attempt)
	}
}

func (l *term) decide(ctx context.Context, j *fleet.Job, a *fleet.Attempt) {
	ev := l.hub.check(j, a)
	seen := *a
	seen.Evidence = ev
	v := gate.Judge(j.Spec, &seen)
	if v.Decision == fleet.Unknown && l.awaited(a, ev) {
		return
	}
	l.propose(ctx, &state.DecideJob{Job: j.ID, Fence: a.Fence, Verdict: v, Evidence: ev})
}

// awaited says whether what an attempt's evidence lacks may still come: for fifteen
// minutes since its runner was heard, and where that has sent all it had, for fifteen
// minutes since the end however often it is heard. A bundle that is here and says
// something else gets no better.
func (l *term) awaited(a *fleet.Attempt, ev *fleet.Evidence) bool {
	if ev != nil && ev.BundleError != "" {
		return false
	}
	last := l.since
	if !a.Log.Sealed || l.hub.entries.View().Meta().Time.Sub(a.PhaseAt) < fleet.EvidenceWait {
		p, _ := l.hub.sessions.PresenceOf(a.Runner)
		last = later(last, p.LastBeat)
	}
	return time.Since(last) < fleet.EvidenceWait
}

// late settles jobs that a person was asked about because a bundle had not come,
// where it has come since. No entry of the log tells that a blob arrived.
func (l *term) late(ctx context.Context) {
	var waiting []*fleet.Job
	l.hub.entries.View().JobsOldest(func(j *fleet.Job) bool {
		if j.State == fleet.NeedsReview {
			waiting = append(waiting, j)
		}
		return true
	})
	for _, j := range waiting {
		l.hub.rejudge(ctx, j)
	}
}

// rejudge settles a job that a person was asked about because evidence was
// missing, now that some came.
func (h *Hub) rejudge(ctx context.Context, j *fleet.Job) {
	a := j.Current()
	if j.State != fleet.NeedsReview || a == nil || a.Evidence == nil || a.Evidence.BundleChecked || a.Evidence.Bundle == "" {
		return
	}
	ev := h.check(j, a)
	if !ev.BundleChecked {
		return
	}
	seen := *a
	seen.Evidence = ev
	if v := gate.Judge(j.Spec, &seen); v.Decision == fleet.Accept || v.Decision == fleet.Reject {
		if _, err := h.entries.Propose(ctx, &state.DecideJob{Job: j.ID, Fence: a.Fence, Verdict: v, Evidence: ev}); err != nil {
			h.log.Warn("late verdict failed", "job", j.ID, "err", err)
		}
	}
}

// check looks at the stored bundle without git: its digest, that its only
// prerequisite is the base, and that it brings the promised tip.
func (h *Hub) check(j *fleet.Job, a *fleet.Attempt) *fleet.Evidence {
	if a.Evidence == nil {
		return nil
	}
	e := *a.Evidence
	e.Before = before(j, a)
	if e.CommitCount == 0 || e.BundleChecked {
		return &e
	}
	err := h.checkBundle(&e, a.BaseCommit)
	switch {
	case err == nil:
		e.BundleChecked, e.BundleError = true, ""
	case errors.Is(err, fleet.BlobMissing):
		e.BundleError = ""
	default:
		e.BundleError = err.Error()
	}
	return &e
}

// before is the tip that the turns before an attempt's had come to.
func before(j *fleet.Job, a *fleet.Attempt) string {
	tu, _ := j.Find(a.Fence)
	for i := len(j.Turns) - 1; i >= 0; i-- {
		if tu == nil || j.Turns[i].N >= tu.N {
			continue
		}
		for _, was := range slices.Backward(j.Turns[i].Attempts) {
			if was.Evidence != nil && was.Evidence.Tip != "" {
				return was.Evidence.Tip
			}
		}
	}
	return ""
}

func (h *Hub) checkBundle(e *fleet.Evidence, base string) error {
	if base != "" && e.Base != base {
		return fmt.Errorf("the evidence is for base %s, the attempt was accepted on %s", e.Base, base)
	}
	r, _, err := h.blobs.Open(e.Bundle)
	if errors.Is(err, fleet.BlobMissing) {
		h.fetchFile(e.Bundle)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	head, err := blob.ReadBundleHeader(r)
	if err != nil {
		return fmt.Errorf("the bundle of the commits cannot be read: %w", err)
	}
	for _, p := range head.Prerequisites {
		if p != e.Base {
			return fmt.Errorf("the bundle builds on %s, not on the base %s", p, e.Base)
		}
	}
	if e.Base != "" && len(head.Prerequisites) == 0 {
		return fmt.Errorf("the bundle does not build on the base %s", e.Base)
	}
	for _, tip := range head.Refs {
		if tip == e.Tip {
			return nil
		}
	}
	return fmt.Errorf("the bundle does not bring the tip %s", e.Tip)
}
