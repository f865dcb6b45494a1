package session

import (
	"context"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Bounds of what a runner may tell of its machine. What is over them is cut and what
// cannot be is left out: a heartbeat is never refused for it, since the runner would
// then be taken for gone.
const (
	longest      = 10 * 365 * 24 * time.Hour // that anything is said to last: more could not be added to
	maxPath      = 1 << 10                   // bytes of a path, or of why something is not known
	maxWord      = 128                       // bytes of a version or a name
	maxReasons   = 16                        // for which fewer slots are offered
	maxReasonOf  = 256                       // bytes of each
	maxCaches    = 256                       // repositories with a cache
	cacheDigits  = 16
	maxVolumes   = 8
	maxUsage     = 32
	maxSightings = 1024 // that wait for who is told of them
)

// machine is what a heartbeat told of the machine; nil: nothing new.
type machine struct {
	health   *fleet.Health
	at       time.Time // hub's clock with its monotonic reading
	caches   *string
	pressure *fleet.Pressure
}

// machineOf takes in what a heartbeat tells of its machine.
func machineOf(hb *wire.Heartbeat, now time.Time) machine {
	m := machine{health: soundHealth(hb.Health), at: now, pressure: soundPressure(hb.Pressure)}
	if hb.Caches != nil {
		s := joinCaches(*hb.Caches)
		m.caches = &s
	}
	return m
}

// soundSessions gives what an owner lets be told of sessions; a word of a later version
// is taken for the least.
func soundSessions(word string) string {
	switch word {
	case "", fleet.SessionsFull, fleet.SessionsList:
		return word
	}
	return fleet.SessionsOff
}

// take keeps what is newer.
func (m *machine) take(newer machine) {
	if newer.health != nil {
		m.health, m.at = newer.health, newer.at
	}
	if newer.caches != nil {
		m.caches = newer.caches
	}
}

// soundHealth gives a sample as it may be believed; what is told and cannot be so is
// not known.
func soundHealth(from *fleet.Health) *fleet.Health {
	if from == nil {
		return nil
	}
	h := *from
	h.Age, h.Uptime, h.Reserved = duration(h.Age), duration(h.Uptime), max(h.Reserved, 0)
	h.UserIdle = min(max(h.UserIdle, -1), longest)
	h.Zone = fleet.CutText(h.Zone, maxWord)
	h.Workspace, h.Cache = soundVolume(h.Workspace), soundVolume(h.Cache)
	if m := h.Memory; m != nil && (m.Total <= 0 || m.Available < 0 || m.Available > m.Total) {
		h.Memory = nil
	}
	if c := h.CPU; c != nil {
		if c.Count < 0 || c.Load < 0 {
			h.CPU = nil
		} else {
			h.CPU = &fleet.CPU{Count: c.Count, Load: c.Load, Used: within(c.Used, 1), Pressure: within(c.Pressure, 100)}
		}
	}
	if io := h.IO; io != nil {
		h.IO = &fleet.IO{Busy: within(io.Busy, 1), Pressure: within(io.Pressure, 100), Memory: within(io.Memory, 100)}
	}
	if p := h.Power; p != nil {
		h.Power = &fleet.Power{OnBattery: p.OnBattery, Percent: min(max(p.Percent, -1), 100)}
	}
	h.Docker = soundDocker(h.Docker)
	h.Usage = soundUsage(h.Usage)
	return &h
}

func soundUsage(from []fleet.ClassUsage) (all []fleet.ClassUsage) {
	for _, u := range from[:min(len(from), maxUsage)] {
		all = append(all, fleet.ClassUsage{Class: fleet.CutText(u.Class, maxWord), Bytes: max(u.Bytes, 0), Files: max(u.Files, 0)})
	}
	return all
}

func duration(d time.Duration) time.Duration { return min(max(d, 0), longest) }

func within(f, most float64) float64 { return min(max(f, 0), most) }

func soundVolume(v fleet.Volume) fleet.Volume {
	v.Path, v.Detail = fleet.CutText(v.Path, maxPath), fleet.CutText(v.Detail, maxPath)
	if v.Known && (v.Free < 0 || v.Total < 0 || v.Free > v.Total) {
		return fleet.Volume{Path: v.Path, Detail: "its figures cannot be so"}
	}
	if !v.Known {
		return fleet.Volume{Path: v.Path, Detail: v.Detail}
	}
	v.Inodes, v.Nodes = max(v.Inodes, -1), max(v.Nodes, -1)
	return v
}

func soundDocker(d fleet.Docker) fleet.Docker {
	switch d.State {
	case fleet.DockerAbsent, fleet.DockerDown, fleet.DockerReady:
	default:
		d.State = fleet.DockerUnknown
	}
	if d.VerifiedAge < 0 { // of the future
		d.VerifiedAge, d.Verified = 0, false
	}
	d.VerifiedAge = duration(d.VerifiedAge)
	d.Version, d.Compose, d.ComposeBy = fleet.CutText(d.Version, maxWord), fleet.CutText(d.Compose, maxWord), fleet.CutText(d.ComposeBy, maxWord)
	d.Detail = fleet.CutText(d.Detail, maxPath)
	return d
}

func soundPressure(from *fleet.Pressure) *fleet.Pressure {
	if from == nil {
		return nil
	}
	p := fleet.Pressure{Floor: max(from.Floor, 0), Partial: from.Partial || len(from.Volumes) > maxVolumes || len(from.Usage) > maxUsage}
	for _, v := range from.Volumes[:min(len(from.Volumes), maxVolumes)] {
		p.Volumes = append(p.Volumes, soundVolume(v))
	}
	p.Usage = soundUsage(from.Usage)
	return &p
}

// joinCaches gives the names that can be those of a cache, each once, with spaces
// between.
func joinCaches(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(s string) bool {
		return len(s) != cacheDigits || strings.Trim(s, "0123456789abcdef") != ""
	})
	slices.Sort(names)
	names = slices.Compact(names)
	return strings.Join(names[:min(len(names), maxCaches)], " ")
}

// joinReasons gives reasons as one text.
func joinReasons(all []string) string {
	var out []string
	for _, s := range all[:min(len(all), maxReasons)] {
		if s != "" {
			out = append(out, fleet.CutText(s, maxReasonOf))
		}
	}
	return strings.Join(out, "; ")
}

// offered gives the automation slots that a heartbeat offers; nil: without a bound.
func offered(n *int) *int {
	if n == nil {
		return nil
	}
	most := min(max(*n, 0), fleet.MaxAutomation)
	return &most
}

func sameOffer(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

// betterKnown says whether a sample tells more to who places jobs than the one before
// it did when it came: there was none that counted, or it says something else.
func betterKnown(was, is *fleet.Presence) bool {
	if is.Health == nil || is.Health == was.Health {
		return false
	}
	o, n := was.Health, is.Health
	return o == nil || is.HealthAt.Sub(was.HealthAt)+o.Age > fleet.HealthFresh ||
		o.Docker.State != n.Docker.State || (o.Docker.Compose == "") != (n.Docker.Compose == "") ||
		o.Workspace.Known != n.Workspace.Known || o.Cache.Known != n.Cache.Known || (o.Memory == nil) != (n.Memory == nil) ||
		o.Reserved > n.Reserved || n.Workspace.Free > o.Workspace.Free+fleet.FootprintRoom || n.Cache.Free > o.Cache.Free+fleet.FootprintRoom
}

// limits gives what the runner is to be told of its automation, or nil where it was
// told in this session.
func (x *session) limits(v state.View, r *fleet.Runner) *fleet.Limits {
	now := limitsOf(v, r)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.limited != nil && *x.limited == now {
		return nil
	}
	x.limited = &now
	return &now
}

// limitsOf gives what the cluster allows a runner.
func limitsOf(v state.View, r *fleet.Runner) fleet.Limits {
	return fleet.Limits{Automation: r.AutomationSlots(), Floors: fleet.FloorsOf(v.Meta().Settings)}
}

// limitsChanged says whether the session's runner was told other limits than hold now.
func (x *session) limitsChanged(r *fleet.Runner) bool {
	now := limitsOf(x.srv.cfg.Proposer.View(), r)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.limited != nil && *x.limited != now
}

// sighting is news of a machine for those who watch over machines.
type sighting struct {
	runner fleet.RunnerID
	machine
}

// pass hands news on. It never waits: where nobody takes them, the newest are lost.
func (s *Server) pass(r fleet.RunnerID, m machine) {
	if m.health == nil && m.pressure == nil {
		return
	}
	select {
	case s.sightings <- sighting{r, m}:
	default:
	}
}

// tellSightings passes news of machines to the callbacks until ctx ends.
func (s *Server) tellSightings(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.life.Done():
			return
		case n := <-s.sightings:
			if n.health != nil {
				s.cfg.OnHealth(n.runner, n.health, n.at)
			}
			if n.pressure != nil {
				s.cfg.OnPressure(n.runner, n.pressure)
			}
		}
	}
}
