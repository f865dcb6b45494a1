package session

import (
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Shows says whether a connected runner has an attempt of the job, on record or not.
func (s *Server) Shows(job fleet.JobID) bool {
	for _, x := range s.sessions() {
		x.mu.Lock()
		shows := slices.ContainsFunc(x.views, func(v wire.AttemptView) bool { return v.Job == job })
		x.mu.Unlock()
		if shows {
			return true
		}
	}
	return false
}

// Shown is when the runner's heartbeats last listed the attempt in its present
// session; the zero time where its last one did not.
func (s *Server) Shown(r fleet.RunnerID, f fleet.Fence) time.Time {
	s.mu.Lock()
	x := s.live[r]
	s.mu.Unlock()
	if x == nil {
		return time.Time{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range x.views {
		if v.Fence == f {
			return x.beatAt
		}
	}
	return time.Time{}
}
