package session

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

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
