package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// What GET /v1/feed says. Its events are hello (FeedTick), tick (FeedTick), changes
// (FeedChanges), presence (FeedPresence) and reset (FeedReset).

// FeedTick says that the feed is alive, and as of when. It is the data of the events
// hello, which is the first, and tick, which comes every five seconds and when another
// node leads.
type FeedTick struct {
	At     time.Time `json:"at" doc:"what time it is on the node that answers"`
	Index  uint64    `json:"index" doc:"of the last change that the node has"`
	Epoch  uint64    `json:"epoch"`
	Node   string    `json:"node" doc:"the one that answers"`
	Leader string    `json:"leader" doc:"empty: no node leads"`
	Term   uint64    `json:"term"`
	Audit  uint64    `json:"audit" doc:"index of the newest record"`
	Seen
}

// FeedChanges are changes of the log since the ones before, gathered: of a thing that
// changed several times as it is now. The event's id is EPOCH-INDEX.
type FeedChanges struct {
	Jobs         []Job            `json:"jobs,omitempty" doc:"as in the list of jobs"`
	JobsGone     []fleet.JobID    `json:"jobs_gone,omitempty" doc:"whose records were deleted"`
	Runners      []Runner         `json:"runners,omitempty"`
	RunnersGone  []fleet.RunnerID `json:"runners_gone,omitempty"`
	Circuits     []Circuit        `json:"circuits,omitempty"`
	CircuitsGone []string         `json:"circuits_gone,omitempty"`
	Alerts       []fleet.Alert    `json:"alerts,omitempty" doc:"that are new, or of which more is known"`
	Stale        []string         `json:"stale,omitempty" doc:"to be asked for anew: jobs, runners, circuits (too many changed to tell each), settings, tokens, tickets, members, orphans, epoch, keys, releases, budgets, provisions, sign_ins, audit, other"`
}

// FeedPresence is what changed of runners beside the log.
type FeedPresence struct {
	Runners []Runner                 `json:"runners,omitempty" doc:"whose state, slots, health or hold changed"`
	Beats   map[fleet.RunnerID]int64 `json:"beats,omitempty" doc:"of those heard since: Unix milliseconds of the last heartbeat, by the clock of the node that leads"`
	Stale   bool                     `json:"stale,omitempty" doc:"too many changed to tell each: ask for the runners anew"`
	Seen
}

// FeedReset says that changes are missing: everything is to be asked for anew.
type FeedReset struct {
	Detail string `json:"detail"`
}
