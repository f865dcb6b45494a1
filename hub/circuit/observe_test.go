package circuit

import (
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func in(d time.Duration) *time.Time { t := noon.Add(d); return &t }

// TestClasses: what one end of an attempt opens, and for how long.
func TestClasses(t *testing.T) {
	const nothing = -1
	provider := func(class fleet.CircuitClass) string {
		return fleet.CircuitID(fleet.ScopeProvider, class, "r1", "openai", "", "")
	}
	for _, x := range []struct {
		name   string
		class  fleet.FailureClass
		change func(*Seen)
		id     string
		d      time.Duration // 0: blocked
		stated string
	}{
		{name: "rate limit, nothing stated", class: fleet.ClassRateLimited, id: provider(fleet.CircuitBurst), d: time.Minute},
		{name: "rate limit, shorter than the least", class: fleet.ClassRateLimited, change: func(s *Seen) { s.RetryAfter = in(7 * time.Second) }, id: provider(fleet.CircuitBurst), d: time.Minute},
		{name: "rate limit, a wait was stated", class: fleet.ClassRateLimited, change: func(s *Seen) { s.RetryAfter = in(95 * time.Second) }, id: provider(fleet.CircuitBurst), d: 95 * time.Second},
		{name: "rate limit, a time was stated", class: fleet.ClassRateLimited, change: func(s *Seen) { s.ResetAt = in(3 * time.Minute) }, id: provider(fleet.CircuitBurst), d: 3 * time.Minute},
		{name: "rate limit, the wait counts more", class: fleet.ClassRateLimited, change: func(s *Seen) { s.ResetAt, s.RetryAfter = in(time.Hour), in(2*time.Minute) }, id: provider(fleet.CircuitBurst), d: 2 * time.Minute},
		{name: "rate limit, beyond belief", class: fleet.ClassRateLimited, change: func(s *Seen) { s.RetryAfter, s.StatedEnd = in(8*24*time.Hour), "in 8 days" }, id: provider(fleet.CircuitBurst), d: 4 * time.Hour, stated: "in 8 days"},
		{name: "quota, nothing stated", class: fleet.ClassQuotaExhausted, id: provider(fleet.CircuitQuota), d: 4 * time.Hour},
		{name: "quota, words that nobody could read", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.StatedEnd = "next blue moon" }, id: provider(fleet.CircuitQuota), d: 4 * time.Hour, stated: "next blue moon"},
		{name: "quota, a reset was stated", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.ResetAt = in(37 * time.Minute) }, id: provider(fleet.CircuitQuota), d: 37 * time.Minute},
		{name: "quota, a wait was stated", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.RetryAfter = in(9 * time.Hour) }, id: provider(fleet.CircuitQuota), d: 9 * time.Hour},
		{name: "quota, seven days exactly", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.ResetAt = in(7 * 24 * time.Hour) }, id: provider(fleet.CircuitQuota), d: 7 * 24 * time.Hour},
		{name: "quota, a second more", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.ResetAt = in(7*24*time.Hour + time.Second) }, id: provider(fleet.CircuitQuota), d: 4 * time.Hour, stated: "2026-03-08T12:00:01Z"},
		{name: "quota, a reset that has passed", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.ResetAt = in(-time.Second) }, id: provider(fleet.CircuitQuota), d: 15 * time.Minute},
		{name: "credentials", class: fleet.ClassAuth, id: provider(fleet.CircuitAuth)},
		{name: "account", class: fleet.ClassAuth, change: func(s *Seen) { s.Account = "a/b" }, id: "provider/r1/openai/a%2fb/-/auth"},
		{name: "model", class: fleet.ClassModelUnavailable, id: "model/*/openai/-/gpt-x/model", d: 15 * time.Minute},
		{name: "the harness's own model", class: fleet.ClassModelUnavailable, change: func(s *Seen) { s.Model = "" }, id: "model/r1/openai/-/-/model", d: 15 * time.Minute},
		{name: "startup", class: fleet.ClassHarnessStartup, id: provider(fleet.CircuitStartup), d: 15 * time.Minute},
		{name: "not started at all", class: fleet.ClassHarnessStartup, change: func(s *Seen) { s.Exit = "start_failed" }, d: nothing},
		{name: "a session was not taken up", class: fleet.ClassHarnessStartup, change: func(s *Seen) { s.Resumed = true }, d: nothing},
		{name: "docker", class: fleet.ClassDocker, id: "host/r1/-/-/-/docker", d: 10 * time.Minute},
		{name: "docker, of a command", class: fleet.ClassDocker, change: func(s *Seen) { s.Provider = "" }, id: "host/r1/-/-/-/docker", d: 10 * time.Minute},
		{name: "quota while it waited to its limit", class: fleet.ClassQuotaExhausted, change: func(s *Seen) { s.Exit = "idle_timeout" }, id: provider(fleet.CircuitQuota), d: 4 * time.Hour},
		{name: "no provider", class: fleet.ClassAuth, change: func(s *Seen) { s.Provider = "" }, d: nothing},
		{name: "stopped in a refusal", class: fleet.ClassAuth, change: func(s *Seen) { s.Exit = "stopped" }, d: nothing},
		{name: "one failure is none", class: fleet.ClassProviderUnavailable, d: nothing},
		{name: "well", class: fleet.ClassOK, d: nothing},
		{name: "tests failed", class: fleet.ClassTaskFailed, d: nothing},
		{name: "cancelled", class: fleet.ClassCancelled, d: nothing},
		{name: "timeout", class: fleet.ClassTimeout, d: nothing},
		{name: "stalled", class: fleet.ClassStalled, d: nothing},
		{name: "crashed", class: fleet.ClassCrashed, d: nothing},
		{name: "unknown", class: fleet.ClassUnknown, d: nothing},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			if x.change == nil {
				x.change = func(*Seen) {}
			}
			w.ends(w.must("r1"), x.class, x.change)
			if x.d == nothing {
				for id, c := range w.by {
					if c.State != fleet.CircuitClosed {
						t.Fatalf("it opened %s", id)
					}
				}
				return
			}
			c := w.only()
			if c.ID != x.id {
				t.Fatalf("it opened %s, want %s", c.ID, x.id)
			}
			w.until(c, x.d)
			same(t, "stated end", c.StatedEnd, x.stated)
		})
	}
}

// TestLadders: a circuit that opens again before it closed opens for longer.
func TestLadders(t *testing.T) {
	long := []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 4 * time.Hour}
	passed := func(s *Seen) { s.ResetAt = in(-time.Hour) }
	for _, x := range []struct {
		class  fleet.FailureClass
		change func(*Seen)
		want   []time.Duration
	}{
		{fleet.ClassQuotaExhausted, passed, long},
		{fleet.ClassModelUnavailable, nil, long},
		{fleet.ClassHarnessStartup, nil, long},
		{fleet.ClassDocker, nil, []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		{fleet.ClassRateLimited, nil, []time.Duration{time.Minute, time.Minute, time.Minute}},
	} {
		w := newWorld(t)
		for _, d := range x.want {
			s := w.must("r1")
			if x.change == nil {
				x.change = func(*Seen) {}
			}
			w.ends(s, x.class, x.change)
			w.until(w.only(), d)
			if _, ok := w.assign("r1"); ok {
				t.Fatalf("%s: a start passes while it is open", x.class)
			}
			w.pass(d)
		}
	}

	w := newWorld(t)
	facts := fleet.RunnerFacts{Harnesses: []fleet.HarnessInfo{{Name: "codex"}, {Name: "claude"}, {Name: "exec"}, {Name: "opencode", Models: []string{"Z/m", "openai/x"}}}}
	for _, d := range long {
		s := w.must("r1")
		got := w.keep(Lost(w.find, s, facts, w.next())...)
		var of []string
		for _, c := range got {
			of = append(of, c.Provider)
			w.until(c, d)
		}
		same(t, "providers of a lost runner", of, []string{"anthropic", "openai", "opencode", "z"})
		w.pass(d)
	}
}

// TestOutage: three failures in a row open it, and what answers in between begins the row
// anew; then each further one does.
func TestOutage(t *testing.T) {
	w := newWorld(t)
	fail := func() { w.ends(w.must("r1"), fleet.ClassProviderUnavailable) }
	fail()
	fail()
	if c := w.only(); c.State != fleet.CircuitClosed || c.Failures != 2 {
		t.Fatalf("after two failures: %+v", c)
	}
	w.responds(w.must("r1"))
	if len(w.by) != 0 {
		t.Fatalf("a response leaves %v", w.all())
	}
	fail()
	w.ends(w.must("r1"), fleet.ClassTaskFailed)
	fail()
	if c := w.only(); c.Failures != 2 {
		t.Fatalf("a failed task, which nobody knows to have been answered, left %d failures, want 2", c.Failures)
	}
	w.ends(w.must("r2"), fleet.ClassOK)
	w.ends(w.must("r1", func(s *Seen) { s.Account = "other" }), fleet.ClassAuth, func(s *Seen) { s.Exit = "stopped" })
	if c := w.only(); c.Failures != 2 {
		t.Fatalf("another runner's success left %d failures, want 2", c.Failures)
	}
	for _, d := range []time.Duration{2 * time.Minute, 5 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		fail()
		w.until(w.only(), d)
		w.pass(d)
	}
	// Waiting for an answer until time is up is no answer.
	w = newWorld(t)
	for range 5 {
		w.ends(w.must("r1"), fleet.ClassProviderUnavailable, func(s *Seen) { s.Exit = "idle_timeout" })
	}
	if len(w.by) != 0 {
		t.Fatalf("waiting opened %v", w.all())
	}
	// An account that is known only at the end is the one that failed.
	fail()
	w.ends(w.must("r1", func(s *Seen) { s.Account = "a" }), fleet.ClassOK)
	if len(w.by) != 0 {
		t.Fatalf("a success with an account leaves %v", w.all())
	}
}

// TestModel: the runner that was refused waits; two that were refused close it to all,
// until a person resets it.
func TestModel(t *testing.T) {
	w := newWorld(t)
	refuse := func(r fleet.RunnerID) { w.ends(w.must(r), fleet.ClassModelUnavailable) }
	refuse("r1")
	if _, ok := w.assign("r1"); ok {
		t.Fatal("r1 asks for the model again at once")
	}
	w.must("r1", func(s *Seen) { s.Model = "other" })
	w.must("r1", func(s *Seen) { s.Provider = "azure" })
	w.responds(w.must("r2"))
	same(t, "runners that were refused", w.only().Runners, []fleet.RunnerID{"r1"})
	w.pass(20 * time.Minute)
	refuse("r0")
	c := w.only()
	w.until(c, 0)
	same(t, "runners that were refused", c.Runners, []fleet.RunnerID{"r0", "r1"})
	for _, r := range []fleet.RunnerID{"r0", "r1", "r9"} {
		if _, ok := w.assign(r); ok {
			t.Errorf("%s asks for a model that two were refused", r)
		}
	}
	w.keep(Reset(c, "t-person", "", "it was renamed", w.next()))
	w.must("r9")

	// What a harness asks for by itself is another thing on every runner.
	w = newWorld(t)
	own := func(s *Seen) { s.Model = "" }
	w.ends(w.must("r1", own), fleet.ClassModelUnavailable)
	w.ends(w.must("r2", own), fleet.ClassModelUnavailable)
	w.must("r3", own)
	if len(w.by) != 2 {
		t.Fatalf("%d circuits, want one a runner", len(w.by))
	}
}

// TestApart: what is known of one account, runner or provider says nothing of another.
func TestApart(t *testing.T) {
	account := func(a string) func(*Seen) { return func(s *Seen) { s.Account = a } }
	w := newWorld(t)
	w.ends(w.must("r1", account("a")), fleet.ClassQuotaExhausted)
	w.must("r1", account("b"))
	w.must("r2", account("a"))
	w.must("r1", account("a"), func(s *Seen) { s.Provider = "anthropic" })
	w.must("r1", account(""), func(s *Seen) { s.Provider = "" })
	if _, ok := w.assign("r1", account("")); ok {
		t.Error("an account that is not known may be the one that is used up")
	}
	// Classes over the same thing are circuits of their own.
	w.pass(4 * time.Hour)
	w.ends(w.must("r1", account("a")), fleet.ClassAuth)
	var ids []string
	for id, c := range w.by {
		ids = append(ids, id)
		if c.Probe != nil {
			t.Errorf("%s is still leased", id)
		}
	}
	slices.Sort(ids)
	same(t, "circuits", ids, []string{"provider/r1/openai/a/-/auth", "provider/r1/openai/a/-/quota"})
}

// TestHostFault: what automation found too little keeps only automation away.
func TestHostFault(t *testing.T) {
	auto := func(s *Seen) { s.Automated = true }
	for _, class := range []fleet.CircuitClass{fleet.CircuitDisk, fleet.CircuitMemory} {
		w := newWorld(t)
		fault := func(s Seen) { w.keep(HostFault(w.find, s, class, w.next())...); w.release(s, w.next()) }
		fault(w.must("r1", auto))
		w.until(w.only(), 10*time.Minute)
		if _, ok := w.assign("r1", auto); ok {
			t.Errorf("%s: automation is let in", class)
		}
		w.must("r2", auto)
		fault(w.must("r1"))
		if _, ok := w.assign("r1"); ok {
			t.Errorf("%s: manual work is let in where manual work found too little", class)
		}
		w.pass(10 * time.Minute)
		fault(w.must("r1", auto))
		if _, ok := w.assign("r1"); ok {
			t.Errorf("%s: a probe of automation narrowed what a manual job had opened", class)
		}
	}
	w := newWorld(t)
	w.ends(w.must("r1", auto), fleet.ClassDocker)
	a := Ask{Runner: "r1", Provider: "openai"}
	if got := w.set().Passes(a, w.now).Verdict; got != Pass {
		t.Errorf("a job without Docker: %s", got)
	}
	a.Docker = true
	if got := w.set().Passes(a, w.now).Verdict; got != No {
		t.Errorf("a job with Docker: %s", got)
	}
}
