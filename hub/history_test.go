package hub

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// busy is a sample of a machine that works: everything in it moves.
func busy(r *rand.Rand, last fleet.Health) fleet.Health {
	h := last
	step := func(v, by int64) int64 { return max(v+r.Int64N(2*by+1)-by, 0) }
	h.Workspace.Known, h.Cache.Known = true, true
	h.Workspace.Free, h.Cache.Free = step(h.Workspace.Free, 200<<20), step(h.Cache.Free, 20<<20)
	h.Memory = &fleet.Memory{Total: 64 << 30, Available: 8<<30 + r.Int64N(40<<30)}
	h.CPU = &fleet.CPU{Count: 16, Load: 16 * r.Float64(), Used: r.Float64()}
	h.IO = &fleet.IO{Busy: r.Float64()}
	h.Docker.State = fleet.DockerReady
	return h
}

// TestHistoryOfADayIsSmall: what a machine's history takes once it holds all it may.
func TestHistoryOfADayIsSmall(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		every time.Duration
		next  func(*rand.Rand, fleet.Health) fleet.Health
		most  int // bytes
	}{
		{"busy, every 20 s", fleet.HealthEvery, busy, 24 << 10},
		{"busy, every second", time.Second, busy, 30 << 10},
		{"idle, every minute", fleet.HealthRest, func(r *rand.Rand, h fleet.Health) fleet.Health {
			h.CPU = &fleet.CPU{Count: 16, Load: float64(r.IntN(3)) / 100}
			return h
		}, 10 << 10},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		h := newHistory(start)
		s := busy(r, fleet.Health{Workspace: fleet.Volume{Free: 300 << 30}, Cache: fleet.Volume{Free: 500 << 30}})
		most := 0
		for at := time.Duration(0); at < 30*time.Hour; at += c.every {
			s = c.next(r, s)
			h.add("r", &s, start.Add(at))
			if int(at/c.every)%1000 == 0 {
				most = max(most, h.bytes("r"))
			}
		}
		t.Logf("%s: at most %d bytes", c.name, most)
		if most > c.most {
			t.Errorf("%s: the history takes %d bytes; want at most %d", c.name, most, c.most)
		}
		end := start.Add(30 * time.Hour)
		if n := len(h.points("r", time.Hour, end)); n > int(time.Hour/fineStep)+1 || n < int(time.Hour/max(c.every, fineStep))-1 {
			t.Errorf("%s: %d points of the last hour", c.name, n)
		}
		if n := len(h.points("r", 24*time.Hour, end)); n > 24*60+1 || n < 24*60-1 {
			t.Errorf("%s: %d points of the last day; want one a minute", c.name, n)
		}
	}
}

func TestHistoryShowsGaps(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := newHistory(start)
	var s fleet.Health
	for at := time.Duration(0); at <= time.Hour; at += 20 * time.Second {
		// Nothing was heard for two minutes, and for ten.
		if at > 10*time.Minute && at < 12*time.Minute || at > 20*time.Minute && at < 30*time.Minute {
			continue
		}
		h.add("r", &s, start.Add(at))
	}
	gaps := func(window time.Duration) (out []string) {
		for _, p := range h.points("r", window, start.Add(time.Hour)) {
			if p.gap {
				out = append(out, (time.Hour - p.age).String())
			}
		}
		return out
	}
	if got := fmt.Sprint(gaps(time.Hour)); got != "[12m0s 30m0s]" {
		t.Errorf("gaps of the hour before %s; want them before 12m0s and 30m0s", got)
	}
	if got := fmt.Sprint(gaps(24 * time.Hour)); got != "[30m0s]" {
		t.Errorf("gaps of the day before %s; want one before 30m0s", got)
	}
	if p := h.points("r", 5*time.Minute, start.Add(time.Hour)); len(p) != 16 || p[0].gap {
		t.Errorf("the last five minutes have %d points, the first after a gap: %t; want 16, false", len(p), p[0].gap)
	}
	if p := h.points("nobody", time.Hour, start); p != nil {
		t.Errorf("a runner that was never heard has %d points", len(p))
	}
}

// TestHistoryForgets: what is too old goes, and runners that are gone.
func TestHistoryForgets(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := newHistory(start)
	all, gone := func(fleet.RunnerID) bool { return true }, func(id fleet.RunnerID) bool { return id != "r2" }
	for _, id := range []fleet.RunnerID{"r1", "r2"} {
		for at := time.Duration(0); at < 3*time.Hour; at += time.Minute {
			h.add(id, &fleet.Health{}, start.Add(at))
		}
	}
	h.prune(start.Add(3*time.Hour), gone)
	if h.bytes("r2") != 0 || h.bytes("r1") == 0 {
		t.Errorf("r1 takes %d bytes and r2 %d; want only r2 forgotten", h.bytes("r1"), h.bytes("r2"))
	}
	if h.prune(start.Add(30*time.Hour), all); h.bytes("r1") != 0 {
		t.Errorf("r1 takes %d bytes a day after its last sample", h.bytes("r1"))
	}
	h.add("r1", &fleet.Health{Age: time.Hour}, start) // of before this node's time
	if p := h.points("r1", time.Hour, start); len(p) != 1 || p[0].age != 0 {
		t.Errorf("a sample from before the start: %+v", p)
	}
}

// TestHistoryKeepsItsFigures: whatever comes is read back as it was, to a step.
func TestHistoryKeepsItsFigures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		h := newHistory(start)
		type kept struct {
			at time.Duration
			f  figures
		}
		var want []kept
		at := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "samples") {
			at += time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second
			s := fleet.Health{
				Workspace: fleet.Volume{Known: rapid.Bool().Draw(t, "known"), Free: rapid.Int64().Draw(t, "free")},
				CPU:       &fleet.CPU{Load: rapid.Float64().Draw(t, "load"), Used: rapid.Float64Range(0, 1).Draw(t, "used")},
				Docker:    fleet.Docker{State: rapid.SampledFrom(dockerStates).Draw(t, "docker")},
			}
			if rapid.Bool().Draw(t, "memory") {
				s.Memory = &fleet.Memory{Available: rapid.Int64Range(0, 1<<62).Draw(t, "available")}
			}
			h.add("r", &s, start.Add(at))
			if n := len(want); n == 0 || at/fineStep > want[n-1].at/fineStep {
				want = append(want, kept{at, figuresOf(&s)})
			}
		}
		got := h.points("r", time.Hour, start.Add(at))
		for len(want) > 0 && at-want[0].at > time.Hour {
			want = want[1:]
		}
		if len(got) != len(want) {
			t.Fatalf("%d points; want %d", len(got), len(want))
		}
		for i, w := range want {
			if got[i].age != at-w.at || got[i].figures != w.f {
				t.Fatalf("point %d is %+v; want %+v", i, got[i], w)
			}
		}
	})
}

func TestPointsSayWhatIsNotKnown(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := sighted{age: time.Minute, figures: figuresOf(&fleet.Health{})}.point(now)
	if p.Free != nil || p.CacheFree != nil || p.Memory != nil || p.Load != nil || p.CPU != nil || p.IO != nil || p.Docker != fleet.DockerUnknown {
		t.Errorf("an empty sample is shown as %+v", p)
	}
	p = sighted{figures: figuresOf(&fleet.Health{
		Workspace: fleet.Volume{Known: true}, Cache: fleet.Volume{Known: true, Free: 3 << 30}, Memory: &fleet.Memory{Available: 5 << 20},
		CPU: &fleet.CPU{Load: 1.234, Used: 0.5}, IO: &fleet.IO{}, Docker: fleet.Docker{State: fleet.DockerReady},
	})}.point(now)
	if *p.Free != 0 || *p.CacheFree != 3<<30 || *p.Memory != 5<<20 || *p.Load != 1.23 || *p.CPU != 0.5 || *p.IO != 0 || p.Docker != fleet.DockerReady || !p.At.Equal(now) {
		t.Errorf("a full sample is shown as %+v", p)
	}
}
