package sched

import (
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// raised is what a raise of the cluster's epoch leaves to be careful about: a job that
// waits on record may have been begun in records that are lost. Its runner says so
// within a while, to each new leader anew, and then it is not given to another.
type raised struct {
	last   fleet.Epoch
	from   time.Time              // runners have been able to say so since then
	strays map[fleet.JobID]string // jobs that are run without a record, by the runner's name
	any    bool                   // there is something to be careful about
}

// raisedIn gives nothing to be careful about in a cluster whose epoch was never raised.
func raisedIn(v state.View, presence func() map[fleet.RunnerID]fleet.Presence, since, now time.Time) raised {
	es := v.Meta().Epochs
	if len(es) == 0 {
		return raised{}
	}
	r := raised{last: es[len(es)-1], strays: map[fleet.JobID]string{}}
	if r.from = r.last.At; since.After(r.from) {
		r.from = since
	}
	for _, p := range presence() {
		if p.Strays == "" || !p.Connected && now.Sub(p.LastBeat) > fleet.LostAfter {
			continue // it has none, or they are as good as lost
		}
		name := string(p.Runner)
		if run, ok := v.Runner(p.Runner); ok {
			name = run.Name
		}
		for _, id := range strings.Fields(p.Strays) {
			if was, ok := r.strays[fleet.JobID(id)]; !ok || name < was {
				r.strays[fleet.JobID(id)] = name
			}
		}
	}
	r.any = len(r.strays) > 0 || now.Before(r.from.Add(fleet.AcceptDeadline))
	return r
}

// keeps says whether a waiting job is given to nobody, because that runner runs it or,
// without a name, some runner may; and until when that is known to last.
func (r raised) keeps(j *fleet.Job, now time.Time) (name string, until time.Time, kept bool) {
	if name, ok := r.strays[j.ID]; ok {
		return name, time.Time{}, true
	}
	if end := r.from.Add(fleet.AcceptDeadline); r.last.Epoch != 0 && j.Seq < r.last.Index && now.Before(end) {
		return "", end, true
	}
	return "", time.Time{}, false
}

// why says the same in words.
func (r raised) why(name string) string {
	if name != "" {
		return fmt.Sprintf("waits: %s already runs it, by an assignment of which the record was lost", name)
	}
	return fmt.Sprintf("waits for the runners to say whether one of them has begun it: the cluster's epoch was raised to %d (%s)", r.last.Epoch, r.last.Cause)
}
