package fleet

import "time"

// Orphan is a finished attempt that the cluster's records do not know: they were
// recovered or restored to a time before its assignment. It ran under a fence of an
// earlier epoch, and a person decides what becomes of its result.
type Orphan struct {
	ID         string       `json:"id"` // its fence as text
	Job        JobID        `json:"job"`
	Fence      Fence        `json:"fence"`
	Runner     RunnerID     `json:"runner"`
	RunnerName string       `json:"runner_name"`
	ReportedAt time.Time    `json:"reported_at,omitzero"`
	Turn       int          `json:"turn"`    // as its order numbered it
	Attempt    int          `json:"attempt"` // the same
	Spec       Spec         `json:"spec"`    // from the signed order that its runner holds
	Prompt     Digest       `json:"prompt,omitempty"`
	Model      string       `json:"model,omitempty"`
	Base       string       `json:"base,omitempty"` // the job's first commit, for a turn that went on from one
	CreatedAt  time.Time    `json:"created_at"`     // of the job
	AcceptedAt time.Time    `json:"accepted_at,omitzero"`
	StartedAt  *time.Time   `json:"started_at,omitempty"`
	FinishedAt time.Time    `json:"finished_at"`
	Exit       Exit         `json:"exit"`
	Failure    FailureClass `json:"failure_class"`
	Detail     string       `json:"detail,omitempty"`
	ResetAt    *time.Time   `json:"reset_at,omitempty"`
	SessionID  string       `json:"session_id,omitempty"`
	RanModel   string       `json:"ran_model,omitempty"` // as reported by the CLI
	Usage      *Usage       `json:"usage,omitempty"`
	Evidence   *Evidence    `json:"evidence,omitempty"` // names its bundle and the rescue ref that is kept on the runner
	Log        LogState     `json:"log"`

	Settled   string     `json:"settled,omitempty"` // adopted or discarded; empty: waits for a person
	SettledAt *time.Time `json:"settled_at,omitempty"`
	SettledBy string     `json:"settled_by,omitempty"`
}

// What became of an orphan.
const (
	OrphanAdopted   = "adopted"
	OrphanDiscarded = "discarded"
)

// MaxOrphans bounds the orphans that wait for a person.
const MaxOrphans = 1000
