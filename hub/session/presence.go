package session

import (
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Presence gives every runner that was connected since this server was made, by
// id. Connected means a session whose last heartbeat is not older than three of
// its intervals by this machine's monotonic clock, which LastBeat carries.
func (s *Server) Presence() []fleet.Presence {
	now := s.now()
	s.mu.Lock()
	all := make([]fleet.Presence, 0, len(s.seen))
	for r, k := range s.seen {
		all = append(all, s.presence(r, k, now))
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b fleet.Presence) int { return strings.Compare(string(a.Runner), string(b.Runner)) })
	return all
}

// PresenceOf gives one runner's; false means it was not seen since this server was
// made.
func (s *Server) PresenceOf(r fleet.RunnerID) (fleet.Presence, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.seen[r]
	if k == nil {
		return fleet.Presence{Runner: r}, false
	}
	return s.presence(r, k, now), true
}

// presence is called with mu held.
func (s *Server) presence(r fleet.RunnerID, k *seen, now time.Time) fleet.Presence {
	p := k.presence
	p.Runner = r
	p.Connected = p.Connected && now.Sub(p.LastBeat) <= fleet.StaleHeartbeats*p.Interval
	return p
}

// note copies what a session shows into what is remembered of its runner, if the
// session is the live one. It says whether what the runner offers has changed.
func (s *Server) note(x *session) (changed bool) {
	p := x.presence()
	journal, count := x.journal()
	caches := x.caches()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[x.runner] != x {
		return false
	}
	k := s.seen[x.runner]
	if k == nil {
		k = &seen{}
		s.seen[x.runner] = k
		changed = true
	}
	was := k.presence
	if k.journal != journal {
		// Another one's machine, for all that is known.
		k.journal, k.count, was.Health, was.HealthAt, was.Caches = journal, 0, nil, time.Time{}, ""
	}
	if p.Health == nil { // this session has told none yet
		p.Health, p.HealthAt = was.Health, was.HealthAt
	}
	if p.Caches = was.Caches; caches != nil {
		p.Caches = *caches
	}
	changed = changed || !was.Connected || was.Session != p.Session || was.Slots != p.Slots ||
		was.Full != p.Full || was.Declining != p.Declining || was.Caches != p.Caches ||
		!sameOffer(was.Automation, p.Automation) || betterKnown(&was, &p)
	k.presence = p
	k.count = max(k.count, count)
	return changed
}

// counted gives the greatest journal counter that a runner showed for a journal.
func (s *Server) counted(r fleet.RunnerID, journal string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.seen[r]; k != nil && k.journal == journal {
		return k.count
	}
	return 0
}

// connected counts live sessions.
func (s *Server) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}
