package state

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func nightly(s *fleet.Spec) { s.Origin = fleet.Origin{Kind: fleet.Automation, Name: "night"} }

func (g *rig) budget(origin string) *fleet.Budget {
	g.t.Helper()
	b, ok := g.m.View().Budget(origin)
	if !ok {
		g.t.Fatalf("%s has no budget", origin)
	}
	return b
}

// TestSetBudget: bounds are set, changed and taken away; what is spent stays.
func TestSetBudget(t *testing.T) {
	g := fleetOf(t)
	for _, bad := range []*SetBudget{
		{Budget: fleet.Budget{Runs: 1}}, {Budget: fleet.Budget{Origin: "manual"}}, {Budget: fleet.Budget{Origin: "manual", Runs: -1}},
		{Budget: fleet.Budget{Origin: "manual", Runs: 1, Window: -1}}, {Budget: fleet.Budget{Origin: strings.Repeat("x", 201), Runs: 1}},
	} {
		g.refused(fleet.BadRequest, bad)
	}
	g.refused(fleet.NotFound, &SetBudget{Budget: fleet.Budget{Origin: "manual"}, Remove: true})
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation", Runs: 2, Spent: fleet.Spending{Runs: 9}, SetBy: "me"}})
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation:night", Tokens: 100, Window: time.Hour}})
	if b := g.budget("automation"); b.Runs != 2 || b.Spent.Runs != 0 || b.SetBy != "t-person" || b.SetAt.IsZero() {
		t.Errorf("budget %+v", b)
	}
	g.submit("a", nightly)
	f := g.ruledRun("a", "r1")
	end := g.judged("a", f, fleet.Accept)
	end.Rules, end.Usage = 1, &fleet.Usage{InputTokens: 30, OutputTokens: 3}
	g.do(end)
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation", Runs: 5}})
	if b := g.budget("automation"); b.Runs != 5 || b.Spent.Runs != 1 || b.Spent.Tokens != 33 {
		t.Errorf("budget %+v", b)
	}
	var names []string
	for _, b := range g.m.View().Budgets() {
		names = append(names, b.Origin)
	}
	if d := cmp.Diff([]string{"automation", "automation:night"}, names); d != "" {
		t.Error(d)
	}
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation"}, Remove: true})
	if _, ok := g.m.View().Budget("automation"); ok {
		t.Error("the budget is still there")
	}
	if a := g.m.View().Audit(0, 1)[0]; a.Command != "budget.set" || a.Subject != "automation" || a.Detail != "remove" {
		t.Errorf("audit %+v", a)
	}
}

// TestBudgetRuns: a run is held from the assignment on, spent at its end, and given
// back where it never began.
func TestBudgetRuns(t *testing.T) {
	g := fleetOf(t)
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation:night", Runs: 2, Window: time.Hour}})
	for _, id := range []fleet.JobID{"a", "b", "c"} {
		g.submit(id, nightly)
	}
	g.submit("other", func(s *fleet.Spec) { s.Origin = fleet.Origin{Kind: fleet.Automation, Name: "day"} })
	g.ruledAssign("other", "r2") // another origin's work is not held up
	declined := g.ruledAssign("a", "r1")
	g.do(&DeclineAttempt{Job: "a", Fence: declined, Code: fleet.NoSlot, Rules: 1})
	returned := g.ruledAssign("b", "r1")
	g.do(&ReturnAttempt{Job: "b", Fence: returned})
	stopped := g.ruledAssign("b", "r1")
	g.do(&CancelJob{Job: "b"})
	if b := g.budget("automation:night"); len(b.Held) > 0 || b.Spent != (fleet.Spending{}) {
		t.Errorf("what never began left %+v (%s)", b, stopped)
	}
	f := g.ruledRun("a", "r2")
	g.ruledRun("c", "r1")
	begun := g.budget("automation:night").Begun
	g.do(&RetryJob{Job: "b", Rules: 1})
	again := &AssignJob{Job: "b", Runner: "r1", Turn: 1, Attempts: 2, Rules: 1, Automation: 9}
	if res := g.refused(fleet.BudgetSpent, again); !strings.Contains(res.Detail, "2 of 2 runs") {
		t.Errorf("refused with %q", res.Detail)
	}
	if no, until := g.m.View().Afford(&g.job("b").Spec, g.now); no == "" || until == nil || !until.Equal(begun.Add(time.Hour)) {
		t.Errorf("%q until %v", no, until)
	}
	end := g.judged("a", f, fleet.Accept)
	end.Rules = 1
	g.do(end)
	if b := g.budget("automation:night"); b.Spent.Runs != 1 || len(b.Held) != 1 {
		t.Errorf("after an end %+v", b)
	}
	g.refused(fleet.BudgetSpent, again)
	g.now = g.now.Add(time.Hour) // a new window, in which the run of c still counts
	g.do(again)
	if b := g.budget("automation:night"); b.Spent.Runs != 0 || b.Before.Runs != 1 || len(b.Held) != 2 || !b.Begun.Equal(g.now) {
		t.Errorf("in a new window %+v", b)
	}
}

// TestBudgetTokens: while nobody knows what a run takes, one at a time goes; then each
// holds what runs took on average, or what its job says.
func TestBudgetTokens(t *testing.T) {
	g := fleetOf(t)
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "automation", Tokens: 100, Wall: 10 * time.Hour}})
	for _, id := range []fleet.JobID{"a", "b", "c"} {
		g.submit(id, nightly)
	}
	g.submit("says", nightly, func(s *fleet.Spec) { s.MaxTokens = 71 })
	g.submit("runs", nightly, func(s *fleet.Spec) { s.Kind, s.Timeouts.Total = fleet.KindExec, time.Hour })
	f := g.ruledRun("a", "r1")
	if h := g.budget("automation").Held; len(h) != 1 || h[0].Tokens != 100 || h[0].Wall != fleet.DefaultTimeout {
		t.Errorf("held %+v", h)
	}
	assign := func(id fleet.JobID) *AssignJob {
		return &AssignJob{Job: id, Runner: "r2", Turn: 1, Rules: 1, Automation: 9}
	}
	g.refused(fleet.BudgetSpent, assign("b"))
	g.do(assign("runs")) // takes no tokens
	started, finished := g.now, g.now.Add(3*time.Minute)
	end := g.judged("a", f, fleet.Accept)
	end.Rules, end.Usage, end.StartedAt, end.FinishedAt = 1, &fleet.Usage{InputTokens: 25, OutputTokens: 5}, started, finished
	g.do(end)
	if b := g.budget("automation"); b.Spent != (fleet.Spending{Runs: 1, Tokens: 30, Wall: 3 * time.Minute}) {
		t.Errorf("spent %+v", b.Spent)
	}
	g.refused(fleet.BudgetSpent, assign("says"))
	b := g.do(assign("b")).Fence
	g.do(assign("c"))
	if h := g.budget("automation").InUse(); h.Tokens != 90 || h.Runs != 4 || h.Wall != 3*time.Minute+time.Hour+2*fleet.DefaultTimeout {
		t.Errorf("in use %+v", h)
	}
	// A lost one holds on until it is gone, and is then taken to have used the average.
	g.do(&AcceptAttempt{Job: "b", Fence: b, Rules: 1})
	g.do(&LoseAttempt{Job: "b", Fence: b, Rules: 1})
	if n := len(g.budget("automation").Held); n != 3 {
		t.Errorf("%d are held, want 3", n)
	}
	g.do(&AttemptGone{Job: "b", Fence: b, Rules: 1})
	if b := g.budget("automation"); b.Spent.Tokens != 60 || b.Spent.Runs != 2 || len(b.Held) != 2 {
		t.Errorf("after a loss %+v", b)
	}
}

// TestBudgetWall: a job that may take longer than is left does not begin.
func TestBudgetWall(t *testing.T) {
	g := fleetOf(t)
	g.do(&SetBudget{Budget: fleet.Budget{Origin: "manual", Wall: 90 * time.Minute}})
	g.submit("long")
	g.submit("short", func(s *fleet.Spec) { s.Timeouts.Total = time.Hour })
	g.submit("endless", func(s *fleet.Spec) { s.Timeouts.Total = -1 })
	res := g.refused(fleet.BudgetSpent, &AssignJob{Job: "long", Runner: "r1", Turn: 1, Rules: 1, Base: 9})
	if !strings.Contains(res.Detail, "2h0m0s") {
		t.Errorf("refused with %q", res.Detail)
	}
	g.ruledAssign("short", "r1")
	g.ruledAssign("endless", "r1") // has all that is left
	if u := g.budget("manual").InUse(); u.Wall != 90*time.Minute {
		t.Errorf("in use %+v", u)
	}
}

// TestFootprints: the most of the last jobs of a repository, until it is long ago.
func TestFootprints(t *testing.T) {
	g := fleetOf(t)
	repo := &fleet.Repo{URL: "https://example.org/repo.git"}
	other := &fleet.Repo{URL: "https://example.org/repo/"}
	print := func(id fleet.JobID, bytes int64) int64 {
		g.submit(id, func(s *fleet.Spec) { s.Repo = repo })
		end := g.judged(id, g.ruledRun(id, "r1"), fleet.Accept)
		end.Rules, end.Footprint = 1, bytes
		g.do(end)
		return g.m.View().Footprint(other.CacheOf())
	}
	if n := print(jobID(100), 0); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
	for i, b := range []int64{5, 9, 3, -1, 1 << 60} {
		if n := print(jobID(i), b); n != []int64{5, 9, 9, 9, 9}[i] {
			t.Errorf("after %d: %d", b, n)
		}
	}
	for i := range recentFootprints {
		print(jobID(10+i), 4)
	}
	if n := print(jobID(50), 4); n != 4 {
		t.Errorf("%d bytes are remembered for ever", n)
	}
	g.now = g.now.Add(keepFootprints)
	g.do(&Expire{Limit: 1, AuditAge: time.Hour})
	if n := g.m.View().Footprint(repo.CacheOf()); n != 0 {
		t.Errorf("%d bytes after a long time", n)
	}
}

// TestKinds: manual work and automation have slots of their own, and together never
// more than both, also after a bound was lowered.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		automated                       bool
		manual, automation, base, bound int
		want                            bool
	}{
		{false, 0, 0, 1, 0, true}, {false, 1, 0, 1, 1, false}, {false, 0, 1, 1, 1, true}, {false, 0, 2, 1, 1, false}, {false, 0, 0, 0, 4, false},
		{true, 0, 0, 1, 0, false}, {true, 0, 0, 0, 1, true}, {true, 1, 0, 1, 1, true}, {true, 2, 0, 1, 1, false}, {true, 0, 1, 2, 1, false}, {true, 0, 1, 2, 2, true},
	} {
		if got := HasRoom(c.automated, c.manual, c.automation, c.base, c.bound); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	g := fleetOf(t)
	g.submit("m")
	g.submit("n", nightly)
	g.submit("o", nightly)
	f := g.do(&AssignJob{Job: "m", Runner: "r1", Turn: 1, Rules: 1, Base: 1, Reserve: 10}).Fence
	since := g.now
	g.refused(fleet.NoSlot, &AssignJob{Job: "n", Runner: "r1", Turn: 1, Rules: 1, Base: 1})
	g.do(&AssignJob{Job: "n", Runner: "r1", Turn: 1, Rules: 1, Base: 1, Automation: 1, Reserve: 7})
	g.refused(fleet.NoSlot, &AssignJob{Job: "o", Runner: "r1", Turn: 1, Rules: 1, Automation: 2}) // both slots of it are occupied
	v := g.m.View()
	if m, a := v.HeldKinds("r1"); m != 1 || a != 1 {
		t.Errorf("held %d and %d", m, a)
	}
	if all, late := v.Reserved("r1", time.Time{}), v.Reserved("r1", since); all != 17 || late != 7 {
		t.Errorf("reserved %d, and %d after %s", all, late, since)
	}
	// A lost one keeps its place until it is gone.
	g.do(&AcceptAttempt{Job: "m", Fence: f, Rules: 1})
	g.do(&LoseAttempt{Job: "m", Fence: f, Rules: 1})
	if m, _ := g.m.View().HeldKinds("r1"); m != 1 {
		t.Error("the lost one gave its slot up")
	}
	g.do(&AttemptGone{Job: "m", Fence: f, Rules: 1})
	if m, _ := g.m.View().HeldKinds("r1"); m != 0 {
		t.Error("the slot of a gone one is held")
	}
	g.submit("p")
	g.do(&HoldRunner{ID: "r2", Hold: &fleet.Hold{}})
	g.refused(fleet.Cordoned, &AssignJob{Job: "p", Runner: "r2", Turn: 1, Rules: 1, Base: 1})
}
