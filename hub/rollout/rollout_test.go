package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

var t0 = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func runner(id string, ring fleet.Ring, version string, adjust ...func(*fleet.Runner)) *fleet.Runner {
	r := &fleet.Runner{ID: fleet.RunnerID(id), Name: id, Ring: ring, Facts: fleet.RunnerFacts{Version: version, OS: "linux", Arch: "amd64", Update: &fleet.RunnerUpdate{}}}
	for _, f := range adjust {
		f(r)
	}
	return r
}

func wants(version string, downgrade bool) func(*fleet.Runner) {
	return func(r *fleet.Runner) {
		r.Wanted = &fleet.Wanted{Version: version, Asked: "w", Downgrade: downgrade}
	}
}

func ended(state, to, asked string) func(*fleet.Runner) {
	return func(r *fleet.Runner) {
		r.Facts.Update = &fleet.RunnerUpdate{State: state, To: to, Asked: asked, Why: "3 starts in all failed"}
	}
}

func release(version string, ring fleet.Ring, adjust ...func(*fleet.Release)) *fleet.Release {
	rel := &fleet.Release{Version: version, Ring: ring, Since: t0, Files: []fleet.ReleaseFile{{OS: "linux", Arch: "amd64", Size: 1}}}
	for _, f := range adjust {
		f(rel)
	}
	return rel
}

func halted(rel *fleet.Release) { rel.Halted = "it broke" }
func asked(rel *fleet.Release)  { rel.Asked = "a" }

func progress(id string, p fleet.Progress) func(*fleet.Release) {
	return func(rel *fleet.Release) {
		if rel.Runners == nil {
			rel.Runners = map[fleet.RunnerID]fleet.Progress{}
		}
		rel.Runners[fleet.RunnerID(id)] = p
	}
}

func TestFor(t *testing.T) {
	two := []*fleet.Release{release("1.2.0", fleet.RingCanary), release("1.1.0", fleet.RingAll)}
	for _, c := range []struct {
		name     string
		releases []*fleet.Release
		runner   *fleet.Runner
		want     string // VERSION, with the asking behind a slash where there is one, - for a downgrade
	}{
		{"nothing is there", nil, runner("r", "", "1.0.0"), ""},
		{"a canary gets the newest", two, runner("r", fleet.RingCanary, "1.0.0"), "1.2.0"},
		{"others the one that has come to them", two, runner("r", "", "1.0.0"), "1.1.0"},
		{"early ones too", two, runner("r", fleet.RingEarly, "1.0.0"), "1.1.0"},
		{"what runs it", two, runner("r", fleet.RingCanary, "1.2.0"), ""},
		{"what is newer", two, runner("r", "", "1.5.0"), ""},
		{"a build of a working copy", two, runner("r", fleet.RingCanary, "dev-0123"), ""},
		{"one that knows of no updates", two, runner("r", fleet.RingCanary, "1.0.0", func(r *fleet.Runner) { r.Facts.Update = nil }), ""},
		{"another platform", two, runner("r", fleet.RingCanary, "1.0.0", func(r *fleet.Runner) { r.Facts.Arch = "arm64" }), ""},
		{"a halted one is passed over", []*fleet.Release{release("1.2.0", fleet.RingAll, halted), two[1]}, runner("r", fleet.RingCanary, "1.0.0"), "1.1.0"},
		{"a person's asking of a ring is named", []*fleet.Release{release("1.2.0", fleet.RingAll, asked)}, runner("r", "", "1.0.0"), "1.2.0/a"},
		{"asked for, whatever the ring", two, runner("r", "", "1.0.0", wants("1.2.0", false)), "1.2.0/w"},
		{"asked for, although it is halted", []*fleet.Release{release("1.2.0", fleet.RingCanary, halted)}, runner("r", "", "1.0.0", wants("1.2.0", false)), "1.2.0/w"},
		{"asked for and there", two, runner("r", "", "1.1.0", wants("1.1.0", false)), ""},
		{"asked for and gone", two, runner("r", "", "1.0.0", wants("1.3.0", false)), "1.1.0"},
		{"an older one that is no downgrade", two, runner("r", "", "1.5.0", wants("1.2.0", false)), ""},
		{"a downgrade", two, runner("r", "", "1.5.0", wants("1.2.0", true)), "1.2.0/w-"},
		{"a downgrade that is there stays", two, runner("r", fleet.RingCanary, "1.1.0", wants("1.1.0", true)), ""},
		{"what was asked for once, then the next", two, runner("r", fleet.RingCanary, "1.1.0", wants("1.1.0", false)), "1.2.0"},
	} {
		got := ""
		if o := For(c.releases, c.runner); o != nil {
			if got = o.Version; o.Asked != "" {
				got += "/" + o.Asked
			}
			if o.Downgrade {
				got += "-"
			}
			if o.File.Size != 1 {
				t.Errorf("%s: file %+v", c.name, o.File)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLook(t *testing.T) {
	canary := runner("c", fleet.RingCanary, "2.0.0")
	other := runner("o", "", "1.0.0")
	good := fleet.Progress{Since: t0, Healthy: true, Job: "j"}
	for _, c := range []struct {
		name    string
		rel     *fleet.Release
		runners []*fleet.Runner
		beats   int
		job     fleet.JobID
		after   time.Duration
		want    Step
	}{
		{name: "nobody has it yet", rel: release("2.0.0", fleet.RingCanary), runners: []*fleet.Runner{runner("c", fleet.RingCanary, "1.0.0"), other}, after: 1000 * time.Hour},
		{name: "it is seen first", rel: release("2.0.0", fleet.RingCanary), runners: []*fleet.Runner{canary, other}, want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"c": {}}}},
		{name: "a job of before its time", rel: release("2.0.0", fleet.RingCanary), runners: []*fleet.Runner{canary}, job: "j", want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"c": {}}}},
		{name: "too few heartbeats", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0})), runners: []*fleet.Runner{canary}, beats: Beats - 1},
		{name: "enough of them", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0})), runners: []*fleet.Runner{canary}, beats: Beats,
			want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"c": {Healthy: true}}}},
		{name: "heartbeats alone are not enough", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0, Healthy: true})), runners: []*fleet.Runner{canary, other}, beats: 99, after: GateTime - 1},
		{name: "a job alone is not enough", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0, Job: "j"})), runners: []*fleet.Runner{canary, other}},
		{name: "a job that succeeded", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0, Healthy: true})), runners: []*fleet.Runner{canary}, job: "j",
			want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"c": {Healthy: true, Job: "j"}}}},
		{name: "both are on record", rel: release("2.0.0", fleet.RingCanary, progress("c", good)), runners: []*fleet.Runner{canary, other}, want: Step{Ring: fleet.RingEarly}},
		{name: "nobody is early", rel: release("2.0.0", fleet.RingEarly, progress("c", good)), runners: []*fleet.Runner{canary, other}, want: Step{Ring: fleet.RingAll}},
		{name: "evidence of another ring", rel: release("2.0.0", fleet.RingEarly, progress("c", good)), runners: []*fleet.Runner{canary, runner("e", fleet.RingEarly, "1.0.0")}},
		{name: "the last ring", rel: release("2.0.0", fleet.RingAll, progress("c", good), progress("o", good)), runners: []*fleet.Runner{canary, runner("o", "", "2.0.0")}, after: 1000 * time.Hour},
		{name: "it came to nothing", rel: release("2.0.0", fleet.RingCanary), runners: []*fleet.Runner{runner("c", fleet.RingCanary, "1.0.0", ended("rolled_back", "2.0.0", ""))},
			want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"c": {Failed: "3 starts in all failed"}}}},
		{name: "another release came to nothing", rel: release("2.0.0", fleet.RingCanary), runners: []*fleet.Runner{runner("c", fleet.RingCanary, "1.0.0", ended("failed", "1.9.0", ""))}},
		{name: "it is confirmed", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0})), runners: []*fleet.Runner{runner("c", fleet.RingCanary, "2.0.0", ended("confirmed", "2.0.0", ""))}},
		{name: "it came to nothing for an earlier asking", rel: release("2.0.0", fleet.RingCanary, asked), runners: []*fleet.Runner{runner("c", fleet.RingCanary, "1.0.0", ended("rolled_back", "2.0.0", ""))}},
		{name: "for this asking", rel: release("2.0.0", fleet.RingCanary, asked), runners: []*fleet.Runner{runner("c", fleet.RingCanary, "1.0.0", ended("failed", "2.0.0", "a"))},
			want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"c": {Failed: "3 starts in all failed"}}}},
		{name: "for a person's on that runner", rel: release("2.0.0", fleet.RingCanary), runners: []*fleet.Runner{runner("o", "", "1.0.0", ended("failed", "2.0.0", "w"), wants("2.0.0", false))},
			want: Step{Progress: map[fleet.RunnerID]fleet.Progress{"o": {Failed: "3 starts in all failed"}}}},
		{name: "a failure on record halts it", rel: release("2.0.0", fleet.RingEarly, progress("c", good), progress("o", fleet.Progress{Since: t0, Failed: "no"})), runners: []*fleet.Runner{canary, other},
			want: Step{Halt: "on o it came to nothing: no"}},
		{name: "also at the last ring", rel: release("2.0.0", fleet.RingAll, progress("o", fleet.Progress{Since: t0, Failed: "no"})), runners: []*fleet.Runner{other},
			want: Step{Halt: "on o it came to nothing: no"}},
		{name: "it is halted already", rel: release("2.0.0", fleet.RingAll, halted, progress("o", fleet.Progress{Since: t0, Failed: "no"})), runners: []*fleet.Runner{other}},
		{name: "no evidence for a day", rel: release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0, Healthy: true})), runners: []*fleet.Runner{canary, other}, after: GateTime,
			want: Step{Halt: "since c has it, 24h0m0s ago, no runner of the ring was both heard well and had a job that succeeded"}},
		{name: "no evidence since the ring's turn", rel: release("2.0.0", fleet.RingCanary, func(rel *fleet.Release) { rel.Since = t0.Add(time.Hour) }, progress("c", fleet.Progress{Since: t0, Healthy: true})), runners: []*fleet.Runner{canary, other}, after: GateTime},
	} {
		seen := Seen{
			Beats:  func(fleet.RunnerID) int { return c.beats },
			Worked: func(fleet.RunnerID, time.Time) fleet.JobID { return c.job },
		}
		got := Look(c.rel, c.runners, seen, t0.Add(c.after))
		if len(got.Progress) == 0 {
			got.Progress = nil
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
	}
}

// TestNoRingIsSkippedWithoutEvidence: whatever is on record, a release leaves a ring
// with members only where one of them has been healthy and had a job, and none failed.
func TestNoRingIsSkippedWithoutEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rel := release("2.0.0", rapid.SampledFrom(fleet.Rings).Draw(t, "ring"))
		var rs []*fleet.Runner
		evidence, broken, members := false, false, false
		for i := range rapid.IntRange(0, 6).Draw(t, "runners") {
			r := runner(string(rune('a'+i)), rapid.SampledFrom(fleet.Rings).Draw(t, "of"), rapid.SampledFrom([]string{"1.0.0", "2.0.0"}).Draw(t, "version"))
			rs = append(rs, r)
			if rapid.Bool().Draw(t, "on record") {
				p := fleet.Progress{Since: t0, Healthy: rapid.Bool().Draw(t, "healthy"), Job: fleet.JobID(rapid.SampledFrom([]string{"", "j"}).Draw(t, "job")), Failed: rapid.SampledFrom([]string{"", "", "", "no"}).Draw(t, "failed")}
				progress(string(r.ID), p)(rel)
				evidence = evidence || r.InRing() == rel.Ring && p.Healthy && p.Job != ""
				broken = broken || p.Failed != ""
			}
			members = members || r.InRing() == rel.Ring
		}
		seen := Seen{Beats: func(fleet.RunnerID) int { return 99 }, Worked: func(fleet.RunnerID, time.Time) fleet.JobID { return "k" }}
		s := Look(rel, rs, seen, t0.Add(time.Duration(rapid.IntRange(0, 48).Draw(t, "hours"))*time.Hour))
		switch {
		case s.Ring != "" && (broken || members && !evidence || s.Ring.Rank() != rel.Ring.Rank()+1 || s.Halt != ""):
			t.Fatalf("it goes to %s: %+v", s.Ring, rel)
		case broken && s.Halt == "":
			t.Fatalf("it failed somewhere, and goes on: %+v", rel)
		}
	})
}

func TestWaits(t *testing.T) {
	canary := []*fleet.Runner{runner("c", fleet.RingCanary, "2.0.0")}
	for want, rel := range map[string]*fleet.Release{
		"a runner of the ring canary that takes it": release("2.0.0", fleet.RingCanary),
		"heartbeats of c":          release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0})),
		"a job that succeeds on c": release("2.0.0", fleet.RingCanary, progress("c", fleet.Progress{Since: t0, Healthy: true})),
	} {
		if got := Waits(rel, canary); !strings.Contains(got, want) {
			t.Errorf("waits for %q, want %q", got, want)
		}
	}
	if got := Waits(release("2.0.0", fleet.RingAll), canary) + Waits(release("2.0.0", fleet.RingCanary, halted), canary); got != "" {
		t.Errorf("waits for %q", got)
	}
}
