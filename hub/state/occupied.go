package state

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Occupied is a slot of a runner that an attempt occupies.
type Occupied struct {
	Job       fleet.JobID
	Fence     fleet.Fence
	Runner    fleet.RunnerID
	Automated bool
	Origin    string // see OriginKey
	Reserve   int64  // bytes of disk that the attempt is expected to take
	Since     time.Time
}

// Occupied walks all slots that attempts occupy, by runner, until f says stop. The jobs
// themselves are not looked at: there may be more than a hundred thousand.
func (v View) Occupied(f func(Occupied) bool) {
	each(v.tx, tableOpen, "id", func(o *opened) bool { return !o.Holds || f(o.occupied()) })
}

// OccupiedOf walks those of one runner.
func (v View) OccupiedOf(r fleet.RunnerID, f func(Occupied) bool) {
	each(v.tx, tableOpen, "id_prefix", func(o *opened) bool { return !o.Holds || f(o.occupied()) }, opensOf(r))
}

// slot is what the slot of an attempt is counted by.
type slot struct {
	Automated bool
	Origin    string // see OriginKey
	Reserve   int64  // bytes of disk
	Since     int64  // of its assignment, in nanoseconds of Unix time
}

func (o *opened) occupied() Occupied {
	return Occupied{o.Job, o.Fence, o.Runner, o.Slot.Automated, o.Slot.Origin, o.Slot.Reserve, time.Unix(0, o.Slot.Since).UTC()}
}

func slotOf(j *fleet.Job, a *fleet.Attempt) slot {
	return slot{j.Spec.Automated(), j.Spec.Origin.OriginKey(), a.Reserve, a.AssignedAt.UnixNano()}
}
