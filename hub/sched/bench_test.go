package sched

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// The benchmarks look at ten thousand runners and a queue at its bound of a hundred
// thousand jobs, as a leader does: with what the look before left, and at most so many
// assignments as it has under way at once.
const (
	manyRunners = 10_000
	manyAtOnce  = 256
)

// crowd gives a rig with that many runners of two slots each, and one for automation.
func crowd(b *testing.B, change func(n int, f *fleet.RunnerFacts)) *rig {
	g := newRig(b)
	for n := range manyRunners {
		g.runner(fleet.RunnerID(fmt.Sprintf("r%05d", n)), 2, func(f *fleet.RunnerFacts) {
			f.Harnesses[0].Account = fmt.Sprint("account-", n)
			if change != nil {
				change(n, f)
			}
		})
	}
	return g
}

// fill fills the queue.
func (g *rig) fill(change func(n int, s *fleet.Spec)) {
	for n := range state.MaxQueue {
		g.job(fleet.JobID(fmt.Sprintf("j%06d", n)), func(s *fleet.Spec) { change(n, s) })
	}
}

// look measures looks that find so many assignments; with nothing kept from the one
// before if cold.
func measure(b *testing.B, g *rig, limit, want int, cold bool) {
	b.Helper()
	l := Look{Presence: g.presence, Since: start, Now: g.now, Limit: limit, Memo: new(Memo)}
	v := g.m.View()
	See(v, l).Pick()
	b.ReportAllocs()
	before := cpu()
	for b.Loop() {
		if cold {
			l.Memo = nil
		}
		if p := See(v, l).Pick(); len(p.Assign) != want {
			b.Fatalf("%d assignments, want %d", len(p.Assign), want)
		}
	}
	b.ReportMetric((cpu()-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// cpu is the processor time that this process has used: what others do on the machine
// is not in it.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mixed has jobs of twenty repositories, by hand and by ten automations, at three
// priorities.
func mixed(n int, s *fleet.Spec) {
	s.Repo = &fleet.Repo{URL: fmt.Sprintf("https://git.example.com/%d.git", n%20)}
	s.Priority = n%3 - 1
	if n%2 == 0 {
		s.Origin = fleet.Origin{Kind: fleet.Automation, Name: fmt.Sprint("a", n%10)}
	}
	s.Require = map[string]string{"os": "linux"}
}

// BenchmarkFree: every slot is free.
func BenchmarkFree(b *testing.B) {
	g := crowd(b, nil)
	g.fill(mixed)
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, false) })
	b.Run("cold", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, true) })
	b.Run("all", func(b *testing.B) { measure(b, g, state.MaxQueue, 3*manyRunners, false) })
	b.Run("changed", func(b *testing.B) { // a few jobs and runners have changed since
		l := Look{Presence: g.presence, Since: start, Now: g.now, Limit: manyAtOnce, Memo: new(Memo)}
		See(g.m.View(), l).Pick()
		for n := 0; b.Loop(); n++ {
			b.StopTimer()
			g.place(See(g.m.View(), l).Pick())
			for i := range 10 {
				g.facts(fleet.RunnerID(fmt.Sprintf("r%05d", (n*10+i)%manyRunners)), func(f *fleet.RunnerFacts) { f.Version = fmt.Sprint(n) })
			}
			v := g.m.View()
			b.StartTimer()
			See(v, l).Pick()
		}
	})
}

// BenchmarkNoneFree: every slot is taken.
func BenchmarkNoneFree(b *testing.B) {
	g := crowd(b, nil)
	for n := range 3 * manyRunners {
		g.job(fleet.JobID(fmt.Sprintf("i%06d", n)), func(s *fleet.Spec) {
			if n < manyRunners {
				s.Origin.Kind = fleet.Automation
			}
		})
	}
	g.place(See(g.m.View(), Look{Presence: g.presence, Since: start, Now: g.now, Limit: state.MaxQueue}).Pick())
	g.fill(mixed)
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, 0, false) })
	last := g.seen["r09999"]
	last.Slots++ // but one, for work by hand
	g.seen["r09999"] = last
	b.Run("but one", func(b *testing.B) { measure(b, g, manyAtOnce, 1, false) })
}

// BenchmarkUnservable: every slot is free, and no job can be taken, each hundredth for a
// reason of its own kind.
func BenchmarkUnservable(b *testing.B) {
	g := crowd(b, nil)
	g.fill(func(n int, s *fleet.Spec) {
		mixed(n, s)
		switch n % 4 {
		case 0:
			s.Harness = "opencode"
		case 1:
			s.Require["gpu"] = fmt.Sprint(n % 25)
		case 2:
			s.Needs = &fleet.Needs{Disk: 1 << 50}
		case 3:
			s.Needs = &fleet.Needs{Memory: 1 << 50}
		}
	})
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, 0, false) })
	b.Run("cold", func(b *testing.B) { measure(b, g, manyAtOnce, 0, true) })
}

// BenchmarkOrigins: fifty origins at three priorities share what is free.
func BenchmarkOrigins(b *testing.B) {
	g := crowd(b, nil)
	g.fill(func(n int, s *fleet.Spec) {
		s.Origin = fleet.Origin{Kind: fleet.Automation, Name: fmt.Sprint("a", n%50)}
		s.Priority = n / 50 % 3
	})
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, false) })
	b.Run("all", func(b *testing.B) { measure(b, g, state.MaxQueue, manyRunners, false) })
}

// BenchmarkCircuits: half of the runners are kept from their provider, and the models of
// half of the jobs are kept from everybody.
func BenchmarkCircuits(b *testing.B) {
	g := crowd(b, nil)
	for n := 0; n < manyRunners; n += 2 {
		g.do(&state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: fleet.RunnerID(fmt.Sprintf("r%05d", n)), Provider: "openai", For: time.Hour, Reason: "quota"})
	}
	for n := range 5 {
		g.do(&state.OpenCircuit{Scope: fleet.ScopeModel, Provider: "openai", Model: fmt.Sprint("m", 2*n), For: time.Hour, Reason: "gone"})
	}
	g.fill(func(n int, s *fleet.Spec) {
		mixed(n, s)
		s.Model = fmt.Sprint("m", n%10)
	})
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, false) })
	b.Run("cold", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, true) })
}

// BenchmarkKeys: the queue waits for concurrency keys that are held.
func BenchmarkKeys(b *testing.B) {
	g := crowd(b, nil)
	g.fill(func(n int, s *fleet.Spec) { s.ConcurrencyKey = fmt.Sprint(n % 20) })
	g.place(g.pick())
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, 0, false) })
}

// BenchmarkRepos: a thousand repositories, of which each runner has some in its cache.
func BenchmarkRepos(b *testing.B) {
	g := crowd(b, nil)
	cache := func(n int) string {
		return (&fleet.Repo{URL: fmt.Sprintf("https://git.example.com/%d.git", n%1000)}).CacheOf()
	}
	n := 0
	for id, p := range g.seen {
		p.Caches = cache(n) + " " + cache(7*n+1) + " " + cache(31*n+5)
		g.seen[id] = p
		n++
	}
	g.fill(func(n int, s *fleet.Spec) {
		s.Repo = &fleet.Repo{URL: fmt.Sprintf("https://git.example.com/%d.git", n%1000)}
	})
	b.Run("round", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, false) })
	b.Run("cold", func(b *testing.B) { measure(b, g, manyAtOnce, manyAtOnce, true) })
}

// BenchmarkOverdue looks for jobs that waited too long in a full queue.
func BenchmarkOverdue(b *testing.B) {
	g := newRig(b)
	g.fill(func(_ int, s *fleet.Spec) { s.Timeouts.Queue = time.Hour })
	for b.Loop() {
		if p := g.overdue(g.now, 256); len(p.Block) != 0 {
			b.Fatal(len(p.Block))
		}
	}
}
