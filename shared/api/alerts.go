package api

import "tugline.dev/tugline/shared/fleet"

// Alerts is GET /v1/alerts, newest first.
type Alerts struct {
	Alerts []fleet.Alert `json:"alerts"`
}
