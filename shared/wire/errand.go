package wire

import (
	"encoding/json"

	"tugline.dev/tugline/shared/fleet"
)

// The kinds of errand that this version knows.
const (
	ErrandSessions = "sessions" // which sessions of agent CLIs there are: answered by a fleet.CLISessions
	ErrandSession  = "session"  // what was said in one, an AskSession: answered by a fleet.CLITranscript
)

// Bounds of errands.
const (
	MaxErrands    = 4         // that a reply asks for
	MaxErrandBody = 4 << 10   // bytes of what one asks
	MaxAnswer     = 256 << 10 // bytes of what one is answered by
	MaxAnswers    = 1         // that a heartbeat brings; others ride on the next
)

// Errand is something that the hub asks a runner for. It changes nothing there. It is
// asked for again with each reply until it is answered, or nobody waits for it.
type Errand struct {
	ID   string          `json:"id"`
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
}

// ErrandDone is the answer to one. It has a code, or a body.
type ErrandDone struct {
	ID     string          `json:"id"`
	Code   fleet.Code      `json:"code,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// AskSession is the body of an errand for one session.
type AskSession struct {
	ID       string `json:"id"`
	Messages int    `json:"messages,omitempty"` // the last so many
}
