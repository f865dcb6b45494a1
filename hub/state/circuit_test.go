package state

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

const (
	quotaR1 = "provider/r1/openai/-/-/quota"
	startR1 = "provider/r1/openai/-/-/startup"
)

// ruled is a rig on which the rules hold, with two runners.
func ruledRig(t testing.TB) *rig {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	return g
}

// give assigns the newest turn of a job under the rules.
func (g *rig) give(id fleet.JobID, r fleet.RunnerID, probes ...string) Result {
	g.t.Helper()
	tu := g.job(id).Turn()
	return g.try(&AssignJob{Job: id, Runner: r, Turn: tu.N, Attempts: len(tu.Attempts), Rules: 1, Base: 9, Automation: 9, Choice: tu.Choice, Probes: probes})
}

// given assigns what must be assigned.
func (g *rig) given(id fleet.JobID, r fleet.RunnerID, probes ...string) fleet.Fence {
	g.t.Helper()
	res := g.give(id, r, probes...)
	if res.Code != "" {
		g.t.Fatalf("job %s is not given to %s: %s: %s", id, r, res.Code, res.Detail)
	}
	return res.Fence
}

// start assigns and accepts a new job.
func (g *rig) start(id fleet.JobID, r fleet.RunnerID, probes ...string) fleet.Fence {
	g.t.Helper()
	f := g.given(g.submit(id, single), r, probes...)
	g.do(&AcceptAttempt{Job: id, Fence: f, Rules: 1})
	return f
}

// single wants no retries: what its attempts come to is seen at once.
func single(s *fleet.Spec) { s.Retries = new(int) }

// fails ends an attempt with a class.
func (g *rig) fails(id fleet.JobID, f fleet.Fence, class fleet.FailureClass, change ...func(*FinishAttempt)) {
	g.t.Helper()
	c := g.judged(id, f, fleet.Reject)
	c.Class, c.Exit.Code, c.Detail, c.Rules = class, 1, "said "+string(class), 1
	for _, f := range change {
		f(c)
	}
	g.do(c)
}

func (g *rig) answers(id fleet.JobID, f fleet.Fence) Result {
	g.t.Helper()
	return g.do(&RecordFacts{Job: id, Fence: f, Facts: []Fact{{Kind: "responded", Value: []byte("true")}}, Rules: 1})
}

func (g *rig) circuit(id string) *fleet.Circuit {
	g.t.Helper()
	c, ok := g.m.View().Circuit(id)
	if !ok {
		g.t.Fatalf("there is no circuit %s among %v", id, g.circuits())
	}
	return c
}

// circuits gives the ids of circuits with their states.
func (g *rig) circuits() []string {
	var out []string
	for _, c := range g.m.View().Circuits() {
		out = append(out, c.ID+" "+string(c.State))
	}
	return out
}

// lasting checks what a snapshot and a second replay of the log come to.
func (g *rig) lasting() {
	g.t.Helper()
	snap := snapshot(g.t, g.m)
	again := restored(g.t, snap)
	if !bytes.Equal(snap, snapshot(g.t, again)) {
		g.t.Error("a restored snapshot differs")
	}
	if n := again.View().Count(countCircuits); n != len(again.View().Circuits()) {
		g.t.Errorf("%d circuits are counted after a restore, and there are %d", n, len(again.View().Circuits()))
	}
	m := New()
	for i, e := range g.log {
		if _, _, err := m.Apply(uint64(i+1), e); err != nil {
			g.t.Fatal(err)
		}
	}
	if !bytes.Equal(snap, snapshot(g.t, m)) {
		g.t.Error("a replay of the log differs")
	}
}

func (g *rig) wait(d time.Duration) { g.now = g.now.Add(d) }

// TestCircuitOfAnEnd: an attempt's end opens a circuit in the same entry, which refuses
// the next start there and no other, and lets one probe pass when its time has come.
func TestCircuitOfAnEnd(t *testing.T) {
	g := ruledRig(t)
	f := g.start("j1", "r1")
	c := g.judged("j1", f, fleet.Reject)
	c.Class, c.Rules, c.Detail, c.StatedEnd = fleet.ClassQuotaExhausted, 1, "used up", "some day"
	_, changes := g.apply(Head{Actor: "runner:r1"}, c)
	at := slices.IndexFunc(changes, func(c Change) bool { return c.What == "circuit" })
	if at < 0 || changes[at].Circuit.ID != quotaR1 {
		t.Fatalf("the feed has %+v", changes)
	}
	got := g.circuit(quotaR1)
	want := &fleet.Circuit{
		ID: quotaR1, Scope: fleet.ScopeProvider, Class: fleet.CircuitQuota, Runner: "r1", Provider: "openai", State: fleet.CircuitOpen, Step: 1,
		OpenedAt: g.now, Until: got.Until, Fence: f, Since: fleet.Fence{Index: g.index}, Text: "used up", StatedEnd: "some day", ChangedAt: g.now,
	}
	if d := cmp.Diff(want, got); d != "" || got.Until.Sub(g.now) != 4*time.Hour {
		t.Fatalf("until %v (-want +got):\n%s", got.Until, d)
	}
	g.submit("j2")
	res := g.give("j2", "r1")
	if res.Code != fleet.CircuitRefuses || !strings.HasPrefix(res.Detail, "r1 is kept from it until ") {
		t.Fatalf("a start on r1: %+v", res)
	}
	g.given("j2", "r2")
	g.submit("j3", func(s *fleet.Spec) { s.Kind, s.Harness = fleet.KindExec, "exec" })
	g.given("j3", "r1")

	g.wait(4 * time.Hour)
	g.submit("j4")
	if res := g.give("j4", "r1"); res.Code != fleet.Conflict {
		t.Fatalf("a start that knows nothing of the circuit: %+v", res)
	}
	f = g.given("j4", "r1", quotaR1, "a circuit that is no more")
	if p := g.circuit(quotaR1).Probe; p == nil || p.Job != "j4" || p.Fence != f {
		t.Fatalf("lease %+v", p)
	}
	if got := g.attempt("j4", f).Probes; !slices.Equal(got, []string{quotaR1}) {
		t.Fatalf("probes %q", got)
	}
	g.submit("j5")
	if res := g.give("j5", "r1", quotaR1); res.Code != fleet.CircuitRefuses || !strings.Contains(res.Detail, "job j4 tries") {
		t.Fatalf("a second probe: %+v", res)
	}
	g.do(&AcceptAttempt{Job: "j4", Fence: f, Rules: 1})
	g.answers("j4", f)
	if c := g.circuit(quotaR1); c.State != fleet.CircuitHalf || c.Successes != 1 || c.Probe != nil {
		t.Fatalf("after a response: %+v", c)
	}
	g.answers("j4", f) // told by another fact
	if c := g.circuit(quotaR1); c.Successes != 1 {
		t.Fatalf("a response that is told twice counts as %d", c.Successes)
	}
	g.wait(30 * time.Second)
	f = g.given("j5", "r1", quotaR1)
	g.do(&AcceptAttempt{Job: "j5", Fence: f, Rules: 1})
	g.fails("j5", f, fleet.ClassOK) // a response that no fact told
	g.wait(30 * time.Second)
	g.answers("j6", g.start("j6", "r1", quotaR1))
	if c := g.circuit(quotaR1); c.State != fleet.CircuitClosed || c.Step != 0 {
		t.Fatalf("after three: %+v", c)
	}
	g.start("j7", "r1")
	g.lasting()
}

// TestCircuitWithoutRules: commands of old open nothing and ask for nothing.
func TestCircuitWithoutRules(t *testing.T) {
	g := ruledRig(t)
	for i, class := range fleet.Classes() {
		c := g.judged(jobID(i), g.run(g.submit(jobID(i)), "r1"), fleet.Reject)
		c.Class = class
		g.do(c)
	}
	g.do(&LoseAttempt{Job: "l", Fence: g.run(g.submit("l"), "r1")})
	g.do(&DeclineAttempt{Job: "d", Fence: g.assign(g.submit("d"), "r1"), Code: fleet.Storage})
	if got := g.circuits(); len(got) != 0 {
		t.Fatalf("opened: %v", got)
	}
	g.do(&OpenCircuit{Scope: fleet.ScopeHost, Runner: "r1"})
	g.run(g.submit("o"), "r1")
}

// TestResumedStart: a harness that does not take up a session says nothing of its runner;
// one that does not begin a new one does.
func TestResumedStart(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		g := ruledRig(t)
		f := g.start("a", "r1")
		g.fails("a", f, fleet.ClassTaskFailed, func(c *FinishAttempt) { c.SessionID = "s" })
		g.do(&FollowUp{Job: "a", Prompt: digest("more"), Fresh: fresh})
		f = g.given("a", "r1")
		g.do(&AcceptAttempt{Job: "a", Fence: f, Rules: 1})
		g.fails("a", f, fleet.ClassHarnessStartup)
		if _, opened := g.m.View().Circuit(startR1); opened != fresh {
			t.Errorf("a follow-up, fresh %v, opened %v", fresh, g.circuits())
		}
	}
}

// TestLeasesEnd: whatever takes an attempt off its runner takes its leases back.
func TestLeasesEnd(t *testing.T) {
	for _, x := range []struct {
		name string
		end  func(g *rig, f fleet.Fence)
	}{
		{"declined", func(g *rig, f fleet.Fence) {
			g.do(&DeclineAttempt{Job: "p", Fence: f, Code: fleet.OwnerPolicy, Rules: 1})
		}},
		{"returned", func(g *rig, f fleet.Fence) { g.do(&ReturnAttempt{Job: "p", Fence: f}) }},
		{"gone", func(g *rig, f fleet.Fence) { g.do(&AttemptGone{Job: "p", Fence: f, Rules: 1}) }},
		{"withdrawn", func(g *rig, f fleet.Fence) { g.do(&CancelJob{Job: "p"}) }},
		{"epoch raised", func(g *rig, f fleet.Fence) { g.raise() }},
		{"ended", func(g *rig, f fleet.Fence) {
			g.do(&AcceptAttempt{Job: "p", Fence: f, Rules: 1})
			g.fails("p", f, fleet.ClassTaskFailed)
		}},
		{"lost", func(g *rig, f fleet.Fence) {
			g.do(&AcceptAttempt{Job: "p", Fence: f, Rules: 1})
			g.do(&LoseAttempt{Job: "p", Fence: f, Rules: 1})
		}},
		{"abandoned", func(g *rig, f fleet.Fence) {
			g.do(&AcceptAttempt{Job: "p", Fence: f, Rules: 1})
			g.do(&CancelJob{Job: "p", Abandon: true})
		}},
		{"new journal", func(g *rig, f fleet.Fence) { g.do(&UpdateRunner{ID: "r1", JournalID: "new"}) }},
		{"released", func(g *rig, f fleet.Fence) {
			g.do(&ReleaseProbe{ID: startR1, Fence: f})
			g.repeated(&ReleaseProbe{ID: startR1, Fence: f})
		}},
		{"reset", func(g *rig, f fleet.Fence) { g.do(&ResetCircuit{ID: startR1}) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			g := ruledRig(t)
			g.fails("j1", g.start("j1", "r1"), fleet.ClassHarnessStartup)
			g.wait(15 * time.Minute)
			f := g.given(g.submit("p"), "r1", startR1)
			g.repeated(&ReleaseProbe{ID: startR1, Fence: fleet.Fence{Index: 1}}) // another's
			if g.circuit(startR1).Probe == nil {
				t.Fatal("it has no lease")
			}
			x.end(g, f)
			if c := g.circuit(startR1); c.Probe != nil {
				t.Fatalf("it is still leased: %+v", c)
			}
			g.lasting()
		})
	}
}

// TestLostRunner: an attempt that is lost opens a circuit for every provider that the
// runner's harnesses speak to, once, and that it comes back closes none.
func TestLostRunner(t *testing.T) {
	g := ruledRig(t)
	g.do(&UpdateRunner{ID: "r1", Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex"}, {Name: "claude"}, {Name: "exec"}}}})
	a, b := g.start("a", "r1"), g.start("b", "r1")
	g.do(&LoseAttempt{Job: "a", Fence: a, Detail: "silent", Rules: 1})
	g.do(&LoseAttempt{Job: "b", Fence: b, Detail: "silent", Rules: 1})
	want := []string{"provider/r1/anthropic/-/-/lost open", "provider/r1/openai/-/-/lost open"}
	if got := g.circuits(); !slices.Equal(got, want) {
		t.Fatalf("circuits %q, want %q", got, want)
	}
	c := g.circuit("provider/r1/openai/-/-/lost")
	if c.Step != 1 || c.Until.Sub(c.OpenedAt) != 15*time.Minute || c.Text != "silent" {
		t.Fatalf("%+v", c)
	}
	g.do(&ReviveAttempt{Job: "a", Fence: a})
	g.answers("a", a)
	g.fails("a", a, fleet.ClassOK)
	if got := g.circuits(); !slices.Equal(got, want) {
		t.Fatalf("after it came back: %q, want %q", got, want)
	}
	g.submit("c")
	if res := g.give("c", "r1"); res.Code != fleet.CircuitRefuses {
		t.Fatalf("a start on it: %+v", res)
	}
	g.given("c", "r2")
	g.lasting()
}

// TestGoneWhenCancelledIsNotLost: a job that was cancelled before anything of it began, of
// which the runner then says that nothing is there, opens no circuit; one that was not
// cancelled, and one that was and of which nothing more is heard, do.
func TestGoneWhenCancelledIsNotLost(t *testing.T) {
	for _, x := range []struct {
		name   string
		cancel bool
		end    func(f fleet.Fence) Command
		opens  bool
	}{
		{"cancelled, and gone", true, func(f fleet.Fence) Command { return &AttemptGone{Job: "a", Fence: f, Rules: 1} }, false},
		{"gone by itself", false, func(f fleet.Fence) Command { return &AttemptGone{Job: "a", Fence: f, Rules: 1} }, true},
		{"cancelled, and silent", true, func(f fleet.Fence) Command { return &LoseAttempt{Job: "a", Fence: f, Detail: "silent", Rules: 1} }, true},
	} {
		g := ruledRig(t)
		f := g.given(g.submit("a"), "r1")
		g.do(&AcceptAttempt{Job: "a", Fence: f, Rules: 1})
		if x.cancel {
			g.do(&CancelJob{Job: "a"})
		}
		g.do(x.end(f))
		if got := g.circuits(); (len(got) > 0) != x.opens {
			t.Errorf("%s: circuits %q", x.name, got)
		}
		g.lasting()
	}
}

// TestHostCircuits: a machine that gave work back for want of room gets none for ten
// minutes; others stay as they are.
func TestHostCircuits(t *testing.T) {
	for code, class := range map[fleet.Code]fleet.CircuitClass{fleet.Storage: fleet.CircuitDisk, fleet.DiskFull: fleet.CircuitDisk, fleet.MemoryLow: fleet.CircuitMemory, fleet.DockerMissing: fleet.CircuitDocker} {
		g := ruledRig(t)
		f := g.given(g.submit("j"), "r1")
		g.do(&DeclineAttempt{Job: "j", Fence: f, Code: code, Detail: "none left", RetryAfter: time.Minute, Rules: 1})
		id := fleet.CircuitID(fleet.ScopeHost, class, "r1", "", "", "")
		if c := g.circuit(id); c.State != fleet.CircuitOpen || c.Until.Sub(c.OpenedAt) != 10*time.Minute {
			t.Errorf("%s: %+v", code, c)
		}
		docker := func(s *fleet.Spec) { s.Needs = &fleet.Needs{Docker: true} }
		g.submit("k", docker)
		if res := g.give("k", "r1"); res.Code != fleet.CircuitRefuses {
			t.Errorf("%s: a start on it: %+v", code, res)
		}
		g.given("k", "r2")
		g.submit("l")
		if res := g.give("l", "r1"); (res.Code == "") != (class == fleet.CircuitDocker) {
			t.Errorf("%s: a start without Docker: %+v", code, res)
		}
		g.wait(10 * time.Minute)
		f = g.given(g.submit("p", docker), "r1", id)
		g.do(&AcceptAttempt{Job: "p", Fence: f, Rules: 1})
		if got := g.circuit(id).Successes; got != 1 && class != fleet.CircuitDocker || got != 0 && class == fleet.CircuitDocker {
			t.Errorf("%s: %d successes after an accept", code, got)
		}
		g.fails("p", f, fleet.ClassTaskFailed)
		if got := g.circuit(id).Successes; got != 1 {
			t.Errorf("%s: %d successes after the end", code, got)
		}
		g.lasting()
	}
	g := ruledRig(t)
	g.do(&DeclineAttempt{Job: "j", Fence: g.given(g.submit("j"), "r1"), Code: fleet.RepoAuth, Rules: 1})
	if got := g.circuits(); len(got) != 0 {
		t.Errorf("a decline for another reason opened %q", got)
	}
}

// TestCredentials: refused credentials block until others are there, or a person names
// what was repaired.
func TestCredentials(t *testing.T) {
	facts := func(account string) *fleet.RunnerFacts {
		return &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex", SignedIn: "yes", Account: account}}}
	}
	g := ruledRig(t)
	g.do(&UpdateRunner{ID: "r1", Facts: facts("one")})
	stale := g.start("s", "r1")
	g.fails("a", g.start("a", "r1"), fleet.ClassAuth)
	const id = "provider/r1/openai/one/-/auth"
	c := g.circuit(id)
	r, _ := g.m.View().Runner("r1")
	if c.State != fleet.CircuitBlocked || c.Until != nil || c.FactsRev != r.FactsRev {
		t.Fatalf("%+v", c)
	}
	g.wait(30 * 24 * time.Hour)
	g.submit("b")
	if res := g.give("b", "r1"); res.Code != fleet.CircuitRefuses {
		t.Fatalf("after a month: %+v", res)
	}
	g.do(&UpdateRunner{ID: "r1", Facts: facts("one")})
	if g.circuit(id).State != fleet.CircuitBlocked {
		t.Fatal("facts that say the same opened it")
	}
	g.do(&UpdateRunner{ID: "r1", Facts: facts("two")})
	if c := g.circuit(id); c.State != fleet.CircuitClosed || c.Generation != 0 {
		t.Fatalf("with another account: %+v", c)
	}
	g.fails("s", stale, fleet.ClassAuth)
	if c := g.circuit(id); c.State != fleet.CircuitClosed {
		t.Fatalf("an attempt of before blocked it: %+v", c)
	}
	g.given("b", "r1")
	g.lasting()
}

// TestResetCircuit: who, why, and what was repaired are on record.
func TestResetCircuit(t *testing.T) {
	g := ruledRig(t)
	const id = "provider/r1/openai/-/-/auth"
	g.refused(fleet.NotFound, &ResetCircuit{ID: id})
	g.refused(fleet.NotFound, &ReleaseProbe{ID: id})
	g.fails("a", g.start("a", "r1"), fleet.ClassAuth)
	g.refused(fleet.BadRequest, &ResetCircuit{ID: id, Reason: "it works", Repaired: " \t"})
	g.refused(fleet.TooLarge, &ResetCircuit{ID: id, Repaired: strings.Repeat("x", fleet.MaxDetail+1)})
	one, zero := uint64(1), uint64(0)
	g.refused(fleet.Conflict, &ResetCircuit{ID: id, Repaired: "key", Generation: &one})
	g.do(&ResetCircuit{ID: id, Reason: " it works ", Repaired: " the key ", Generation: &zero})
	c := g.circuit(id)
	if c.State != fleet.CircuitClosed || c.Generation != 1 || c.Repaired != "the key" || c.Actor != g.actor || c.Text != "it works" || c.Since.Index != g.index {
		t.Fatalf("%+v", c)
	}
	g.refused(fleet.Conflict, &ResetCircuit{ID: id, Repaired: "again", Generation: &zero})
	g.repeated(&ResetCircuit{ID: id})
	g.fails("b", g.start("b", "r1"), fleet.ClassHarnessStartup)
	g.do(&ResetCircuit{ID: startR1}) // nothing needs to be named where time would have opened it
	g.start("c", "r1")

	a := g.m.View().Audit(0, 100)
	i := slices.IndexFunc(a, func(a *Audit) bool { return a.Subject == id })
	if got := *a[i]; got.Command != "circuit.reset" || got.Actor != g.actor || got.Detail != "it works; repaired: the key" {
		t.Fatalf("audit %+v", got)
	}
	g.lasting()
}

// TestOpenCircuit: what a person opens, and what cannot be opened.
func TestOpenCircuit(t *testing.T) {
	g := ruledRig(t)
	g.enrol("r3")
	g.do(&RemoveRunner{ID: "r3"})
	for _, c := range []OpenCircuit{
		{}, {Scope: "moon"}, {Scope: fleet.ScopeHost}, {Scope: fleet.ScopeHost, Runner: "r1", Provider: "openai"}, {Scope: fleet.ScopeProvider, Runner: "r1"},
		{Scope: fleet.ScopeProvider, Provider: "openai", Model: "m"}, {Scope: fleet.ScopeModel, Provider: "openai"}, {Scope: fleet.ScopeModel, Model: "m"},
		{Scope: fleet.ScopeModel, Provider: "openai", Model: "m", Account: "a"}, {Scope: fleet.ScopeHost, Runner: "r1", For: -1}, {Scope: fleet.ScopeHost, Runner: "r1", For: MaxOpenFor + 1},
	} {
		g.refused(fleet.BadRequest, &c)
	}
	g.refused(fleet.RunnerUnknown, &OpenCircuit{Scope: fleet.ScopeHost, Runner: "r9"})
	g.refused(fleet.RunnerUnknown, &OpenCircuit{Scope: fleet.ScopeProvider, Runner: "r3", Provider: "openai"})
	g.refused(fleet.TooLarge, &OpenCircuit{Scope: fleet.ScopeHost, Runner: "r1", Reason: strings.Repeat("x", fleet.MaxDetail+1)})

	id := g.do(&OpenCircuit{Scope: fleet.ScopeModel, Provider: "openai", Model: "m/1", For: time.Hour, Reason: "too dear"}).ID
	if c := g.circuit(id); id != "model/*/openai/-/m%2f1/operator" || c.Actor != g.actor || c.Text != "too dear" || c.Until.Sub(g.now) != time.Hour {
		t.Fatalf("%s: %+v", id, c)
	}
	if a := g.m.View().Audit(0, 1)[0]; a.Command != "circuit.open" || a.Subject != id || a.Detail != "too dear; for 1h0m0s" {
		t.Fatalf("audit %+v", a)
	}
	dear := func(s *fleet.Spec) { s.Model = "m/1" }
	g.submit("a", dear)
	for _, r := range []fleet.RunnerID{"r1", "r2"} {
		if res := g.give("a", r); res.Code != fleet.CircuitRefuses {
			t.Fatalf("on %s: %+v", r, res)
		}
	}
	g.start("b", "r1")
	g.wait(time.Hour)
	g.given("a", "r2") // a person's time is over with no probe
	block := g.do(&OpenCircuit{Scope: fleet.ScopeHost, Runner: "r1"}).ID
	g.refused(fleet.BadRequest, &ResetCircuit{ID: block})
	g.do(&ResetCircuit{ID: block, Repaired: "the fan"})
	g.lasting()
}

// TestCircuitsEnd: closed circuits go after a week, those of a runner with it, and there
// are never more than the bound.
func TestCircuitsEnd(t *testing.T) {
	g := ruledRig(t)
	g.fails("a", g.start("a", "r1"), fleet.ClassHarnessStartup)
	g.fails("b", g.start("b", "r2"), fleet.ClassAuth)
	g.do(&ResetCircuit{ID: startR1})
	g.fails("c", g.start("c", "r1"), fleet.ClassRateLimited)
	expire := &Expire{Limit: 1, AuditAge: time.Hour}
	g.wait(7*24*time.Hour - time.Minute)
	g.do(expire)
	if got := g.circuits(); len(got) != 3 {
		t.Fatalf("before a week: %q", got)
	}
	g.wait(2 * time.Minute)
	for left := 2; left > 0; left-- {
		g.do(expire)
		if got := g.circuits(); len(got) != left {
			t.Fatalf("%q, want %d", got, left)
		}
	}
	g.do(expire)
	if got := g.circuits(); len(got) != 1 || !strings.HasSuffix(got[0], "blocked") {
		t.Fatalf("after a week: %q", got)
	}
	_, changes := g.apply(Head{Actor: "t-person"}, &RemoveRunner{ID: "r2", AbandonJobs: true})
	if got := g.circuits(); len(got) != 0 || !slices.ContainsFunc(changes, func(c Change) bool { return c.What == "circuit" && c.Removed }) {
		t.Fatalf("after the runner was removed: %q, %v", got, changes)
	}
	g.lasting()

	// The bound, without ten thousand entries.
	tx := begin(g.m.current.Load())
	defer tx.Abort()
	for i := range MaxCircuits + 2 {
		c := &fleet.Circuit{ID: fmt.Sprintf("provider/r1/p%05d/-/-/auth", i), State: fleet.CircuitBlocked, Step: 1, ChangedAt: epoch0.Add(time.Duration(i))}
		if i == 7 {
			c.State = fleet.CircuitClosed
		}
		tx.putCircuits([]*fleet.Circuit{c})
	}
	if n := tx.count(countCircuits); n != MaxCircuits {
		t.Fatalf("%d circuits, at most %d", n, MaxCircuits)
	}
	for i, want := range map[int]bool{0: false, 1: true, 7: false, MaxCircuits + 1: true} {
		if got := tx.circuit(fmt.Sprintf("provider/r1/p%05d/-/-/auth", i)) != nil; got != want {
			t.Errorf("circuit %d is on record: %v", i, got)
		}
	}
}
