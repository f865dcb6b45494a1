package hub

import (
	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// moves gives the assignments of automation that go back to the queue, at no cost, because
// their runner could not be given them now: nothing of them has begun, and another runner
// may do better. misplaced says what stands against one. Once a runner prepares one, its
// own looks at its machine decide: what it takes for the job must not be what the job is
// taken away for.
func moves(open []state.Open, l lease, misplaced func(*fleet.Job, *fleet.Attempt) sched.Reason) []state.Command {
	var out []state.Command
	for _, o := range open {
		a := o.Attempt
		if a.State != fleet.AttemptAssigned || !o.Job.Spec.Automated() {
			continue
		}
		why := ""
		if _, stale := l.stale(a.Runner); stale {
			why = "was not heard for a while"
		} else if r := misplaced(o.Job, a); l.counts(r.Code, a) {
			why = r.Detail
		}
		if why != "" {
			out = append(out, &state.ReturnAttempt{Job: o.Job.ID, Fence: a.Fence, Detail: why})
		}
	}
	return out
}

// counts says whether what stands against an assignment takes it away. That a runner is not
// there counts by its lease, and that nothing is known of its machine once this leader
// could have been told.
func (l lease) counts(why fleet.Code, a *fleet.Attempt) bool {
	switch why {
	case "", fleet.Offline:
		return false
	case fleet.Cordoned:
		return true
	case fleet.HealthUnknown:
		first, known := l.first[a.Fence]
		return a.Phase == "" && known && l.now.Sub(first) > fleet.HealthFresh
	}
	return a.Phase == ""
}

// misplaced says what stands against an assignment that was not accepted yet. It looks at
// the runners of such assignments alone.
func (l *term) misplaced(v state.View, open []state.Open) func(*fleet.Job, *fleet.Attempt) sched.Reason {
	var b *sched.Board
	return func(j *fleet.Job, a *fleet.Attempt) sched.Reason {
		if b == nil {
			look := l.look()
			look.Presence = func() map[fleet.RunnerID]fleet.Presence {
				out, off := map[fleet.RunnerID]fleet.Presence{}, l.ahead()
				for _, o := range open {
					if o.Attempt.State == fleet.AttemptAssigned {
						if p, ok := l.hub.sessions.PresenceOf(o.Attempt.Runner); ok {
							out[p.Runner] = clocked(p, off)
						}
					}
				}
				return out
			}
			b = sched.See(v, look)
		}
		return b.Misplaced(j, a)
	}
}
