// Package sched decides which queued job goes to which runner, and says for every
// job that goes nowhere exactly why. It is a function of a view of the state, of
// what the leader sees of connections, and of the time it is given.
package sched

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Look is what a decision is made from beside the state. All of it is given: equal looks
// at equal states come to equal decisions.
type Look struct {
	// Presence is what the leader sees of each runner's connection. It is called at most
	// once, and only if something depends on it: with many runners it is much to gather.
	Presence func() map[fleet.RunnerID]fleet.Presence

	Since time.Time // presence has been gathered since then: this node began to lead
	Now   time.Time // by the clock that presence was stamped with

	// Flying is what was decided before and proposed. As long as the state does not show
	// what became of it, its job is not given away again, and what it takes is taken.
	Flying map[fleet.JobID]Assignment

	Limit int // of what a plan may hold: assignments, or jobs to block

	// Memo is what is kept from look to look for speed; it changes no decision. It belongs
	// to one look at a time. Nil: nothing is kept.
	Memo *Memo
}

// Assignment is one decision: the proposal for it assumes what was seen.
type Assignment struct {
	Job        fleet.JobID
	Runner     fleet.RunnerID
	Turn       int
	Attempts   int      // made so far in the turn
	Base       int      // slots that the runner offers, beside those for automation
	Automation int      // slots for automation that hub and owner allow there now
	Choice     int      // the turn's place in the list of choices
	Reserve    int64    // bytes of disk that it is expected to take; 0: it works in no repository
	Probes     []string // circuits that it tries
}

// Block takes a job out of the queue that has waited longer than it may.
type Block struct {
	Job    fleet.JobID
	Turn   int
	Code   string
	Detail string
}

// Plan is what a look at the queue comes to.
type Plan struct {
	Assign []Assignment
	Block  []Block
	Next   time.Time // when time alone may change the answer; zero: never
}

// Reason is why one runner does not take one job, or why no runner is asked at all.
type Reason struct {
	Runner string     `json:"runner,omitempty"` // its name; empty: it is not one runner's reason
	Code   fleet.Code `json:"code,omitempty"`   // empty: nothing stands against it
	Detail string     `json:"detail"`
	Until  *time.Time `json:"until,omitempty"`  // it may be over then by itself
	Change string     `json:"change,omitempty"` // what would change it
}

// Explanation says why a job stands where it stands.
type Explanation struct {
	Summary string     `json:"summary"`
	Code    fleet.Code `json:"code,omitempty"` // of what the summary says; empty: nothing stands against it
	Until   *time.Time `json:"until,omitempty"`
	Change  string     `json:"change,omitempty"`
	Ahead   int        `json:"ahead"` // queued jobs before it, counted up to 1,000
	Index   uint64     `json:"index"` // of the state that was looked at
	At      time.Time  `json:"at"`    // of the presence that was looked at
	Runners []Reason   `json:"runners,omitempty"`
	More    int        `json:"more,omitempty"`  // runners that are left out
	Notes   []string   `json:"notes,omitempty"` // warnings: they keep nobody from taking it
}
