package cluster

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// How long a machine's surroundings stay as they are.
const (
	spell        = 40 * time.Second // of disk and Docker
	providerCalm = 25 * time.Second // of what a provider says
	accountTime  = 2 * time.Minute  // of an account that an agent is signed in with
)

// The agents that machines have, and what they can be asked for.
var (
	agents = []string{"codex", "claude"}
	models = []string{"", "small", "large"}
)

// luck draws for one purpose at a time: the same for everybody who asks for the same.
func (w *world) luck(d time.Duration, what ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what, int64(time.Since(w.begun)/d))
	return rand.New(rand.NewPCG(w.opt.Seed, h.Sum64()))
}

const gib = 1 << 30

// disk is what a machine's disk has free; false: nobody can say.
func (m *machine) disk() (int64, bool) {
	if m.w.healed.Load() {
		return 200 * gib, true
	}
	switch r := m.w.luck(spell, m.id, "disk"); r.IntN(14) {
	case 0:
		return 0, false
	case 1:
		return 9 * gib, true // below what automation is placed by
	case 2:
		return 12 * gib, true // below what it begins by
	default:
		return int64(30+r.IntN(300)) * gib, true
	}
}

// docker is what a machine's Docker daemon is like. A third of all machines have none before
// the end.
func (m *machine) docker() fleet.Docker {
	ready := fleet.Docker{State: fleet.DockerReady, Version: "27.1", Compose: "2.29", ComposeBy: "docker compose", Verified: true}
	switch r := m.w.luck(spell, m.id, "docker"); {
	case m.w.healed.Load():
		return ready
	case m.number%3 == 0:
		return fleet.Docker{State: fleet.DockerAbsent}
	default:
		switch r.IntN(8) {
		case 0:
			return fleet.Docker{State: fleet.DockerDown, Verified: true, VerifiedAge: spell}
		case 1:
			return fleet.Docker{State: fleet.DockerUnknown, Verified: true, VerifiedAge: spell, Detail: "no answer in time"}
		}
		return ready
	}
}

// health is a sample of a machine, taken now.
func (m *machine) health() *fleet.Health {
	free, known := m.disk()
	v := fleet.Volume{Path: "/data", Known: known, Free: free, Inodes: -1}
	if known {
		v.Total = 500 * gib
	}
	return &fleet.Health{Workspace: v, Cache: v, Memory: &fleet.Memory{Total: 32 * gib, Available: 16 * gib}, UserIdle: -1, Zone: "UTC", Docker: m.docker()}
}

// facts is what a runner says of itself now.
func (m *machine) facts() fleet.RunnerFacts {
	f := fleet.RunnerFacts{Version: "simulated", OS: "linux", Arch: "amd64", Slots: m.slots, Permissions: fleet.PermFull, Harnesses: []fleet.HarnessInfo{{Name: "exec", SignedIn: "yes"}}}
	for _, a := range agents {
		f.Harnesses = append(f.Harnesses, fleet.HarnessInfo{Name: a, Version: "1.0.0", SignedIn: "yes", Account: m.account(a)})
	}
	return f
}

// account is what an agent is signed in with on a machine.
func (m *machine) account(agent string) string {
	return fmt.Sprintf("%s-%d", m.id, m.w.luck(accountTime, m.id, agent, "account").IntN(2))
}

// ending is how a provider has an attempt end.
type ending struct {
	class      fleet.FailureClass
	resetAt    *time.Time
	retryAfter time.Duration
	detail     string
}

// provider says what a provider answers an agent on a machine that asks for a model now.
func (m *machine) provider(agent, model string) ending {
	if m.w.healed.Load() {
		return ending{class: fleet.ClassOK}
	}
	if model == "large" && m.w.luck(2*time.Minute, agent, model).IntN(3) == 0 { // everywhere
		return ending{class: fleet.ClassModelUnavailable, detail: "no such model"}
	}
	r := m.w.luck(providerCalm, m.id, agent, "provider")
	calm := 20
	if m.number < hotCount {
		calm = 11 // where most is asked for
	}
	switch r.IntN(calm) {
	case 0, 1:
		return ending{class: fleet.ClassRateLimited, retryAfter: between(r, time.Second, 20*time.Second), detail: "too many requests"}
	case 2, 3:
		at := time.Now().Add(between(r, 5*time.Second, 40*time.Second)).UTC()
		return ending{class: fleet.ClassQuotaExhausted, resetAt: &at, detail: "usage limit reached"}
	case 4:
		return ending{class: fleet.ClassAuth, detail: "invalid credentials"}
	case 5, 6:
		return ending{class: fleet.ClassProviderUnavailable, detail: "503"}
	case 7:
		return ending{class: fleet.ClassHarnessStartup, detail: "cannot read its settings"}
	}
	return ending{class: fleet.ClassOK}
}

// passing says whether an end may come out otherwise next time.
func passing(c fleet.FailureClass) bool {
	return c.Provider() || c == fleet.ClassHarnessStartup || c == fleet.ClassDocker
}

// sample is what a runner told of its machine, and when.
type sample struct {
	sent   time.Time
	acked  time.Time // when the answer came; zero: it has not
	health *fleet.Health
}

const keptSamples = 40

// sampled notes that a sample is being sent.
func (m *machine) sampled(h *fleet.Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, sample{sent: time.Now(), health: h})
	if n := len(m.samples) - keptSamples; n > 0 {
		m.samples = m.samples[n:]
	}
}

// heard notes that a hub answered a heartbeat that listed attempts.
func (m *machine) heard(listed []fleet.Fence, upTo time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.samples {
		if s.acked.IsZero() && !s.sent.After(upTo) {
			m.samples[i].acked = time.Now()
		}
	}
	for _, f := range listed {
		m.shown[f] = time.Now()
	}
}

// deciding bounds the time between a decision and its being on record.
const deciding = 11 * time.Second

// known gives the samples by which something may have been decided that is on record now:
// those since the last one that the hubs certainly had when it was decided.
func (m *machine) known() (out []*fleet.Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for i := len(m.samples) - 1; i >= 0; i-- {
		s := m.samples[i]
		if now.Sub(s.sent) > fleet.HealthFresh+deciding {
			break
		}
		out = append(out, s.health)
		if !s.acked.IsZero() && now.Sub(s.acked) > deciding {
			break
		}
	}
	return out
}

// alive says whether an attempt was shown to a hub not long ago, so that no hub may think
// that it is not.
func (m *machine) alive(f fleet.Fence) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.shown[f]
	return ok && time.Since(at) < fleet.ProbeLease-30*time.Second
}
