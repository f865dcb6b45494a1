package api

import "time"

// Key is one generation of one of the cluster's keys. Secrets are never shown.
type Key struct {
	Kind        string     `json:"kind" enum:"hmac,signing,ca"`
	Generation  uint64     `json:"generation"`
	ID          string     `json:"id"`
	MadeAt      *time.Time `json:"made_at" doc:"absent where no record says it"`
	ActiveSince time.Time  `json:"active_since"`
	Active      bool       `json:"active"`
	Until       *time.Time `json:"verifies_until" doc:"of one that was replaced"`
	Holds       bool       `json:"verifies" doc:"what was made with it is still taken"`
	Runners     *int       `json:"runners,omitempty" doc:"hmac: how many runners use it"`
	Serves      bool       `json:"serves,omitempty" doc:"ca: the hubs show certificates of it"`
	Certificate string     `json:"certificate,omitempty" doc:"ca: PEM, while it is trusted"`
}

// Keys is GET /v1/keys.
type Keys struct {
	Keys []Key  `json:"keys"`
	Due  string `json:"due,omitempty" doc:"which key is about to be replaced, and why"`
}

// RotateRequest is the body of POST /v1/keys/rotate.
type RotateRequest struct {
	Kind    string `json:"kind" enum:"hmac,signing,ca"`
	Overlap string `json:"overlap,omitempty" doc:"ca: how long the old one stays trusted; default 168h, from 1s to 2160h"`
}

// Rotation is its answer.
type Rotation struct {
	Key  Key    `json:"key"`  // the new one
	Next string `json:"next"` // what happens now, in a sentence or two
}
