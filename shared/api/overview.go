package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Overview is GET /v1/overview: how the fleet is, at a glance. All of it is worked out
// when it is asked for.
type Overview struct {
	At      time.Time      `json:"at"`
	Cluster string         `json:"cluster"`
	Leader  string         `json:"leader" doc:"the hub node that leads; empty: none does"`
	Hubs    int            `json:"hubs" doc:"nodes of the cluster; how they are, GET /v1/members says"`
	Runners OverviewFleet  `json:"runners"`
	Manual  OverviewSlots  `json:"manual" doc:"slots for people's jobs"`
	Auto    OverviewSlots  `json:"automation" doc:"slots for automation"`
	Queue   OverviewQueue  `json:"queue"`
	Jobs    map[string]int `json:"jobs" doc:"by state: of those that have not ended all, of those that wait for a person the newest 10,000"`
	// Circuits are those that are not closed, at most 100.
	Circuits []Circuit `json:"circuits"`
	// Concerns are what somebody should look at, the gravest first, at most 200.
	Concerns []Concern `json:"concerns"`
	More     int       `json:"more_concerns" doc:"that are left out"`
	Seen
}

// OverviewFleet counts runners by state.
type OverviewFleet struct {
	Total   int            `json:"total"`
	States  map[string]int `json:"states" doc:"online, stale, offline, refused, revoked, unknown"`
	Held    int            `json:"held" doc:"cordoned or drained"`
	Faulty  int            `json:"faulty"`
	Waiting int            `json:"declining" doc:"connected, and taking nothing now by their owners' rules"`
}

// OverviewSlots counts slots of one kind.
type OverviewSlots struct {
	Set     int `json:"set" doc:"by owners and on the hub, of all runners"`
	Offered int `json:"offered" doc:"now"`
	Used    int `json:"used"`
}

// OverviewQueue is what waits.
type OverviewQueue struct {
	Depth  int         `json:"depth"`
	Oldest *time.Time  `json:"oldest_queued_at" doc:"since when the one that has waited longest waits; null: none waits"`
	Job    fleet.JobID `json:"oldest_job,omitempty"`
}

// Concern is one thing that somebody should look at.
type Concern struct {
	Kind   string         `json:"kind" doc:"lost_job, unserved, disk, memory, docker, offline, refused, update_failed, release_halted, no_leader, setting"`
	Text   string         `json:"text"`
	Since  *time.Time     `json:"since" doc:"null: not known"`
	Runner fleet.RunnerID `json:"runner,omitempty"`
	Name   string         `json:"name,omitempty" doc:"of the runner"`
	Job    fleet.JobID    `json:"job,omitempty"`
	Link   string         `json:"link" doc:"path on the page"`
}
