package hub

import (
	"context"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	expireAtOnce = 1000             // of one kind in one entry
	disposeEvery = 10 * time.Minute // between looks at all that lies on disk
)

// retain deletes what has been kept as long as it is to be kept. Records go by a
// command, and only what is committed is acted upon: a job that somebody retried
// meanwhile keeps all it has.
func (l *term) retain(ctx context.Context, now time.Time) {
	h := l.hub
	stored := func(d fleet.Digest) bool { _, err := h.blobs.Stat(d); return err == nil }
	old := expired(stockOf(h.entries.View()), h.cfg.Retention, stored, expireAtOnce)
	// Proposed even with nothing old: keys and audit records go too, and state time goes on.
	l.propose(ctx, &state.Expire{Jobs: old, AuditAge: h.cfg.Retention.Audit, Limit: expireAtOnce})
	spooled, _ := h.spool.Usage()
	stock, _ := h.blobs.Usage()
	if spooled+stock > h.cfg.Retention.OutputBytes || now.Sub(l.disposed) >= disposeEvery {
		l.disposed = now
		l.dispose(now)
	}
}

// dispose takes stock and deletes what nobody needs. The disks are looked at before
// the records: what is there has its record by then, or is about to be named and
// was stored a moment ago.
func (l *term) dispose(now time.Time) {
	h := l.hub
	streams := h.spool.Jobs()
	var blobs []blob.Info
	if err := h.blobs.Each(func(i blob.Info) bool { blobs = append(blobs, i); return true }); err != nil {
		h.log.Warn("taking stock of blobs failed", "err", err)
		return
	}
	s := stockOf(h.entries.View())
	s.streams, s.blobs, s.wall = streams, blobs, now
	d := dispose(s, h.cfg.Retention)
	for _, id := range d.streams {
		if j, ok := h.entries.View().Job(id); ok && !j.State.Ended() || h.sessions.Shows(id) {
			continue // it goes on, if only on its runner
		}
		if err := h.copies.Delete(id); err != nil {
			h.log.Warn("delete output failed", "job", id, "err", err)
		}
	}
	for _, u := range d.blobs {
		if _, err := h.copies.Blobs().DeleteUnused(u.digest, u.since); err != nil {
			h.log.Warn("delete blob failed", "err", err)
		}
	}
	if _, _, err := h.blobs.Sweep(now); err != nil {
		h.log.Warn("sweep of stale uploads failed", "err", err)
	}
}
