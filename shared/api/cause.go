package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Cause is GET /v1/errors/{node}/{id}: what a failure was that was told under a reference.
type Cause struct {
	Ref   string     `json:"ref" doc:"NODE/ID, as the instance of the problem document has it behind urn:tugline:"`
	At    time.Time  `json:"at"`
	Node  string     `json:"node"`
	Code  fleet.Code `json:"code"`
	Cause string     `json:"cause" doc:"at most 4 KiB"`
}
