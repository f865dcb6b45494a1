package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Attempt is one assignment of the newest turn, in short.
type Attempt struct {
	N          int                `json:"attempt"`
	Fence      string             `json:"fence"`
	State      fleet.AttemptState `json:"state"`
	Runner     string             `json:"runner"`
	RunnerID   fleet.RunnerID     `json:"runner_id"`
	Harness    string             `json:"harness"`
	Provider   string             `json:"provider,omitempty" doc:"that serves the model; absent for a command"`
	Requested  string             `json:"requested_model"` // as asked for; empty: none was named
	Effective  string             `json:"effective_model"` // that the agent was started with; empty: its own settings decide
	Reported   string             `json:"reported_model"`  // by the agent; empty: it reported none
	Class      fleet.FailureClass `json:"error_class"`
	Code       fleet.Code         `json:"code,omitempty"` // of a decline, or of why it did not start
	Detail     string             `json:"detail,omitempty"`
	RetryAfter *time.Time         `json:"retry_after"` // that the provider stated
	AssignedAt time.Time          `json:"assigned_at"`
	StartedAt  *time.Time         `json:"started_at"`
	FinishedAt *time.Time         `json:"finished_at"`
	Counts     bool               `json:"counts"` // against the turn's budget
}

// Executions is how much of a turn's budget is used.
type Executions struct {
	Used int `json:"used"`
	Of   int `json:"of"`
}

// Explanation is GET /v1/jobs/{id}/explain.
type Explanation struct {
	Job     fleet.JobID    `json:"job"`
	State   fleet.State    `json:"state"`
	Summary string         `json:"summary"`
	Code    fleet.Code     `json:"code,omitempty"`   // of what the summary says
	Until   *time.Time     `json:"until,omitempty"`  // it may be over then by itself
	Change  string         `json:"change,omitempty"` // what would change it
	Ahead   int            `json:"ahead"`
	Runners []RunnerReason `json:"runners,omitempty"`
	More    int            `json:"more,omitempty"`  // runners that are left out
	Notes   []string       `json:"notes,omitempty"` // warnings: they keep nobody from taking it
	Index   uint64         `json:"index"`           // of the state that was looked at
	At      time.Time      `json:"at"`              // of the presence that was looked at
	Seen
}

// RunnerReason is why one runner does not take the job: the first thing that stands
// against it.
type RunnerReason struct {
	Runner string     `json:"runner"`
	Code   fleet.Code `json:"code"`
	Detail string     `json:"detail"`
	Until  *time.Time `json:"until,omitempty"`  // it may be over then by itself
	Change string     `json:"change,omitempty"` // what would change it
}
