package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Release is a version of the program that runners are given.
type Release struct {
	Version string              `json:"version"`
	Files   []fleet.ReleaseFile `json:"files" doc:"the signed programs, one a platform; each is a blob"`
	AddedAt time.Time           `json:"added_at"`
	AddedBy string              `json:"added_by"`
	Ring    fleet.Ring          `json:"ring" enum:"canary,early,all" doc:"the last one that it is offered to"`
	Since   time.Time           `json:"since"`
	Halted  string              `json:"halted,omitempty" doc:"why it is offered to nobody further"`
	Waits   string              `json:"waits,omitempty" doc:"for what, before it goes to the next ring"`
	Runners []ReleaseRunner     `json:"runners"`
}

// ReleaseRunner is how a release goes on one runner.
type ReleaseRunner struct {
	ID   fleet.RunnerID `json:"id"`
	Name string         `json:"name"`
	fleet.Progress
}

// Releases is GET /v1/releases, the newest first.
type Releases struct {
	Releases []Release `json:"releases"`
	Key      string    `json:"key,omitempty" doc:"minisign public key that all of them are signed by"`
}

// AddRelease is POST /v1/releases.
type AddRelease struct {
	Version string              `json:"version" doc:"such as 1.4.0"`
	Files   []fleet.ReleaseFile `json:"files" doc:"whose blobs were uploaded before"`
	Key     string              `json:"key" doc:"minisign public key; the first release sets it for the cluster"`
}

// OfferRelease is POST /v1/releases/{version}/offer.
type OfferRelease struct {
	Ring fleet.Ring `json:"ring" doc:"canary, early or all: the last one that it is offered to from now on"`
}

// UpdateRunner is POST /v1/runners/{id}/update.
type UpdateRunner struct {
	Version   string `json:"version,omitempty" doc:"default the newest release for its platform"`
	Downgrade bool   `json:"downgrade,omitempty" doc:"it may be older than what runs"`
}

// SetRing is POST /v1/runners/{id}/ring.
type SetRing struct {
	Ring fleet.Ring `json:"ring" doc:"canary, early or all"`
}
