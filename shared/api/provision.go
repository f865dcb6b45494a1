package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Provision is one installation on a runner. Values of credentials are never told.
type Provision struct {
	ID              string               `json:"id"`
	What            string               `json:"what"`
	Version         string               `json:"version,omitempty" doc:"asked for; absent: the newest"`
	Credentials     []string             `json:"credentials,omitempty" doc:"names of those that go with it"`
	PreserveAuth    bool                 `json:"preserve_auth,omitempty" doc:"nothing of the login is touched"`
	State           fleet.ProvisionState `json:"state" enum:"queued,delivered,succeeded,failed,cancelled"`
	AskedBy         string               `json:"asked_by"`
	AskedAt         time.Time            `json:"asked_at"`
	DeliveredAt     *time.Time           `json:"delivered_at,omitempty"`
	EndedAt         *time.Time           `json:"ended_at,omitempty"`
	Installed       string               `json:"installed,omitempty" doc:"the version that is there now"`
	Class           string               `json:"class,omitempty" doc:"why it failed"`
	Detail          string               `json:"detail,omitempty"`
	Waits           string               `json:"waits,omitempty" doc:"why it has not begun"`
	CredentialsGone bool                 `json:"credentials_gone,omitempty" doc:"the node that held them leads no more: ask for the same again, with them"`
}

// Provisions is GET /v1/runners/{id}/provisioning, the newest first.
type Provisions struct {
	Runner       fleet.RunnerID `json:"runner"`
	Name         string         `json:"name"`
	Off          bool           `json:"off,omitempty" doc:"the cluster's switch is off: nothing is queued or delivered"`
	Provisioning []Provision    `json:"provisioning"`
}

// AskProvision is POST /v1/runners/{id}/provisioning.
type AskProvision struct {
	What         string            `json:"what" doc:"codex, claude, opencode or browser"`
	Version      string            `json:"version,omitempty" doc:"or a tag; default the newest"`
	PreserveAuth bool              `json:"preserve_auth,omitempty" doc:"touch nothing of the login"`
	Credentials  map[string]string `json:"credentials,omitempty" doc:"name → value; sealed to the runner at once, and never recorded or told"`
}
