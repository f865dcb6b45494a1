package spool

import "tugline.dev/tugline/shared/fleet"

// Jobs gives the jobs that have streams, with the durable bytes of each.
func (s *Store) Jobs() map[fleet.JobID]int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[fleet.JobID]int64, len(s.jobs))
	for job, list := range s.jobs {
		var n int64
		for _, st := range list {
			i, _ := st.info()
			n += i.Size
		}
		out[job] = n
	}
	return out
}
