package circuit

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// step is one thing that happens, as drawn.
type step struct {
	do      string
	runner  fleet.RunnerID
	account string
	model   string
	auto    bool
	class   fleet.FailureClass
	reset   time.Duration // stated; 0: not
	wait    time.Duration
	pick    int
}

func steps() *rapid.Generator[[]step] {
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			do:      rapid.SampledFrom([]string{"assign", "assign", "assign", "end", "end", "end", "respond", "respond", "accept", "lose", "fault", "wait", "wait", "reset", "open", "release"}).Draw(t, "do"),
			runner:  rapid.SampledFrom([]fleet.RunnerID{"r1", "r2", "r3"}).Draw(t, "runner"),
			account: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "account"),
			model:   rapid.SampledFrom([]string{"", "m", "m"}).Draw(t, "model"),
			auto:    rapid.Bool().Draw(t, "automation"),
			class:   rapid.SampledFrom(fleet.Classes()).Draw(t, "class"),
			reset:   rapid.SampledFrom([]time.Duration{0, 0, -time.Minute, time.Second, time.Hour, 6 * 24 * time.Hour, 30 * 24 * time.Hour}).Draw(t, "reset"),
			wait:    rapid.SampledFrom([]time.Duration{time.Second, 29 * time.Second, time.Minute, 15 * time.Minute, 5 * time.Hour}).Draw(t, "wait"),
			pick:    rapid.IntRange(0, 99).Draw(t, "pick"),
		}
	})
	return rapid.SliceOfN(one, 1, 80)
}

// play makes the steps happen, and looks after each whether the laws held.
func play(t *rapid.T, ss []step) map[string]fleet.Circuit {
	w := newWorld(t)
	var live []Seen
	facts := fleet.RunnerFacts{Harnesses: []fleet.HarnessInfo{{Name: "codex"}, {Name: "claude"}}}
	for i, s := range ss {
		before := w.all()
		var by *Seen // the attempt that is heard of
		take := func(gone bool) bool {
			if len(live) == 0 {
				return false
			}
			k := s.pick % len(live)
			a := live[k]
			if by = &a; gone {
				live = slices.Delete(live, k, k+1)
			} else {
				live[k].Responded = true
			}
			return true
		}
		switch s.do {
		case "assign":
			a, ok := w.assign(s.runner, func(x *Seen) { x.Account, x.Model, x.Automated = s.account, s.model, s.auto })
			if ok {
				live = append(live, a)
				for _, id := range a.Probes {
					if was := before[id]; was.Probe != nil || At(&was, w.now) != fleet.CircuitHalf {
						t.Fatalf("step %d: a lease of %s, which is %s with probe %v", i, id, At(&was, w.now), was.Probe)
					}
				}
				ask := Ask{Runner: s.runner, Harness: "codex", Provider: "openai", Account: s.account, Model: s.model, Automated: s.auto, Docker: true}
				if len(a.Probes) > 0 && !w.set().Refuses(ask, w.now) {
					t.Fatalf("step %d: a second probe may go beside one of %v", i, a.Probes)
				}
			}
		case "end":
			if take(true) {
				w.ends(*by, s.class, func(x *Seen) {
					if s.reset != 0 {
						at := w.now.Add(s.reset)
						x.ResetAt = &at
					}
				})
			}
		case "respond":
			if take(false) {
				w.responds(*by)
			}
		case "accept":
			if take(false) {
				w.keep(Accepted(w.find, *by, w.next())...)
			}
		case "lose":
			if take(true) {
				m := w.next()
				w.keep(Lost(w.find, *by, facts, m)...)
				w.release(*by, m)
			}
		case "fault":
			if take(true) {
				m := w.next()
				w.keep(HostFault(w.find, *by, fleet.CircuitDisk, m)...)
				w.release(*by, m)
			}
		case "wait":
			w.pass(s.wait)
		case "reset":
			for _, id := range ids(before) {
				if s.pick%7 == 0 {
					w.keep(Reset(w.by[id], "t", "", "it", w.next()))
				}
			}
		case "open":
			w.keep(Open(w.find, fleet.Circuit{Scope: fleet.ScopeHost, Runner: s.runner}, "t", "", s.wait, w.next()))
		case "release":
			for _, id := range ids(before) {
				if c := w.by[id]; c.Probe != nil && s.pick%3 == 0 {
					w.keep(Release(c, c.Probe.Fence, w.next()))
				}
			}
		}
		if by != nil {
			lawful(t, i, s, *by, before, w)
		}
		for id, c := range w.by {
			sound(t, i, id, c)
		}
	}
	return w.all()
}

// lawful checks what an attempt may have done.
func lawful(t *rapid.T, i int, s step, by Seen, before map[string]fleet.Circuit, w *world) {
	for id, c := range w.by {
		was, known := before[id]
		if !known {
			was = fleet.Circuit{State: fleet.CircuitClosed}
		}
		changed := c.State != was.State || c.Step != was.Step || c.Failures != was.Failures || c.Successes != was.Successes || c.Since != was.Since
		longer := c.State == fleet.CircuitBlocked && was.State != fleet.CircuitBlocked ||
			c.Until != nil && was.State != fleet.CircuitBlocked && (was.Until == nil || c.Until.After(*was.Until))
		switch {
		case by.Fence.Less(was.Since) && changed:
			t.Fatalf("step %d: %s of an attempt of before changes %s from %+v to %+v", i, s.do, id, was, *c)
		case by.Fence.Less(was.Since) && longer:
			t.Fatalf("step %d: %s of an attempt of before lengthens %s", i, s.do, id)
		case changed && c.Runner != by.Runner && c.Scope != fleet.ScopeModel:
			t.Fatalf("step %d: %s on %s changes %s", i, s.do, by.Runner, id)
		case changed && c.Runner == "" && s.do != "end" && !slices.Contains(by.Probes, id):
			t.Fatalf("step %d: %s on %s changes %s, which it does not try", i, s.do, by.Runner, id)
		case longer && s.do == "end" && !s.class.Provider() && s.class != fleet.ClassHarnessStartup && s.class != fleet.ClassDocker:
			t.Fatalf("step %d: an end as %s opens %s", i, s.class, id)
		case longer && (s.do == "respond" || s.do == "accept"):
			t.Fatalf("step %d: %s opens %s", i, s.do, id)
		case longer && c.Until != nil && c.Until.Sub(w.now) > fleet.QuotaFarthest:
			t.Fatalf("step %d: %s is open until %v at %v", i, id, c.Until, w.now)
		}
	}
}

// sound checks the shape of a circuit.
func sound(t *rapid.T, i int, id string, c *fleet.Circuit) {
	in := c.Runner
	if in == "" {
		in = Everywhere
	}
	open := c.State == fleet.CircuitOpen || c.State == fleet.CircuitHalf
	switch {
	case id != c.ID || id != fleet.CircuitID(c.Scope, c.Class, in, c.Provider, c.Account, c.Model):
		t.Fatalf("step %d: %s is not the id of %+v", i, id, *c)
	case open != (c.Until != nil), (c.State == fleet.CircuitClosed) == (c.Step > 0), c.State != fleet.CircuitHalf && c.Successes > 0, c.Successes >= fleet.ProbesToClose:
		t.Fatalf("step %d: %s is out of order: %+v", i, id, *c)
	case c.Probe != nil && !open, c.Failures >= fleet.OutageFailures, c.Failures > 0 && c.State != fleet.CircuitClosed:
		t.Fatalf("step %d: %s is out of order: %+v", i, id, *c)
	}
}

func ids(m map[string]fleet.Circuit) []string {
	var out []string
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// TestLaws: whatever happens, no attempt of before lengthens an end, no attempt moves
// another runner's circuits, no two try one at once, nothing but what blames a provider
// or a machine opens one, and the same steps lead to the same circuits.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ss := steps().Draw(t, "steps")
		same(t, "played twice", play(t, ss), play(t, ss))
	})
}
