package sched

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestReasons makes every reason why a job is not taken happen, one at a time, and
// reads it in three places: the plan, the runner's reason and the summary.
func TestReasons(t *testing.T) {
	yes, why := true, "two machines hold it"
	for _, c := range []struct {
		name   string
		spec   func(*fleet.Spec)
		facts  func(*fleet.RunnerFacts)
		seen   func(*fleet.Presence)
		do     func(*rig)
		code   fleet.Code // empty: it is taken
		detail string
	}{
		{name: "nothing in the way"},
		{name: "asked for by name", spec: func(s *fleet.Spec) { s.On = "box-r1" }},
		{name: "asked for by id", spec: func(s *fleet.Spec) { s.On = "r1" }},
		{name: "another one asked for", spec: func(s *fleet.Spec) { s.On = "box-r2" }, code: fleet.BadRequest, detail: "is not the runner asked for (box-r2)"},
		{name: "label", spec: func(s *fleet.Spec) { s.Require = map[string]string{"os": "linux"} }},
		{name: "other label", spec: func(s *fleet.Spec) { s.Require = map[string]string{"os": "darwin"} }, code: fleet.BadRequest, detail: "lacks the label os=darwin"},
		{name: "no label", spec: func(s *fleet.Spec) { s.Require = map[string]string{"gpu": "", "os": "linux"} }, code: fleet.BadRequest, detail: "lacks the label gpu="},
		{name: "conflict", do: func(g *rig) { g.do(&state.FlagRunner{ID: "r1", Conflict: &why}) }, code: fleet.ClonedIdentity, detail: "two machines hold it"},
		{name: "cordoned", do: func(g *rig) { g.do(&state.FlagRunner{ID: "r1", Cordoned: &yes}) }, code: fleet.Draining, detail: "is cordoned"},
		{name: "paused", facts: func(f *fleet.RunnerFacts) { f.Paused = "holidays" }, code: fleet.OwnerPolicy, detail: "is paused by its owner: holidays"},
		{name: "origin", facts: func(f *fleet.RunnerFacts) { f.Origins = []string{"automation"} }, code: fleet.OwnerPolicy, detail: "does not take manual work"},
		{name: "origin allowed", facts: func(f *fleet.RunnerFacts) { f.Origins = []string{"manual"} }},
		{name: "repository", spec: repo("https://a/b.git"), facts: repos("https://a/c.git", "https://x/*"), code: fleet.OwnerPolicy, detail: "does not allow the repository https://a/b.git"},
		{name: "repository allowed", spec: repo("https://a/b.git"), facts: repos("https://a/*")},
		{name: "repository below", spec: repo("https://a/x/y/b.git"), facts: repos("https://a/**")},
		{name: "repository beside", spec: repo("https://ab/b.git"), facts: repos("https://a/**"), code: fleet.OwnerPolicy, detail: "does not allow"},
		{name: "no repository", facts: repos("https://a/c.git")},
		{name: "harness missing", spec: func(s *fleet.Spec) { s.Harness = "opencode" }, code: fleet.HarnessMissing, detail: "has no opencode"},
		{name: "not signed in", spec: func(s *fleet.Spec) { s.Harness = "claude" }, code: fleet.HarnessSignedOut, detail: "has claude, but not signed in"},
		{name: "sign-in unknown", spec: func(s *fleet.Spec) { s.Harness = "exec" }},
		{name: "secret", spec: func(s *fleet.Spec) { s.Secrets = []string{"NPM"} }},
		{name: "secret missing", spec: func(s *fleet.Spec) { s.Secrets = []string{"NPM", "PYPI"} }, code: fleet.SecretMissing, detail: "has no secret PYPI"},
		{name: "not connected", seen: func(p *fleet.Presence) { p.Connected = false }, code: fleet.Unavailable, detail: "is not connected"},
		{name: "just connected", seen: func(p *fleet.Presence) { p.Full = false }, code: fleet.Unavailable, detail: "has just connected"},
		{name: "declining", seen: func(p *fleet.Presence) { p.Declining = "low disk" }, code: fleet.OwnerPolicy, detail: "takes nothing now: low disk"},
		{name: "no slots", seen: func(p *fleet.Presence) { p.Slots = 0 }, code: fleet.NoSlot, detail: "offers no slot"},
		{name: "slots taken", do: func(g *rig) { g.job("other"); g.place(g.look(1, nil).Pick()) }, code: fleet.NoSlot, detail: "has no free slot of 1"},
		{name: "declined", do: func(g *rig) { decline(g, 0) }, code: fleet.Storage, detail: "gave it back: 3 GiB free"},
		{name: "declined for a while", do: func(g *rig) { decline(g, 60e9) }, code: fleet.Storage, detail: "gave it back until 2026-03-01T12:01:00Z: 3 GiB free"},
	} {
		g := newRig(t)
		g.runner("r1", 1)
		if c.facts != nil {
			g.facts("r1", c.facts)
		}
		if c.name == "slots taken" {
			c.do(g)
			c.do = nil
		}
		if c.spec == nil {
			c.spec = func(*fleet.Spec) {}
		}
		g.job("j", c.spec)
		if c.do != nil {
			c.do(g)
		}
		p := g.seen["r1"]
		if c.seen != nil {
			c.seen(&p)
		}
		g.seen["r1"] = p
		e := g.look(0, nil).Explain(g.get("j"))
		if c.code == "" {
			expect(t, g.pick(), "j>r1")
			if e.Summary != "box-r1 can take it and is being asked" || e.Runners != nil {
				t.Errorf("%s: explained as %+v", c.name, e)
			}
			continue
		}
		if got := g.pick().text(); got != "" {
			t.Errorf("%s: the plan is %q", c.name, got)
		}
		if len(e.Runners) != 1 || e.Runners[0].Code != c.code || e.Runners[0].Runner != "box-r1" || !strings.Contains(e.Runners[0].Detail, c.detail) {
			t.Errorf("%s: the reason is %+v, want %s: %s", c.name, e.Runners, c.code, c.detail)
		}
		if !strings.Contains(e.Summary, "box-r1 "+e.Runners[0].Detail) {
			t.Errorf("%s: the summary is %q", c.name, e.Summary)
		}
	}
}

func repo(url string) func(*fleet.Spec) {
	return func(s *fleet.Spec) { s.Repo = &fleet.Repo{URL: url} }
}

func repos(patterns ...string) func(*fleet.RunnerFacts) {
	return func(f *fleet.RunnerFacts) { f.Repos = patterns }
}

// decline lets the runner take the job and give it back.
func decline(g *rig, after int64) {
	for _, f := range g.place(g.pick()) {
		c := &state.DeclineAttempt{Job: "j", Fence: f, Code: fleet.Storage, Detail: "3 GiB free"}
		c.RetryAfter = time.Duration(after)
		g.do(c)
	}
}

// TestExplainElse: the answers that no runner gives.
func TestExplainElse(t *testing.T) {
	g := newRig(t)
	why := func(id fleet.JobID) string { return g.look(0, nil).Explain(g.get(id)).Summary }
	g.job("a", func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	if s := why("a"); !strings.HasPrefix(s, "no runner is enrolled") {
		t.Errorf("without runners: %q", s)
	}
	g.runner("r1", 2)
	g.runner("r2", 2)
	g.job("b", func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	g.job("c", func(s *fleet.Spec) { s.On = "box-r2"; s.Harness = "none" })
	expect(t, g.pick(), "a>r1")
	f := g.place(g.pick())[0]
	if s := why("b"); s != `waits for job a, which holds the concurrency key "k"` {
		t.Errorf("key held: %q", s)
	}
	if s := why("c"); s != "none of the 2 runners can take it: box-r2 has no none" {
		t.Errorf("the runner asked for must speak: %q", s)
	}
	if s := why("a"); s != "assigned: given to box-r1" {
		t.Errorf("not queued: %q", s)
	}
	if e := g.look(0, nil).Explain(g.get("c")); e.Ahead != 1 {
		t.Errorf("%d jobs are ahead, want 1", e.Ahead)
	}
	g.do(&state.AcceptAttempt{Job: "a", Fence: f})
	g.do(&state.FollowUp{Job: "a"})
	g.do(&state.FinishAttempt{Job: "a", Fence: f, Verdict: &fleet.Verdict{Decision: fleet.Accept}})
	g.seen["r1"] = fleet.Presence{}
	if s := why("a"); s != "waits for a runner: box-r1 is not connected" {
		t.Errorf("a follow-up is bound: %q", s)
	}
	g.do(&state.RemoveRunner{ID: "r1"})
	if s := why("a"); !strings.Contains(s, "box-r1") || !strings.Contains(s, "--fresh") {
		t.Errorf("bound to a removed runner: %q", s)
	}
}
