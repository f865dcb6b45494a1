package sched

import (
	"slices"
	"time"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

// bar is what stands against a runner's taking a job, in the order in which it is looked
// for: the first is told. The later one comes, the nearer the runner is to taking it.
type bar uint8

const (
	open          bar = iota // nothing stands against it
	conflict                 // two machines hold its identity
	sessionGone              // another one holds the session
	notAsked                 // another one was asked for
	noLabel                  // lacks a label
	wrongSystem              // operating system or processor
	paused                   // by its owner
	wrongOrigin              // its owner takes no such work
	wrongRepo                // its owner does not allow the repository
	barred                   // its owner does not allow the harness
	noHarness                // lacks the harness
	signedOut                // of the harness
	oldHarness               // its version is below the one required
	noModel                  // its owner does not allow the model
	noSecret                 // lacks a secret
	held                     // by a person
	offline                  // not connected
	fresh                    // connected, and has not shown what it runs
	gaveBack                 // declined this job
	circuitOpen              // a circuit refuses
	noDocker                 // Docker and Compose are not verified
	diskUnknown              // for an automation, or for a job that requires room
	diskLow                  // of the workspace
	cacheLow                 // the same of the cache's file system
	inodesLow                // of either
	memoryUnknown            // for a job that requires some
	memoryLow
	declining // takes nothing now, by its owner's rules
	autoOff   // no slots for automation are allowed or offered
	noSlots   // offers none
	full      // all are taken
)

// code is what a bar is called.
var code = [...]fleet.Code{
	conflict: fleet.ClonedIdentity, sessionGone: fleet.OtherRunner, notAsked: fleet.OtherRunner, noLabel: fleet.LabelMissing, wrongSystem: fleet.WrongSystem,
	paused: fleet.OwnerPolicy, wrongOrigin: fleet.OwnerPolicy, wrongRepo: fleet.OwnerPolicy, barred: fleet.OwnerPolicy,
	noHarness: fleet.HarnessMissing, signedOut: fleet.HarnessSignedOut, oldHarness: fleet.HarnessOld, noModel: fleet.ModelMissing, noSecret: fleet.SecretMissing,
	held: fleet.Cordoned, offline: fleet.Offline, fresh: fleet.Offline, gaveBack: "", circuitOpen: fleet.CircuitRefuses, noDocker: fleet.DockerMissing,
	diskUnknown: fleet.HealthUnknown, diskLow: fleet.Storage, cacheLow: fleet.Storage, inodesLow: fleet.Storage, memoryUnknown: fleet.HealthUnknown, memoryLow: fleet.MemoryLow,
	declining: fleet.OwnerPolicy, autoOff: fleet.AutomationOff, noSlots: fleet.NoSlot, full: fleet.NoSlot,
}

// lasts says whether only a change of the job, of the runner's facts or by a person takes
// the bar away: the runner is not capable of the job.
func (b bar) lasts() bool { return b >= conflict && b <= noSecret }

// unable gives what stands against a job whatever the runner does just now.
func (w *want) unable(r *fleet.Runner) bar {
	f := &r.Facts
	switch {
	case r.Conflict != "":
		return conflict
	case w.bound != "" && w.bound != r.ID:
		return sessionGone
	case w.on != "" && !w.asks(r):
		return notAsked
	}
	if _, lacks := w.lacks(r); lacks {
		return noLabel
	}
	switch {
	case w.needs.OS != "" && w.needs.OS != f.OS || w.needs.Arch != "" && w.needs.Arch != f.Arch:
		return wrongSystem
	case f.Paused != "":
		return paused
	case len(f.Origins) > 0 && !slices.Contains(f.Origins, w.origin):
		return wrongOrigin
	case w.repo != "" && len(f.Repos) > 0 && !allows(f.Repos, w.repo):
		return wrongRepo
	}
	var h *fleet.HarnessInfo
	for i := range f.Harnesses {
		if f.Harnesses[i].Name == w.harness {
			h = &f.Harnesses[i]
			break
		}
	}
	switch {
	case h == nil && slices.Contains(f.Barred, w.harness):
		return barred
	case h == nil:
		return noHarness
	case h.SignedIn == "no":
		return signedOut
	case w.needs.HarnessVersion != "" && older(h.Version, w.needs.HarnessVersion):
		return oldHarness
	case w.model != "" && len(h.Models) > 0 && !slices.Contains(h.Models, w.model):
		return noModel
	}
	if _, hidden := w.hidden(f); hidden {
		return noSecret
	}
	return open
}

// allows says whether a URL fits one of the owner's patterns. What is handed over without
// one is not held to them.
func allows(patterns []string, url string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fleet.MatchURL(p, url) })
}

// away says why the runner takes nothing of anybody now.
func (c *candidate) away(now time.Time) bar {
	switch {
	case c.r.HeldAt(now):
		return held
	case !c.connected:
		return offline
	case !c.shown:
		return fresh
	}
	return open
}

// excluded gives the runner's own refusal of the job, while it lasts.
func excluded(j *fleet.Job, r *fleet.Runner, now time.Time) (fleet.Exclusion, bool) {
	for _, x := range j.Excluded {
		if x.Runner == r.ID && x.Facts == r.FactsRev && (x.Until == nil || now.Before(*x.Until)) {
			return x, true
		}
	}
	return fleet.Exclusion{}, false
}

// unfit says what of the machine stands against it: what it could do, were it well.
func (b *Board) unfit(w *wanted, c *candidate) bar {
	if w.docker && !c.docker(b.l.Now) {
		return noDocker
	}
	if auto := w.automated(); auto || w.needs.Disk > 0 {
		if !c.recent {
			return diskUnknown
		}
		if got := c.lowDisk(auto, b.floor, w.room()); got != open {
			return got
		}
	}
	if w.needs.Memory > 0 {
		switch {
		case !c.recent || c.health.Memory == nil || c.health.Memory.Available == 0:
			return memoryUnknown
		case c.health.Memory.Available < w.needs.Memory:
			return memoryLow
		}
	}
	return open
}

// refused says whether circuits keep the job from the runner, and if they do not, which
// ones it is to try.
func (b *Board) refused(ask *fleet.Job, c *candidate) (refused bool, probes []string) {
	if !b.tried() || !b.circuits().Touches(c.r.ID) {
		return false, nil
	}
	a := circuit.AskOf(ask, c.r)
	if b.circuits().Refuses(a, b.l.Now) {
		return true, nil
	}
	return false, b.circuits().Passes(a, b.l.Now).Probes
}

// room says what of slots stands against a job of that kind.
func (c *candidate) room(auto bool) bar {
	switch {
	case c.declining != "":
		return declining
	case auto && c.auto <= 0:
		return autoOff
	case !auto && c.base <= 0:
		return noSlots
	case c.free(auto) <= 0:
		return full
	}
	return open
}

// first gives the first thing that stands against the runner's taking the job, and the
// circuits that it would have to try if nothing does.
func (b *Board) first(w *wanted, j *fleet.Job, c *candidate) (bar, []string) {
	if got := w.unable(c.r); got != open {
		return got, nil
	}
	return b.then(w, j, c)
}

// then is first for a runner that is able.
func (b *Board) then(w *wanted, j *fleet.Job, c *candidate) (bar, []string) {
	if got := c.away(b.l.Now); got != open {
		return got, nil
	}
	if len(j.Excluded) > 0 {
		if _, out := excluded(j, c.r, b.l.Now); out {
			return gaveBack, nil
		}
	}
	refused, probes := b.refused(j, c)
	if refused {
		return circuitOpen, nil
	}
	if got := b.unfit(w, c); got != open {
		return got, nil
	}
	return c.room(w.automated()), probes
}
