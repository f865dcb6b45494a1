package api

import "time"

// Clock is what the hub's machine takes the time to be.
type Clock struct {
	Clock     time.Time `json:"clock" doc:"of the machine of the hub"`
	StateTime time.Time `json:"state_time" doc:"by which things expire; it follows the clock"`
	Accepted  bool      `json:"accepted" doc:"false: the clock was believed anyway"`
}
