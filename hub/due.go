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
	heard      func(fleet.RunnerID) time.Time
	shown      func(fleet.RunnerID, fleet.Fence) time.Time
	first      map[fleet.Fence]time.Time // when an unaccepted assignment was first looked at; kept by due
}

// due gives what silence has decided: an unaccepted attempt that its runner has not
// shown for a while goes back to the queue, an accepted one of a runner that was not
// heard for long is lost. Time counts from when this node began to lead at the
// earliest, so that nobody pays for a change of leader.
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
			last := later(later(l.since, given), l.shown(a.Runner, a.Fence))
			if l.now.Sub(last) > fleet.AcceptDeadline {
				out = append(out, &state.ReturnAttempt{Job: o.Job.ID, Fence: a.Fence, Detail: "did not show it for " + fleet.AcceptDeadline.String()})
			}
		case fleet.AttemptRunning:
			if l.now.Sub(later(l.since, l.heard(a.Runner))) > fleet.LostAfter {
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
