package session

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// After the cluster's epoch was raised, records may be missing that runners still
// have. Attempts on record are renewed; those without a record run to their end and
// become orphans.

// renewed says whether a runner that shows an attempt in a phase is to take the
// cluster's epoch up for it. An attempt that was returned only for lack of a record is
// taken back where it had begun.
func renewed(epoch uint64, o state.Open, phase string) bool {
	if state.MayRegain(o.Job, o.Turn, o.Attempt) {
		return begun(phase)
	}
	return phase != "" && state.Renewable(epoch, o.Job, o.Turn, o.Attempt)
}

// begun says whether an attempt in a phase had its permit to start.
func begun(phase string) bool {
	switch phase {
	case "running", "stopping", "finishing", "finished":
		return true
	}
	return false
}

// unrecorded says whether a runner may have an attempt that the state has lost all
// record of, or holds as an orphan of this runner.
func (x *session) unrecorded(v state.View, job fleet.JobID, f fleet.Fence) bool {
	if f.Epoch == 0 || f.Epoch >= v.Meta().Epoch {
		return false
	}
	if j, ok := v.Job(job); ok {
		if _, a := j.Find(f); a != nil {
			return false
		}
	}
	_, ok := v.Orphan(f.String())
	return !ok || x.ownOrphan(v, job, f) != nil
}

// ownOrphan gives an orphan of this runner that is on record, or nil.
func (x *session) ownOrphan(v state.View, job fleet.JobID, f fleet.Fence) *fleet.Orphan {
	if o, ok := v.Orphan(f.String()); ok && o.Runner == x.runner && o.Job == job {
		return o
	}
	return nil
}

// current refuses to go by a state that was set back and whose epoch was not raised yet:
// that it knows nothing of an attempt means nothing.
func (s *Server) current(v state.View) error {
	if v.Meta().Epoch < s.cfg.Seen() {
		return fmt.Errorf("the cluster is being set back to a backup: %w", fleet.Unavailable)
	}
	return nil
}

// orphanDone says whether the runner is asked for nothing more of an orphan.
func (x *session) orphanDone(v state.View, job fleet.JobID, f fleet.Fence) bool {
	o := x.ownOrphan(v, job, f)
	return o != nil && (o.Log.Sealed || o.Settled == fleet.OrphanDiscarded)
}

// findStrays gives the jobs on record of which the runner shows an attempt that is not
// on record, or that may have to be taken back: nobody else must be given them.
func (x *session) findStrays(v state.View, views []wire.AttemptView) string {
	if len(v.Meta().Epochs) == 0 {
		return ""
	}
	var out []string
	for _, w := range views {
		j, ok := v.Job(w.Job)
		if !ok || slices.Contains(out, string(w.Job)) {
			continue
		}
		tu, a := j.Find(w.Fence)
		if a == nil && x.unrecorded(v, w.Job, w.Fence) || a != nil && begun(w.Phase) && state.MayRegain(j, tu, a) {
			out = append(out, string(w.Job))
		}
	}
	return strings.Join(out, " ")
}

// orphan takes what a runner says of an attempt that the state has no record of: its
// end, and what completes that. Everything else has no meaning, for the reason given.
func (x *session) orphan(ctx context.Context, v state.View, it *wire.ReportItem, none error) error {
	var o fleet.Orphan
	was, known := v.Orphan(it.Fence.String())
	if known {
		o = *was
	}
	switch {
	case it.Finished != nil:
		made, err := x.makeOrphan(v, it)
		if err != nil {
			return err
		}
		if known && made.Evidence != nil && was.Evidence != nil {
			made.Evidence = was.Evidence // what came later counts
		}
		o = made
	case it.Sealed != nil && known:
		if err := x.sealStreams(ctx, it); err != nil {
			return err
		}
		o.Log.Bytes, o.Log.Durable, o.Log.Events, o.Log.Sealed = it.Sealed.Output, it.Sealed.Output, it.Sealed.Events, true
	case it.Evidence != nil && known:
		if err := checkSizes(&it.Evidence.Evidence); err != nil {
			return err
		}
		o.Evidence = recordable(&it.Evidence.Evidence)
	default:
		return none
	}
	return x.srv.propose(ctx, &state.ReportOrphan{Orphan: o})
}

// makeOrphan makes the record of an orphan from its result and the order by which it
// began, both verified.
func (x *session) makeOrphan(v state.View, it *wire.ReportItem) (fleet.Orphan, error) {
	var o fleet.Orphan
	r, ok := v.Runner(x.runner)
	if !ok {
		return o, fmt.Errorf("runner %s is not enrolled: %w", x.runner, fleet.RunnerUnknown)
	}
	f := it.Finished
	if err := wire.VerifyFinished(ed25519.PublicKey(r.SignKey), it.Job, it.Fence, f); err != nil {
		return o, err
	}
	if err := checkSizes(f.Evidence, f.Output, f.Text, f.Events, f.Dropped); err != nil {
		return o, err
	}
	if it.Origin == nil {
		return o, fmt.Errorf("attempt %s of job %s is not on record since the epoch was raised to %d; the order by which it began must come with its result: %w",
			it.Fence, it.Job, v.Meta().Epoch, fleet.StaleEpoch)
	}
	keys := x.srv.cfg.Keys()
	signers := map[string]ed25519.PublicKey{}
	for _, k := range keys.Chain {
		signers[k.ID] = k.Key
	}
	as, err := wire.VerifyOrigin(signers, *it.Origin, keys.Cluster, x.runner, it.Job, it.Fence)
	if err != nil {
		return o, err
	}
	began := &fleet.Attempt{AssignedAt: as.CreatedAt}
	o = fleet.Orphan{
		Job: it.Job, Fence: it.Fence, Runner: x.runner, RunnerName: r.Name,
		Turn: as.Turn, Attempt: as.Attempt, Spec: as.Spec, Prompt: as.Prompt, Model: as.Model, CreatedAt: as.CreatedAt,
		FinishedAt: x.plausible(began, f.FinishedAt), Exit: f.Exit, Failure: f.Class, Detail: fleet.CutText(f.Detail, maxDetail), ResetAt: f.ResetAt,
		SessionID: f.SessionID, RanModel: f.Model, Usage: f.Usage, Evidence: recordable(f.Evidence),
		Log: fleet.LogState{Bytes: f.Output, Text: f.Text, Events: f.Events, Dropped: f.Dropped},
	}
	if as.Resume != nil {
		o.Base = as.Resume.BaseCommit
	}
	o.AcceptedAt = o.FinishedAt
	if at := x.plausible(began, f.StartedAt); !at.IsZero() {
		o.StartedAt, o.AcceptedAt = &at, at
	}
	if o.FinishedAt.IsZero() {
		o.FinishedAt = x.srv.now().Round(time.Second).UTC()
	}
	return o, nil
}

// noPermit says why an attempt without a record may not push.
func (x *session) noPermit(v state.View, job fleet.JobID, f fleet.Fence) error {
	if o := x.ownOrphan(v, job, f); o != nil && o.Settled == fleet.OrphanDiscarded {
		return fmt.Errorf("attempt %s of job %s was discarded: %w", f, job, fleet.StaleFence)
	}
	return fmt.Errorf("attempt %s of job %s is not on record since the epoch was raised; a person has to adopt it first (`tugline job orphans`): %w", f, job, fleet.Unavailable)
}
