package sched

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

func by(automation string, priority int) func(*fleet.Spec) {
	return func(s *fleet.Spec) {
		s.Priority = priority
		if automation != "" {
			s.Origin = fleet.Origin{Kind: fleet.Automation, Name: automation}
		}
	}
}

// later lets time pass, with runners heard and machines sampled at the end of it.
func (g *rig) later(d time.Duration) {
	g.now = g.now.Add(d)
	for id, p := range g.seen {
		p.LastBeat, p.HealthAt = g.now, g.now
		g.seen[id] = p
	}
}

// TestUrgency: more priority goes first, and half an hour of waiting is worth one step.
func TestUrgency(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 3)
	g.job("low", by("", -1))
	g.job("mid", by("", 0))
	g.job("top", by("", 10))
	expect(t, g.pick(), "top>r1 mid>r1 low>r1")
	g.later(29*time.Minute + 59*time.Second)
	g.job("new", by("", 0))
	expect(t, g.pick(), "top>r1 mid>r1 new>r1") // not a whole step yet
	g.later(time.Second)
	expect(t, g.pick(), "top>r1 mid>r1 low>r1") // as urgent as new, and older
	if e := g.look(0, nil).Explain(g.get("new")); e.Ahead != 3 {
		t.Errorf("%d jobs are ahead of the newest, want 3", e.Ahead)
	}
	if e := g.look(0, nil).Explain(g.get("top")); e.Ahead != 0 {
		t.Errorf("%d jobs are ahead of the most urgent", e.Ahead)
	}
}

// TestLeastUrgentGetsItsTurn: behind a stream of the most urgent jobs the least urgent one
// waits as long as the steps between them, and then it goes.
func TestLeastUrgentGetsItsTurn(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.job("least", by("", -fleet.MaxPriority))
	for n := range 200 {
		g.job(fleet.JobID(fmt.Sprintf("j%03d", n)), by("", fleet.MaxPriority))
		g.later(10 * time.Minute)
		p := g.pick()
		for i, f := range g.place(p) {
			g.do(&state.DeclineAttempt{Job: p.Assign[i].Job, Fence: f, Code: fleet.InputMissing, Detail: "over", Block: true})
		}
		if strings.HasPrefix(p.text(), "least>") {
			if waited := g.now.Sub(start); waited < 2*fleet.MaxPriority*fleet.PriorityAge || waited > 2*fleet.MaxPriority*fleet.PriorityAge+time.Hour {
				t.Errorf("it waited %s", waited)
			}
			return
		}
	}
	t.Error("it never got its turn")
}

// TestFairness: of equally urgent jobs those of the origin with the fewest slots go first,
// what runs and what flies counted.
func TestFairness(t *testing.T) {
	g := newRig(t)
	four := 4
	for _, id := range []fleet.RunnerID{"r1", "r2"} {
		g.runner(id, 0)
		g.do(&state.SetSlots{ID: id, Automation: &four})
	}
	for n := range 6 {
		g.job(fleet.JobID(fmt.Sprint("a", n)), by("a", 0))
	}
	for n := range 3 {
		g.job(fleet.JobID(fmt.Sprint("b", n)), by("b", 0))
	}
	p := g.pick()
	expect(t, p, "a0>r1 b0>r2 a1>r1 b1>r2 a2>r1 b2>r2 a3>r1 a4>r2")
	two := Plan{Assign: p.Assign[:2]}
	g.place(Plan{Assign: []Assignment{p.Assign[0], p.Assign[2]}}) // two of a run
	expect(t, g.pick(), "b0>r2 b1>r2 a2>r1 b2>r2 a3>r1 a4>r2")
	expect(t, g.look(2, flying(two)).Pick(), "b1>r2 a2>r1")
}

// TestWarm: a runner with the repository's cache is preferred to one with more slots left.
func TestWarm(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 9)
	g.runner("r2", 1)
	g.runner("r3", 2)
	here := &fleet.Repo{URL: "https://a/b.git"}
	for _, id := range []fleet.RunnerID{"r2", "r3"} {
		p := g.seen[id]
		p.Caches = "0123456789abcdef " + here.CacheOf()
		g.seen[id] = p
	}
	for _, id := range []fleet.JobID{"a", "b", "c", "d"} {
		g.job(id, repo("https://a/b"))
	}
	expect(t, g.pick(), "a>r3 b>r2 c>r3 d>r1")
	g.job("e", repo("https://a/c"))
	if got := g.look(0, nil).Explain(g.get("a")).Runners; got[0].Runner != "box-r3" || got[0].Detail != "takes it next (2 of 2 slots free)" || got[1].Detail != "could take it (1 of 1 slots free)" || got[2].Runner != "box-r1" {
		t.Errorf("explained as %+v", got)
	}
	expect(t, g.pick(), "a>r3 b>r2 c>r3 d>r1 e>r1")
}

// TestReserve: what a repository's jobs are known to take is counted from the assignment
// until a sample shows it, so that two large ones do not go to one small disk.
func TestReserve(t *testing.T) {
	g := newRig(t)
	three := 3
	for _, id := range []fleet.RunnerID{"r1", "r2"} {
		g.runner(id, 1)
		g.do(&state.SetSlots{ID: id, Automation: &three})
		p := g.seen[id]
		p.Health.Workspace.Free = 50 << 30
		g.seen[id] = p
	}
	large := func(id fleet.JobID, origin string) {
		g.job(id, repo("https://a/large"), by(origin, 0))
	}
	large("known", "")
	f := g.place(g.pick())[0]
	g.do(&state.AcceptAttempt{Job: "known", Fence: f, Rules: 1})
	g.do(&state.FinishAttempt{Job: "known", Fence: f, Verdict: &fleet.Verdict{Decision: fleet.Accept}, Footprint: 29 << 30, Rules: 1})
	for _, id := range []fleet.JobID{"a", "b", "c"} {
		large(id, "nightly")
	}
	g.now = g.now.Add(time.Second)
	p := g.pick()
	expect(t, p, "a>r1 b>r2")
	if p.Assign[0].Reserve != 30<<30 {
		t.Errorf("%d bytes are reserved", p.Assign[0].Reserve)
	}
	expect(t, g.look(9, flying(p)).Pick(), "")
	g.place(p)
	expect(t, g.pick(), "")
	const want = "box-r1 has 50.0 GiB free at /work, 30.0 GiB of it promised to other jobs, and the job needs 30.0 GiB"
	if e := g.look(0, nil).Explain(g.get("c")); !strings.HasSuffix(e.Summary, want) {
		t.Errorf("got  %s\nwant … %s", e.Summary, want)
	}
	large("hand", "") // a person may try
	if e := g.look(0, nil).Explain(g.get("hand")); e.Code != "" || len(e.Notes) != 2 || !strings.Contains(e.Notes[0], "are expected to take 30.0 GiB") {
		t.Errorf("by hand it is explained as %+v", e)
	}
	expect(t, g.pick(), "hand>r1")
	g.later(time.Minute) // the sample shows what is taken
	q := g.seen["r2"]
	q.Health = well()
	g.seen["r2"] = q
	expect(t, g.pick(), "hand>r1 c>r2")
}

// TestOneTrial: a half-open circuit is tried by one job, in a look, while that is flying,
// and while it runs.
func TestOneTrial(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 3)
	g.job("first")
	f := g.place(g.pick())[0]
	g.do(&state.AcceptAttempt{Job: "first", Fence: f, Rules: 1})
	g.do(&state.LoseAttempt{Job: "first", Fence: f, Rules: 1})
	g.do(&state.AttemptGone{Job: "first", Fence: f, Rules: 1})
	g.job("a")
	g.job("b")
	p := g.pick()
	expect(t, p, "")
	if want := g.now.Add(15 * time.Minute); !p.Next.Equal(want) {
		t.Errorf("the next look is at %s, want %s", p.Next, want)
	}
	g.later(15 * time.Minute)
	p = g.pick()
	expect(t, p, "a>r1")
	if len(p.Assign[0].Probes) != 1 {
		t.Errorf("it tries %v", p.Assign[0].Probes)
	}
	expect(t, g.look(9, flying(p)).Pick(), "")
	g.place(p)
	expect(t, g.pick(), "")
	if e := g.look(0, nil).Explain(g.get("b")); e.Code != fleet.CircuitRefuses || !strings.Contains(e.Summary, "waits while job a tries") {
		t.Errorf("the other is explained as %+v", e)
	}
}

// TestMisplaced: an assignment that is not accepted yet goes back when its runner is held,
// gone or no longer well, and not because of the slot and room that it takes itself.
func TestMisplaced(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*rig, *fleet.Presence)
		code fleet.Code
	}{
		{"all is well", func(*rig, *fleet.Presence) {}, ""},
		{"held", func(g *rig, _ *fleet.Presence) { g.do(&state.HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true}}) }, fleet.Cordoned},
		{"offline", func(_ *rig, p *fleet.Presence) { p.Connected = false }, fleet.Offline},
		{"connected anew", func(_ *rig, p *fleet.Presence) { p.Full = false }, ""},
		{"disk low", func(_ *rig, p *fleet.Presence) { p.Health.Workspace.Free = 5 << 30 }, fleet.Storage},
		{"no sample", func(_ *rig, p *fleet.Presence) { p.Health = nil }, fleet.HealthUnknown},
		{"owner's night", func(_ *rig, p *fleet.Presence) { p.Declining = "night" }, ""},
		{"removed", func(g *rig, _ *fleet.Presence) { g.do(&state.RemoveRunner{ID: "r1"}) }, fleet.RunnerUnknown},
	} {
		g := newRig(t)
		g.runner("r1", 1)
		p := g.seen["r1"]
		p.Health.Workspace.Free = 10<<30 + 1
		g.seen["r1"] = p
		g.job("j", by("a", 0), repo("https://a/b"))
		g.now = g.now.Add(time.Second)
		g.place(g.pick())
		c.do(g, &p)
		g.seen["r1"] = p
		j := g.get("j")
		a := j.Turn().Attempts[0]
		if got := g.look(0, nil).Misplaced(j, a); got.Code != c.code || c.code != "" && got.Detail == "" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.code)
		}
	}
}

// TestCapable: what passes by itself keeps nobody from being capable.
func TestCapable(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 0)
	g.seen["r1"] = fleet.Presence{}
	g.job("j")
	g.job("k", func(s *fleet.Spec) { s.Harness = "opencode" })
	r, _ := g.m.View().Runner("r1")
	if b := g.look(0, nil); !b.Capable(g.get("j"), r) || b.Capable(g.get("k"), r) {
		t.Error("a runner that is away is capable of what it has the harness for, and of nothing else")
	}
}

// TestAllocations: what a look allocates goes by what it decides, not by how long the queue
// is.
func TestAllocations(t *testing.T) {
	g := newRig(t)
	for n := range 40 {
		g.runner(fleet.RunnerID(fmt.Sprintf("r%02d", n)), 2)
	}
	allocated := func() float64 {
		l := g.look(20, nil).l
		l.Memo = new(Memo)
		See(g.m.View(), l).Pick()
		return testing.AllocsPerRun(10, func() { See(g.m.View(), l).Pick() })
	}
	fill := func(from, to int) {
		for n := from; n < to; n++ {
			g.job(fleet.JobID(fmt.Sprintf("j%04d", n)), repo(fmt.Sprintf("https://a/%d", n%5)), by([]string{"", "a"}[n%2], n%3))
		}
	}
	fill(0, 200)
	short := allocated()
	fill(200, 3000)
	if long := allocated(); long > short+50 {
		t.Errorf("a look at 200 jobs allocates %.0f times, at 3000 jobs %.0f times", short, long)
	}
}
