package sched

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestOrder: first come, first served, to the runner with the most free slots.
func TestOrder(t *testing.T) {
	g := newRig(t)
	g.runner("r2", 1)
	g.runner("r1", 2)
	for _, id := range []fleet.JobID{"d", "c", "b", "a"} {
		g.job(id)
	}
	expect(t, g.pick(), "d>r1 c>r1 b>r2")
	expect(t, g.look(1, nil).Pick(), "d>r1")
	expect(t, g.look(0, nil).Pick(), "")
	g.place(g.pick())
	expect(t, g.pick(), "")
}

// TestKeyOnce: two jobs of one key never go out in one plan.
func TestKeyOnce(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 5)
	for _, id := range []fleet.JobID{"a", "b"} {
		g.job(id, func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	}
	g.job("c")
	g.job("d")
	expect(t, g.pick(), "a>r1 c>r1 d>r1")
	g.place(g.pick())
	expect(t, g.pick(), "")
}

// TestRerunHoldsItsKey: a job whose lost attempt may come back keeps its key from
// others while it waits, and not from itself.
func TestRerunHoldsItsKey(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 2)
	g.runner("r2", 1)
	for _, id := range []fleet.JobID{"b", "a"} {
		g.job(id, func(s *fleet.Spec) { s.ConcurrencyKey = "k"; s.OnLost = "rerun" })
	}
	f := g.place(g.pick())[0]
	g.do(&state.AcceptAttempt{Job: "b", Fence: f})
	g.do(&state.LoseAttempt{Job: "b", Fence: f})
	g.seen["r1"] = fleet.Presence{}
	expect(t, g.pick(), "b>r2")
	g.seen["r2"] = fleet.Presence{}
	g.runner("r3", 5)
	g.seen["r3"] = fleet.Presence{Connected: true, Full: true, Slots: 5, Declining: "night"}
	expect(t, g.pick(), "")
	if s := g.look(0, nil).Explain(g.get("a")).Summary; s != `waits for job b, which holds the concurrency key "k"` {
		t.Errorf("the other job is explained as %q", s)
	}
}

// TestExclusion ends with time or with other facts, and Next says when to look again.
func TestExclusion(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.job("j")
	decline(g, int64(time.Minute))
	p := g.pick()
	expect(t, p, "")
	if !p.Next.Equal(g.now.Add(time.Minute)) {
		t.Errorf("next look at %s", p.Next)
	}
	g.now = p.Next
	expect(t, g.pick(), "j>r1")
	decline(g, 0)
	g.now = g.now.Add(1000 * time.Hour)
	if p := g.pick(); p.text() != "" || !p.Next.IsZero() {
		t.Errorf("the plan is %+v", p)
	}
	g.facts("r1", func(f *fleet.RunnerFacts) { f.Version = "new" })
	expect(t, g.pick(), "j>r1")
}

// TestOverdue finds what waited too long, says why, and when the next one will have.
func TestOverdue(t *testing.T) {
	g := newRig(t)
	g.job("a", func(s *fleet.Spec) { s.Timeouts.Queue = time.Minute })
	g.job("b", func(s *fleet.Spec) { s.Timeouts.Queue = time.Hour })
	g.job("c")
	p := g.overdue(g.now, 10)
	if len(p.Block) != 0 || !p.Next.Equal(g.now.Add(time.Minute)) {
		t.Errorf("nothing is overdue: %+v", p)
	}
	p = g.overdue(g.now.Add(time.Minute), 10)
	if len(p.Block) != 1 || p.Block[0].Job != "a" || !strings.Contains(p.Block[0].Detail, "1m0s: no runner is enrolled") || !p.Next.Equal(g.now.Add(time.Hour)) {
		t.Errorf("one is overdue: %+v", p)
	}
	g.runner("r1", 1)
	p = g.overdue(g.now.Add(2*time.Hour), 1)
	if len(p.Block) != 1 || !strings.HasSuffix(p.Block[0].Detail, "no runner that can take it became free: box-r1 could take it only now") {
		t.Errorf("at most one of two: %+v", p)
	}
	if p = g.overdue(g.now.Add(2*time.Hour), 0); len(p.Block) != 0 {
		t.Errorf("none were asked for: %+v", p)
	}
	b := p.Block
	for _, b := range append(b, g.overdue(g.now.Add(2*time.Hour), 5).Block...) {
		g.do(&state.BlockJob{Job: b.Job, Turn: b.Turn, Code: b.Code, Detail: b.Detail})
	}
	if p = g.overdue(g.now.Add(2*time.Hour), 5); len(p.Block) != 0 || g.get("b").State != fleet.Blocked {
		t.Errorf("blocked jobs are found again: %+v", p)
	}
}

// TestOverdueNamesEveryRunner: whoever finds the job blocked reads what each runner
// was doing meanwhile.
func TestOverdueNamesEveryRunner(t *testing.T) {
	detail := func(g *rig) string {
		t.Helper()
		g.job("late", func(s *fleet.Spec) { s.Timeouts.Queue = time.Minute })
		p := g.overdue(g.now.Add(time.Minute), 10)
		if len(p.Block) != 1 {
			t.Fatalf("the plan is %+v", p)
		}
		return p.Block[0].Detail
	}
	g := newRig(t)
	g.runner("r1", 1)
	g.seen["r1"] = fleet.Presence{Runner: "r1"}
	g.runner("r2", 1)
	g.job("first")
	g.place(g.pick())
	g.runner("r3", 1, func(f *fleet.RunnerFacts) { f.Harnesses = []fleet.HarnessInfo{{Name: "exec"}} })
	g.runner("r4", 1)
	g.seen["r4"] = fleet.Presence{Runner: "r4", Connected: true, Full: true, Slots: 1, Declining: "on battery"}
	want := "waited longer than its queue timeout of 1m0s: no runner that can take it became free: " +
		"box-r1 is offline: it was not seen since this hub began to lead; box-r2 has no free slot of 1: 1 manual; box-r3 has no codex; box-r4 takes nothing now: on battery"
	if got := detail(g); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	g = newRig(t)
	none := func(f *fleet.RunnerFacts) { f.Harnesses = []fleet.HarnessInfo{{Name: "exec"}} }
	for i := range reasonsTold + 3 {
		g.runner(fleet.RunnerID(fmt.Sprintf("r%02d", i)), 1, none)
	}
	if got := detail(g); !strings.Contains(got, "none of the 23 runners can take it: box-r00 has no codex; ") || !strings.HasSuffix(got, "box-r19 has no codex; and 3 more") {
		t.Errorf("with many runners it says %s", got)
	}
}

// TestProperties draws a mesh and a queue and holds the plan against what any plan
// must be, and the explanations against the plan.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newRig(t)
		some := rapid.Bool()
		for n := range rapid.IntRange(0, 4).Draw(t, "runners") {
			id := fleet.RunnerID(fmt.Sprintf("r%d", n))
			g.runner(id, rapid.IntRange(0, 3).Draw(t, "slots"), func(f *fleet.RunnerFacts) {
				if some.Draw(t, "no codex") {
					f.Harnesses = f.Harnesses[1:]
				}
			})
			p := g.seen[id]
			p.Connected, p.Full = rapid.IntRange(0, 4).Draw(t, "away") > 0, rapid.IntRange(0, 4).Draw(t, "new") > 0
			g.seen[id] = p
		}
		jobs := rapid.IntRange(0, 12).Draw(t, "jobs")
		for n := range jobs {
			g.job(fleet.JobID(fmt.Sprintf("j%02d", jobs-n)), func(s *fleet.Spec) {
				s.Harness = rapid.SampledFrom([]string{"codex", "exec", "claude"}).Draw(t, "harness")
				s.ConcurrencyKey = rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "key")
				s.OnLost = "rerun"
				s.On = rapid.SampledFrom([]string{"", "", "", "box-r1", "r0"}).Draw(t, "on")
			})
		}
		for range rapid.IntRange(0, 3).Draw(t, "rounds") {
			limit := rapid.IntRange(0, 6).Draw(t, "limit")
			v := g.m.View()
			plan := g.look(limit, nil).Pick()
			check(t, g, v, plan, limit)
			for _, f := range g.place(plan) {
				for _, a := range plan.Assign {
					if _, x := g.get(a.Job).Find(f); x == nil {
						continue
					}
					switch rapid.IntRange(0, 3).Draw(t, "answer") {
					case 0:
						g.do(&state.DeclineAttempt{Job: a.Job, Fence: f, Code: fleet.Storage, Detail: "full", RetryAfter: time.Duration(rapid.IntRange(0, 90).Draw(t, "after")) * time.Second})
					case 1:
						g.do(&state.AcceptAttempt{Job: a.Job, Fence: f})
					case 2: // it waits for a rerun and keeps its key
						g.do(&state.AcceptAttempt{Job: a.Job, Fence: f})
						g.do(&state.LoseAttempt{Job: a.Job, Fence: f})
					}
				}
			}
			g.now = g.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "later")) * time.Second)
		}
	})
}

func check(t *rapid.T, g *rig, v state.View, plan Plan, limit int) {
	if len(plan.Assign) > limit {
		t.Fatalf("%d assignments, at most %d", len(plan.Assign), limit)
	}
	free, keys, given := map[fleet.RunnerID]int{}, map[string]bool{}, map[fleet.JobID]fleet.RunnerID{}
	left := 0
	for id, p := range g.seen {
		if p.Connected && p.Full {
			free[id] = p.Slots - v.Held(id)
			left += max(free[id], 0)
		}
	}
	var seq uint64
	var queued time.Time
	for n, a := range plan.Assign {
		j, _ := v.Job(a.Job)
		r, _ := v.Runner(a.Runner)
		if free[a.Runner]--; free[a.Runner] < 0 {
			t.Fatalf("%s gets more than its slots: %s", a.Runner, plan.text())
		}
		left--
		if k := j.Spec.ConcurrencyKey; k != "" {
			if _, held := v.Holder(k, j.ID); held || keys[k] {
				t.Fatalf("key %s goes out twice: %s", k, plan.text())
			}
			keys[k] = true
		}
		if at := j.Turn().QueuedAt; at.Before(queued) || at.Equal(queued) && j.Seq <= seq {
			t.Fatalf("out of order: %s", plan.text())
		}
		queued, seq, given[a.Job] = j.Turn().QueuedAt, j.Seq, a.Runner
		if why := g.look(0, nil).Refusal(j, r); why.Code != "" {
			t.Fatalf("%s goes to %s, which %s", a.Job, a.Runner, why.Detail)
		}
		if e := g.look(0, nil).Explain(j); n == 0 && !strings.HasSuffix(e.Summary, "can take it and is being asked") {
			t.Fatalf("%s is first in the plan and explained as %q", a.Job, e.Summary)
		}
	}
	v.Queue(func(j *fleet.Job) bool {
		e := g.look(0, nil).Explain(j)
		if e.Summary == "" {
			t.Fatalf("job %s has no explanation", j.ID)
		}
		for _, r := range e.Runners {
			if r.Detail == "" || r.Runner == "" || r.Code != "" && r.Change == "" {
				t.Fatalf("job %s: an empty reason in %+v", j.ID, e)
			}
		}
		if _, picked := given[j.ID]; picked || left == 0 || len(plan.Assign) == limit {
			return true
		}
		// Nobody stopped the walk before this job: somebody who fits must be full or its key taken.
		if keys[j.Spec.ConcurrencyKey] {
			return true
		}
		for _, r := range v.Runners() {
			if g.look(0, nil).Refusal(j, r).Code == "" && free[r.ID] > 0 && !strings.HasPrefix(e.Summary, "waits for job") {
				t.Fatalf("job %s fits %s, which has %d slots free, and is not in %q", j.ID, r.ID, free[r.ID], plan.text())
			}
		}
		return true
	})
}

// TestEqualPlans: the plan is the same however often it is asked for.
func TestEqualPlans(t *testing.T) {
	g := newRig(t)
	for n := range 9 {
		g.runner(fleet.RunnerID(fmt.Sprintf("r%d", n)), 1+n%3)
	}
	for n := range 40 {
		g.job(fleet.JobID(fmt.Sprintf("j%02d", n)), func(s *fleet.Spec) {
			s.Require = map[string]string{"os": "linux"}
			s.ConcurrencyKey = []string{"", "k"}[n%2]
		})
	}
	first := g.pick().text()
	for range 20 {
		expect(t, g.pick(), first)
	}
}
