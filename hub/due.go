package hub

import (
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// lease is what a leader has seen of runners and attempts, on its own clock: the
// times in records may be another node's.
type lease struct {
	since, now time.Time // the leader leads since then
	began      time.Time // the same moment by the wall clock, by which records tell silence
	heard      func(fleet.RunnerID) time.Time
	shown      func(fleet.RunnerID, fleet.Fence) time.Time
	first      map[fleet.Fence]time.Time // when an unaccepted assignment was first looked at; kept by due

	spread time.Duration // that all runners need at most to be let in after an election

	runner   func(fleet.RunnerID) (*fleet.Runner, bool)
	interval func(fleet.RunnerID) time.Duration // between its heartbeats; of the present connection
}

const (
	// A runner that a leader has not heard yet may have been told any interval.
	longestInterval = 30 * time.Second
	// While an attempt is open a runner beats so often; so long at least it has to find
	// a new leader, even if it was silent before.
	activeInterval = 5 * time.Second
	shortestLease  = fleet.StaleHeartbeats * activeInterval

	markAtOnce = 256 // runners that one look finds silent
)

// due gives what silence has decided: an unaccepted attempt that its runner has not
// shown for a while goes back to the queue, an accepted one of a runner that was not
// heard for long is lost. Time counts from when this node began to lead at the
// earliest, so that nobody pays for a change of leader; but a runner that an earlier
// leader had found silent gets only what was left of its lease, so that leaders that
// follow each other quickly do not put the loss off for ever.
func due(open []state.Open, l lease) []state.Command {
	var out []state.Command
	unaccepted := map[fleet.Fence]bool{}
	for _, o := range open {
		a := o.Attempt
		switch a.State {
		case fleet.AttemptAssigned:
			unaccepted[a.Fence] = true
			given, ok := l.first[a.Fence]
			if !ok {
				given = l.now
				l.first[a.Fence] = given
			}
			last := later(later(l.since.Add(l.spread), given), l.shown(a.Runner, a.Fence))
			if l.now.Sub(last) > fleet.AcceptDeadline {
				out = append(out, &state.ReturnAttempt{Job: o.Job.ID, Fence: a.Fence, Detail: "did not show it for " + fleet.AcceptDeadline.String()})
			}
		case fleet.AttemptRunning:
			if last, length := l.of(a.Runner); l.now.Sub(last) > length {
				out = append(out, &state.LoseAttempt{Job: o.Job.ID, Fence: a.Fence, Detail: a.RunnerName + " has been silent for " + fleet.LostAfter.String()})
			}
		}
	}
	for f := range l.first {
		if !unaccepted[f] {
			delete(l.first, f)
		}
	}
	return out
}

// of gives from when a runner's lease counts, and how long it is.
func (l lease) of(id fleet.RunnerID) (from time.Time, length time.Duration) {
	if h := l.heard(id); h.After(l.since) {
		return h, fleet.LostAfter
	}
	r, ok := l.runner(id)
	if !ok || r.SilentSince == nil {
		return l.since, fleet.LostAfter
	}
	left := fleet.LostAfter - l.began.Sub(*r.SilentSince)
	return l.since, min(max(left, shortestLease+l.spread), fleet.LostAfter)
}

// stale says whether a runner was not heard for three of its intervals, and since when.
func (l lease) stale(id fleet.RunnerID) (since time.Time, stale bool) {
	last, interval, spread := l.since, longestInterval, l.spread
	if h := l.heard(id); h.After(l.since) {
		last, spread = h, 0
		if d := l.interval(id); d > 0 {
			interval = d
		}
	}
	return last, l.now.Sub(last) > fleet.StaleHeartbeats*interval+spread
}

// silences gives what is to be recorded of silence: each runner with accepted work that
// turned stale, once, and each that was recorded so and is heard again. Runners without
// work are left out: they have nothing to lose, and may come and go as they like.
func silences(open []state.Open, marked []*fleet.Runner, l lease) []state.Command {
	var out []state.Command
	seen := map[fleet.RunnerID]bool{}
	for _, o := range open {
		id := o.Attempt.Runner
		if o.Attempt.State != fleet.AttemptRunning || seen[id] || len(out) == markAtOnce {
			continue
		}
		seen[id] = true
		r, ok := l.runner(id)
		if !ok || r.Removed || r.SilentSince != nil {
			continue
		}
		if last, stale := l.stale(id); stale {
			out = append(out, &state.SilenceRunner{ID: id, Since: l.began.Add(last.Sub(l.since)).Round(0).UTC()})
		}
	}
	for _, r := range marked {
		if _, stale := l.stale(r.ID); !stale && l.heard(r.ID).After(l.since) {
			out = append(out, &state.SilenceRunner{ID: r.ID})
		}
	}
	return out
}
