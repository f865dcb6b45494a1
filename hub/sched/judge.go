package sched

import "tugline.dev/tugline/shared/fleet"

// Refusal gives the first thing that stands against a runner's taking a queued job; an
// empty code means that nothing does.
func (b *Board) Refusal(j *fleet.Job, r *fleet.Runner) Reason {
	cs := b.candidates()
	i, ok := at(cs, r.ID)
	if !ok {
		return Reason{Runner: r.Name, Code: fleet.RunnerUnknown, Detail: "was removed", Change: "enrol it anew"}
	}
	w := b.wanted(j)
	got, _ := b.first(w, j, &cs[i])
	return b.tell(got, w, j, &cs[i])
}

// Misplaced says why an assignment that its runner has not accepted yet had better go back
// to the queue: the runner is held or gone, or its machine is no longer fit for it. An
// empty code means that it may stay.
func (b *Board) Misplaced(j *fleet.Job, a *fleet.Attempt) Reason {
	cs := b.candidates()
	i, ok := at(cs, a.Runner)
	if !ok {
		return Reason{Runner: a.RunnerName, Code: fleet.RunnerUnknown, Detail: "was removed"}
	}
	c := cs[i]
	if a.AssignedAt.After(c.sampled(b.l.Now)) {
		c.avail += a.Reserve // what it is expected to take is not in its own way
	}
	w := b.wanted(j)
	got := w.unable(c.r)
	if got == open {
		got = c.away(b.l.Now)
	}
	if got == open {
		got = b.unfit(w, &c)
	}
	if got == open || got == fresh {
		return Reason{Runner: c.r.Name}
	}
	return b.tell(got, w, j, &c)
}

// Capable says whether the runner could take the job were it connected, free and well:
// nothing stands against it that only a person changes.
func (b *Board) Capable(j *fleet.Job, r *fleet.Runner) bool {
	w := wantOf(j)
	return w.unable(r) == open
}
