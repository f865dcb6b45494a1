package circuit

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestWords: what people read of a job that a circuit keeps from a runner. The runner's
// name stands before it. KEY is the short key of the circuit.
func TestWords(t *testing.T) {
	until := in(90 * time.Minute)
	for _, x := range []struct {
		c              fleet.Circuit
		detail, change string
	}{
		{fleet.Circuit{Class: fleet.CircuitBurst, Text: "slow down"},
			"is kept from it until 2026-03-01T13:30:00Z: a rate limit of openai: slow down", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitQuota, Account: "a1"},
			"is kept from it until 2026-03-01T13:30:00Z: the quota at openai (account a1) is used up", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitQuota, StatedEnd: "in May"},
			`is kept from it until 2026-03-01T13:30:00Z: the quota at openai is used up (it states "in May" as the end, which is not taken)`, "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitAuth, State: fleet.CircuitBlocked, Text: "401"},
			"is kept from it: openai refused its credentials: 401", "other credentials there (sign the harness in anew); or `tugline circuit reset KEY --repaired 'WHAT WAS REPAIRED'`"},
		{fleet.Circuit{Class: fleet.CircuitModel, Scope: fleet.ScopeModel, Runners: []fleet.RunnerID{"r1"}, Model: "m"},
			"is kept from it until 2026-03-01T13:30:00Z: openai does not have the model m", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitModel, Scope: fleet.ScopeModel, Runners: []fleet.RunnerID{"r7", "r8"}, Model: "m", State: fleet.CircuitBlocked},
			"is kept from it: openai does not have the model m for 2 runners that asked", "`tugline circuit reset KEY --repaired 'WHAT WAS REPAIRED'`"},
		{fleet.Circuit{Class: fleet.CircuitStartup}, "is kept from it until 2026-03-01T13:30:00Z: the harness for openai refused to start", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitOutage}, "is kept from it until 2026-03-01T13:30:00Z: openai cannot be reached or fails", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitLost}, "is kept from it until 2026-03-01T13:30:00Z: it was lost with work on it", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitDisk, Scope: fleet.ScopeHost}, "is kept from it until 2026-03-01T13:30:00Z: its disk had too little room for a job", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitMemory, Scope: fleet.ScopeHost, Automation: true},
			"is kept from it until 2026-03-01T13:30:00Z: its memory was too small for a job of an automation, which needs more than others", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitDocker, Scope: fleet.ScopeHost}, "is kept from it until 2026-03-01T13:30:00Z: its Docker was not there for a job", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitOperator, Actor: "t-1", Text: "a move"},
			"is kept from it until 2026-03-01T13:30:00Z: t-1 keeps work from openai: a move", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitOperator, Actor: "t-1", Scope: fleet.ScopeModel, Model: "m"},
			"is kept from it until 2026-03-01T13:30:00Z: t-1 keeps work from the model m of openai", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitOperator, Actor: "t-1", Account: "a1"},
			"is kept from it until 2026-03-01T13:30:00Z: t-1 keeps work from openai (account a1)", "that time; or `tugline circuit reset KEY`"},
		{fleet.Circuit{Class: fleet.CircuitOperator, Actor: "t-1", Scope: fleet.ScopeHost, State: fleet.CircuitBlocked},
			"is kept from it: t-1 keeps work from this machine", "`tugline circuit reset KEY --repaired 'WHAT WAS REPAIRED'`"},
		{fleet.Circuit{Class: fleet.CircuitQuota, State: fleet.CircuitHalf, Probe: &fleet.CircuitProbe{Job: "j9"}},
			"waits while job j9 tries whether it works again: the quota at openai is used up", "what comes of job j9; or `tugline circuit reset KEY`"},
	} {
		c := x.c
		if c.ID = "id " + string(c.Class); c.Scope == "" {
			c.Scope = fleet.ScopeProvider
		}
		if c.Scope != fleet.ScopeHost {
			c.Provider = "openai"
		}
		if c.Scope != fleet.ScopeModel {
			c.Runner = "r1"
		}
		if c.State == "" {
			c.State, c.Until = fleet.CircuitOpen, until
		}
		a := Ask{Runner: "r1", Harness: "codex", Provider: "openai", Model: "m", Docker: true, Automated: true}
		got := NewSet([]*fleet.Circuit{&c}).Passes(a, noon)
		key := func(s string) string { return strings.ReplaceAll(s, "KEY", fleet.CircuitKey(c.ID)) }
		same(t, string(c.Class), got, Answer{Verdict: No, Circuit: c.ID, Detail: x.detail, Until: c.Until, Change: key(x.change)})
		if !NewSet([]*fleet.Circuit{&c}).Refuses(a, noon) {
			t.Errorf("%s: it refuses in words only", c.Class)
		}
	}
}

// TestWorst: of several circuits that refuse the one is told that holds longest, and a
// start tries every half-open one that is in its way.
func TestWorst(t *testing.T) {
	circuit := func(class fleet.CircuitClass, state fleet.CircuitState, d time.Duration) *fleet.Circuit {
		c := &fleet.Circuit{ID: string(class), Scope: fleet.ScopeProvider, Runner: "r1", Provider: "p", Class: class, State: state}
		if state != fleet.CircuitBlocked {
			c.Until = in(d)
		}
		return c
	}
	a := Ask{Runner: "r1", Harness: "h", Provider: "p"}
	auth := circuit(fleet.CircuitAuth, fleet.CircuitBlocked, 0)
	quota, lost := circuit(fleet.CircuitQuota, fleet.CircuitOpen, time.Hour), circuit(fleet.CircuitLost, fleet.CircuitOpen, 2*time.Hour)
	startup := circuit(fleet.CircuitStartup, fleet.CircuitOpen, time.Hour)
	half, tried := circuit(fleet.CircuitOutage, fleet.CircuitOpen, -time.Second), circuit(fleet.CircuitModel, fleet.CircuitHalf, -time.Hour)
	tried.Probe, tried.Class = &fleet.CircuitProbe{Job: "j"}, fleet.CircuitStartup
	for _, x := range []struct {
		cs   []*fleet.Circuit
		want string
	}{
		{[]*fleet.Circuit{quota, auth, lost}, "auth"}, {[]*fleet.Circuit{quota, lost, half}, "lost"},
		{[]*fleet.Circuit{startup, quota}, "quota"}, {[]*fleet.Circuit{tried, quota}, "quota"}, {[]*fleet.Circuit{half, tried}, "model"},
	} {
		for range 2 {
			if got := NewSet(x.cs).Passes(a, noon); got.Verdict != No || got.Circuit != x.want {
				t.Errorf("%+v, want it refused by %s", got, x.want)
			}
			x.cs[0], x.cs[len(x.cs)-1] = x.cs[len(x.cs)-1], x.cs[0]
		}
	}
	quota.Until, lost.Until = in(-time.Second), in(0)
	set := NewSet([]*fleet.Circuit{quota, lost, half, circuit(fleet.CircuitBurst, fleet.CircuitOpen, 0), circuit(fleet.CircuitDisk, fleet.CircuitClosed, 0)})
	got := set.Passes(a, noon)
	same(t, "several half-open ones", got, Answer{Verdict: Probe, Probes: []string{"lost", "outage", "quota"}})
	set.Take(got.Probes, "j1")
	if got := set.Passes(a, noon); got.Verdict != No || !strings.Contains(got.Detail, "job j1 tries") || !set.Refuses(a, noon) {
		t.Errorf("after they were taken: %+v", got)
	}
	if set.Touches("r2") || !set.Touches("r1") {
		t.Error("it is not known whom the circuits touch")
	}
}

// TestLostByHarness: a harness that speaks to many is kept away as a whole, whoever serves
// the model.
func TestLostByHarness(t *testing.T) {
	w := newWorld(t)
	s := w.must("r1")
	w.keep(Lost(w.find, s, fleet.RunnerFacts{Harnesses: []fleet.HarnessInfo{{Name: "opencode"}}}, w.next())...)
	a := Ask{Runner: "r1", Harness: "opencode", Provider: "mistral"}
	if got := w.set().Passes(a, w.now); got.Verdict != No {
		t.Errorf("opencode with a model of mistral: %+v", got)
	}
	a.Harness = "claude"
	if got := w.set().Passes(a, w.now); got.Verdict != Pass {
		t.Errorf("claude: %+v", got)
	}
}

// TestRefusesAll: what refuses a start everywhere, and what only some runners or accounts.
func TestRefusesAll(t *testing.T) {
	a := Ask{Runner: "r1", Harness: "codex", Provider: "openai", Account: "a", Model: "m"}
	over := func(scope fleet.Scope, class fleet.CircuitClass, change func(*fleet.Circuit)) *fleet.Circuit {
		c := &fleet.Circuit{ID: "c", Scope: scope, Class: class, Provider: "openai", State: fleet.CircuitBlocked}
		change(c)
		return c
	}
	for name, x := range map[string]struct {
		c    *fleet.Circuit
		want bool
	}{
		"a provider":       {over(fleet.ScopeProvider, fleet.CircuitOperator, func(*fleet.Circuit) {}), true},
		"its time is over": {over(fleet.ScopeProvider, fleet.CircuitOperator, func(c *fleet.Circuit) { c.State, c.Until = fleet.CircuitOpen, in(0) }), false},
		"another provider": {over(fleet.ScopeProvider, fleet.CircuitOperator, func(c *fleet.Circuit) { c.Provider = "z" }), false},
		"an account":       {over(fleet.ScopeProvider, fleet.CircuitOperator, func(c *fleet.Circuit) { c.Account = "a" }), false},
		"one runner":       {over(fleet.ScopeProvider, fleet.CircuitOperator, func(c *fleet.Circuit) { c.Runner = "r1" }), false},
		"a model":          {over(fleet.ScopeModel, fleet.CircuitModel, func(c *fleet.Circuit) { c.Model, c.Runners = "m", []fleet.RunnerID{"r7", "r8"} }), true},
		"another model":    {over(fleet.ScopeModel, fleet.CircuitModel, func(c *fleet.Circuit) { c.Model = "n" }), false},
		"a model for one": {over(fleet.ScopeModel, fleet.CircuitModel, func(c *fleet.Circuit) {
			c.State, c.Until, c.Model, c.Runners = fleet.CircuitOpen, in(time.Hour), "m", []fleet.RunnerID{"r1"}
		}), false},
		"a model that is tried": {over(fleet.ScopeModel, fleet.CircuitModel, func(c *fleet.Circuit) {
			c.State, c.Until, c.Model, c.Probe = fleet.CircuitHalf, in(0), "m", &fleet.CircuitProbe{}
		}), false},
	} {
		set := NewSet([]*fleet.Circuit{x.c})
		if got := set.RefusesAll(a, noon); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
		b := a
		b.Runner, b.Account = "r2", "b"
		if both := set.Refuses(a, noon) && set.Refuses(b, noon); both != x.want {
			t.Errorf("%s: of two runners with two accounts each is refused: %v", name, both)
		}
	}
}

// TestAskOf: what a start asks for is taken from the turn's choice and the runner's facts.
func TestAskOf(t *testing.T) {
	r := &fleet.Runner{ID: "r1", Facts: fleet.RunnerFacts{Harnesses: []fleet.HarnessInfo{{Name: "codex", Account: "c"}, {Name: "opencode", Account: "x=1 y=2"}}}}
	job := func(change func(*fleet.Job)) *fleet.Job {
		j := &fleet.Job{Spec: fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Model: "m"}, Turns: []*fleet.Turn{{N: 1}}}
		change(j)
		return j
	}
	for _, x := range []struct {
		j    *fleet.Job
		want Ask
	}{
		{job(func(*fleet.Job) {}), Ask{Runner: "r1", Harness: "codex", Provider: "openai", Account: "c", Model: "m"}},
		{job(func(j *fleet.Job) { j.Spec.Origin.Kind = fleet.Automation; j.Learned = &fleet.Learned{Docker: true} }),
			Ask{Runner: "r1", Harness: "codex", Provider: "openai", Account: "c", Model: "m", Docker: true, Automated: true}},
		{job(func(j *fleet.Job) {
			j.Spec.Fallbacks, j.Turns[0].Choice = []fleet.Choice{{Harness: "opencode", Model: "y/n"}}, 1
		}),
			Ask{Runner: "r1", Harness: "opencode", Provider: "y", Account: "2", Model: "y/n"}},
		{job(func(j *fleet.Job) {
			j.Spec.Kind, j.Spec.Harness = fleet.KindExec, "exec"
			j.Spec.Needs = &fleet.Needs{Docker: true}
		}), Ask{Runner: "r1", Docker: true}},
	} {
		same(t, "ask", AskOf(x.j, r), x.want)
	}
}

// TestPrefixes: the ids of all circuits that concern a start begin with one of its
// prefixes, and few others do.
func TestPrefixes(t *testing.T) {
	a := Ask{Runner: "r1", Harness: "codex", Provider: "open/ai", Account: "a", Model: "m/n"}
	w := newWorld(t)
	for _, c := range []fleet.Circuit{
		{Scope: fleet.ScopeHost, Runner: "r1"}, {Scope: fleet.ScopeProvider, Runner: "r1", Provider: "open/ai"}, {Scope: fleet.ScopeProvider, Provider: "open/ai", Account: "a"},
		{Scope: fleet.ScopeModel, Provider: "open/ai", Model: "m/n"}, {Scope: fleet.ScopeModel, Runner: "r1", Provider: "open/ai", Model: "m/n"},
	} {
		got := Open(w.find, c, "t", "", 0, w.next())
		begins := 0
		for _, p := range a.Prefixes() {
			if strings.HasPrefix(got.ID, p) {
				begins++
			}
		}
		if begins != 1 || NewSet([]*fleet.Circuit{got}).Passes(a, noon).Verdict != No {
			t.Errorf("%s begins with %d of %q", got.ID, begins, a.Prefixes())
		}
	}
	for _, p := range a.Prefixes() {
		if strings.HasPrefix("provider/r10/open%2fai/-/-/quota", p) || strings.HasPrefix("model/*/open/-/m/model", p) {
			t.Errorf("%q begins what is another's", p)
		}
	}
}

// TestForgettable: what has been closed for a week, or half open for a month, is remembered no longer.
func TestForgettable(t *testing.T) {
	week, month := 7*24*time.Hour, 30*24*time.Hour
	for _, x := range []struct {
		c     fleet.Circuit
		after time.Duration
		want  bool
	}{
		{fleet.Circuit{State: fleet.CircuitClosed}, week - 1, false},
		{fleet.Circuit{State: fleet.CircuitClosed}, week, true},
		{fleet.Circuit{State: fleet.CircuitOpen, Class: fleet.CircuitBurst, Until: in(time.Hour)}, week, false},
		{fleet.Circuit{State: fleet.CircuitOpen, Class: fleet.CircuitBurst, Until: in(time.Hour)}, week + time.Hour, true},
		{fleet.Circuit{State: fleet.CircuitOpen, Class: fleet.CircuitQuota, Until: in(week)}, week, false},
		{fleet.Circuit{State: fleet.CircuitOpen, Class: fleet.CircuitQuota, Until: in(time.Hour)}, month, false},
		{fleet.Circuit{State: fleet.CircuitOpen, Class: fleet.CircuitQuota, Until: in(time.Hour)}, month + time.Hour, true},
		{fleet.Circuit{State: fleet.CircuitHalf, Class: fleet.CircuitQuota, Until: in(-time.Hour)}, month, true},
		{fleet.Circuit{State: fleet.CircuitHalf, Class: fleet.CircuitQuota, Until: in(-time.Hour), Probe: &fleet.CircuitProbe{}}, month, false},
		{fleet.Circuit{State: fleet.CircuitBlocked, Class: fleet.CircuitAuth}, 9 * week, false},
	} {
		x.c.ChangedAt = noon
		if got := Forgettable(&x.c, noon.Add(x.after)); got != x.want {
			t.Errorf("%s %s after %s: %v", x.c.State, x.c.Class, x.after, got)
		}
	}
}
