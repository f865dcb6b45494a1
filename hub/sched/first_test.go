package sched

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// obstacle is one thing that stands against a runner's taking a job.
type obstacle struct {
	bar    bar
	words  string
	spec   func(*fleet.Spec)
	facts  func(*fleet.RunnerFacts)
	seen   func(*fleet.Presence)
	before func(*rig) // the job is submitted
	after  func(*rig)
}

// obstacles are all that can be in one job's way at once, in the order in which they are
// looked for.
func obstacles(auto bool) []obstacle {
	why := "two machines hold it"
	codex := func(f func(*fleet.HarnessInfo)) func(*fleet.RunnerFacts) {
		return func(all *fleet.RunnerFacts) { f(&all.Harnesses[0]) }
	}
	needs := func(f func(*fleet.Needs)) func(*fleet.Spec) {
		return func(s *fleet.Spec) {
			if s.Needs == nil {
				s.Needs = &fleet.Needs{}
			}
			f(s.Needs)
		}
	}
	health := func(f func(*fleet.Health)) func(*fleet.Presence) { return func(p *fleet.Presence) { f(p.Health) } }
	memory := needs(func(n *fleet.Needs) { n.Memory = 8 << 30 })
	none := 0
	origins, off := []string{fleet.Automation}, obstacle{bar: noSlots, words: "offers no slot", seen: func(p *fleet.Presence) { p.Slots = 0 }}
	if auto {
		origins, off = []string{fleet.Manual}, obstacle{bar: autoOff, words: "offers no slot for automation now", seen: func(p *fleet.Presence) { p.Automation = &none }}
	}
	return []obstacle{
		{bar: conflict, words: why, after: func(g *rig) { g.do(&state.FlagRunner{ID: "r1", Conflict: &why}) }},
		{bar: notAsked, words: "is not the runner asked for", spec: func(s *fleet.Spec) { s.On = "box-r2" }},
		{bar: noLabel, words: "lacks the label gpu=1", spec: func(s *fleet.Spec) { s.Require = map[string]string{"gpu": "1"} }},
		{bar: wrongSystem, words: "asks for darwin", spec: needs(func(n *fleet.Needs) { n.OS = "darwin" })},
		{bar: paused, words: "holidays", facts: func(f *fleet.RunnerFacts) { f.Paused = "holidays" }},
		{bar: wrongOrigin, words: "does not take", facts: func(f *fleet.RunnerFacts) { f.Origins = origins }},
		{bar: wrongRepo, words: "does not allow the repository", spec: repo("https://a/b"), facts: repos("https://c/**")},
		{bar: barred, words: "its owner does not allow it", facts: func(f *fleet.RunnerFacts) { f.Harnesses, f.Barred = f.Harnesses[1:], []string{"codex"} }},
		{bar: noHarness, words: "has no codex", facts: func(f *fleet.RunnerFacts) { f.Harnesses = append(f.Harnesses[1:2:2], fleet.HarnessInfo{Name: "exec"}) }},
		{bar: signedOut, words: "not signed in", facts: codex(func(h *fleet.HarnessInfo) { h.SignedIn = "no" })},
		{bar: oldHarness, words: "0.99 or later", spec: needs(func(n *fleet.Needs) { n.HarnessVersion = "0.99" }), facts: codex(func(h *fleet.HarnessInfo) { h.Version = "0.98" })},
		{bar: noModel, words: "only n", spec: func(s *fleet.Spec) { s.Model = "m" }, facts: codex(func(h *fleet.HarnessInfo) { h.Models = []string{"n"} })},
		{bar: noSecret, words: "has no secret PYPI", spec: func(s *fleet.Spec) { s.Secrets = []string{"PYPI"} }},
		{bar: held, words: "new disk", after: func(g *rig) { g.do(&state.HoldRunner{ID: "r1", Hold: &fleet.Hold{Reason: "new disk"}}) }},
		{bar: offline, words: "is offline since", seen: func(p *fleet.Presence) { p.Connected = false }},
		{bar: fresh, words: "has just connected", seen: func(p *fleet.Presence) { p.Full = false }},
		{bar: gaveBack, words: "gave it back: no account", after: func(g *rig) {
			f := g.do(&state.AssignJob{Job: "j", Runner: "r1", Turn: 1, Slots: fleet.MaxSlots}).Fence
			g.do(&state.DeclineAttempt{Job: "j", Fence: f, Code: fleet.RepoAuth, Detail: "no account"})
		}},
		{bar: circuitOpen, words: "too dear", after: func(g *rig) {
			g.do(&state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: "r1", Provider: "openai", For: time.Hour, Reason: "too dear"})
		}},
		{bar: noDocker, words: "a Docker daemon that does not answer", spec: needs(func(n *fleet.Needs) { n.Docker = true }), seen: health(func(h *fleet.Health) { h.Docker.State = fleet.DockerDown })},
		{bar: diskUnknown, words: "cannot tell how much is free at /work: it hangs", spec: needs(func(n *fleet.Needs) { n.Disk = 1 }), seen: health(func(h *fleet.Health) { h.Workspace = fleet.Volume{Path: "/work", Detail: "it hangs"} })},
		{bar: diskLow, words: "has 1 MiB free at /work", spec: needs(func(n *fleet.Needs) { n.Disk = 9 << 30 }), seen: health(func(h *fleet.Health) { h.Workspace.Free = 1 << 20 })},
		{bar: cacheLow, words: "has 2 MiB free at /cache", seen: health(func(h *fleet.Health) { h.Cache.Free = 2 << 20 })},
		{bar: inodesLow, words: "has 3 of 2000000 inodes free at /cache", seen: health(func(h *fleet.Health) { h.Cache.Inodes = 3 })},
		{bar: memoryUnknown, words: "cannot tell how much memory", spec: memory, seen: health(func(h *fleet.Health) { h.Memory = nil })},
		{bar: memoryLow, words: "has 5 MiB of memory available", spec: memory, seen: health(func(h *fleet.Health) { h.Memory.Available = 5 << 20 })},
		{bar: declining, words: "takes nothing now: night", seen: func(p *fleet.Presence) { p.Declining = "night" }},
		off,
		{bar: full, words: "has no free slot of 1", before: func(g *rig) { g.do(&state.AssignJob{Job: "other", Runner: "r1", Turn: 1, Slots: fleet.MaxSlots}) }},
	}
}

// TestFirstReasonIsTold puts everything in a job's way at once, and clears it away from
// the front: what stands first is told, whatever stands behind it. Every reason that
// there is comes up.
func TestFirstReasonIsTold(t *testing.T) {
	told := map[bar]bool{open: true, sessionGone: true} // the latter is of follow-ups; see TestExplainElse
	for _, auto := range []bool{true, false} {
		all := obstacles(auto)
		if !auto { // people's jobs are not held to the floors
			all = append(all[:21:21], all[23:]...)
		}
		for k := range len(all) + 1 {
			g := newRig(t)
			g.runner("r1", 1)
			origin := func(s *fleet.Spec) {
				if auto {
					s.Origin = fleet.Origin{Kind: fleet.Automation, Name: "nightly"}
				}
			}
			g.job("other", origin)
			left := all[k:]
			spec, p := []func(*fleet.Spec){origin}, g.seen["r1"]
			g.facts("r1", func(f *fleet.RunnerFacts) {
				for i := len(left) - 1; i >= 0; i-- { // those behind first, for some take away what others change
					if left[i].facts != nil {
						left[i].facts(f)
					}
				}
			})
			for i := len(left) - 1; i >= 0; i-- {
				if left[i].seen != nil {
					left[i].seen(&p)
				}
				if left[i].spec != nil {
					spec = append(spec, left[i].spec)
				}
				if left[i].before != nil {
					left[i].before(g)
				}
			}
			g.seen["r1"] = p
			g.job("j", spec...)
			for i := len(left) - 1; i >= 0; i-- {
				if left[i].bar == gaveBack {
					left[i].after(g) // while it can be assigned
				}
			}
			for _, x := range left {
				if x.after != nil && x.bar != gaveBack {
					x.after(g)
				}
			}
			r := g.look(0, nil).Explain(g.get("j")).Runners[0]
			if k == len(all) {
				if r.Code != "" {
					t.Errorf("with nothing in the way it is %+v", r)
				}
				break
			}
			x := all[k]
			told[x.bar] = true
			b := g.look(0, nil)
			w := b.wanted(g.get("j"))
			if got, _ := b.first(w, g.get("j"), &b.candidates()[0]); got != x.bar {
				t.Errorf("automation %v: bar %d stands first, want %d", auto, got, x.bar)
			}
			if want := code[x.bar]; want != "" && r.Code != want || !strings.Contains(r.Detail, x.words) || r.Change == "" {
				t.Errorf("automation %v: told is %+v, want %s and %q", auto, r, code[x.bar], x.words)
			}
		}
	}
	for b := open; b <= full; b++ {
		if !told[b] {
			t.Errorf("bar %d never came up", b)
		}
	}
}

// TestNotesWarnOfTheDisk: what keeps an automation from a machine is a warning for people.
func TestNotesWarnOfTheDisk(t *testing.T) {
	for _, c := range []struct {
		name string
		seen func(*fleet.Presence)
		want string
	}{
		{"well", func(*fleet.Presence) {}, ""},
		{"no sample", func(p *fleet.Presence) { p.Health = nil }, "box-r1 has sent no sample of its health yet"},
		{"an old one", func(p *fleet.Presence) { p.HealthAt = start.Add(-2 * time.Minute) }, "box-r1 sent the last sample of its health 2m ago"},
		{"a mount that hangs", func(p *fleet.Presence) { p.Health.Cache = fleet.Volume{Path: "/cache", Detail: "no answer in 2s"} }, "box-r1 cannot tell how much is free at /cache: no answer in 2s"},
		{"below the floor", func(p *fleet.Presence) { p.Health.Workspace.Free = 3 << 30 }, "box-r1 has 3.0 GiB free at /work, and automation needs 10.0 GiB"},
		{"hardly an inode", func(p *fleet.Presence) { p.Health.Workspace.Inodes = 7 }, "box-r1 has 7 of 2000000 inodes free at /work"},
	} {
		g := newRig(t)
		g.runner("r1", 1)
		g.job("hand")
		g.job("auto", by("nightly", 0))
		p := g.seen["r1"]
		c.seen(&p)
		g.seen["r1"] = p
		e := g.look(0, nil).Explain(g.get("hand"))
		if e.Code != "" || (len(e.Notes) == 0) != (c.want == "") || c.want != "" && !strings.HasPrefix(e.Notes[0], c.want) {
			t.Errorf("%s: a person's job is explained by %q with the notes %q, want a note of %q", c.name, e.Summary, e.Notes, c.want)
		}
		if e := g.look(0, nil).Explain(g.get("auto")); (e.Code == "") != (c.want == "") || len(e.Notes) > 0 {
			t.Errorf("%s: an automation's is explained as %+v", c.name, e)
		}
	}
}
