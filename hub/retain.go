package hub

import (
	"context"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	expireAtOnce = 1000 // of one kind in one entry
	walkAtOnce   = 5000 // job records looked at in one round
)

// retain deletes what has been kept as long as it is to be kept: records by a
// command, output and artifacts of this node by themselves.
func (l *term) retain(ctx context.Context) {
	h, v := l.hub, l.hub.entries.View()
	keep, now := h.cfg.Retention, v.Meta().Time
	excess := v.Count("jobs") - v.Count("queued") - keep.MaxJobs
	var old []fleet.JobID
	v.JobsOldest(func(j *fleet.Job) bool {
		if !j.State.Ended() {
			return true
		}
		if excess <= len(old) && now.Sub(j.UpdatedAt) < keep.Jobs {
			return now.Sub(j.CreatedAt) >= keep.Jobs // younger records follow
		}
		old = append(old, j.ID)
		return len(old) < expireAtOnce
	})
	for _, id := range old {
		l.forget(v, id)
	}
	l.propose(ctx, &state.Expire{Jobs: old, AuditAge: keep.Audit, Limit: expireAtOnce})
	l.output(v, now)
	if _, _, err := h.blobs.Sweep(time.Now()); err != nil {
		h.log.Warn("sweep of stale uploads failed", "err", err)
	}
}

// output deletes the recorded output and artifacts of jobs that ended long ago, or
// the oldest where together they take too much.
func (l *term) output(v state.View, now time.Time) {
	h, keep := l.hub, l.hub.cfg.Retention
	spooled, _ := h.spool.Usage()
	stored, _ := h.blobs.Usage()
	over := spooled + stored - keep.OutputBytes
	n := 0
	v.JobsOldest(func(j *fleet.Job) bool {
		if n++; n > walkAtOnce {
			return false
		}
		aged := now.Sub(j.UpdatedAt) >= keep.Output
		if !aged && over <= 0 {
			return false
		}
		if j.State.Ended() && sealed(j) {
			over -= l.forget(v, j.ID)
		}
		return true
	})
}

func sealed(j *fleet.Job) bool {
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			if a.AcceptedAt != nil && !a.Log.Sealed && !a.Gone {
				return false
			}
		}
	}
	return true
}

// forget deletes a job's output and artifacts from this node and gives the bytes
// freed. A bundle that may be the only copy of commits stays until the job's
// commits are known to be elsewhere or a person gave them up.
func (l *term) forget(v state.View, id fleet.JobID) (freed int64) {
	h := l.hub
	j, ok := v.Job(id)
	if !ok {
		return 0
	}
	for _, s := range h.spool.Streams(id) {
		freed += s.Size
	}
	if err := h.spool.Delete(id); err != nil {
		h.log.Warn("delete output failed", "job", id, "err", err)
	}
	for _, d := range artifacts(j) {
		info, err := h.blobs.Stat(d)
		if err != nil {
			continue
		}
		if err := h.blobs.Delete(d); err != nil {
			h.log.Warn("delete artifact failed", "job", id, "err", err)
			continue
		}
		freed += info.Size
	}
	return freed
}

// artifacts lists the blobs of a job that may go.
func artifacts(j *fleet.Job) []fleet.Digest {
	var out []fleet.Digest
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			if a.Evidence == nil {
				continue
			}
			if a.Evidence.Patch != "" {
				out = append(out, a.Evidence.Patch)
			}
			if a.Evidence.Bundle != "" && j.Pulled {
				out = append(out, a.Evidence.Bundle)
			}
			for _, f := range a.Evidence.Artifacts {
				out = append(out, f.Digest)
			}
		}
	}
	return out
}
