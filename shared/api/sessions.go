package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Sessions is GET /v1/runners/{id}/sessions: the sessions of agent CLIs on its machine.
type Sessions struct {
	Runner  fleet.RunnerID `json:"runner"`
	Name    string         `json:"name"`
	AgeMS   int64          `json:"age_ms"`            // of the list
	Waiting string         `json:"waiting,omitempty"` // why it is not of now
	fleet.CLISessions
}

// Session is GET /v1/runners/{id}/sessions/{sid}: one of them with its last messages.
type Session struct {
	Runner fleet.RunnerID `json:"runner"`
	Name   string         `json:"name"`
	fleet.CLITranscript
}

// SessionWait is how long the hub waits for a runner's answer, unless another time is
// asked for.
const SessionWait = 8 * time.Second
