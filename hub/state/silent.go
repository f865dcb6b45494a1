package state

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var _ = register(func() Command { return new(SilenceRunner) })

// SilenceRunner records since when a runner that has work has not been heard, so that
// the leaders to come give it no full lease again; without a time, that it was heard.
type SilenceRunner struct {
	ID    fleet.RunnerID `json:"id"`
	Since time.Time      `json:"since,omitzero"`
}

func (*SilenceRunner) kind() Kind { return 22 }

func (c *SilenceRunner) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	if c.Since.IsZero() == (r.SilentSince == nil) {
		return Result{ID: string(r.ID), Repeated: true} // the first leader that found it silent is right
	}
	r.SilentSince = nil
	if !c.Since.IsZero() {
		since := c.Since.UTC()
		if since.After(t.now()) {
			since = t.now()
		}
		r.SilentSince = &since
	}
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}
