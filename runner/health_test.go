package runner

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// sampling runs the loops of heartbeats and of samples in virtual time; next gives the
// heartbeats as they leave.
func sampling(t *testing.T, interval time.Duration, take func(context.Context) fleet.Health, test func(r *Runner, next func() wire.Heartbeat)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		r, err := New(Config{Dir: dir, Name: "box", Slots: 3, Self: "/self"})
		if err != nil {
			t.Fatal(err)
		}
		r.journal, r.health.take = j, take
		r.link = &link{r: r, keys: &keyring{id: &identity{}}, beatNow: make(chan bool, 1)}
		q := &quietHub{frames: make(chan wire.Frame, 1), closed: make(chan struct{})}
		s := &session{transport: q, interval: interval, done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		r.work.Go(func() { r.link.beats(ctx, s) })
		r.work.Go(func() { r.watchHealth(ctx) })
		test(r, func() wire.Heartbeat {
			f := <-q.frames
			var hb wire.Heartbeat
			if f.Type != wire.TypeHeartbeat || wire.Decode(f.Body, &hb) != nil {
				t.Fatalf("frame of type %d: %s", f.Type, f.Body)
			}
			return hb
		})
		cancel()
		s.end(context.Canceled)
		r.work.Wait()
	})
}

// A runner that offers capacity and has nothing to do is admissible by its sample at
// every instant, however heartbeats and samples fall, and the samples cost few
// heartbeats of their own.
func TestSampleIsFreshAtEveryInstant(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		slowest  time.Duration // a sample
		beats    int           // at most, in an hour
	}{
		{5 * time.Second, 250 * time.Millisecond, 930},
		{30 * time.Second, 250 * time.Millisecond, 155},
		{30 * time.Second, 6 * time.Second, 170}, // something hangs
		{45 * time.Second, 6 * time.Second, 160}, // a hub that asks for less
	} {
		begun, samples, beats := time.Time{}, 0, 0
		take := func(ctx context.Context) fleet.Health {
			samples++
			time.Sleep(time.Duration(rand.Int64N(int64(c.slowest))))
			return fleet.Health{UserIdle: -1}
		}
		sampling(t, c.interval, take, func(_ *Runner, next func() wire.Heartbeat) {
			begun = time.Now()
			var at time.Time // of the receipt of what the hub has
			var age time.Duration
			for time.Since(begun) < time.Hour {
				hb := next()
				beats++
				now := time.Now().Add(time.Duration(rand.Int64N(int64(2 * time.Second)))) // on its way
				if hb.Health == nil {
					continue
				}
				if hb.Health.Age < 0 || hb.Health.Age > fleet.HealthEvery+c.slowest {
					t.Errorf("a sample of the age %v is told", hb.Health.Age)
				}
				if !at.IsZero() && now.Sub(at)+age > fleet.HealthFresh {
					t.Errorf("interval %v: at %v the hub's sample was %v old", c.interval, time.Since(begun), now.Sub(at)+age)
				}
				at, age = now, hb.Health.Age
			}
		})
		if samples < 170 || samples > 182 {
			t.Errorf("interval %v: %d samples in an hour, want one every 20 s", c.interval, samples)
		}
		if beats > c.beats {
			t.Errorf("interval %v: %d heartbeats in an hour, want %d at most", c.interval, beats, c.beats)
		}
	}
}

// A sample that never ends holds up no heartbeat, the first one included.
func TestSampleThatHangsHoldsUpNoHeartbeat(t *testing.T) {
	take := func(ctx context.Context) fleet.Health { <-ctx.Done(); return fleet.Health{} }
	sampling(t, 10*time.Second, take, func(_ *Runner, next func() wire.Heartbeat) {
		begun, beats := time.Now(), 0
		for last := begun; time.Since(begun) < time.Hour; last = time.Now() {
			hb := next()
			if hb.Health != nil || hb.Slots != 3 || hb.Declining != "" {
				t.Fatalf("heartbeat %+v; want all slots offered and no sample", hb)
			}
			if late := time.Since(last); beats > 0 && late > 12*time.Second || beats == 0 && late > 0 {
				t.Fatalf("heartbeat %d came after %v", beats, late)
			}
			beats++
		}
	})
}

// Where nothing is offered samples are seldom, and the first one after that is not late.
func TestSamplesRestWithoutCapacity(t *testing.T) {
	var samples atomic.Int32
	take := func(context.Context) fleet.Health { samples.Add(1); return fleet.Health{UserIdle: -1} }
	sampling(t, 10*time.Second, take, func(r *Runner, next func() wire.Heartbeat) {
		r.mu.Lock()
		r.owner.Paused = "away"
		r.mu.Unlock()
		for begun := time.Now(); time.Since(begun) < 30*time.Minute; {
			next()
		}
		if n := samples.Load(); n < 29 || n > 32 {
			t.Errorf("%d samples in 30 minutes of pause, want one a minute", n)
		}
	})
}

// When capacity is offered again the hub has a fresh sample at once, and from then on,
// whenever in between two samples that is.
func TestCapacityOfferedAgainIsAdmissible(t *testing.T) {
	take := func(context.Context) fleet.Health {
		time.Sleep(200 * time.Millisecond)
		return fleet.Health{UserIdle: -1}
	}
	for away := 3 * time.Second; away < 130*time.Second; away += 7 * time.Second {
		sampling(t, 30*time.Second, take, func(r *Runner, next func() wire.Heartbeat) {
			pause := func(why string) {
				r.mu.Lock()
				r.owner.Paused = why
				r.mu.Unlock()
				r.changed()
			}
			begun := time.Now()
			pause("away")
			time.AfterFunc(away, func() { pause("") })
			var at time.Time // when the hub's sample was begun
			for time.Since(begun) < away+3*time.Minute {
				hb := next()
				if again := begun.Add(away + time.Second); time.Now().After(again) && time.Since(at) > fleet.HealthFresh {
					t.Errorf("away for %v: %v after that the hub's sample was %v old", away, time.Since(again), time.Since(at))
				}
				if hb.Health != nil {
					at = time.Now().Add(-hb.Health.Age)
				}
			}
		})
	}
}

// What a sample changes in what is offered is told at once; its words wait.
func TestSampleThatChangesTheOfferIsToldAtOnce(t *testing.T) {
	var busy atomic.Bool
	take := func(context.Context) fleet.Health {
		c := &fleet.CPU{Count: 2, Load: 1}
		if busy.Load() {
			c.Load = 8
		}
		return fleet.Health{UserIdle: -1, CPU: c}
	}
	sampling(t, 2*time.Minute, take, func(r *Runner, next func() wire.Heartbeat) {
		r.mu.Lock()
		r.owner.MaxLoad = 1
		r.mu.Unlock()
		for begun := time.Now(); time.Since(begun) < 5*time.Minute; {
			if hb := next(); hb.Declining != "" {
				t.Fatalf("declining: %s", hb.Declining)
			}
		}
		busy.Store(true)
		began := time.Now()
		for hb := next(); hb.Declining == ""; hb = next() {
		}
		if took := time.Since(began); took > fleet.HealthEvery+time.Second {
			t.Errorf("the load was told after %v", took)
		}
	})
}

// That Docker is lost, or back, is told as soon as a sample shows it: jobs wait for it.
func TestDockerThatComesAndGoesIsToldAtOnce(t *testing.T) {
	var now atomic.Value // fleet.Docker
	ready := fleet.Docker{State: fleet.DockerReady, Compose: "2.1"}
	now.Store(ready)
	take := func(context.Context) fleet.Health {
		return fleet.Health{UserIdle: -1, Docker: now.Load().(fleet.Docker)}
	}
	sampling(t, 30*time.Second, take, func(r *Runner, next func() wire.Heartbeat) {
		beats := 0
		for begun := time.Now(); time.Since(begun) < 5*time.Minute; beats++ {
			next()
		}
		if beats > 16 {
			t.Errorf("%d heartbeats in 5 minutes without news, want those that are due and hardly any more", beats)
		}
		for _, d := range slices.Repeat([]fleet.Docker{{State: fleet.DockerUnknown}, {State: fleet.DockerDown}, {State: fleet.DockerReady}, ready}, 5) {
			now.Store(d)
			began := time.Now()
			for hb := next(); hb.Health == nil || hb.Health.Docker != d; hb = next() {
			}
			if took := time.Since(began); took > fleet.HealthEvery+time.Second {
				t.Errorf("that Docker is %+v was told after %v", d, took)
			}
		}
	})
}

// A job that asks Docker gets another answer than the last sample: a new one is taken.
func TestFreshAnswerOfDockerAsksForASample(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
	r := bare(t, "")
	wants := func() bool {
		r.health.mu.Lock()
		defer r.health.mu.Unlock()
		now := r.health.now
		r.health.now = false
		return now
	}
	for _, c := range []struct {
		last fleet.DockerState
		want bool
	}{{fleet.DockerReady, true}, {fleet.DockerUnknown, true}, {fleet.DockerAbsent, false}} {
		r.health.keep(fleet.Health{Docker: fleet.Docker{State: c.last}}, time.Now())
		if d := r.freshDocker(t.Context()); d.State != fleet.DockerAbsent {
			t.Fatalf("docker = %+v", d)
		}
		if got := wants(); got != c.want {
			t.Errorf("after a sample in which Docker was %s: a new one is wanted: %v", c.last, got)
		}
	}
}

func TestHealthOnHeartbeats(t *testing.T) {
	h := newHealth(nil)
	now := time.Now()
	ride := func(full bool) *fleet.Health {
		hb := wire.Heartbeat{Full: full, Slots: 1}
		h.ride(&hb, now)
		return hb.Health
	}
	if got := ride(true); got != nil {
		t.Errorf("before the first sample: %+v", got)
	}
	if !h.keep(fleet.Health{Uptime: 1}, now.Add(-3*time.Second)) {
		t.Error("the first sample does not ask for a heartbeat")
	}
	if got := ride(false); got == nil || got.Uptime != 1 || got.Age != 3*time.Second {
		t.Errorf("a new sample: %+v", got)
	}
	if got := ride(false); got != nil {
		t.Errorf("told twice in one session: %+v", got)
	}
	now = now.Add(10 * time.Second)
	if got := ride(true); got == nil || got.Age != 13*time.Second {
		t.Errorf("in a new session: %+v", got)
	}
	// A machine that slept: only the wall clock went on.
	h.keep(fleet.Health{}, now)
	h.at = now.Round(0).Add(-time.Hour)
	if got := ride(false); got == nil || got.Age != time.Hour {
		t.Errorf("after a sleep: %+v, want an age of an hour", got)
	}
	select {
	case <-h.wake:
	default:
		t.Error("an old sample does not ask for a new one")
	}

	caches := func(full bool) *[]string {
		hb := wire.Heartbeat{Full: full, Slots: 1}
		h.ride(&hb, now)
		return hb.Caches
	}
	if got := caches(true); got != nil {
		t.Errorf("caches that are not known: %v", *got)
	}
	for _, step := range []struct {
		has  []string
		full bool
		want *[]string
	}{
		{[]string{}, false, &[]string{}},
		{[]string{}, false, nil},
		{[]string{"a"}, false, &[]string{"a"}},
		{nil, false, nil}, // could not be told: what was known stays
		{[]string{"a"}, true, &[]string{"a"}},
		{[]string{}, false, &[]string{}},
	} {
		h.has(step.has)
		if diff := cmp.Diff(step.want, caches(step.full)); diff != "" {
			t.Errorf("caches %v, full %v (-want +got):\n%s", step.has, step.full, diff)
		}
	}
}

// A real machine: the first heartbeats carry a sample, and what a job leaves is told.
func TestRealSampleAndCache(t *testing.T) {
	r := bare(t, "")
	if v := r.fresh(t.Context(), r.cfg.workspace()); !v.Known || v.Free <= 0 {
		t.Errorf("fresh = %+v", v)
	}
	repo := fleet.Repo{URL: "https://git.example.com/a.git"}
	home := filepath.Join(r.cfg.cache(), "0123")
	for _, dir := range []string{"g1.git", "used"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "used", repo.CacheOf()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.listCaches(t.Context()); !slices.Equal(got, []string{repo.CacheOf()}) {
		t.Errorf("caches = %v", got)
	}
	if r.lastSample() != nil {
		t.Error("there is a sample before one was taken")
	}
	r.health.keep(r.health.take(t.Context()), time.Now())
	if h := r.lastSample(); h == nil || !h.Workspace.Known || h.Age < 0 || h.Age > time.Minute {
		t.Errorf("sample = %+v", h)
	}
}
