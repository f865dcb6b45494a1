// Package rollout decides who is given which release of this program, and when a release
// goes from the canaries to the early ones and to all: on evidence of runners that run
// it, never on time alone. It is a function of the releases, the runners and what was
// heard of them.
package rollout

import (
	"fmt"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// Beats is how many heartbeats in a row a runner must send with a version to be
	// healthy with it.
	Beats = 6
	// GateTime is how long a release waits at a ring for its evidence once a runner of
	// that ring has it.
	GateTime = 24 * time.Hour
)

// Offer is a release that a runner is to have.
type Offer struct {
	Version   string
	File      fleet.ReleaseFile
	Asked     string
	Downgrade bool
}

// For gives what a runner is to have, or nil. What a person asked for on it counts
// before its ring, also where that release is halted; an older version that was asked
// for stays until another asking.
func For(releases []*fleet.Release, r *fleet.Runner) *Offer {
	if r.Facts.Update == nil {
		return nil // an older runner, which takes none
	}
	if w := r.Wanted; w != nil {
		for _, rel := range releases {
			if rel.Version != w.Version {
				continue
			}
			order, ok := fleet.CompareVersions(rel.Version, r.Facts.Version)
			if f, has := rel.File(r.Facts.OS, r.Facts.Arch); has && ok && (order > 0 || order < 0 && w.Downgrade) {
				return &Offer{rel.Version, f, w.Asked, w.Downgrade}
			}
			if w.Downgrade {
				return nil
			}
		}
	}
	var best *Offer
	for _, rel := range releases {
		if rel.Halted != "" || rel.Ring.Rank() < r.InRing().Rank() {
			continue
		}
		f, has := rel.File(r.Facts.OS, r.Facts.Arch)
		if order, ok := fleet.CompareVersions(rel.Version, r.Facts.Version); !has || !ok || order <= 0 {
			continue
		}
		if best != nil {
			if order, _ := fleet.CompareVersions(rel.Version, best.Version); order <= 0 {
				continue
			}
		}
		best = &Offer{rel.Version, f, rel.Asked, false}
	}
	return best
}

// Seen is what is known of runners beside their records.
type Seen struct {
	Beats  func(fleet.RunnerID) int                    // in a row, with the version that it runs
	Worked func(fleet.RunnerID, time.Time) fleet.JobID // one that it began after that time and that succeeded
}

// Step is what one look at a release leads to; all of it may be nothing.
type Step struct {
	Progress map[fleet.RunnerID]fleet.Progress // to record
	Ring     fleet.Ring                        // to go to
	Halt     string                            // why it is offered to nobody further
}

// Look decides how a release goes on. A halt comes before anything else; a ring is left
// only when what it is left for is on record.
func Look(rel *fleet.Release, runners []*fleet.Runner, seen Seen, now time.Time) Step {
	s, broken := Step{Progress: map[fleet.RunnerID]fleet.Progress{}}, false
	for _, r := range runners {
		is := rel.Runners[r.ID]
		if why := failed(rel, r); why != "" && is.Failed == "" {
			s.Progress[r.ID], broken = fleet.Progress{Failed: why}, true
			continue
		}
		if order, ok := fleet.CompareVersions(r.Facts.Version, rel.Version); !ok || order != 0 {
			continue
		}
		p := fleet.Progress{Healthy: is.Healthy || seen.Beats(r.ID) >= Beats, Job: is.Job}
		if is.Job == "" && !is.Since.IsZero() && r.InRing() == rel.Ring && rel.Halted == "" && rel.Ring != fleet.RingAll {
			p.Job = seen.Worked(r.ID, is.Since) // it counts for nothing else
		}
		if is.Since.IsZero() || p.Healthy != is.Healthy || p.Job != is.Job {
			s.Progress[r.ID] = p
		}
	}
	if rel.Halted == "" && !broken {
		s.Ring, s.Halt = gate(rel, runners, now)
	}
	return s
}

// failed says why a release came to nothing on a runner, for an asking that counts now.
func failed(rel *fleet.Release, r *fleet.Runner) string {
	u := r.Facts.Update
	if u == nil || u.To != rel.Version || u.State != "failed" && u.State != "rolled_back" {
		return ""
	}
	if u.Asked != rel.Asked && (r.Wanted == nil || r.Wanted.Version != rel.Version || u.Asked != r.Wanted.Asked) {
		return ""
	}
	if u.Why == "" {
		return u.State
	}
	return u.Why
}

// gate decides from the record where a release goes.
func gate(rel *fleet.Release, runners []*fleet.Runner, now time.Time) (to fleet.Ring, halt string) {
	members := 0
	passed := false
	var first *fleet.Runner // of the ring, to have it
	var since time.Time
	for _, r := range runners {
		p, has := rel.Runners[r.ID]
		if p.Failed != "" {
			return "", fmt.Sprintf("on %s it came to nothing: %s", r.Name, p.Failed)
		}
		if r.InRing() != rel.Ring {
			continue
		}
		members++
		passed = passed || p.Healthy && p.Job != ""
		at := p.Since
		if at.Before(rel.Since) {
			at = rel.Since // it had it before the ring's turn
		}
		if has && (first == nil || at.Before(since)) {
			first, since = r, at
		}
	}
	next := rel.Ring.Rank() + 1
	switch {
	case next >= len(fleet.Rings):
		return "", "" // there is nobody further; it goes on until it fails somewhere
	case members == 0, passed:
		return fleet.Rings[next], ""
	case first != nil && now.Sub(since) >= GateTime:
		return "", fmt.Sprintf("since %s has it, %s ago, no runner of the ring was both heard well and had a job that succeeded", first.Name, now.Sub(since).Round(time.Minute))
	}
	return "", ""
}

// Waits says what a release waits for where it is, for people; empty where for nothing.
func Waits(rel *fleet.Release, runners []*fleet.Runner) string {
	if rel.Halted != "" || rel.Ring.Rank() == len(fleet.Rings)-1 {
		return ""
	}
	healthy, updated := "", ""
	for _, r := range runners {
		if p, has := rel.Runners[r.ID]; has && r.InRing() == rel.Ring {
			updated = r.Name
			if p.Healthy {
				healthy = r.Name
			}
		}
	}
	switch {
	case healthy != "":
		return "a job that succeeds on " + healthy
	case updated != "":
		return fmt.Sprintf("%d heartbeats of %s", Beats, updated)
	}
	return fmt.Sprintf("a runner of the ring %s that takes it", rel.Ring)
}
