package hub

import "time"

// flow is the time between the entries of the log. A clock that was set back leaves
// state time ahead of it, where it would stand still until the clock is there again:
// nothing would expire and no timeout would pass. So it goes on at half the speed,
// by a clock that nobody can set, until the wall clock has caught up.
type flow struct {
	from time.Time // what time it was
	at   time.Time // at this moment; monotonic
}

// to gives the time that it is, between a state time and a wall clock.
func (f *flow) to(stateTime, wall, now time.Time) time.Time {
	t := f.from.Add(now.Sub(f.at) / 2)
	if f.at.IsZero() || stateTime.After(t) || t.Sub(stateTime) > maxStep { // a restored log may be behind
		t = stateTime
		f.from, f.at = t, now
	}
	if wall.After(t) {
		t = wall
		f.from, f.at = t, now
	}
	return t
}

// now gives what time it is for all that expires. Only the leader, who knows the other
// voters' clocks, goes by its own, and only while it is believed; else it is told by
// the log, and by what has passed since.
func (l *log) now() time.Time {
	at := l.state.Time()
	if at.IsZero() || l.leads() && l.timely() == nil {
		return l.clock.flows(at, l.clock.wall())
	}
	return l.clock.flows(at, at)
}

func (k *timekeeper) flows(stateTime, wall time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flow.to(stateTime, wall, time.Now())
}
