package hub

import (
	"cmp"
	"slices"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// What may be deleted is decided here, from facts alone. Three kinds of thing are
// kept, each for another reason:
//
//   - a record, until it is old or there are too many; but never while an attempt
//     of it is open, nor while its bundle is the only copy of commits;
//   - what a run put out (streams, patches, bundles, artifacts), until it is old or
//     takes too much room; but a bundle as above as long as its record;
//   - what a run was given (prompts, argv, input bundles), as long as its record, and
//     the programs of a release likewise.
//
// All that there is of a result whose record was lost is kept until a person decides
// about it.
//
// Blobs are named by their content and may serve many jobs, so that a blob goes
// only once no record that is left needs it.

const (
	unusedFor   = 24 * time.Hour // an upload that no job names may wait so long for its job
	releasedFor = time.Hour      // a blob whose last use has just ended may be in somebody's hands
)

// stock is what there is to keep.
type stock struct {
	jobs []*fleet.Job // all records
	open map[fleet.JobID]bool
	now  time.Time // state time

	releases []*fleet.Release

	orphans []*fleet.Orphan // results without a record, which wait for a person

	streams map[fleet.JobID]int64 // bytes of recorded output on this node, by job
	blobs   []blob.Info           // on this node
	wall    time.Time             // by the clock of the file system
}

func stockOf(v state.View) stock {
	s := stock{now: v.Meta().Time, open: map[fleet.JobID]bool{}}
	v.JobsOldest(func(j *fleet.Job) bool { s.jobs = append(s.jobs, j); return true })
	s.releases = v.Releases()
	v.Open(func(o state.Open) bool { s.open[o.Job.ID] = true; return true })
	s.orphans = slices.DeleteFunc(v.Orphans(), func(o *fleet.Orphan) bool { return o.Settled != "" })
	return s
}

// settled says whether nothing is going on in a job.
func (s *stock) settled(j *fleet.Job) bool { return j.State.Ended() && !s.open[j.ID] }

// endOf is when a job came to its end, by state time.
func endOf(j *fleet.Job) time.Time {
	if at := j.Turn().EndedAt; at != nil {
		return *at
	}
	return j.UpdatedAt
}

// byEnd sorts jobs, those that ended first first.
func byEnd(a, b *fleet.Job) int {
	return cmp.Or(endOf(a).Compare(endOf(b)), cmp.Compare(a.ID, b.ID))
}

// precious gives the bundles that may be the only copy of a job's commits.
func precious(j *fleet.Job) []fleet.Digest {
	if j.Pulled {
		return nil
	}
	var out []fleet.Digest
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			if e := a.Evidence; e != nil && e.Bundle != "" && e.CommitCount > 0 {
				out = append(out, e.Bundle)
			}
		}
	}
	return out
}

// inputs gives the blobs that a job was given, those of waiting follow-ups included.
func inputs(j *fleet.Job) []fleet.Digest {
	out := []fleet.Digest{j.Spec.ArgvBlob}
	if j.Spec.Repo != nil {
		out = append(out, j.Spec.Repo.Bundle)
	}
	for _, t := range j.Turns {
		out = append(out, t.Prompt)
	}
	for _, f := range j.FollowUps {
		out = append(out, f.Prompt)
	}
	return slices.DeleteFunc(out, func(d fleet.Digest) bool { return d == "" })
}

// outputs gives the blobs that a job's attempts left.
func outputs(j *fleet.Job) []fleet.Digest {
	var out []fleet.Digest
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			e := a.Evidence
			if e == nil {
				continue
			}
			out = append(out, e.Patch, e.Bundle)
			for _, f := range e.Artifacts {
				out = append(out, f.Digest)
			}
		}
	}
	return slices.DeleteFunc(out, func(d fleet.Digest) bool { return d == "" })
}

// expired gives the records that have reached their end, at most limit, oldest
// first. stored says whether a blob is there: a bundle that is not protects nothing.
func expired(s stock, keep Retention, stored func(fleet.Digest) bool, limit int) []fleet.JobID {
	var ended []*fleet.Job
	for _, j := range s.jobs {
		if s.settled(j) {
			ended = append(ended, j)
		}
	}
	excess := len(ended) - keep.MaxJobs
	if excess <= 0 { // the usual case: only age counts
		ended = slices.DeleteFunc(ended, func(j *fleet.Job) bool { return s.now.Sub(endOf(j)) < keep.Jobs })
	}
	slices.SortFunc(ended, byEnd)
	var out []fleet.JobID
	for _, j := range ended {
		if len(out) == limit || len(out) >= excess && s.now.Sub(endOf(j)) < keep.Jobs {
			break
		}
		if !slices.ContainsFunc(precious(j), stored) {
			out = append(out, j.ID)
		}
	}
	return out
}

// disposal is what goes from a node's disks.
type disposal struct {
	streams []fleet.JobID // all streams of these
	blobs   []unused
}

// unused is a blob that nobody needs, if it was not stored or renewed since.
type unused struct {
	digest fleet.Digest
	since  time.Time
}

// dispose decides what of the output and the blobs goes: what no record has, what
// is old, and of the rest the oldest until it fits.
func dispose(s stock, keep Retention) disposal {
	var d disposal
	need := map[fleet.Digest]int{}
	total := int64(0)
	size := make(map[fleet.Digest]int64, len(s.blobs))
	for _, b := range s.blobs {
		size[b.Digest] = b.Size
		total += b.Size
	}
	waits := map[fleet.JobID]bool{}
	for _, o := range s.orphans {
		waits[o.Job] = true
	}
	known := make(map[fleet.JobID]bool, len(s.jobs))
	var ended []*fleet.Job
	for _, j := range s.jobs {
		known[j.ID] = true
		for _, b := range append(append(inputs(j), outputs(j)...), precious(j)...) {
			need[b]++
		}
		if s.settled(j) && !waits[j.ID] {
			ended = append(ended, j)
		}
	}
	for _, o := range s.orphans { // as if each were a job that goes on
		known[o.Job] = true
		j := &fleet.Job{Spec: o.Spec, Turns: []*fleet.Turn{{Prompt: o.Prompt, Attempts: []*fleet.Attempt{{Evidence: o.Evidence}}}}}
		for _, b := range append(inputs(j), outputs(j)...) {
			need[b]++
		}
	}
	for _, rel := range s.releases {
		for _, f := range rel.Files {
			need[f.SHA256]++
		}
	}
	for id, n := range s.streams {
		if known[id] {
			total += n
		} else {
			d.streams = append(d.streams, id) // its record went, and the node stopped before this
		}
	}
	for b, n := range size {
		if need[b] == 0 {
			total -= n
		}
	}
	slices.SortFunc(ended, byEnd)
	released := map[fleet.Digest]bool{}
	for _, j := range ended {
		if s.now.Sub(endOf(j)) < keep.Output && total <= keep.OutputBytes {
			break
		}
		if n, has := s.streams[j.ID]; has {
			d.streams = append(d.streams, j.ID)
			total -= n
		}
		for _, b := range outputs(j) {
			if need[b]--; need[b] == 0 {
				released[b] = true
				total -= size[b]
			}
		}
	}
	for _, b := range s.blobs {
		switch {
		case need[b.Digest] > 0:
		case released[b.Digest]:
			d.blobs = append(d.blobs, unused{b.Digest, s.wall.Add(-releasedFor)})
		default:
			d.blobs = append(d.blobs, unused{b.Digest, s.wall.Add(-unusedFor)})
		}
	}
	slices.Sort(d.streams)
	return d
}
