package web

import (
	"tugline.dev/tugline/hub/sched"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// sight is what one request sees of runners: who is connected is gathered once, and a look
// at it is prepared once, however many jobs are shown.
type sight struct {
	*Server
	v     state.View
	seen  map[fleet.RunnerID]fleet.Presence
	board *sched.Board
}

func (s *Server) sight(v state.View) *sight { return &sight{Server: s, v: v} }

// look sees what the hub would decide now.
func (x *sight) look() *sched.Board {
	if x.board == nil {
		x.board = sched.See(x.v, sched.Look{Presence: x.present, Now: now()})
	}
	return x.board
}

func (x *sight) present() map[fleet.RunnerID]fleet.Presence {
	if x.seen == nil {
		x.seen = x.Server.present()
	}
	return x.seen
}

// present says who is connected, by what the node that leads sees.
func (s *Server) present() map[fleet.RunnerID]fleet.Presence {
	out := map[fleet.RunnerID]fleet.Presence{}
	for _, p := range s.cfg.Presence() {
		out[p.Runner] = p
	}
	return out
}
