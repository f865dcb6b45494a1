package hub

import (
	"context"
	"errors"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	expireAtOnce = 1000             // of one kind in one entry
	disposeEvery = 10 * time.Minute // between looks at all that lies on disk
	askOthers    = 2 * time.Second  // for other nodes to say whether they have a file
)

// retain deletes what has been kept as long as it is to be kept. Records go by a
// command, and only what is committed is acted upon: a job that somebody retried
// meanwhile keeps all it has.
func (l *term) retain(ctx context.Context, now time.Time) {
	h := l.hub
	// Where it cannot be told whether another node has it, it counts as stored.
	stored := func(d fleet.Digest) bool {
		ctx, cancel := context.WithTimeout(ctx, askOthers)
		defer cancel()
		_, err := h.copies.Blobs().Stat(ctx, d)
		return !errors.Is(err, fleet.BlobMissing)
	}
	old := expired(stockOf(h.entries.View()), h.cfg.Retention, stored, expireAtOnce)
	// Proposed even with nothing old: keys and audit records go too, and state time goes on.
	l.propose(ctx, &state.Expire{Jobs: old, AuditAge: h.cfg.Retention.Audit, Limit: expireAtOnce})
	h.disposeWhenDue(now)
}

// tidy deletes from the disks of a node that follows; one that leads does so after it
// has decided which records go.
func (h *Hub) tidy(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// What it knows must be what the cluster knows: what is on record is kept.
			if !h.leading.Load() && h.isSettled() && h.peers.Ready() == nil {
				h.disposeWhenDue(h.wall())
			}
		}
	}
}

func (h *Hub) disposeWhenDue(now time.Time) {
	h.disposing.Lock()
	defer h.disposing.Unlock()
	spooled, _ := h.spool.Usage()
	stock, _ := h.blobs.Usage()
	if spooled+stock > h.cfg.Retention.OutputBytes || now.Sub(h.disposed) >= disposeEvery {
		h.disposed = now
		h.dispose(now)
	}
}

// dispose takes stock and deletes what nobody needs. The disks are looked at before
// the records: what is there has its record by then, or is about to be named and
// was stored a moment ago.
func (h *Hub) dispose(now time.Time) {
	streams := h.spool.Jobs()
	var blobs []blob.Info
	if err := h.blobs.Each(func(i blob.Info) bool { blobs = append(blobs, i); return true }); err != nil {
		h.log.Warn("taking stock of blobs failed", "err", err)
		return
	}
	s := stockOf(h.entries.View())
	s.streams, s.blobs, s.wall = streams, blobs, now
	d := dispose(s, h.cfg.Retention)
	ahead := h.aheadOfRecord()
	for _, id := range d.streams {
		if j, ok := h.entries.View().Job(id); ok && !j.State.Ended() || !ok && ahead[id] || h.sessions.Shows(id) {
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

// aheadOfRecord gives the jobs with output that may be older or newer than what this
// node knows of them: copies of output come before the entries that name them, and a
// record that was set back has lost some. Only the leader knows better, from what the
// runners show.
func (h *Hub) aheadOfRecord() map[fleet.JobID]bool {
	ahead := map[fleet.JobID]bool{}
	if h.leading.Load() {
		return ahead
	}
	m := h.entries.View().Meta()
	h.spool.Each(func(i spool.Info) bool {
		if i.Key.Fence.Epoch != m.Epoch || i.Key.Fence.Index > m.Index {
			ahead[i.Key.Job] = true
		}
		return true
	})
	return ahead
}
