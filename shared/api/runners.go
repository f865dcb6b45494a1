package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Runner is a runner with its presence.
type Runner struct {
	ID           fleet.RunnerID      `json:"id"`
	Name         string              `json:"name"`
	Provisioning []Provision         `json:"provisioning,omitempty" doc:"of each program the last installation that was asked for"`
	State        string              `json:"state"` // online, stale, offline, refused, revoked; unknown: no node has seen it lately
	LastBeat     *time.Time          `json:"last_heartbeat"`
	Slots        Slots               `json:"slots"`
	Hold         *Hold               `json:"hold"`   // a person keeps new work from it; null: nobody does now
	Health       RunnerHealth        `json:"health"` // of its machine
	Conflict     string              `json:"conflict,omitempty"`
	Declining    string              `json:"declining,omitempty"`
	Labels       map[string]string   `json:"labels"`
	Version      string              `json:"version"`
	Ring         fleet.Ring          `json:"ring" doc:"of updates: canary, early or all"`
	Wanted       *fleet.Wanted       `json:"wanted,omitempty" doc:"a release that a person asked for on it"`
	Update       *fleet.RunnerUpdate `json:"update,omitempty" doc:"what it says of its own updates"`
	OS           string              `json:"os"`
	Arch         string              `json:"arch"`
	Permissions  fleet.Permissions   `json:"permissions"`
	Harnesses    []fleet.HarnessInfo `json:"harnesses"`
	Alerts       []string            `json:"alerts,omitempty"`
	Transport    string              `json:"transport,omitempty"`
	Address      string              `json:"address,omitempty"` // that it connects from; behind a trusted proxy, as the proxy says
	EnrolledAt   time.Time           `json:"enrolled_at"`
	Jobs         []fleet.JobID       `json:"jobs"`
	Seen
}

// Hold is a hold as the interface shows it.
type Hold struct {
	fleet.Hold
	ActorName string `json:"actor_name,omitempty" doc:"of the actor's token, where it has one"`
}

// Runners is GET /v1/runners.
type Runners struct {
	Runners []Runner `json:"runners"`
	Total   int      `json:"total" doc:"that match, on this page and on others"`
}

// Slots are a runner's places for work. Manual jobs take base slots, automation takes
// automation slots; all that runs occupies one, whatever the limits have become since.
type Slots struct {
	Base           int      `json:"base" doc:"for people's jobs, as the runner's owner set them"`
	Offered        int      `json:"base_offered" doc:"of these, what the owner's rules offer now; 0 while it is not connected"`
	Automation     int      `json:"automation" doc:"for automation, as set on the hub"`
	Effective      int      `json:"effective" doc:"automation slots that are offered now, by the owner's rules and the machine's memory"`
	Used           int      `json:"used" doc:"by jobs of either kind"`
	UsedAutomation int      `json:"used_automation"`
	LimitedBy      []string `json:"limited_by" doc:"why fewer are offered than were set"`
}

// Classes of a machine's health.
const (
	HealthOK      = "ok"
	HealthFaulty  = "faulty"
	HealthUnknown = "unknown"
)

// RunnerHealth is what is known of a runner's machine.
type RunnerHealth struct {
	Class  string        `json:"class" enum:"ok,faulty,unknown" doc:"unknown: no sample, or none that is fresh"`
	AgeMS  *int64        `json:"age_ms" doc:"of the sample, by the hub's clock; null: there is none"`
	Fresh  bool          `json:"fresh" doc:"the sample is new enough for automation to be admitted by it"`
	Sample *fleet.Health `json:"sample" doc:"null: none was heard since the hub node that leads began to"`
	Faults []fleet.Fault `json:"faults" doc:"that have not ended"`
	Record *HealthRecord `json:"record,omitempty" doc:"what the cluster remembers beside samples"`
}

// HealthRecord says when faults of a machine began and ended.
type HealthRecord struct {
	At      time.Time           `json:"at" doc:"of the last change on record"`
	Changes []fleet.ClassChange `json:"changes" doc:"oldest first, at most 50"`
}

// HealthHistory is GET /v1/runners/{id}/health: the samples that the leader heard. One
// that began to lead a moment ago has none from before.
type HealthHistory struct {
	Runner fleet.RunnerID `json:"runner"`
	Name   string         `json:"name"`
	Window string         `json:"window"`
	Points []HealthPoint  `json:"points" doc:"oldest first"`

	// Changes are kept by the cluster, whoever leads.
	Changes []fleet.ClassChange `json:"changes" doc:"faults that began or ended in the window, oldest first"`
	Seen
}

// HealthPoint is one sample of the history. What was not known is null.
type HealthPoint struct {
	At        time.Time         `json:"at"`
	Gap       bool              `json:"gap,omitempty" doc:"nothing was heard for a while before it: no line leads here"`
	Free      *int64            `json:"free" doc:"bytes of the workspace"`
	CacheFree *int64            `json:"cache_free" doc:"bytes where repositories are cached"`
	Memory    *int64            `json:"memory" doc:"bytes available"`
	Load      *float64          `json:"load" doc:"of the last minute"`
	CPU       *float64          `json:"cpu" doc:"share of all processors that worked, 0 to 1"`
	IO        *float64          `json:"io" doc:"share of the time in which the busiest disk worked, 0 to 1"`
	Docker    fleet.DockerState `json:"docker"`
}

// SetSlots is the body of POST /v1/runners/{id}/slots.
type SetSlots struct {
	Automation int `json:"automation" doc:"slots for automation, 0 to 8; 0 turns automation off there. With the base slots they are at most 16"`
}

// Cordon is the body of POST /v1/runners/{id}/cordon.
type Cordon struct {
	Reason string `json:"reason,omitempty" doc:"at most 200 characters"`
	For    string `json:"for,omitempty" doc:"it ends by itself after this long, 1m to 8760h; absent: when somebody resumes the runner"`
}

// Drain is the body of POST /v1/runners/{id}/drain.
type Drain struct {
	Reason   string `json:"reason,omitempty" doc:"at most 200 characters"`
	For      string `json:"for,omitempty" doc:"it ends by itself after this long, 1m to 8760h"`
	Deadline string `json:"deadline,omitempty" doc:"after this long, 1s to 720h, what has not begun returns to the queue"`
	Then     string `json:"then,omitempty" enum:"finish,cancel" doc:"what becomes of running work at the deadline; default finish. What is cancelled is rescued first"`
}
