// Package api holds the bodies of the REST interface under /v1: what the hub
// serves and what the command line and other clients send and read. Keys are
// snake_case, times RFC 3339 in UTC, durations text such as "90s" or "2h".
package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Submit is the body of POST /v1/jobs. Limits are those of fleet; a prompt or an
// argv too large to ride in the log is stored as a blob by the hub.
type Submit struct {
	Kind           fleet.Kind        `json:"kind" enum:"agent,exec" doc:"agent runs a prompt, exec runs an argv without a shell"`
	Prompt         string            `json:"prompt,omitempty" doc:"for an agent, at most 256 KiB"`
	Argv           []string          `json:"argv,omitempty" doc:"for exec, at most 64 KiB"`
	Repo           *fleet.Repo       `json:"repo,omitempty" doc:"absent: an empty scratch directory"`
	Harness        string            `json:"harness,omitempty" doc:"absent: exec for a command, the hub's default for an agent"`
	Model          string            `json:"model,omitempty"`
	Permissions    fleet.Permissions `json:"permissions,omitempty" enum:"read,workspace,full"`
	On             string            `json:"on,omitempty" doc:"id or name of the only runner that may take it"`
	Require        map[string]string `json:"require,omitempty" doc:"labels the runner must carry"`
	Env            map[string]string `json:"env,omitempty" doc:"at most 64 entries; never secrets"`
	Secrets        []string          `json:"secrets,omitempty" doc:"names in the runner owner's store"`
	Push           string            `json:"push,omitempty" doc:"branch that the runner pushes to once the work is accepted"`
	Commit         string            `json:"commit,omitempty" enum:"auto,never"`
	OnLost         string            `json:"on_lost,omitempty" enum:"hold,rerun"`
	Automation     string            `json:"automation,omitempty" doc:"name of the automation that asks; absent: a person"`
	ConcurrencyKey string            `json:"concurrency_key,omitempty" doc:"at most one active job a key"`
	Timeout        string            `json:"timeout,omitempty" doc:"of a turn; default 2h"`
	IdleTimeout    string            `json:"idle_timeout,omitempty" doc:"without output; default 15m for an agent, none for a command"`
	FirstTimeout   string            `json:"first_response_timeout,omitempty" doc:"until the first output; default 5m for an agent, none for a command"`
	QueueTimeout   string            `json:"queue_timeout,omitempty" doc:"default none"`
	Priority       int               `json:"priority,omitempty" doc:"-10 to 10, more goes first; half an hour of waiting counts as one"`
	Needs          *fleet.Needs      `json:"needs,omitempty" doc:"of the machine: os is linux or darwin, arch amd64 or arm64; harness_version is the least, such as 0.120.0; docker means daemon and Compose, verified within ten minutes; disk is bytes free where it works, memory bytes available"`
	Fallbacks      []fleet.Choice    `json:"fallbacks,omitempty" doc:"for an agent: what to go on with, in this order, where the provider refuses; at most 16. Absent: what the hub's model_priority has after the job's own choice"`
	NoFallback     bool              `json:"no_fallback,omitempty" doc:"stay with the job's own choice, whatever the hub's model_priority says"`
	Retries        *int              `json:"retries,omitempty" doc:"automatic runs of a turn beyond the first, 0 to 3; default 3"`
	Session        *fleet.SessionRef `json:"session,omitempty" doc:"for an agent: a session that people began on the machine named by on, to go on with there, in its own directory; needs harness"`
	MaxTokens      int64             `json:"max_tokens,omitempty" doc:"for an agent: what a run may use of its origin's budget; absent: what such runs used so far, on average"`
}

// Job is a job as the interface shows it: the newest turn and its current attempt
// spelled out, the history below.
type Job struct {
	ID            fleet.JobID        `json:"id"`
	Kind          fleet.Kind         `json:"kind"`
	Title         string             `json:"title" doc:"of an agent's job the first line of its first prompt, of another its command; at most 200 bytes, empty where neither is known"`
	State         fleet.State        `json:"state"`
	Reason        fleet.Reason       `json:"reason"`
	Why           string             `json:"why,omitempty"` // of a queued job the exact reason, from the leader; of one that is being cancelled, where that stands
	CreatedAt     time.Time          `json:"created_at"`
	StartedAt     *time.Time         `json:"started_at"`
	FinishedAt    *time.Time         `json:"finished_at"`
	Runner        string             `json:"runner"` // name; empty while none
	RunnerID      fleet.RunnerID     `json:"runner_id"`
	Turn          int                `json:"turn"`
	Attempt       int                `json:"attempt"` // 0 while none
	Fence         string             `json:"fence"`
	Harness       string             `json:"harness"`        // effective: that it runs with, or will
	Model         string             `json:"model"`          // effective; empty: as the CLI's own settings say
	Requested     fleet.Choice       `json:"requested"`      // as asked for
	Effective     fleet.Choice       `json:"effective"`      // its place in the list of choices
	ReportedModel string             `json:"reported_model"` // by the CLI
	Permissions   fleet.Permissions  `json:"permissions"`    // in effect once accepted, else as asked
	Repo          string             `json:"repo"`
	BaseCommit    string             `json:"base_commit"`
	HeadCommit    string             `json:"head_commit"`
	Branch        string             `json:"branch"`
	ExitCode      *int               `json:"exit_code"`
	Exit          *fleet.Exit        `json:"exit"`
	FailureClass  fleet.FailureClass `json:"failure_class"`
	ResetAt       *time.Time         `json:"reset_at,omitempty"`
	Verdict       *fleet.Verdict     `json:"verdict"`
	VerdictByName string             `json:"verdict_by_name,omitempty" doc:"of the token of whoever gave the verdict, where a person did"`
	Evidence      *fleet.Evidence    `json:"evidence"`
	Usage         Usage              `json:"usage"`
	Log           fleet.LogState     `json:"log"`
	SessionID     string             `json:"session_id,omitempty"`
	FollowUps     int                `json:"follow_ups_queued"`
	Paused        string             `json:"follow_ups_paused,omitempty"`
	Notes         []string           `json:"notes,omitempty"`
	Spec          fleet.Spec         `json:"spec"`
	Turns         []*fleet.Turn      `json:"turns"`
	CancelAt      *time.Time         `json:"cancel_requested_at,omitempty"`
	Actor         string             `json:"actor"`
	ActorName     string             `json:"actor_name,omitempty" doc:"of the actor's token, where it has one"`
	Revision      uint64             `json:"revision"`

	Attempts    []Attempt          `json:"attempts"`             // of the newest turn
	Transitions []fleet.Transition `json:"transitions"`          // of the newest turn, along its choices
	Choice      int                `json:"choice"`               // its place among spec.fallbacks, from 1; 0: as asked for
	Learned     *fleet.Learned     `json:"learned,omitempty"`    // by its failures; it stays
	NotBefore   *time.Time         `json:"not_before,omitempty"` // a retry waits until then
	Budget      Executions         `json:"budget"`               // of the newest turn
}

// Usage is the token count of the current attempt.
type Usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
}

// Jobs is a page of GET /v1/jobs, newest first.
type Jobs struct {
	Jobs []Job       `json:"jobs"`
	Next fleet.JobID `json:"next,omitempty"` // pass as before for the next page
}

// FollowUp is the body of POST /v1/jobs/{id}/follow-ups.
type FollowUp struct {
	Prompt string `json:"prompt"`
	Model  string `json:"model,omitempty"`
	Fresh  bool   `json:"fresh,omitempty" doc:"without the old CLI session"`
	On     string `json:"on,omitempty" doc:"another runner; only with fresh"`
}

// Cancel, Retry and Settle are the bodies of the posts of those names.
type Cancel struct {
	Abandon bool `json:"abandon,omitempty" doc:"end the job although its processes are unconfirmed; needs admin"`
}

// Retry is the body of POST /v1/jobs/{id}/retry.
type Retry struct {
	Grant bool `json:"grant,omitempty" doc:"a whole new budget of executions"`
}

// Settle is the body of POST /v1/jobs/{id}/accept and …/reject.
type Settle struct {
	Reason string `json:"reason,omitempty"`
}

// TicketRequest is the body of POST /v1/tickets.
type TicketRequest struct {
	TTL    string            `json:"ttl,omitempty" doc:"default 15m, at most 24h"`
	Uses   int               `json:"uses,omitempty" doc:"default 1"`
	Labels map[string]string `json:"labels,omitempty"`
	For    string            `json:"for,omitempty" doc:"a runner to enrol anew under its id"`

	Role    string `json:"role,omitempty" enum:"runner,hub" doc:"what may join by it; default runner"`
	Replace string `json:"replace,omitempty" doc:"a hub node that goes when the new one comes"`
	ViaMesh bool   `json:"via_mesh,omitempty" doc:"for a runner that reaches the hubs through their tunnel, over UDP alone"`
}

// Ticket is its answer; the ticket itself is shown only here.
type Ticket struct {
	Ticket    string    `json:"ticket"`
	Command   string    `json:"command"` // to paste on the machine that is to join
	Install   string    `json:"install,omitempty" doc:"to paste on a machine without the program: installs a runner as a service"`
	ExpiresAt time.Time `json:"expires_at"`
	Uses      int       `json:"uses"`
}

// TokenRequest is the body of POST /v1/tokens.
type TokenRequest struct {
	Name string     `json:"name,omitempty"`
	Role fleet.Role `json:"role" enum:"viewer,operator,admin"`
	TTL  string     `json:"ttl,omitempty" doc:"default none"`
}

// Token is a token; Secret only in the answer to its creation.
type Token struct {
	ID        fleet.TokenID `json:"id"`
	Name      string        `json:"name,omitempty"`
	Role      fleet.Role    `json:"role"`
	CreatedAt time.Time     `json:"created_at"`
	CreatedBy string        `json:"created_by"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty"`
	Revoked   bool          `json:"revoked"`
	Secret    string        `json:"secret,omitempty"`
}

// Tokens is GET /v1/tokens.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// Artifact is one file of a job.
type Artifact struct {
	Name    string       `json:"name"` // patch, bundle, or as the run named it
	SHA256  fleet.Digest `json:"sha256"`
	Size    int64        `json:"size"`
	Type    string       `json:"type,omitempty"`
	Turn    int          `json:"turn"`
	Attempt int          `json:"attempt"`
	Stored  bool         `json:"stored"` // the hub has it
}

// Artifacts is GET /v1/jobs/{id}/artifacts.
type Artifacts struct {
	Artifacts []Artifact `json:"artifacts"`
}

// Tips is GET /v1/repos/tips: commits that the runner's cache of a repository has.
type Tips struct {
	Tips []string `json:"tips"`
}

// Status is GET /v1/status.
type Status struct {
	Cluster   string            `json:"cluster"`
	Node      string            `json:"node"`
	Epoch     uint64            `json:"epoch"`
	Leader    string            `json:"leader"`
	Term      uint64            `json:"term"`
	Index     uint64            `json:"index"`
	Version   string            `json:"version"`
	StartedAt time.Time         `json:"started_at"`
	StateTime time.Time         `json:"state_time"`
	Jobs      map[string]int    `json:"jobs"` // count by state, of the newest 10,000
	Queued    int               `json:"queued"`
	Runners   int               `json:"runners"`
	Online    int               `json:"runners_online"`
	Held      int               `json:"runners_held"`  // cordoned or drained now
	Circuits  int               `json:"circuits_open"` // that are not closed
	Settings  map[string]string `json:"settings"`
	Warnings  []string          `json:"warnings,omitempty" doc:"settings that cannot be read, and what holds in their place"`
	Retention Retention         `json:"retention"`
	Disk      Disk              `json:"disk"`
	Seen
}

// Retention says what is kept how long.
type Retention struct {
	Jobs        string `json:"jobs"` // age of ended job records
	MaxJobs     int    `json:"max_jobs"`
	Output      string `json:"output"`       // age of sealed output and artifacts
	OutputBytes int64  `json:"output_bytes"` // total bound
	Audit       string `json:"audit"`
}

// Disk says what the hub's data takes.
type Disk struct {
	LogBytes   int64 `json:"log_bytes"`
	SpoolBytes int64 `json:"spool_bytes"`
	BlobBytes  int64 `json:"blob_bytes"`
	FreeBytes  int64 `json:"free_bytes"`
}

// Event is the data of one server-sent event of GET /v1/events and
// GET /v1/jobs/{id}/events. Exactly one of the values is set.
type Event struct {
	Type    string       `json:"type"` // job, runner, setting, circuit, alert, release, sign_in, output, event, live, reset
	Job     *Job         `json:"job,omitempty"`
	Runner  *Runner      `json:"runner,omitempty"`
	Alert   *fleet.Alert `json:"alert,omitempty"`
	Circuit *Circuit     `json:"circuit,omitempty"`
	ID      string       `json:"id,omitempty"`     // of a removed thing
	Output  *Output      `json:"output,omitempty"` // of a job's stream
	Item    *fleet.Event `json:"item,omitempty"`   // a normalised event
	Detail  string       `json:"detail,omitempty"` // of a reset
}

// Output is a piece of recorded output as text; bytes that are not UTF-8 come as base64.
type Output struct {
	Attempt int       `json:"attempt"`
	Turn    int       `json:"turn"`
	Stream  string    `json:"stream"` // stdout, stderr, mark
	At      time.Time `json:"at"`
	Text    string    `json:"text,omitempty"`
	Base64  []byte    `json:"base64,omitempty"`
}

// AuditRecords is GET /v1/audit, newest first.
type AuditRecords struct {
	Records []AuditRecord `json:"records"`
	Next    uint64        `json:"next,omitempty" doc:"pass as before for the next page; absent: there is none"`
}

// AuditRecord is one mutation and who made it.
type AuditRecord struct {
	Index     uint64    `json:"index"`
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	ActorName string    `json:"actor_name,omitempty" doc:"of the actor's token, where it has one"`
	Address   string    `json:"address,omitempty"` // that it was asked from, as the hub or a trusted proxy saw it
	Command   string    `json:"command"`
	Subject   string    `json:"subject,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

// Problem is an RFC 9457 problem document: every error of the interface.
type Problem struct {
	Type     string     `json:"type"` // about:blank#CODE
	Title    string     `json:"title"`
	Status   int        `json:"status"`
	Detail   string     `json:"detail"`             // what happened, to what, what to do next
	Code     fleet.Code `json:"code"`               // stable
	Instance string     `json:"instance,omitempty"` // urn:tugline:NODE/ID: finds the cause in the hub's log, and by GET /v1/errors
}
