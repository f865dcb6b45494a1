package runner

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// healthSpare is how long before it would be too old at the hub a sample is replaced:
// a beat takes time to arrive, and the next sample to be taken.
const healthSpare = 10 * time.Second

// dockerTime bounds asking Docker and Compose.
const dockerTime = 8 * time.Second

// health keeps the last sample of the machine, and what of it the hub has. Samples are
// taken by a goroutine of their own; heartbeats take what is there.
type health struct {
	take func(context.Context) fleet.Health // of the sampler
	wake chan struct{}                      // a value: the next sample may be due earlier than it was

	mu      sync.Mutex
	last    fleet.Health
	at      time.Time // when the last sample was begun; zero: there is none
	sent    time.Time // when that was begun which the hub has; zero: it has none
	due     time.Time // when the next heartbeat is
	offered bool      // the last heartbeat offered capacity
	now     bool      // a sample is wanted at once
	docker  daemon    // as the hub was told last
	told    offer     // of the last heartbeat
	caches  []string  // repositories with a cache here
	known   []string  // the same as the hub was told last; nil: never
	usage   []fleet.ClassUsage
	counted time.Time // when that was; zero: never
}

// daemon is what jobs that need Docker wait for: that it and Compose answer.
type daemon struct {
	state   fleet.DockerState
	compose bool
}

func daemonOf(d fleet.Docker) daemon { return daemon{d.State, d.Compose != ""} }

// cachesTold bounds the repositories that the hub is told of.
const cachesTold = 64

func newHealth(take func(context.Context) fleet.Health) *health {
	return &health{take: take, wake: make(chan struct{}, 1)}
}

// workspace is where jobs work, and cache where repositories are kept: each may be a
// volume of its own.
func (c Config) workspace() string { return filepath.Join(c.Dir, "trees", "work") }
func (c Config) cache() string     { return filepath.Join(c.Dir, "trees", "repos") }

// elapsed is the larger of what the monotonic and the wall clock say: a machine that
// sleeps stops the first.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// watchHealth takes samples: often while capacity is offered, seldom otherwise. A
// heartbeat is sent at once where the next one would come too late for the hub, or
// where the sample changes what is offered or what is known of Docker.
func (r *Runner) watchHealth(ctx context.Context) {
	h := r.health
	for {
		begun := time.Now()
		sample := h.take(ctx)
		if ctx.Err() != nil {
			return
		}
		soon := h.keep(sample, begun)
		r.presses(sample, begun)
		if sample.Cache.Known { // or a hung mount would hold one look more
			h.has(r.listCaches(ctx))
		}
		if soon || h.differs(r.offer()) {
			r.changed()
		}
		for wait := h.rest(begun); wait > 0; wait = h.rest(begun) {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-h.wake:
				timer.Stop()
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}
}

// keep notes a sample that was begun then, and says whether the hub must have it
// before the next heartbeat is due.
func (h *health) keep(sample fleet.Health, begun time.Time) (now bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.at = sample, begun
	return h.sent.IsZero() || h.offered && (h.due.After(h.sent.Add(fleet.HealthFresh-healthSpare)) || daemonOf(sample.Docker) != h.docker)
}

// rest gives how long it is until the next sample is due after one that was begun then.
func (h *health) rest(begun time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	every := fleet.HealthRest
	switch {
	case h.now:
		h.now, every = false, 0
	case h.offered:
		every = fleet.HealthEvery
	}
	return every - elapsed(begun, time.Now())
}

// sample gives the last sample with its age; false: there is none yet.
func (h *health) sample(now time.Time) (fleet.Health, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.last
	s.Age = max(elapsed(h.at, now), 0)
	return s, !h.at.IsZero()
}

// again asks for a sample now.
func (h *health) again() {
	h.mu.Lock()
	h.now = true
	h.mu.Unlock()
	h.look()
}

// look has the sampler look again when the next sample is due.
func (h *health) look() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// differs says whether what is offered is not what the last heartbeat said. The words
// of a bound change with every sample, and wait for the next one.
func (h *health) differs(now offer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told.base != now.base || !sameBound(h.told.automation, now.automation) || (h.told.declining == "") != (now.declining == "")
}

func sameBound(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

// ride puts the last sample on a heartbeat, where the hub does not have it, and the
// caches, where they have changed. A sample that is overdue, as after a sleep or when
// capacity is offered again, is replaced at once.
func (h *health) ride(hb *wire.Heartbeat, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = offer{base: hb.Slots, automation: hb.Automation, declining: hb.Declining}
	if offered := hb.Declining == ""; offered != h.offered {
		h.offered = offered
		h.look()
	}
	if h.caches != nil && (hb.Full || h.known == nil || !slices.Equal(h.caches, h.known)) {
		all := slices.Clone(h.caches)
		hb.Caches, h.known = &all, all
	}
	if h.at.IsZero() {
		return
	}
	age := max(elapsed(h.at, now), 0)
	if h.offered && age > fleet.HealthEvery {
		h.look()
	}
	if hb.Full || !h.at.Equal(h.sent) {
		s := h.last
		s.Age, s.Usage = age, h.usage
		hb.Health, h.sent, h.docker = &s, h.at, daemonOf(s.Docker)
	}
}

// counts says whether what is on the disk has to be counted again, and notes a count
// that begins.
func (h *health) counts(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.counted.IsZero() && elapsed(h.counted, now) < fleet.UsageEvery {
		return false
	}
	h.counted = now
	return true
}

// takes notes what is on the disk, to ride with the samples.
func (h *health) takes(usage []fleet.ClassUsage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.usage = usage
}

// has notes the repositories with a cache here; nil is that they are not known.
func (h *health) has(caches []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if caches != nil {
		h.caches = caches
	}
}

// rests notes when the next heartbeat is due.
func (h *health) rests(due time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = due
}

// fresh looks at the volume of a path now. It takes at most 2 s; a volume that does
// not answer by then is not known.
func (r *Runner) fresh(ctx context.Context, path string) fleet.Volume {
	return r.sampler.Volume(ctx, path)
}

// freshDocker asks Docker and Compose now. It takes at most 8 s, and that only where
// something hangs. An answer that is not that of the last sample has a new one taken:
// other jobs wait for the same.
func (r *Runner) freshDocker(ctx context.Context) fleet.Docker {
	ctx, cancel := context.WithTimeout(ctx, dockerTime)
	defer cancel()
	d := r.sampler.Docker(ctx, 0)
	if last, ok := r.health.sample(time.Now()); ok && daemonOf(last.Docker) != daemonOf(d) && ctx.Err() == nil {
		r.health.again()
	}
	return d
}

// freshMemory looks at the memory now, in at most 3 s; nil where it is not known.
func (r *Runner) freshMemory(ctx context.Context) *fleet.Memory { return r.sampler.Memory(ctx) }

// listCaches gives the repositories with a cache here, nil where that can't be told.
func (r *Runner) listCaches(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	all, err := probe.Within(ctx, r.sampler, "caches", func(context.Context) ([]string, error) {
		all, err := worktree.Caches(filepath.Dir(r.cfg.cache()), cachesTold)
		slices.Sort(all) // which was used last is of no interest to the hub
		return append([]string{}, all...), err
	})
	if err != nil {
		return nil
	}
	return all
}

// lastSample gives the last sample with its age; nil: there is none yet.
func (r *Runner) lastSample() *fleet.Health {
	s, ok := r.health.sample(time.Now())
	if !ok {
		return nil
	}
	return &s
}

// newSampler makes the sampler of this runner's machine.
func newSampler(cfg Config) *probe.Sampler {
	return probe.New(probe.Config{Workspace: cfg.workspace(), Cache: cfg.cache()})
}
