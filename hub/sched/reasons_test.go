package sched

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestReasons makes every reason why a job is not taken happen, one at a time, and reads
// it in all places where it is told: the plan, the runner's line, the summary, the short
// answer, and what is said when the job is blocked.
func TestReasons(t *testing.T) {
	yes, why, none, many := true, "two machines hold it", 0, fleet.MaxSlots
	hour := start.Add(time.Hour)
	auto := func(s *fleet.Spec) { s.Origin = fleet.Origin{Kind: fleet.Automation, Name: "nightly"} }
	needs := func(n fleet.Needs) func(*fleet.Spec) { return func(s *fleet.Spec) { s.Needs = &n } }
	docker := needs(fleet.Needs{Docker: true})
	health := func(f func(*fleet.Health)) func(*fleet.Presence) {
		return func(p *fleet.Presence) { p.Health = well(); f(p.Health) }
	}
	stale := func(d time.Duration) func(*fleet.Presence) {
		return func(p *fleet.Presence) { p.HealthAt = start.Add(-d) }
	}
	opened := func(c state.OpenCircuit) func(*rig) {
		return func(g *rig) { c.For, c.Reason = time.Hour, "in trouble"; g.do(&c) }
	}
	for _, c := range []struct {
		name   string
		spec   func(*fleet.Spec)
		facts  func(*fleet.RunnerFacts)
		seen   func(*fleet.Presence)
		before func(*rig) // the job is submitted
		do     func(*rig)
		code   fleet.Code // empty: it is taken
		detail string
		until  time.Time
		change string
	}{
		{name: "nothing in the way"},
		{name: "automation too", spec: auto},
		{name: "conflict", do: func(g *rig) { g.do(&state.FlagRunner{ID: "r1", Conflict: &why}) }, code: fleet.ClonedIdentity, detail: "is refused until a person decides: two machines hold it", change: "an admin"},
		{name: "asked for by name", spec: func(s *fleet.Spec) { s.On = "box-r1" }},
		{name: "asked for by id", spec: func(s *fleet.Spec) { s.On = "r1" }},
		{name: "another one asked for", spec: func(s *fleet.Spec) { s.On = "box-r2" }, code: fleet.OtherRunner, detail: "is not the runner asked for (box-r2)", change: "without --on"},
		{name: "label", spec: func(s *fleet.Spec) { s.Require = map[string]string{"os": "linux"} }},
		{name: "other label", spec: func(s *fleet.Spec) { s.Require = map[string]string{"os": "darwin"} }, code: fleet.LabelMissing, detail: "lacks the label os=darwin", change: "os=darwin"},
		{name: "no label", spec: func(s *fleet.Spec) { s.Require = map[string]string{"gpu": "", "os": "linux"} }, code: fleet.LabelMissing, detail: "lacks the label gpu=", change: "gpu="},
		{name: "system", spec: needs(fleet.Needs{OS: "linux", Arch: "amd64"})},
		{name: "other system", spec: needs(fleet.Needs{OS: "darwin"}), code: fleet.WrongSystem, detail: "runs on linux/amd64, and the job asks for darwin", change: "a runner on darwin"},
		{name: "other processor", spec: needs(fleet.Needs{OS: "linux", Arch: "arm64"}), code: fleet.WrongSystem, detail: "runs on linux/amd64, and the job asks for linux/arm64", change: "a runner on linux/arm64"},
		{name: "paused", facts: func(f *fleet.RunnerFacts) { f.Paused = "holidays" }, code: fleet.OwnerPolicy, detail: "is paused by its owner: holidays", change: "its owner"},
		{name: "origin", facts: func(f *fleet.RunnerFacts) { f.Origins = []string{"automation"} }, code: fleet.OwnerPolicy, detail: "does not take manual work", change: "runner.yaml"},
		{name: "origin allowed", facts: func(f *fleet.RunnerFacts) { f.Origins = []string{"manual"} }},
		{name: "repository", spec: repo("https://a/b.git"), facts: repos("https://a/c.git", "https://x/*"), code: fleet.OwnerPolicy, detail: "does not allow the repository https://a/b.git", change: "runner.yaml"},
		{name: "repository allowed", spec: repo("https://a/b.git"), facts: repos("https://a/*")},
		{name: "repository below", spec: repo("https://a/x/y/b.git"), facts: repos("https://a/**")},
		{name: "repository beside", spec: repo("https://ab/b.git"), facts: repos("https://a/**"), code: fleet.OwnerPolicy, detail: "does not allow the repository https://ab/b.git", change: "runner.yaml"},
		{name: "repository without its .git", spec: repo("https://a/b.git"), facts: repos("https://a/b")},
		{name: "repository below any host", spec: repo("https://h/team/x/y"), facts: repos("https://*/team/**")},
		{name: "repository above", spec: repo("https://a/../b"), facts: repos("https://a/**"), code: fleet.OwnerPolicy, detail: "does not allow the repository https://a/../b", change: "runner.yaml"},
		{name: "repository that is handed over", spec: func(s *fleet.Spec) { s.Repo = &fleet.Repo{Bundle: "b", CacheKey: "k"} }, facts: repos("https://a/b")},
		{name: "no repository", facts: repos("https://a/c.git")},
		{name: "harness missing", spec: func(s *fleet.Spec) { s.Harness = "opencode" }, code: fleet.HarnessMissing, detail: "has no opencode", change: "install opencode there: `tugline runner provision box-r1 opencode`"},
		{name: "harnesses not looked for", facts: func(f *fleet.RunnerFacts) { f.Harnesses = nil }, code: fleet.HarnessMissing, detail: "has not looked for its agents yet", change: "its first look"},
		{name: "harnesses never looked for", facts: func(f *fleet.RunnerFacts) { f.Harnesses = nil }, seen: func(p *fleet.Presence) { p.Connected = false }, code: fleet.HarnessMissing, detail: "has not looked for its agents yet", change: "start it"},
		{name: "harness missing, and all others not allowed", facts: func(f *fleet.RunnerFacts) { f.Harnesses, f.Barred = nil, []string{"exec"} }, code: fleet.HarnessMissing, detail: "has no codex", change: "install codex"},
		{name: "harness that is not allowed", spec: func(s *fleet.Spec) { s.Harness = "opencode" }, facts: func(f *fleet.RunnerFacts) { f.Barred = []string{"opencode"} }, code: fleet.OwnerPolicy, detail: "has opencode, and its owner does not allow it", change: "runner.yaml"},
		{name: "not signed in", spec: func(s *fleet.Spec) { s.Harness = "claude" }, code: fleet.HarnessSignedOut, detail: "has claude, but not signed in", change: "sign in to claude"},
		{name: "sign-in unknown", spec: func(s *fleet.Spec) { s.Harness = "exec" }},
		{name: "version", spec: needs(fleet.Needs{HarnessVersion: "0.120"})},
		{name: "old version", spec: needs(fleet.Needs{HarnessVersion: "0.121.0"}), code: fleet.HarnessOld, detail: "has codex codex-cli 0.120.1, and the job asks for 0.121.0 or later", change: "update codex"},
		{name: "no version", spec: needs(fleet.Needs{HarnessVersion: "0.1"}), facts: func(f *fleet.RunnerFacts) { f.Harnesses[0].Version = "" }, code: fleet.HarnessOld, detail: "has codex of an unknown version, and the job asks for 0.1 or later", change: "update codex"},
		{name: "model", spec: func(s *fleet.Spec) { s.Model = "m" }, facts: func(f *fleet.RunnerFacts) { f.Harnesses[0].Models = []string{"n", "m"} }},
		{name: "other model", spec: func(s *fleet.Spec) { s.Model = "m" }, facts: func(f *fleet.RunnerFacts) { f.Harnesses[0].Models = []string{"n", "o"} }, code: fleet.ModelMissing, detail: "does not allow the model m for codex, only n, o", change: "runner.yaml"},
		{name: "secret", spec: func(s *fleet.Spec) { s.Secrets = []string{"NPM"} }},
		{name: "secret missing", spec: func(s *fleet.Spec) { s.Secrets = []string{"NPM", "PYPI"} }, code: fleet.SecretMissing, detail: "has no secret PYPI", change: "secrets.yaml"},
		{name: "flagged", do: func(g *rig) { g.do(&state.FlagRunner{ID: "r1", Cordoned: &yes}) }, code: fleet.Cordoned, detail: "is cordoned", change: "`tugline runner resume box-r1`"},
		{name: "held", do: func(g *rig) { g.do(&state.HoldRunner{ID: "r1", Hold: &fleet.Hold{Reason: "new disk"}}) }, code: fleet.Cordoned, detail: "is cordoned: new disk", change: "`tugline runner resume box-r1`"},
		{name: "held for a while", do: func(g *rig) { g.do(&state.HoldRunner{ID: "r1", Hold: &fleet.Hold{Until: &hour}}) }, code: fleet.Cordoned, detail: "is cordoned until 2026-03-01T13:00:00Z", until: hour, change: "that time, or `tugline runner resume box-r1`"},
		{name: "drained", do: func(g *rig) { g.do(&state.HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: &hour}}) }, code: fleet.Cordoned, detail: "is being drained, with the deadline 2026-03-01T13:00:00Z", change: "`tugline runner resume box-r1`"},
		{name: "offline", seen: func(p *fleet.Presence) { p.Connected, p.LastBeat = false, start.Add(-2*time.Minute) }, code: fleet.Offline, detail: "is offline since 2026-03-01T11:58:00Z (2m)", change: "`tugline runner run`"},
		{name: "never seen", seen: func(p *fleet.Presence) { *p = fleet.Presence{} }, code: fleet.Offline, detail: "is offline: it was not seen since this hub began to lead", change: "`tugline runner run`"},
		{name: "just connected", seen: func(p *fleet.Presence) { p.Full = false }, code: fleet.Offline, detail: "has just connected and has not shown what it runs", change: "in a moment"},
		{name: "declined", do: func(g *rig) { decline(g, 0) }, code: fleet.Storage, detail: "gave it back: 3 GiB free", change: "a change of what the runner says"},
		{name: "declined for a while", do: func(g *rig) { decline(g, 60e9) }, code: fleet.Storage, detail: "gave it back until 2026-03-01T12:01:00Z: 3 GiB free", until: start.Add(time.Minute), change: "that time"},
		{name: "circuit of a person whose token has a name", before: func(g *rig) {
			g.do(&state.CreateToken{Token: fleet.Token{ID: "t-6", Name: "ida", Role: fleet.RoleAdmin, Hash: "h"}})
		}, do: opened(state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: "r1", Provider: "openai"}), code: fleet.CircuitRefuses, detail: "is kept from it until 2026-03-01T13:00:00Z: ida keeps work from openai: in trouble", until: hour, change: "`tugline circuit reset "},
		{name: "circuit", do: opened(state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: "r1", Provider: "openai"}), code: fleet.CircuitRefuses, detail: "is kept from it until 2026-03-01T13:00:00Z: t-5 keeps work from openai: in trouble", until: hour, change: "`tugline circuit reset "},
		{name: "circuit of the machine", do: opened(state.OpenCircuit{Scope: fleet.ScopeHost, Runner: "r1"}), code: fleet.CircuitRefuses, detail: "in trouble", until: hour, change: "`tugline circuit reset "},
		{name: "circuit of a model", spec: func(s *fleet.Spec) { s.Model = "m" }, do: opened(state.OpenCircuit{Scope: fleet.ScopeModel, Provider: "openai", Model: "m"}), code: fleet.CircuitRefuses, detail: "in trouble", until: hour, change: "`tugline circuit reset "},
		{name: "circuit of another provider", do: opened(state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: "r1", Provider: "anthropic"})},
		{name: "Docker", spec: docker},
		{name: "Docker of nine minutes ago", spec: docker, seen: stale(9 * time.Minute)},
		{name: "Docker of eleven minutes ago", spec: docker, seen: stale(11 * time.Minute), code: fleet.DockerMissing, detail: "has Docker 27.1.0 with Compose 2.29.1, last verified 11m ago, and a job that needs it starts within 10m of that", change: "start Docker there"},
		{name: "Docker long verified", spec: docker, seen: health(func(h *fleet.Health) { h.Docker.VerifiedAge = 601 * time.Second }), code: fleet.DockerMissing, detail: "last verified 10m1s ago", change: "start Docker there"},
		{name: "Docker down", spec: docker, seen: health(func(h *fleet.Health) { h.Docker.State, h.Docker.VerifiedAge = fleet.DockerDown, 3*time.Minute }), code: fleet.DockerMissing, detail: "has a Docker daemon that does not answer; Docker 27.1.0 with Compose 2.29.1 last answered 3m ago", change: "start Docker there"},
		{name: "Docker hung", spec: docker, seen: health(func(h *fleet.Health) { h.Docker.State, h.Docker.VerifiedAge = fleet.DockerUnknown, 3*time.Minute }), code: fleet.DockerMissing, detail: "does not know in time whether Docker answers; Docker 27.1.0 with Compose 2.29.1 last answered 3m ago", change: "start Docker there"},
		{name: "Docker absent", spec: docker, seen: health(func(h *fleet.Health) { h.Docker = fleet.Docker{State: fleet.DockerAbsent} }), code: fleet.DockerMissing, detail: "has no Docker; Docker and Compose never answered both", change: "start Docker there"},
		{name: "no Compose", spec: docker, seen: health(func(h *fleet.Health) { h.Docker = fleet.Docker{State: fleet.DockerReady, Version: "27.1.0"} }), code: fleet.DockerMissing, detail: "has Docker 27.1.0, and no Compose that answers", change: "start Docker there"},
		{name: "Docker not asked for yet", spec: docker, seen: func(p *fleet.Presence) { p.Health = nil }, code: fleet.DockerMissing, detail: "needs Docker, and has sent no sample of its health yet", change: "start Docker there"},
		{name: "no sample, by hand", seen: func(p *fleet.Presence) { p.Health = nil }},
		{name: "no sample", spec: auto, seen: func(p *fleet.Presence) { p.Health = nil }, code: fleet.HealthUnknown, detail: "has sent no sample of its health yet", change: "its next sample"},
		{name: "sample of a minute ago", spec: auto, seen: stale(time.Minute)},
		{name: "old sample", spec: auto, seen: stale(61 * time.Second), code: fleet.HealthUnknown, detail: "sent the last sample of its health 1m1s ago, and none older than 1m counts", change: "its next sample"},
		{name: "old sample when it came", spec: auto, seen: health(func(h *fleet.Health) { h.Age = 61 * time.Second }), code: fleet.HealthUnknown, detail: "1m1s ago", change: "its next sample"},
		{name: "disk not known", spec: auto, seen: health(func(h *fleet.Health) { h.Workspace = fleet.Volume{Path: "/work", Detail: "no answer in 2s"} }), code: fleet.HealthUnknown, detail: "cannot tell how much is free at /work: no answer in 2s", change: "its next sample"},
		{name: "cache not known", spec: auto, seen: health(func(h *fleet.Health) { h.Cache = fleet.Volume{Path: "/cache"} }), code: fleet.HealthUnknown, detail: "cannot tell how much is free at /cache", change: "its next sample"},
		{name: "disk low, by hand", seen: health(func(h *fleet.Health) { h.Workspace.Free = 1 << 30 })},
		{name: "disk at the floor", spec: auto, seen: health(func(h *fleet.Health) { h.Workspace.Free = 10 << 30 })},
		{name: "disk low", spec: auto, seen: health(func(h *fleet.Health) { h.Workspace.Free = 10<<30 - 512<<20 }), code: fleet.Storage, detail: "has 9.5 GiB free at /work, and automation needs 10.0 GiB", change: "free 512 MiB at /work"},
		{name: "disk promised", spec: auto, seen: health(func(h *fleet.Health) { h.Workspace.Free, h.Reserved = 12<<30, 5<<30 }), code: fleet.Storage, detail: "has 12.0 GiB free at /work, 5.0 GiB of it promised to other jobs, and automation needs 10.0 GiB", change: "free 3.0 GiB at /work"},
		{name: "cache low", spec: auto, seen: health(func(h *fleet.Health) { h.Cache.Free = 8 << 30 }), code: fleet.Storage, detail: "has 8.0 GiB free at /cache, where repositories are cached, and automation needs 10.0 GiB", change: "free 2.0 GiB at /cache"},
		{name: "inodes", spec: auto, seen: health(func(h *fleet.Health) { h.Cache.Inodes = 100 }), code: fleet.Storage, detail: "has 100 of 2000000 inodes free at /cache, less than 1 %", change: "delete files at /cache"},
		{name: "inodes not counted", spec: auto, seen: health(func(h *fleet.Health) { h.Cache.Inodes, h.Cache.Nodes = -1, 0 })},
		{name: "disk required", spec: needs(fleet.Needs{Disk: 150 << 30})},
		{name: "more disk required", spec: needs(fleet.Needs{Disk: 250 << 30}), code: fleet.Storage, detail: "has 200.0 GiB free at /work, and the job needs 250.0 GiB", change: "free 50.0 GiB at /work"},
		{name: "disk required, not known", spec: needs(fleet.Needs{Disk: 1}), seen: stale(time.Hour), code: fleet.HealthUnknown, detail: "sent the last sample of its health 1h ago", change: "its next sample"},
		{name: "a higher floor", spec: auto, do: func(g *rig) { g.do(&state.Set{Name: fleet.SettingFloorSelect, Value: "300GiB"}) }, code: fleet.Storage, detail: "automation needs 300.0 GiB", change: "free 100.0 GiB at /work"},
		{name: "memory", spec: needs(fleet.Needs{Memory: 32 << 30})},
		{name: "memory low", spec: needs(fleet.Needs{Memory: 33 << 30}), code: fleet.MemoryLow, detail: "has 32.0 GiB of memory available, and the job needs 33.0 GiB", change: "free 1.0 GiB of memory"},
		{name: "more memory than there is", spec: needs(fleet.Needs{Memory: 65 << 30}), code: fleet.MemoryLow, detail: "the job needs 65.0 GiB", change: "more than the 64.0 GiB in all of memory there, or asking for less"},
		{name: "more disk than there is", spec: needs(fleet.Needs{Disk: 501 << 30}), code: fleet.Storage, detail: "the job needs 501.0 GiB", change: "more than the 500.0 GiB in all at /work, or asking for less"},
		{name: "memory not known", spec: needs(fleet.Needs{Memory: 1}), seen: health(func(h *fleet.Health) { h.Memory = nil }), code: fleet.HealthUnknown, detail: "cannot tell how much memory is available", change: "its next sample"},
		{name: "declining", seen: func(p *fleet.Presence) { p.Declining = "low disk" }, code: fleet.OwnerPolicy, detail: "takes nothing now: low disk", change: "its owner's rules"},
		{name: "automation off", spec: auto, do: func(g *rig) { g.do(&state.SetSlots{ID: "r1", Automation: &none}) }, code: fleet.AutomationOff, detail: "has no slots for automation: they are turned off on the hub", change: "`tugline runner slots box-r1 --automation 1`"},
		{name: "automation not offered", spec: auto, seen: func(p *fleet.Presence) { p.Automation, p.LimitedBy = &none, "2.0 GiB of memory available" }, code: fleet.AutomationOff, detail: "offers no slot for automation now: 2.0 GiB of memory available", change: "its owner's rules"},
		{name: "no room for automation", spec: auto, facts: func(f *fleet.RunnerFacts) { f.Slots = many }, code: fleet.AutomationOff, detail: "has no slots for automation: its 16 base slots are all that a runner may have", change: "fewer base slots"},
		{name: "no slots", seen: func(p *fleet.Presence) { p.Slots = 0 }, code: fleet.NoSlot, detail: "offers no slot", change: "--slots"},
		{name: "no slots now", seen: func(p *fleet.Presence) { p.Slots, p.LimitedBy = 0, "on battery" }, code: fleet.NoSlot, detail: "offers no slot: on battery", change: "its owner's rules"},
		{name: "slots taken", before: func(g *rig) { g.job("other"); g.place(g.look(1, nil).Pick()) }, code: fleet.NoSlot, detail: "has no free slot of 1: 1 manual", change: "the end of a job there"},
		{name: "slots taken by automation", spec: auto, before: func(g *rig) { g.job("other", auto); g.place(g.look(1, nil).Pick()) }, code: fleet.NoSlot, detail: "has no free slot of 1 for automation: 1 automated", change: "the end of a job there"},
		{name: "the other kind of slot is free", spec: auto, before: func(g *rig) { g.job("other"); g.place(g.look(1, nil).Pick()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.runner("r1", 1)
			if c.facts != nil {
				g.facts("r1", c.facts)
			}
			if c.before != nil {
				c.before(g)
			}
			if c.spec == nil {
				c.spec = func(*fleet.Spec) {}
			}
			g.job("j", c.spec, func(s *fleet.Spec) { s.Timeouts.Queue = time.Second })
			if c.do != nil {
				c.do(g)
			}
			p := g.seen["r1"]
			if c.seen != nil {
				c.seen(&p)
			}
			g.seen["r1"] = p
			e := g.look(0, nil).Explain(g.get("j"))
			if len(e.Runners) != 1 || e.Runners[0].Runner != "box-r1" {
				t.Fatalf("explained as %+v", e)
			}
			r := e.Runners[0]
			if w := g.look(0, nil).Why(g.get("j")); w.Detail != e.Summary || w.Code != e.Code || e.Code != r.Code {
				t.Errorf("in short it is %+v, and at length %+v", w, e)
			}
			if one, _ := g.m.View().Runner("r1"); g.look(0, nil).Refusal(g.get("j"), one).Detail != r.Detail {
				t.Errorf("of the runner alone it is said: %+v", g.look(0, nil).Refusal(g.get("j"), one))
			}
			if c.code == "" {
				expect(t, g.pick(), "j>r1")
				if e.Summary != "box-r1 can take it and is being asked" || r.Code != "" || !strings.HasPrefix(r.Detail, "takes it next (") {
					t.Errorf("explained as %+v", e)
				}
				return
			}
			if got := g.pick().text(); got != "" {
				t.Errorf("the plan is %q", got)
			}
			if r.Code != c.code || !strings.Contains(r.Detail, c.detail) || !strings.Contains(r.Change, c.change) || c.change == "" {
				t.Errorf("got  %+v\nwant %s: %s; %s", r, c.code, c.detail, c.change)
			}
			if c.until.IsZero() != (r.Until == nil) || r.Until != nil && !r.Until.Equal(c.until) {
				t.Errorf("until %v, want %v", r.Until, c.until)
			}
			if next := g.pick().Next; !c.until.IsZero() && !next.Equal(c.until) {
				t.Errorf("the next look is at %v, want %v", next, c.until)
			}
			if !strings.HasSuffix(e.Summary, "box-r1 "+r.Detail) {
				t.Errorf("the summary is %q", e.Summary)
			}
			g.now = g.now.Add(time.Second)
			for id, p := range g.seen { // as old as before
				if !p.HealthAt.IsZero() {
					p.HealthAt = p.HealthAt.Add(time.Second)
				}
				g.seen[id] = p
			}
			r = g.look(0, nil).Explain(g.get("j")).Runners[0]
			if b := g.look(1, nil).Overdue().Block; len(b) != 1 || !strings.HasSuffix(b[0].Detail, "box-r1 "+r.Detail) {
				t.Errorf("blocked as %+v; want %s", b, r.Detail)
			}
		})
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

// TestProvisioningIsNamed: where only the agent is missing, the command that brings it is
// named, if it may be given at all.
func TestProvisioningIsNamed(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.job("j", func(s *fleet.Spec) { s.Harness = "opencode" })
	g.job("other", func(s *fleet.Spec) { s.Harness = "vim" })
	change := func(id fleet.JobID) string { return g.look(0, nil).Explain(g.get(id)).Change }
	if s := change("j"); s != "install opencode there: `tugline runner provision box-r1 opencode`" {
		t.Errorf("said is %q", s)
	}
	if s := change("other"); s != "install vim there" {
		t.Errorf("of what nobody brings it is said: %q", s)
	}
	g.do(&state.Set{Name: fleet.SettingProvisioning, Value: fleet.ProvisioningSwitchOff})
	if s := change("j"); s != "install opencode there" {
		t.Errorf("with the switch off: %q", s)
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
	if s := why("a"); s != "waits for a runner: box-r1 is offline: it was not seen since this hub began to lead" {
		t.Errorf("a follow-up is bound: %q", s)
	}
	if r := g.look(0, nil).Explain(g.get("a")).Runners[1]; r.Runner != "box-r2" || r.Code != fleet.OtherRunner || r.Detail != "does not hold the session that this follow-up resumes" || !strings.Contains(r.Change, "--fresh") {
		t.Errorf("the other runner: %+v", r)
	}
	g.do(&state.RemoveRunner{ID: "r1"})
	if s := why("a"); !strings.Contains(s, "box-r1") || !strings.Contains(s, "--fresh") {
		t.Errorf("bound to a removed runner: %q", s)
	}
}

// TestWhyItIsBound: a turn may be bound to a runner by what it did there itself, or by what
// was asked for, and is not always a follow-up that resumes a session.
func TestWhyItIsBound(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.runner("r2", 1)
	other := func(job string) string {
		for _, r := range g.look(0, nil).Explain(g.get(fleet.JobID(job))).Runners {
			if r.Code == fleet.OtherRunner {
				return r.Runner + " " + r.Detail + " → " + r.Change
			}
		}
		return ""
	}
	g.job("a", func(s *fleet.Spec) { s.On = "r1" })
	f := g.place(g.pick())[0]
	g.do(&state.AcceptAttempt{Job: "a", Fence: f, Rules: 1})
	g.do(&state.FinishAttempt{Job: "a", Fence: f, Rules: 1, Class: fleet.ClassQuotaExhausted, Acted: true, SessionID: "s", Exit: fleet.Exit{Reason: "exited", Code: 1}, Verdict: &fleet.Verdict{Decision: fleet.Reject}})
	if got, want := other("a"), "box-r2 does not hold the session of attempt 1, with which the job goes on → cancel it; a follow-up with --fresh begins without it"; got != want {
		t.Errorf("an attempt that did something:\n got %s\nwant %s", got, want)
	}
	g.do(&state.CancelJob{Job: "a"})
	g.do(&state.FollowUp{Job: "a", Fresh: true, On: "r2"})
	if got, want := other("a"), "box-r1 is not the runner that this follow-up asks for → a follow-up with --fresh, and without --on, goes to any runner"; got != want {
		t.Errorf("a fresh one elsewhere:\n got %s\nwant %s", got, want)
	}
}
