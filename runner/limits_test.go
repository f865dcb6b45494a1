package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// bare makes a runner that nobody runs, with the owner's rules as given.
func bare(t *testing.T, rules string) *Runner {
	t.Helper()
	r, err := New(Config{Dir: t.TempDir(), Name: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(OwnerFile(r.cfg.Dir), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	r.loadOwner()
	return r
}

// What the hub said last holds over a restart; without it, or with a file that cannot
// be read, there is no automation.
func TestLimitsAreKept(t *testing.T) {
	r := bare(t, "floors: {start: 40GiB}\n")
	again := func() *Runner {
		s := bare(t, "")
		s.cfg.Dir = r.cfg.Dir
		s.loadLimits()
		return s
	}
	if _, ever := again().limits(); ever {
		t.Fatal("a runner that was never told has limits")
	}
	if f := r.floors(); f.Select != fleet.DefaultSelectFloor || f.Start != 40<<30 {
		t.Errorf("floors of one that was never told are %+v", f)
	}
	want := fleet.Limits{Automation: 3, Floors: fleet.Floors{Select: 5, Start: 50 << 30}}
	r.takeLimits(want)
	if got, ever := again().limits(); !ever || got != want {
		t.Errorf("after a restart %+v, %v; want %+v", got, ever, want)
	}
	if f := r.floors(); f.Select != 5 || f.Start != 50<<30 {
		t.Errorf("floors are %+v; the hub's are higher", f)
	}
	r.takeLimits(fleet.Limits{Automation: 99, Floors: fleet.Floors{Select: -1}})
	if got, _ := again().limits(); got.Automation != fleet.MaxAutomation || got.Floors.Select != 0 {
		t.Errorf("beyond all bounds is taken as %+v", got)
	}
	st, err := os.Stat(r.limitsPath())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", st.Mode(), err)
	}
	for _, ruin := range []string{"", "{", `{"version":1}x`, `{"version":2,"limits":{"automation":1}}`, `[]`} {
		if err := os.WriteFile(r.limitsPath(), []byte(ruin), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ever := again().limits(); ever {
			t.Errorf("%q is read as %+v", ruin, got)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.cfg.Dir, ".limits*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAdmits(t *testing.T) {
	people, automation := &fleet.Spec{}, &fleet.Spec{Origin: fleet.Origin{Kind: fleet.Automation, Name: "nightly"}}
	limits := func(n int) *fleet.Limits { return &fleet.Limits{Automation: n} }
	for _, c := range []struct {
		name        string
		rules       string
		told        *fleet.Limits
		health      *fleet.Health
		people      int // under way
		automations int
		spec        *fleet.Spec
		code        fleet.Code
		detail      string
	}{
		{name: "a person's job", spec: people},
		{name: "a person's job, all slots taken", people: 1, spec: people, code: fleet.NoSlot, detail: "all 1 slot of this runner"},
		{name: "an automation's, never told", spec: automation, code: fleet.AutomationOff, detail: "not told"},
		{name: "an automation's", told: limits(1), spec: automation},
		{name: "an automation's beside a person's", told: limits(1), people: 1, spec: automation},
		{name: "an automation's, slot taken", told: limits(1), automations: 1, spec: automation, code: fleet.NoSlot, detail: "all 1 slot for automations"},
		{name: "a person's beside an automation's", told: limits(1), automations: 1, spec: people},
		{name: "an automation's, off", told: limits(0), spec: automation, code: fleet.AutomationOff, detail: "the hub allows"},
		{name: "more automations run than are allowed now", rules: "slots: 1", told: limits(1), automations: 2, spec: people, code: fleet.NoSlot, detail: "all 2 slots"},
		{name: "an automation's, no memory", told: limits(1), health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 1 << 30}}, spec: automation, code: fleet.AutomationOff, detail: "memory: 0 slots"},
		{name: "a person's, no memory for automations", told: limits(1), health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 1 << 30}}, spec: people},
		{name: "a person's on battery", rules: "slots: 2\non_battery: 1", told: limits(1), health: &fleet.Health{UserIdle: -1, Power: &fleet.Power{OnBattery: true}}, people: 1, spec: people, code: fleet.NoSlot, detail: "on battery"},
		{name: "none for people", rules: "slots: 0", told: limits(1), spec: people, code: fleet.NoSlot, detail: "all 0 slots"},
		{name: "none for people, one for automations", rules: "slots: 0", told: limits(1), spec: automation},
		{name: "paused", rules: "paused: later", told: limits(1), spec: automation, code: fleet.OwnerPolicy, detail: "later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := bare(t, c.rules)
			r.told, r.sampled = c.told, func() *fleet.Health { return c.health }
			host := &attempt.Host{Dir: r.cfg.Dir, Logger: r.log}
			for i := range c.people + c.automations {
				spec := fleet.Spec{Kind: fleet.KindExec}
				if i >= c.people {
					spec = *automation
				}
				f := fleet.Fence{Epoch: 1, Index: uint64(i + 1)}
				r.attempts[f] = &held{attempt: host.Resume(journal.Attempt{Job: "j", Fence: f, Dir: r.cfg.Dir}, attempt.Assignment{Job: "j", Fence: f, Spec: spec})}
			}
			got := r.admits(c.spec)
			switch {
			case got == nil && c.code == "":
			case got == nil:
				t.Errorf("it is taken; want it declined with %s", c.code)
			case got.Code != c.code || !strings.Contains(got.Detail, c.detail) || got.RetryAfter <= 0:
				t.Errorf("declined with %+v; want %s and a word about %q", got, c.code, c.detail)
			}
		})
	}
}

// A runner hears its limits with the first reply, before the orders in it; a lower
// number reaches it as soon as it is set, and holds over a restart without a hub.
func TestHubTellsLimits(t *testing.T) {
	h := newHub(t)
	dir := t.TempDir()
	rules := func(more string) {
		t.Helper()
		if err := os.WriteFile(OwnerFile(dir), []byte("memory: {keep: 0, per_slot: 1}\n"+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules("")
	r := h.newRunner(func(c *Config) { c.Dir = dir })
	h.must(&state.SetSlots{ID: r.id, Automation: new(int)})
	eventually(t, "the lower number to reach the runner", func() bool { l, ever := r.limits(); return ever && l.Automation == 0 })
	if l, _ := r.limits(); l.Floors.Start != fleet.DefaultStartFloor {
		t.Errorf("limits %+v", l)
	}
	j := h.submit(fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"true"}, Origin: fleet.Origin{Kind: fleet.Automation, Name: "nightly"}})
	f := h.assign(j, r.id)
	eventually(t, "the automation's job to be declined", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
	if x := h.job(j).Excluded; len(x) != 1 || x[0].Code != fleet.AutomationOff {
		t.Errorf("excluded %+v", x)
	}
	if p, ok := h.srv.PresenceOf(r.id); !ok || p.Slots != 4 {
		t.Errorf("presence %+v", p)
	}
	r.end()
	again, err := New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	again.loadLimits()
	if l, ever := again.limits(); !ever || l.Automation != 0 {
		t.Errorf("after a restart %+v, %v", l, ever)
	}

	// The owner's file is read again while it runs, floors with a mistake included.
	r = h.restart(r.cfg)
	rules("floors: {start: plenty}\n")
	eventually(t, "the hub to be shown the mistake", func() bool {
		rec, _ := h.View().Runner(r.id)
		return slices.ContainsFunc(rec.Facts.Alerts, func(a string) bool { return strings.Contains(a, "floors: start") })
	})
	rules("floors: {start: 30GiB}\nharnesses: {exec: {models: [m]}}\n")
	eventually(t, "the hub to be shown that it is mended", func() bool {
		rec, _ := h.View().Runner(r.id)
		e, _ := rec.Facts.Harness("exec")
		return len(rec.Facts.Alerts) == 0 && len(e.Models) == 1
	})
	if f := r.floors(); f.Start != 30<<30 {
		t.Errorf("floors %+v", f)
	}
}

// A job that needs Docker goes no further than the question whether it answers.
func TestJobThatNeedsDockerIsDeclined(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	h := newHub(t)
	r := h.newRunner()
	j := h.submit(fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"true"}, Needs: &fleet.Needs{Docker: true}})
	f := h.assign(j, r.id)
	eventually(t, "the job to be declined", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
	x := h.job(j).Excluded
	if len(x) != 1 || x[0].Code != fleet.DockerMissing || x[0].Until == nil || !strings.Contains(x[0].Detail, "the job needs Docker") {
		t.Fatalf("excluded %+v", x)
	}
	if pause := x[0].Until.Sub(h.job(j).UpdatedAt); pause < 50*time.Second || pause > time.Minute {
		t.Errorf("it may come back after %s", pause)
	}
	if there(r.scratch(j)) {
		t.Error("its directory was made ready before Docker was asked")
	}
	p, _ := h.run(r.id, "true")
	h.ends(p, fleet.Succeeded)
}

// A job that fails for want of Docker is news of the machine: a sample is taken at once.
func TestJobThatFindsNoDockerHasASampleTaken(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	h := newHub(t)
	r := h.newRunner()
	last := func() time.Time {
		r.health.mu.Lock()
		defer r.health.mu.Unlock()
		return r.health.at
	}
	eventually(t, "the first sample", func() bool { return !last().IsZero() })
	was := last()
	j, f := h.run(r.id, "sh", "-c", "echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1")
	h.ends(j, fleet.Failed)
	if got := h.attempt(j, f).Failure; got != fleet.ClassDocker {
		t.Fatalf("the class is %s, want %s", got, fleet.ClassDocker)
	}
	eventually(t, "a new sample", func() bool { return last().After(was) })
	if after := last().Sub(was); after > fleet.HealthEvery/2 {
		t.Errorf("the next sample was begun %v after the one before", after)
	}
}
