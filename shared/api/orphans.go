package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Orphan is a finished attempt of which the hub has lost the record: its log was
// recovered or restored to a time before the assignment.
type Orphan struct {
	ID         string             `json:"id"`
	State      string             `json:"state" enum:"waiting,adopted,discarded"`
	Job        fleet.JobID        `json:"job"`
	OnRecord   bool               `json:"job_on_record"` // the job itself is known
	Turn       int                `json:"turn"`
	Runner     fleet.RunnerID     `json:"runner"`
	RunnerName string             `json:"runner_name"`
	Kind       fleet.Kind         `json:"kind"`
	Harness    string             `json:"harness"`
	Argv       []string           `json:"argv"`
	Repo       string             `json:"repo"`
	Exit       fleet.Exit         `json:"exit"`
	Failure    fleet.FailureClass `json:"failure_class"`
	Detail     string             `json:"detail"`
	StartedAt  *time.Time         `json:"started_at"`
	FinishedAt time.Time          `json:"finished_at"`
	ReportedAt time.Time          `json:"reported_at"`
	Commits    int                `json:"commits"`
	Tip        string             `json:"tip"`
	Branch     string             `json:"branch"`
	RescueRef  string             `json:"rescue_ref"` // on its runner
	Bundle     fleet.Digest       `json:"bundle"`
	Patch      fleet.Digest       `json:"patch"`
	LogBytes   int64              `json:"log_bytes"`
	LogSealed  bool               `json:"log_sealed"` // all of its output is here
	SettledAt  *time.Time         `json:"settled_at"`
	SettledBy  string             `json:"settled_by"`
}

// Orphans is GET /v1/orphans.
type Orphans struct {
	Orphans []Orphan      `json:"orphans"`
	Epochs  []fleet.Epoch `json:"epochs"` // when and why the epoch was raised, oldest first
}
