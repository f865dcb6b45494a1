package sched

import (
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// explain gives the exact reason why a queued job is not running; for any other
// job, the reason that is recorded.
func explain(v state.View, presence map[fleet.RunnerID]fleet.Presence, j *fleet.Job, now time.Time) Explanation {
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
	if why, _ := raisedIn(v, presence, time.Time{}, now).holds(j, now); why != "" {
		e.Summary = why
		return e
	}
	cs := candidates(v, presence)
	var passing *Reason
	for _, c := range cs {
		r := fits(j, c, now)
		if r.Code == "" {
			e.Summary = fmt.Sprintf("%s can take it and is being asked", c.r.Name)
			e.Runners = nil
			return e
		}
		if _, ok := capable(j, c.r); ok && (passing == nil || r.Code == fleet.NoSlot && passing.Code != fleet.NoSlot) {
			passing = &r
		}
		if len(e.Runners) < 50 {
			e.Runners = append(e.Runners, r)
		}
	}
	if passing != nil {
		e.Summary = fmt.Sprintf("waits for a runner: %s %s", passing.Runner, passing.Detail)
	} else {
		e.Summary = incapable(v, j)
	}
	return e
}

// incapable says why no runner could take the job, were it free.
func incapable(v state.View, j *fleet.Job) string {
	rs := v.Runners()
	if len(rs) == 0 {
		return "no runner is enrolled; make a ticket with `tugline hub ticket` and start one"
	}
	if on := j.Turn().On; on != "" {
		if r, ok := v.Runner(on); ok && r.Removed {
			return fmt.Sprintf("the runner %s, which holds the session that this follow-up resumes, was removed; cancel it and ask again with --fresh", r.Name)
		}
	}
	nearest := rs[0]
	for _, r := range rs { // the one that was asked for says more than the others
		if r.ID == j.Turn().On || j.Turn().On == "" && j.Spec.On != "" && (r.Name == j.Spec.On || string(r.ID) == j.Spec.On) {
			nearest = r
		}
	}
	why, _ := capable(j, nearest)
	if len(rs) == 1 {
		return fmt.Sprintf("no runner can take it: %s %s", why.Runner, why.Detail)
	}
	return fmt.Sprintf("none of the %d runners can take it: %s %s", len(rs), why.Runner, why.Detail)
}

// reasonsTold is how many runners' reasons a blocked job names.
const reasonsTold = 20

// obstacle says what kept a job in the queue, with the reason of each runner.
func obstacle(v state.View, cs []candidate, j *fleet.Job, now time.Time) string {
	if k := j.Spec.ConcurrencyKey; k != "" {
		if by, held := v.Holder(k, j.ID); held {
			return fmt.Sprintf("job %s holds the concurrency key %q", by, k)
		}
	}
	could := false
	var whys []string
	for _, c := range cs {
		if _, ok := capable(j, c.r); ok {
			could = true
		}
		r := fits(j, c, now)
		if r.Code == "" {
			r.Detail = "could take it only now"
		}
		whys = append(whys, c.r.Name+" "+r.Detail)
	}
	if !could && (len(whys) < 2 || j.Turn().On != "") {
		return incapable(v, j)
	}
	rest := ""
	if more := len(whys) - reasonsTold; more > 0 {
		whys, rest = whys[:reasonsTold], fmt.Sprintf("; and %d more", more)
	}
	if !could {
		return fmt.Sprintf("none of the %d runners can take it: %s%s", len(cs), strings.Join(whys, "; "), rest)
	}
	return "no runner that can take it became free: " + strings.Join(whys, "; ") + rest
}
