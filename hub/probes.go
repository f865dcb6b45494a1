package hub

import (
	"context"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// trials are the attempts that try a circuit, with when this leader had a sign of life of
// each last. That is renewed by heartbeats, and in memory alone: a leader begins with a
// whole lease for each.
type trials map[fleet.Fence]time.Time

// look renews the leases of all circuits that are being tried, and gives those that have
// run out. open gives the attempt of a lease while it goes on.
func (t trials) look(cs []*fleet.Circuit, open func(fleet.JobID, fleet.Fence) *fleet.Attempt, shown func(fleet.RunnerID, fleet.Fence) time.Time, now time.Time) []state.Command {
	var out []state.Command
	tried := map[fleet.Fence]bool{}
	for _, c := range cs {
		if c.Probe == nil {
			continue
		}
		f := c.Probe.Fence
		tried[f] = true
		last, known := t[f]
		if !known {
			last = now
		}
		a := open(c.Probe.Job, f)
		if a != nil {
			last = later(last, shown(a.Runner, f))
		}
		t[f] = last
		if a == nil || now.Sub(last) > fleet.ProbeLease {
			out = append(out, &state.ReleaseProbe{ID: c.ID, Fence: f})
		}
	}
	for f := range t {
		if !tried[f] {
			delete(t, f)
		}
	}
	return out
}

// probes gives back circuits whose trial shows no life.
func (l *term) probes(ctx context.Context) {
	v := l.hub.entries.View()
	open := func(id fleet.JobID, f fleet.Fence) *fleet.Attempt {
		j, ok := v.Job(id)
		if !ok {
			return nil
		}
		if _, a := j.Find(f); a != nil && a.HoldsSlot() {
			return a
		}
		return nil
	}
	for _, cmd := range l.trials.look(v.Circuits(), open, l.hub.sessions.Shown, time.Now()) {
		l.propose(ctx, cmd)
	}
}
