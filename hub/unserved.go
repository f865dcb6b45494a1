package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	unservedJobs  = 10_000 // of the queue that one look goes through
	unservedKinds = 200    // of jobs, by what they ask of a runner
	unservedTold  = 20     // alerts of one look
)

// servers is what a look for work that nobody does knows of runners: who is there, and
// since when the others are silent.
type servers struct {
	all    []*fleet.Runner
	silent func(fleet.RunnerID) (since time.Time, silent bool) // by the leader's clock
	now    time.Time                                           // likewise
	since  time.Time                                           // this node leads since then
}

// unserved gives an alert for each runner that is silent although there is work that it
// could do and that no other could do now, and for work that no runner could do at all,
// where that has been so for IdleAlertAfter. The same runner and job give the same alert.
// at is state time, by which jobs wait.
func unserved(v state.View, s servers, capable func(*fleet.Job, *fleet.Runner) bool, at time.Time) []fleet.Alert {
	var out []fleet.Alert
	if s.now.Sub(s.since) < fleet.IdleAlertAfter {
		return nil
	}
	looked, kinds, told := 0, map[string]bool{}, map[fleet.RunnerID]bool{}
	v.Queue(func(j *fleet.Job) bool {
		looked++
		kind := asks(j)
		if !waitsSince(j, at.Add(-fleet.IdleAlertAfter)) || kinds[kind] {
			return looked < unservedJobs
		}
		kinds[kind] = true
		silent, served := s.of(j, capable)
		waited := roughly(at.Sub(j.Turn().QueuedAt))
		switch {
		case served:
		case len(silent) == 0 && !told[""]:
			told[""] = true
			out = append(out, fleet.Alert{
				ID: unservedID("", j), Kind: state.AlertUnserved,
				Text: fmt.Sprintf("job %s has waited for %s, and no runner that is enrolled could take it: `tugline job explain %s` says what it asks for", j.ID, waited, j.ID),
			})
		}
		for _, r := range silent {
			if !served && !told[r.ID] && len(out) < unservedTold {
				told[r.ID] = true
				out = append(out, fleet.Alert{
					ID: unservedID(r.ID, j), Kind: state.AlertUnserved, Runner: r.ID, Name: r.Name,
					Text: fmt.Sprintf("%s is silent, and no other runner could take job %s, which has waited for %s: start it, or cancel the job", r.Name, j.ID, waited),
				})
			}
		}
		return looked < unservedJobs && len(kinds) < unservedKinds && len(out) < unservedTold
	})
	return out
}

// of gives the silent runners that could take a job. It is served where another one could
// that is there, or went only a while ago.
func (s servers) of(j *fleet.Job, capable func(*fleet.Job, *fleet.Runner) bool) (silent []*fleet.Runner, served bool) {
	for _, r := range s.all {
		if !capable(j, r) {
			continue
		}
		since, gone := s.silent(r.ID)
		if !gone || s.now.Sub(since) < fleet.IdleAlertAfter {
			return nil, true
		}
		silent = append(silent, r)
	}
	return silent, false
}

// waitsSince says whether a job waits for a runner since a time.
func waitsSince(j *fleet.Job, t time.Time) bool {
	u := j.Turn()
	return !u.QueuedAt.After(t) && (u.NotBefore == nil || !u.NotBefore.After(t))
}

// asks gives all of a job that decides which runners could take it.
func asks(j *fleet.Job) string {
	t, repo := j.Turn(), ""
	if r := j.Spec.Repo; r != nil {
		repo = "in " + r.URL
	}
	needs := fleet.Needs{}
	if j.Spec.Needs != nil {
		needs = *j.Spec.Needs
	}
	return fmt.Sprintln(t.On, j.Spec.On, j.Spec.Origin.Kind, j.Spec.Harness, j.ChoiceOf(t), repo, j.Spec.Require, j.Spec.Secrets, needs)
}

func unservedID(r fleet.RunnerID, j *fleet.Job) string {
	return strings.Join([]string{state.AlertUnserved, string(r), string(j.ID), fmt.Sprint(j.Turn().N)}, "-")
}

// unserved looks for work that nobody does, once a minute beside the leader's loop.
func (l *term) unserved(ctx context.Context) {
	v := l.hub.entries.View()
	if !waiting(v) {
		return
	}
	seen, gone := l.lease(v), map[fleet.RunnerID]time.Time{}
	s := servers{now: seen.now, since: l.since}
	s.silent = func(id fleet.RunnerID) (time.Time, bool) { since, ok := gone[id]; return since, ok }
	var away []*fleet.Runner
	for _, r := range v.Runners() {
		if since, stale := seen.stale(r.ID); stale {
			gone[r.ID] = since
			away = append(away, r)
		} else {
			s.all = append(s.all, r)
		}
	}
	s.all = append(s.all, away...) // most work is served by the first one that is there
	b := sched.See(v, sched.Look{Now: seen.now})
	for _, a := range unserved(v, s, b.Capable, l.hub.entries.now()) {
		if _, told := v.Alert(a.ID); !told && !recently(v, &a, l.hub.entries.now()) {
			l.propose(ctx, &state.RaiseAlert{Alert: a, Every: fleet.AlertEvery})
		}
	}
}

// recently says whether people were told of the same kind of thing about the same runner
// a short time ago.
func recently(v state.View, a *fleet.Alert, at time.Time) bool {
	return slices.ContainsFunc(v.Alerts(fleet.MaxAlerts), func(b *fleet.Alert) bool {
		return b.Kind == a.Kind && b.Runner == a.Runner && at.Sub(b.At) < fleet.AlertEvery
	})
}
