package sched

import (
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// Explanation says why a job stands where it stands.
type Explanation struct {
	Summary string   `json:"summary"`
	Ahead   int      `json:"ahead"` // queued jobs before it, counted up to 1,000
	Runners []Reason `json:"runners,omitempty"`
}

// Explain gives the exact reason why a queued job is not running; for any other
// job, the reason that is recorded.
func Explain(v state.View, presence map[fleet.RunnerID]fleet.Presence, j *fleet.Job, now time.Time) Explanation {
	if j.State != fleet.Queued {
		return Explanation{Summary: strings.TrimSuffix(string(j.State)+": "+j.Reason.Detail, ": ")}
	}
	e := Explanation{}
	v.Queue(func(q *fleet.Job) bool {
		if q.ID == j.ID || e.Ahead >= 1000 {
			return false
		}
		e.Ahead++
		return true
	})
	if k := j.Spec.ConcurrencyKey; k != "" {
		if by, held := v.Holder(k, j.ID); held {
			e.Summary = fmt.Sprintf("waits for job %s, which holds the concurrency key %q", by, k)
			return e
		}
	}
	cs := candidates(v, presence)
	able := false
	var passing *Reason
	for _, c := range cs {
		r, _ := fits(j, c, now)
		if r.Code == "" {
			e.Summary = fmt.Sprintf("%s can take it and is being asked", c.r.Name)
			e.Runners = nil
			return e
		}
		if _, ok := capable(j, c.r); ok {
			able = true
			if passing == nil || r.Code == fleet.NoSlot {
				passing = &r
			}
		}
		if len(e.Runners) < 50 {
			e.Runners = append(e.Runners, r)
		}
	}
	switch {
	case len(cs) == 0:
		e.Summary = "no runner is enrolled; make a ticket with `tugline hub ticket` and start one"
	case !able && len(cs) == 1:
		e.Summary = fmt.Sprintf("no runner can take it: %s %s", e.Runners[0].Runner, e.Runners[0].Detail)
	case !able:
		e.Summary = fmt.Sprintf("none of the %d runners can take it: %s %s", len(cs), e.Runners[0].Runner, e.Runners[0].Detail)
	default:
		e.Summary = fmt.Sprintf("waits for a runner: %s %s", passing.Runner, passing.Detail)
	}
	return e
}
