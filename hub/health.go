package hub

import (
	"fmt"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// A sample of a machine's health is told from the one before by its class: which faults
// it shows. A fault begins below one figure and ends above a greater one, so that a
// figure at the edge does not come and go; and what is not known neither begins nor ends
// a fault.
const (
	memoryFloorMost  = 1 << 30   // bytes available that are low on a large machine
	memoryFloorLeast = 128 << 20 // and on a small one
	memoryShare      = 20        // one in so many is low in between
	inodeShare       = 100       // one inode free in so many is low

	// A machine's memory, and its Docker daemon while it is started anew, may be gone
	// for a moment: it counts when two samples in a row say so.
	lowInARow = 2
)

// class says of one kind of fault what a sample shows.
type class int

const (
	unclear class = iota
	well
	faulty
)

// finding is the class of one kind with the reason in words.
type finding struct {
	kind fleet.FaultKind
	class
	detail string
}

// findings classify a sample. was are the faults that are there so far; floor is what
// automation needs for selection there, in bytes. had says that Docker and Compose
// answered there at some time.
func findings(s *fleet.Health, was func(fleet.FaultKind) bool, floor int64, had bool) []finding {
	if s == nil || s.Age > fleet.HealthFresh {
		return nil
	}
	var out []finding
	for _, f := range []finding{diskOf(s, was(fleet.FaultDisk), floor), memoryOf(s, was(fleet.FaultMemory)), dockerOf(s, had)} {
		if f.class != unclear {
			out = append(out, f)
		}
	}
	return out
}

// diskOf looks at both volumes: one that is low is a fault whatever is known of the other;
// that none is takes knowledge of both.
func diskOf(s *fleet.Health, was bool, floor int64) finding {
	out := finding{kind: fleet.FaultDisk, class: well}
	if was {
		floor += floor / 20
	}
	for _, v := range []fleet.Volume{s.Workspace, s.Cache} {
		switch {
		case !v.Known:
			if out.class == well {
				out.class = unclear
			}
		case v.Free < floor:
			return finding{fleet.FaultDisk, faulty, fmt.Sprintf("%s free at %s, and automation needs %s", gibibytes(v.Free), v.Path, gibibytes(floor))}
		case fewInodes(v, was):
			return finding{fleet.FaultDisk, faulty, fmt.Sprintf("%d of %d inodes free at %s", v.Inodes, v.Nodes, v.Path)}
		}
		if out.class == well && out.detail == "" {
			out.detail = fmt.Sprintf("%s free at %s", gibibytes(v.Free), v.Path)
		}
	}
	return out
}

func fewInodes(v fleet.Volume, was bool) bool {
	least := v.Nodes / inodeShare
	if was {
		least *= 2
	}
	return v.Nodes > 0 && v.Inodes >= 0 && v.Inodes < least
}

func memoryOf(s *fleet.Health, was bool) finding {
	m := s.Memory
	if m == nil || m.Available <= 0 || m.Total <= 0 {
		return finding{}
	}
	floor := max(min(m.Total/memoryShare, memoryFloorMost), memoryFloorLeast)
	if was {
		floor += floor / 2
	}
	out := finding{fleet.FaultMemory, well, fmt.Sprintf("%s of %s available", gibibytes(m.Available), gibibytes(m.Total))}
	if m.Available < floor {
		out.class = faulty
	}
	return out
}

// dockerOf tells a daemon that is gone from one that nobody could ask. One that answers
// without Compose is a fault once that has lasted as long as its last answer counts.
func dockerOf(s *fleet.Health, had bool) finding {
	d := s.Docker
	out := finding{kind: fleet.FaultDocker}
	switch {
	case !had && !d.Verified:
	case d.State == fleet.DockerAbsent:
		out.class, out.detail = faulty, "there is no Docker daemon any more"
	case d.State == fleet.DockerDown:
		out.class, out.detail = faulty, "the Docker daemon does not answer"
	case d.State == fleet.DockerReady && d.Compose != "":
		out.class, out.detail = well, "Docker "+d.Version+" and Compose "+d.Compose+" answer"
	case d.State == fleet.DockerReady && (!d.Verified || d.VerifiedAge > fleet.DockerFresh):
		out.class, out.detail = faulty, "Docker answers, and Compose does not"
	}
	if out.class == faulty && d.Detail != "" {
		out.detail += ": " + d.Detail
	}
	return out
}

// gibibytes gives bytes for people.
func gibibytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// What moved noticeably since it was recorded last.
const (
	noticeable  = 1 << 30 // bytes, and
	noticeShare = 50      // one in so many of the disk
	noticeAgain = time.Minute
)

// vital is what the leader keeps of one machine between samples.
type vital struct {
	low  map[fleet.FaultKind]int // samples in a row that showed a fault that is not on record
	told time.Time               // when its record was last proposed
	want *state.HealthReport     // to be recorded
	soon bool                    // without waiting
}

// note takes in a sample. rec is what is on record of the machine, which may be nil, and
// at is state time. It says whether something is to be recorded at once.
func (v *vital) note(id fleet.RunnerID, s *fleet.Health, rec *fleet.HealthRecord, floor int64, now, at time.Time) (soon bool) {
	rep := state.HealthReport{ID: id, Free: -1, Memory: -1, Docker: s.Docker.State, Verified: s.Docker.Verified}
	if rep.Docker == "" {
		rep.Docker = fleet.DockerUnknown
	}
	total := int64(0)
	if s.Workspace.Known {
		rep.Free, total = s.Workspace.Free, s.Workspace.Total
	}
	if m := s.Memory; m != nil && m.Available > 0 {
		rep.Memory = m.Available
	}
	had := rec != nil && rec.HadOnce
	was := func(k fleet.FaultKind) bool { _, there := rec.Fault(k); return there }
	for _, f := range findings(s, was, floor, had) {
		there, known := rec.Fault(f.kind)
		if f.class == well {
			delete(v.low, f.kind)
			if known {
				rep.Ended = append(rep.Ended, state.FaultReport{Kind: f.kind, Detail: f.detail})
				soon = true
			}
			continue
		}
		if !known {
			if v.low == nil {
				v.low = map[fleet.FaultKind]int{}
			}
			if v.low[f.kind]++; f.kind != fleet.FaultDisk && v.low[f.kind] < lowInARow {
				continue
			}
		}
		rep.Begun = append(rep.Begun, state.FaultReport{Kind: f.kind, Detail: f.detail})
		soon = soon || !known || state.AlertDue(there, at)
	}
	soon = soon || rep.Verified && !had
	if v.want = nil; soon || now.Sub(v.told) >= noticeAgain && (rec == nil || moved(rec, rep, total)) {
		v.want = &rep
	}
	v.soon = soon
	return soon
}

// moved says whether figures differ from those on record by so much that people would
// want to know.
func moved(rec *fleet.HealthRecord, rep state.HealthReport, total int64) bool {
	apart := func(a, b, least int64) bool { return (a < 0) != (b < 0) || max(a-b, b-a) >= least }
	return rec.Docker != rep.Docker || apart(rec.Free, rep.Free, max(noticeable, total/noticeShare)) || apart(rec.Memory, rep.Memory, 4*noticeable)
}
