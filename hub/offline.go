package hub

import (
	"fmt"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// offlineAfter is the silence after which people are told that a machine is offline: long
// enough for it to be started anew.
const offlineAfter = 3 * time.Minute

// offlines gives what is to be recorded of machines that went, or came back. Silence counts
// from when this node began to lead at the earliest, and those that are let in one after
// the other afterwards have that time on top. A machine that a person holds may be switched
// off, and one that never connected is not missed. at is state time.
func offlines(rs []*fleet.Runner, l lease, at time.Time) []state.HealthReport {
	var out []state.HealthReport
	for _, r := range rs {
		last, known := l.since.Add(l.spread), false
		if heard := l.heard(r.ID); heard.After(l.since) {
			last, known = heard, true
		}
		rep := state.HealthReport{ID: r.ID, Free: -1, Memory: -1, Docker: fleet.DockerUnknown}
		if h := r.Health; h != nil {
			rep.Free, rep.Memory, rep.Docker = h.Free, h.Memory, h.Docker
		}
		fault, offline := r.Health.Fault(fleet.FaultOffline)
		_, stale := l.stale(r.ID)
		silent := l.now.Sub(last)
		switch {
		case known && !stale && offline:
			rep.Ended = []state.FaultReport{{Kind: fleet.FaultOffline, Detail: "heard again after " + roughly(at.Sub(fault.Since)+offlineAfter)}}
		case silent > offlineAfter && stale && (!offline && missed(r, at) || offline && state.AlertDue(fault, at)):
			why := "not heard since " + at.Add(-silent).UTC().Format("2006-01-02 15:04 MST")
			if !known {
				why += ", when this hub began to lead" // a word of how long ago would be stale when it is told
			}
			rep.Begun = []state.FaultReport{{Kind: fleet.FaultOffline, Detail: why}}
		default:
			continue
		}
		out = append(out, rep)
	}
	return out
}

// missed says whether it is worth a word that the runner is not there.
func missed(r *fleet.Runner, at time.Time) bool {
	return r.JournalID != "" && r.Conflict == "" && r.Generation >= r.Floor && !r.HeldAt(at)
}

// roughly gives a duration for people.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 100*time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/day)
}
