package hub

import (
	"math"
	"slices"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

var dockerStates = []fleet.DockerState{fleet.DockerUnknown, fleet.DockerAbsent, fleet.DockerDown, fleet.DockerReady}

// figuresOf gives a sample as it is kept.
func figuresOf(s *fleet.Health) (f figures) {
	f[figFree], f[figCache] = volume(s.Workspace), volume(s.Cache)
	if m := s.Memory; m != nil && m.Available > 0 {
		f[figMemory] = mebibytes(m.Available)
	}
	if c := s.CPU; c != nil {
		f[figLoad], f[figUsed] = number(c.Load*100), number(c.Used*100)
	}
	if d := s.IO; d != nil {
		f[figBusy] = number(d.Busy * 100)
	}
	f[figDocker] = uint32(max(slices.Index(dockerStates, s.Docker.State), 0))
	return f
}

func volume(v fleet.Volume) uint32 {
	if !v.Known {
		return 0
	}
	return mebibytes(v.Free)
}

// mebibytes gives one more than the MiB in so many bytes.
func mebibytes(n int64) uint32 { return number(float64(max(n, 0) >> 20)) }

// number gives one more than a figure, rounded.
func number(v float64) uint32 {
	if !(v > 0) { // which a NaN is not either
		return 1
	}
	return 1 + uint32(math.Round(min(v, math.MaxInt32)))
}

// point gives the sample as people are shown it.
func (s sighted) point(now time.Time) api.HealthPoint {
	bytes := func(i int) *int64 {
		if s.figures[i] == 0 {
			return nil
		}
		n := int64(s.figures[i]-1) << 20
		return &n
	}
	share := func(i int) *float64 {
		if s.figures[i] == 0 {
			return nil
		}
		v := float64(s.figures[i]-1) / 100
		return &v
	}
	return api.HealthPoint{
		At: now.Add(-s.age).UTC(), Gap: s.gap,
		Free: bytes(figFree), CacheFree: bytes(figCache), Memory: bytes(figMemory),
		Load: share(figLoad), CPU: share(figUsed), IO: share(figBusy), Docker: dockerStates[s.figures[figDocker]],
	}
}

// healthHistory gives what this node heard of a runner's machine while it led.
func (h *Hub) healthHistory(id fleet.RunnerID, window time.Duration) []api.HealthPoint {
	out := []api.HealthPoint{}
	now := h.entries.now()
	for _, s := range h.history.points(id, window, time.Now()) {
		out = append(out, s.point(now))
	}
	return out
}
