package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/shared/fleet"
)

// The facts of these tests are made up: a year of records costs nothing.

var keepNow = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func dig(name string) fleet.Digest {
	return fleet.Digest(fmt.Sprintf("%064x", []byte(name)))
}

// ago makes a job that ended so long ago.
func ago(id string, d time.Duration, change ...func(*fleet.Job)) *fleet.Job {
	at := keepNow.Add(-d)
	j := &fleet.Job{ID: fleet.JobID(id), State: fleet.Succeeded, CreatedAt: at, UpdatedAt: at,
		Turns: []*fleet.Turn{{N: 1, State: fleet.Succeeded, EndedAt: &at, Prompt: dig("prompt " + id)}}}
	for _, f := range change {
		f(j)
	}
	return j
}

func prompt(name string) func(*fleet.Job) {
	return func(j *fleet.Job) { j.Turns[0].Prompt = dig(name) }
}

func left(e fleet.Evidence) func(*fleet.Job) {
	return func(j *fleet.Job) {
		a := &fleet.Attempt{N: 1, State: fleet.AttemptFinished, Gone: true, Evidence: &e}
		a.Log.Sealed = true
		j.Turns[0].Attempts = append(j.Turns[0].Attempts, a)
	}
}

func commits(name string) func(*fleet.Job) {
	return left(fleet.Evidence{Bundle: dig(name), CommitCount: 1})
}

func pulled(j *fleet.Job) { j.Pulled = true }

func in(s fleet.State) func(*fleet.Job) {
	return func(j *fleet.Job) {
		j.State, j.Turns[0].State = s, s
		if !s.Ended() {
			j.Turns[0].EndedAt = nil
		}
	}
}

func blobsOf(size int64, names ...string) []blob.Info {
	var out []blob.Info
	for _, n := range names {
		out = append(out, blob.Info{Digest: dig(n), Size: size, Stored: keepNow.Add(-365 * day)})
	}
	return out
}

var keepDefault = func() Retention {
	c := Config{Dir: "x", Listen: "127.0.0.1:0"}
	if err := c.complete(); err != nil {
		panic(err)
	}
	return c.Retention
}()

func TestExpiredRecords(t *testing.T) {
	everything := func(fleet.Digest) bool { return true }
	for name, c := range map[string]struct {
		jobs   []*fleet.Job
		open   []fleet.JobID
		max    int
		limit  int
		stored func(fleet.Digest) bool
		want   []fleet.JobID
	}{
		"by age":                           {jobs: []*fleet.Job{ago("a", 91*day), ago("b", 89*day)}, want: []fleet.JobID{"a"}},
		"exactly at the age":               {jobs: []*fleet.Job{ago("a", 90*day)}, want: []fleet.JobID{"a"}},
		"what still runs stays":            {jobs: []*fleet.Job{ago("a", 365*day, in(fleet.Running)), ago("b", 365*day, in(fleet.Queued))}},
		"an open attempt keeps it":         {jobs: []*fleet.Job{ago("a", 365*day, in(fleet.Lost))}, open: []fleet.JobID{"a"}},
		"too many, oldest end first":       {jobs: []*fleet.Job{ago("a", 2*day), ago("b", 5*day), ago("c", day), ago("d", 9*day)}, max: 2, want: []fleet.JobID{"d", "b"}},
		"running ones are none too many":   {jobs: []*fleet.Job{ago("a", 2*day), ago("b", 5*day, in(fleet.Running))}, max: 1},
		"the only copy of commits":         {jobs: []*fleet.Job{ago("a", 365*day, commits("x"))}},
		"the only copy, also when crowded": {jobs: []*fleet.Job{ago("a", 9*day, commits("x")), ago("b", 8*day), ago("c", 7*day)}, max: 2, want: []fleet.JobID{"b"}},
		"commits that were pulled":         {jobs: []*fleet.Job{ago("a", 91*day, commits("x"), pulled)}, want: []fleet.JobID{"a"}},
		"a bundle that never came":         {jobs: []*fleet.Job{ago("a", 91*day, commits("x"))}, stored: func(fleet.Digest) bool { return false }, want: []fleet.JobID{"a"}},
		"a bundle without commits":         {jobs: []*fleet.Job{ago("a", 91*day, left(fleet.Evidence{Bundle: dig("x")}))}, want: []fleet.JobID{"a"}},
		"a few at a time, oldest first":    {jobs: []*fleet.Job{ago("a", 100*day), ago("b", 300*day), ago("c", 200*day)}, limit: 2, want: []fleet.JobID{"b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stock{jobs: c.jobs, now: keepNow, open: map[fleet.JobID]bool{}}
			for _, id := range c.open {
				s.open[id] = true
			}
			keep := keepDefault
			if c.max > 0 {
				keep.MaxJobs = c.max
			}
			if c.limit == 0 {
				c.limit = 100
			}
			if c.stored == nil {
				c.stored = everything
			}
			if diff := cmp.Diff(c.want, expired(s, keep, c.stored, c.limit)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDisposal(t *testing.T) {
	mb := func(n int64) int64 { return n << 20 }
	output := map[fleet.JobID]int64{"a": mb(10), "b": mb(10), "c": mb(10)}
	for name, c := range map[string]struct {
		jobs    []*fleet.Job
		orphans []*fleet.Orphan
		release *fleet.Release
		open    []fleet.JobID
		streams map[fleet.JobID]int64
		blobs   []blob.Info
		bytes   int64
		gone    []fleet.JobID
		blobsGo []string
	}{
		"output by age": {
			jobs: []*fleet.Job{ago("a", 31*day), ago("b", 29*day)}, streams: map[fleet.JobID]int64{"a": 1, "b": 1}, gone: []fleet.JobID{"a"},
		},
		"inputs stay with their record": {
			jobs: []*fleet.Job{ago("a", 31*day)}, blobs: blobsOf(1, "prompt a"),
		},
		"inputs go with their record": {
			blobs: blobsOf(1, "prompt a"), blobsGo: []string{"prompt a"},
		},
		"programs stay with their release": {
			release: &fleet.Release{Files: []fleet.ReleaseFile{{SHA256: dig("linux")}, {SHA256: dig("darwin")}}},
			blobs:   blobsOf(1, "linux", "darwin", "of a release that went"), blobsGo: []string{"of a release that went"},
		},
		"a prompt that two jobs share": {
			jobs: []*fleet.Job{ago("b", day, prompt("same"))}, blobs: blobsOf(1, "same"),
		},
		"prompts of waiting follow-ups, argv and bundles given": {
			jobs: []*fleet.Job{ago("a", 40*day, func(j *fleet.Job) {
				j.FollowUps = []fleet.FollowUp{{Prompt: dig("next")}}
				j.Spec.ArgvBlob = dig("argv")
				j.Spec.Repo = &fleet.Repo{Bundle: dig("repo")}
				j.Turns = append(j.Turns, &fleet.Turn{N: 2, Prompt: dig("second"), EndedAt: j.Turns[0].EndedAt})
			})},
			blobs: blobsOf(1, "prompt a", "next", "argv", "repo", "second"),
		},
		"artifacts by age": {
			jobs:  []*fleet.Job{ago("a", 31*day, pulled, left(fleet.Evidence{Patch: dig("p"), Bundle: dig("b"), CommitCount: 1, Artifacts: []fleet.Artifact{{Digest: dig("f")}}}))},
			blobs: blobsOf(1, "p", "b", "f"), blobsGo: []string{"p", "b", "f"},
		},
		"a patch that a younger job made too": {
			jobs:  []*fleet.Job{ago("a", 31*day, left(fleet.Evidence{Patch: dig("p")})), ago("b", day, left(fleet.Evidence{Patch: dig("p")}))},
			blobs: blobsOf(1, "p"),
		},
		"a patch that is another job's input": {
			jobs:  []*fleet.Job{ago("a", 31*day, left(fleet.Evidence{Patch: dig("p")})), ago("b", 31*day, prompt("p"))},
			blobs: blobsOf(1, "p"),
		},
		"the only copy of commits stays, its patch goes": {
			jobs:  []*fleet.Job{ago("a", 200*day, left(fleet.Evidence{Patch: dig("p"), Bundle: dig("b"), CommitCount: 2}))},
			blobs: blobsOf(1, "p", "b"), blobsGo: []string{"p"},
		},
		"the only copy of commits stays, however full it is": {
			jobs:  []*fleet.Job{ago("a", 20*day, commits("b")), ago("b", 10*day, commits("c"))},
			blobs: blobsOf(mb(100), "b", "c"), bytes: mb(1),
		},
		"the same commits, pulled from one job only": {
			jobs:  []*fleet.Job{ago("a", 31*day, commits("b"), pulled), ago("b", 31*day, commits("b"))},
			blobs: blobsOf(1, "b"),
		},
		"too full: the oldest end first, no more than needed": {
			jobs: []*fleet.Job{ago("b", 3*day), ago("a", 2*day), ago("c", day)}, streams: output, bytes: mb(20), gone: []fleet.JobID{"b"},
		},
		"too full by much": {
			jobs: []*fleet.Job{ago("b", 3*day), ago("a", 2*day), ago("c", day)}, streams: output, bytes: mb(9), gone: []fleet.JobID{"a", "b", "c"},
		},
		"too full, but a shared patch frees nothing": {
			jobs: []*fleet.Job{
				ago("a", 3*day, left(fleet.Evidence{Patch: dig("p")})), ago("b", 2*day, left(fleet.Evidence{Patch: dig("q")})),
				ago("c", day, left(fleet.Evidence{Patch: dig("p")})),
			},
			blobs: blobsOf(mb(10), "p", "q"), bytes: mb(10), blobsGo: []string{"q"},
		},
		"what still runs stays, however full it is": {
			jobs: []*fleet.Job{ago("a", 60*day, in(fleet.Running)), ago("b", 60*day, in(fleet.NeedsReview))}, open: []fleet.JobID{"b"}, streams: output, bytes: 1, gone: []fleet.JobID{"c"},
		},
		"uploads that nobody names are not counted against the bound": {
			jobs: []*fleet.Job{ago("a", day)}, streams: map[fleet.JobID]int64{"a": mb(5)}, blobs: blobsOf(mb(50), "upload"), bytes: mb(20), blobsGo: []string{"upload"},
		},
		"streams whose record is gone": {
			streams: map[fleet.JobID]int64{"a": 1}, gone: []fleet.JobID{"a"},
		},
		"all there is of a result without a record": {
			jobs:    []*fleet.Job{ago("b", 60*day)},
			orphans: []*fleet.Orphan{{Job: "a", Prompt: dig("prompt a"), Spec: fleet.Spec{ArgvBlob: dig("argv")}, Evidence: &fleet.Evidence{Bundle: dig("b"), Patch: dig("p")}}, {Job: "b"}},
			streams: map[fleet.JobID]int64{"a": mb(10), "b": 1, "c": 1}, bytes: 1, blobs: blobsOf(1, "b", "p", "argv", "prompt a", "none"),
			gone: []fleet.JobID{"c"}, blobsGo: []string{"none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stock{jobs: c.jobs, now: keepNow, wall: keepNow, open: map[fleet.JobID]bool{}, orphans: c.orphans, streams: c.streams, blobs: c.blobs}
			if c.release != nil {
				s.releases = []*fleet.Release{c.release}
			}
			for _, id := range c.open {
				s.open[id] = true
			}
			keep := keepDefault
			if c.bytes > 0 {
				keep.OutputBytes = c.bytes
			}
			d := dispose(s, keep)
			if diff := cmp.Diff(c.gone, d.streams); diff != "" {
				t.Errorf("streams (-want +got):\n%s", diff)
			}
			var got, want []fleet.Digest
			for _, u := range d.blobs {
				got = append(got, u.digest)
			}
			for _, n := range c.blobsGo {
				want = append(want, dig(n))
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("blobs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDisposalWaitsForWhoIsAboutToName(t *testing.T) {
	s := stock{jobs: []*fleet.Job{ago("a", 31*day, left(fleet.Evidence{Patch: dig("p")}))}, now: keepNow, wall: keepNow, blobs: blobsOf(1, "p", "upload")}
	for _, u := range dispose(s, keepDefault).blobs {
		want := 24 * time.Hour
		if u.digest == dig("p") {
			want = time.Hour
		}
		if got := keepNow.Sub(u.since); got != want {
			t.Errorf("blob %s goes if untouched for %s; want %s", strings.TrimLeft(string(u.digest), "0"), got, want)
		}
	}
}
