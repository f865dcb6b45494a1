//go:build harness

package harness_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
)

// newPair is a place with a second runner: other keys, another home, another time zone.
func newPair(t *testing.T, clis ...harness.CLI) *place {
	t.Helper()
	p := newHome(t, clis...)
	home := filepath.Join(p.Dir, "home-r2")
	config, vars := p.account("r2", home, otherKey, clis)
	p.Beside("r2", home, config, append(vars, "TZ="+otherZone)...)
	p.finds("r2", len(clis))
	return p
}

const (
	otherKey  = fakemodel.GoodKey + "-two"
	otherZone = "Asia/Kolkata"
)

// on has a task wait for one runner.
func on(runner string, k task) task {
	k.flags = append([]string{"--on", runner}, k.flags...)
	return k
}

// TestLimits has one account after the other refused, and looks what of it another
// runner's account feels. What is asked of one provider runs beside what is asked of the
// other.
func TestLimits(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.Codex, harness.Claude)
	p.Run("hub", "set", "retry_pause", "1s")
	t.Run("refused", func(t *testing.T) {
		t.Run("openai", func(t *testing.T) {
			t.Parallel()
			p := p.of(t)
			t.Run("quota", func(t *testing.T) { quotaWindow(p.of(t)) })
			p.repair("openai")
			t.Run("model", func(t *testing.T) { modelGone(p.of(t)) })
			p.repair("openai")
			t.Run("outage", func(t *testing.T) { outage(p.of(t)) })
		})
		t.Run("anthropic", func(t *testing.T) {
			t.Parallel()
			burst(p.of(t))
		})
	})
	t.Run("moves", func(t *testing.T) {
		p.repair("openai", "anthropic")
		movesOn(p.of(t))
	})
}

// burst is a rate limit: the next start of that provider on that runner waits, and the
// other account takes work at once.
func burst(p *place) {
	r := p.do(on("r1", task{cli: harness.Claude, scenario: "rate-limit", nonce: "burst-1"}))
	p.want(r, fleet.Failed, fleet.ClassRateLimited, "")
	c := p.circuit(fleet.CircuitBurst, "anthropic")
	if c.RunnerName != "r1" || c.Account == "" || c.Until == nil || c.Until.Before(r.FinishedAt.Add(fleet.BurstLeast)) {
		p.T.Fatalf("circuit %+v; want r1's, of its account, for a minute after %v at least", c, r.FinishedAt)
	}
	held := p.Detach(p.args(on("r1", task{cli: harness.Claude, scenario: "success", nonce: "burst-2"}))...)
	why := p.reason(held, "r1", fleet.CircuitRefuses)
	about(p.T, "the end that is told", why.Until, *c.Until, time.Second)
	if !strings.Contains(why.Detail, "a rate limit of anthropic") || !strings.Contains(why.Change, c.Key) {
		p.T.Errorf("it waits because r1 %s; change: %s", why.Detail, why.Change)
	}
	if told := p.Run("job", "explain", held); !strings.Contains(told, "r1\tcircuit_open\t"+c.Until.UTC().Format(time.RFC3339)) {
		p.T.Errorf("job explain does not tell of it:\n%s", told)
	}
	other := p.do(task{cli: harness.Claude, scenario: "success", nonce: "burst-3"})
	p.want(other, fleet.Succeeded, fleet.ClassOK, "verified")
	if other.Runner != "r2" || !other.FinishedAt.Before(*c.Until) {
		p.T.Errorf("the other job ran on %s until %v; want r2, before %v", other.Runner, other.FinishedAt, c.Until)
	}
	j := p.Ended(held, 2*time.Minute)
	if j.State != fleet.Succeeded || len(j.Attempts) != 1 || j.Attempts[0].AssignedAt.Before(*c.Until) || j.Budget.Used != 1 {
		p.T.Errorf("job %s is %s with attempts %+v, %d of %d executions; want one, after %v", held, j.State, j.Attempts, j.Budget.Used, j.Budget.Of, c.Until)
	}
}

// limitEnds is when the window of the script limit-soon is said to be over.
var limitEnds = time.Now().Add(3 * time.Hour)

// quotaWindow is a window that is used up until a stated time, which the CLI words in the
// zone of its own machine.
func quotaWindow(p *place) {
	r := p.do(on("r2", task{cli: harness.Codex, scenario: "limit-soon", nonce: "quota-1"}))
	p.want(r, fleet.Failed, fleet.ClassQuotaExhausted, "")
	c := p.circuit(fleet.CircuitQuota, "openai")
	about(p.T, "the end of the circuit", c.Until, limitEnds, time.Minute)
	about(p.T, "the end in the job's record", r.ResetAt, limitEnds, time.Minute)
	local := limitEnds.In(in(p.T, otherZone)).Format("3:04 PM")
	if c.RunnerName != "r2" || c.Account == "" || !strings.Contains(c.Text, local) {
		p.T.Errorf("circuit %+v; want r2's, of its account, in words with %s", c, local)
	}
	held := p.Detach(p.args(on("r2", task{cli: harness.Codex, scenario: "success", nonce: "quota-2"}))...)
	about(p.T, "the end that is told", p.reason(held, "r2", fleet.CircuitRefuses).Until, *c.Until, time.Second)
	other := p.do(task{cli: harness.Codex, scenario: "success", nonce: "quota-3"})
	p.want(other, fleet.Succeeded, fleet.ClassOK, "verified")
	still := p.circuit(fleet.CircuitQuota, "openai")
	if other.Runner != "r1" || still.State != fleet.CircuitOpen || !still.Until.Equal(*c.Until) {
		p.T.Errorf("after a success on %s the circuit is %+v; want one on r1, which changes nothing", other.Runner, still)
	}
	if j := p.Job(held); j.State != fleet.Queued || j.Attempt != 0 {
		p.T.Errorf("the held job is %s in attempt %d; want queued", j.State, j.Attempt)
	}
	p.reset(c)
	if j := p.Ended(held, time.Minute); j.State != fleet.Succeeded || j.Runner != "r2" {
		p.T.Errorf("the held job is %s on %s once the circuit is reset; want succeeded on r2", j.State, j.Runner)
	}
}

func in(t *testing.T, zone string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// modelGone: a model that one runner was refused is not asked for there, one that two
// were refused nowhere, and other models are.
func modelGone(p *place) {
	of := func(model, scenario, nonce string) task {
		return task{cli: harness.Codex, scenario: scenario, nonce: nonce, flags: []string{"--model", model}}
	}
	p.want(p.do(on("r1", of("model-x", "model-missing", "model-1"))), fleet.Failed, fleet.ClassModelUnavailable, "")
	c := p.circuit(fleet.CircuitModel, "openai")
	if c.Model != "model-x" || c.State != fleet.CircuitOpen || len(c.Runners) != 1 {
		p.T.Errorf("circuit %+v; want an open one over model-x for one runner", c)
	}
	held := p.Detach(p.args(on("r1", of("model-x", "success", "model-2")))...)
	if why := p.reason(held, "r1", fleet.CircuitRefuses); !strings.Contains(why.Detail, "model-x") {
		p.T.Errorf("it waits because r1 %s; want the model's name", why.Detail)
	}
	p.want(p.do(on("r1", of(harness.Codex.Model(), "success", "model-3"))), fleet.Succeeded, fleet.ClassOK, "verified")
	p.want(p.do(on("r2", of("model-x", "model-missing", "model-4"))), fleet.Failed, fleet.ClassModelUnavailable, "")
	if c := p.circuit(fleet.CircuitModel, "openai"); c.State != fleet.CircuitBlocked || len(c.Runners) != 2 {
		p.T.Errorf("circuit %+v; want a blocked one after two runners were refused", c)
	}
	if _, errs, code := p.Try("circuit", "reset", c.Key); code == 0 || !strings.Contains(errs, "--repaired") {
		p.T.Errorf("a blocked circuit is reset without a word about what was repaired: exit %d\n%s", code, errs)
	}
	p.reset(c)
	if j := p.Ended(held, time.Minute); j.State != fleet.Succeeded {
		p.T.Errorf("the held job is %s once the circuit is reset", j.State)
	}
}

// outage: a provider that fails three times in a row is left alone for a while.
func outage(p *place) {
	down := func(nonce string) {
		p.T.Helper()
		p.want(p.do(on("r1", task{cli: harness.Codex, scenario: "overloaded", nonce: nonce})), fleet.Failed, fleet.ClassProviderUnavailable, "")
	}
	down("down-1")
	down("down-2")
	p.want(p.do(on("r1", task{cli: harness.Codex, scenario: "success", nonce: "down-3"})), fleet.Succeeded, fleet.ClassOK, "verified")
	down("down-4")
	down("down-5")
	p.none("openai", "twice two failures with a success between")
	down("down-6")
	c := p.circuit(fleet.CircuitOutage, "openai")
	about(p.T, "the end of the circuit", c.Until, c.OpenedAt.Add(2*time.Minute), time.Second)
	held := p.Detach(p.args(on("r1", task{cli: harness.Codex, scenario: "success", nonce: "down-7"}))...)
	p.reason(held, "r1", fleet.CircuitRefuses)
	if soak {
		halfOpen(p, held, c)
		return
	}
	p.Run("job", "cancel", held)
}

// halfOpen waits until an outage may be over: one job at a time tries, and three of them
// that come through, half a minute apart, close the circuit.
func halfOpen(p *place, first string, c api.Circuit) {
	p.T.Helper()
	state := func() (out api.Circuit) {
		for _, now := range p.circuits() {
			if now.ID == c.ID {
				out = now
			}
		}
		return out
	}
	j := p.Ended(first, 4*time.Minute)
	if j.State != fleet.Succeeded || j.Attempts[0].AssignedAt.Before(*c.Until) {
		p.T.Errorf("the first job that tries is %s, assigned %v; want succeeded, after %v", j.State, j.Attempts[0].AssignedAt, c.Until)
	}
	for n := 1; n < fleet.ProbesToClose; n++ {
		now := state()
		if now.State != fleet.CircuitHalf || now.Successes != n || now.SuccessAt == nil {
			p.T.Fatalf("after %d tries the circuit is %+v; want half open, with so many successes", n, now)
		}
		p.Eventually(time.Minute, "the next success counts", func() bool { return time.Since(*now.SuccessAt) > fleet.ProbeSpacing })
		k := on("r1", task{cli: harness.Codex, scenario: "turns", nonce: fmt.Sprint("probe-", n), prompt: "first prompt"})
		probe := p.Detach(p.args(k)...)
		if err := p.model.Wait(p.T.Context(), k.scenario, k.run(), 1); err != nil {
			p.T.Fatal(err)
		}
		behind := p.Detach(p.args(on("r1", task{cli: harness.Codex, scenario: "success", nonce: fmt.Sprint("behind-", n)}))...)
		if why := p.reason(behind, "r1", fleet.CircuitRefuses); !strings.Contains(why.Detail, probe) {
			p.T.Errorf("it waits because r1 %s; want that job %s tries", why.Detail, probe)
		}
		p.Run("job", "cancel", behind)
		p.model.Release(k.scenario, k.run())
		if j := p.Ended(probe, time.Minute); j.State != fleet.Succeeded {
			p.T.Errorf("the probe is %s", j.State)
		}
	}
	p.none("openai", "three successes")
}

// movesOn: what one account is refused goes by itself to the runner with another.
func movesOn(p *place) {
	p.Run("runner", "cordon", "r2")
	id := p.Detach(p.args(task{cli: harness.Claude, scenario: "limited-one", nonce: "moves", again: 3})...)
	p.Eventually(time.Minute, "job "+id+" is refused on r1", func() bool {
		a := p.Job(id).Attempts
		return len(a) > 0 && a[0].Class == fleet.ClassRateLimited
	})
	p.Run("runner", "resume", "r2")
	j := p.Ended(id, time.Minute)
	if j.State != fleet.Succeeded || len(j.Attempts) != 2 || j.Attempts[0].Runner != "r1" || j.Runner != "r2" || j.Budget.Used != 2 {
		p.T.Errorf("job %s is %s on %s, attempts %+v; want refused on r1 and succeeded on r2", id, j.State, j.Runner, j.Attempts)
	}
}
