package circuit

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestReset: a reset closes, counts, and keeps who, why and what.
func TestReset(t *testing.T) {
	w := newWorld(t)
	w.ends(w.must("r1"), fleet.ClassAuth)
	w.pass(time.Hour)
	m := w.next()
	c := w.keep(Reset(w.only(), "t-person", "new key", "the key was renewed", m))[0]
	want := &fleet.Circuit{
		ID: c.ID, Scope: fleet.ScopeProvider, Class: fleet.CircuitAuth, Runner: "r1", Provider: "openai", State: fleet.CircuitClosed,
		OpenedAt: noon, Fence: c.Fence, Since: m.Fence, Text: "new key", Generation: 1, Repaired: "the key was renewed", Actor: "t-person", ChangedAt: w.now,
	}
	same(t, "after a reset", c, want)
	w.must("r1")
}

// TestOpen: by hand, over everything that can be named, for a time or until it is reset.
func TestOpen(t *testing.T) {
	type ask = Ask
	openai := ask{Runner: "r1", Harness: "codex", Provider: "openai", Account: "a", Model: "m"}
	on := func(r fleet.RunnerID) ask { a := openai; a.Runner = r; return a }
	command := ask{Runner: "r1"}
	for _, x := range []struct {
		name string
		want fleet.Circuit
		id   string
		no   []ask
		yes  []ask
	}{
		{"a provider on a runner", fleet.Circuit{Scope: fleet.ScopeProvider, Runner: "r1", Provider: "openai"}, "provider/r1/openai/-/-/operator",
			[]ask{openai}, []ask{on("r2"), command, {Runner: "r1", Provider: "anthropic"}}},
		{"a provider everywhere", fleet.Circuit{Scope: fleet.ScopeProvider, Provider: "openai"}, "provider/*/openai/-/-/operator",
			[]ask{openai, on("r2")}, []ask{command, {Runner: "r1", Provider: "anthropic"}}},
		{"an account everywhere", fleet.Circuit{Scope: fleet.ScopeProvider, Provider: "openai", Account: "b"}, "provider/*/openai/b/-/operator",
			[]ask{{Runner: "r2", Provider: "openai", Account: "b"}}, []ask{openai}},
		{"a model everywhere", fleet.Circuit{Scope: fleet.ScopeModel, Provider: "openai", Model: "m"}, "model/*/openai/-/m/operator",
			[]ask{openai, on("r2")}, []ask{{Runner: "r1", Provider: "openai", Model: "n"}, {Runner: "r1", Provider: "openai"}}},
		{"a model on a runner", fleet.Circuit{Scope: fleet.ScopeModel, Runner: "r1", Provider: "openai", Model: "m"}, "model/r1/openai/-/m/operator",
			[]ask{openai}, []ask{on("r2")}},
		{"a machine", fleet.Circuit{Scope: fleet.ScopeHost, Runner: "r1"}, "host/r1/-/-/-/operator", []ask{openai, command}, []ask{on("r2")}},
	} {
		for _, d := range []time.Duration{0, time.Hour} {
			w := newWorld(t)
			c := w.keep(Open(w.find, x.want, "t-person", "maintenance", d, w.next()))[0]
			if c.ID != x.id {
				t.Errorf("%s: %s, want %s", x.name, c.ID, x.id)
			}
			w.until(c, d)
			passes := func(a ask) Answer { return w.set().Passes(a, w.now) }
			for _, a := range x.no {
				if passes(a).Verdict != No {
					t.Errorf("%s: %+v passes", x.name, a)
				}
			}
			for _, a := range x.yes {
				if got := passes(a); got.Verdict != Pass {
					t.Errorf("%s: %+v: %+v", x.name, a, got)
				}
			}
			w.pass(d)
			for _, a := range x.no {
				if got := passes(a).Verdict; d > 0 && got != Pass || d == 0 && got != No {
					t.Errorf("%s: %+v after its time: %s", x.name, a, got)
				}
			}
			// Said anew, it is for the new time.
			w.keep(Open(w.find, x.want, "t-other", "", 2*time.Hour, w.next()))
			w.until(w.only(), 2*time.Hour)
		}
	}
}

// TestRenewed: other credentials open what refused credentials had blocked, of the same
// provider and account, and nothing else.
func TestRenewed(t *testing.T) {
	facts := func(hs ...fleet.HarnessInfo) fleet.RunnerFacts { return fleet.RunnerFacts{Harnesses: hs} }
	codex := func(signed, account string) fleet.HarnessInfo {
		return fleet.HarnessInfo{Name: "codex", SignedIn: signed, Account: account}
	}
	for _, x := range []struct {
		name     string
		account  string
		provider string
		old, now fleet.RunnerFacts
		want     bool
	}{
		{"nothing changed", "a", "openai", facts(codex("yes", "a")), facts(codex("yes", "a")), false},
		{"another account", "a", "openai", facts(codex("yes", "a")), facts(codex("yes", "b")), true},
		{"the account is known now", "", "openai", facts(codex("yes", "")), facts(codex("yes", "b")), true},
		{"signed out", "", "openai", facts(codex("yes", "")), facts(codex("no", "")), false},
		{"signed in", "", "openai", facts(codex("no", "")), facts(codex("yes", "")), true},
		{"not known any more", "", "openai", facts(codex("yes", "")), facts(codex("unknown", "")), false},
		{"of another account", "z", "openai", facts(codex("yes", "a")), facts(codex("yes", "b")), false},
		{"of another provider", "a", "anthropic", facts(codex("yes", "a")), facts(codex("yes", "b")), false},
		{"a runner that has started, the same account", "a", "openai", facts(), facts(codex("yes", "a")), false},
		{"a runner that has started, another account", "a", "openai", facts(), facts(codex("yes", "b")), true},
		{"a runner that has started, whose account was not known", "", "openai", facts(), facts(codex("yes", "b")), false},
		{"a runner that has started, and knows no account", "", "openai", facts(), facts(codex("yes", "")), false},
		{"known again", "a", "openai", facts(codex("unknown", "")), facts(codex("yes", "a")), false},
		{"known again, without an account", "", "openai", facts(codex("unknown", "")), facts(codex("yes", "")), false},
		{"the account is gone", "a", "openai", facts(codex("yes", "a")), facts(codex("no", "")), false},
		{"signed in to the same account", "a", "openai", facts(codex("no", "")), facts(codex("yes", "a")), true},
		{"the harness is gone", "", "openai", facts(codex("yes", "b")), facts(), false},
		{"one of many providers", "a", "z", facts(fleet.HarnessInfo{Name: "opencode", Account: "z=a y=b"}), facts(fleet.HarnessInfo{Name: "opencode", Account: "z=c y=b"}), true},
		{"another one of many", "a", "z", facts(fleet.HarnessInfo{Name: "opencode", Account: "z=a y=b"}), facts(fleet.HarnessInfo{Name: "opencode", Account: "z=a y=c"}), false},
	} {
		w := newWorld(t)
		w.ends(w.must("r1", func(s *Seen) { s.Provider, s.Account = x.provider, x.account }), fleet.ClassAuth)
		got := Renewed(w.only(), x.old, x.now, w.next())
		if (got != nil) != x.want || got != nil && (got.State != fleet.CircuitClosed || got.Since.Index != w.index) {
			t.Errorf("%s: %+v", x.name, got)
		}
	}
	w := newWorld(t)
	w.ends(w.must("r1"), fleet.ClassQuotaExhausted)
	if Renewed(w.only(), facts(codex("no", "a")), facts(codex("yes", "b")), w.next()) != nil {
		t.Error("a quota is no matter of credentials")
	}
}
