package fleet

import "time"

// Kind says what a job runs.
type Kind string

// The kinds of job.
const (
	KindAgent Kind = "agent" // a prompt for a coding agent
	KindExec  Kind = "exec"  // an argv, no shell
)

// Permissions is what an agent may do on the machine that runs it. The owner of
// the runner sets a ceiling; the lesser of the two is in effect.
type Permissions string

// The permission levels, least first.
const (
	PermRead      Permissions = "read"
	PermWorkspace Permissions = "workspace"
	PermFull      Permissions = "full"
)

// Rank orders permissions, least first; an unknown word ranks below all.
func (p Permissions) Rank() int {
	switch p {
	case PermRead:
		return 1
	case PermWorkspace:
		return 2
	case PermFull:
		return 3
	}
	return 0
}

// Limits of a job as submitted. All are checked before anything is stored.
const (
	MaxPrompt       = 256 << 10      // bytes of a prompt
	MaxArgv         = 64 << 10       // bytes of an argv, all words and their separators
	InlineArgv      = 4 << 10        // bytes of argv that ride in the job's record; more is a blob
	MaxEnv          = 64             // environment entries
	MaxEnvBytes     = 16 << 10       // bytes of all environment entries together
	MaxFollowUps    = 20             // queued follow-ups a job
	MaxOutput       = 256 << 20      // bytes of recorded output an attempt; more is counted and dropped
	MaxFact         = 16 << 10       // bytes of one fact
	MaxFacts        = 200            // facts an attempt
	AttemptBudget   = 1 + MaxRetries // executions of a turn, unless more are granted
	DefaultTimeout  = 2 * time.Hour
	DefaultIdle     = 15 * time.Minute // without an output byte
	DefaultFirst    = 5 * time.Minute  // until the first output byte of an agent
	AcceptDeadline  = 30 * time.Second // silence about an unaccepted attempt before it returns to the queue
	LostAfter       = 10 * time.Minute // silence of a runner before its accepted attempts are lost
	EvidenceWait    = 15 * time.Minute // since the runner's last contact, for an unfinished verification
	StaleHeartbeats = 3                // missed heartbeats after which a runner is stale
)

// Origin says who or what asked for a job.
type Origin struct {
	Kind string `json:"kind"`           // manual | automation
	Name string `json:"name,omitempty"` // the automation's name
}

// Repo says which repository a job works in. The zero value of URL with a Bundle
// is a repository handed over by its owner's machine without any remote.
type Repo struct {
	URL        string   `json:"url,omitempty"`         // what git can fetch; credentials are refused
	Ref        string   `json:"ref,omitempty"`         // branch, tag or commit; empty is the remote's HEAD
	BaseCommit string   `json:"base_commit,omitempty"` // the exact starting commit where the submitter knows it
	Branch     string   `json:"branch,omitempty"`      // the job's branch; default tugline/JOB
	Upstream   string   `json:"upstream,omitempty"`    // the branch that a merge would go to
	ExtraRefs  []string `json:"extra_refs,omitempty"`  // more refs to fetch
	Bundle     Digest   `json:"bundle,omitempty"`      // a git bundle in the blob store
	CacheKey   string   `json:"cache_key,omitempty"`   // names the cache where there is no URL: the root commit
	Depth      int      `json:"depth,omitempty"`       // commits of history; 0 is all
}

// Timeouts bound a turn; zero means the default, negative means none.
type Timeouts struct {
	Total time.Duration `json:"total_ns,omitempty"`
	Idle  time.Duration `json:"idle_ns,omitempty"`
	First time.Duration `json:"first_ns,omitempty"`
	Queue time.Duration `json:"queue_ns,omitempty"` // default none
}

// Spec is what was asked for. It never changes after the submit.
type Spec struct {
	Kind           Kind              `json:"kind"`
	Origin         Origin            `json:"origin"`
	ConcurrencyKey string            `json:"concurrency_key,omitempty"` // at most one active job a key
	Repo           *Repo             `json:"repo,omitempty"`            // nil: an empty scratch directory
	Harness        string            `json:"harness"`
	Model          string            `json:"model,omitempty"`
	Permissions    Permissions       `json:"permissions"`
	Argv           []string          `json:"argv,omitempty"`      // exec, up to InlineArgv bytes
	ArgvBlob       Digest            `json:"argv_blob,omitempty"` // exec, above that: a JSON array
	On             string            `json:"on,omitempty"`        // a runner's id or name
	Require        map[string]string `json:"require,omitempty"`   // labels the runner must carry
	Env            map[string]string `json:"env,omitempty"`       // never secrets
	Secrets        []string          `json:"secrets,omitempty"`   // names in the runner owner's store
	Push           string            `json:"push,omitempty"`      // branch to push to after the verdict
	Commit         string            `json:"commit,omitempty"`    // auto | never
	OnLost         string            `json:"on_lost"`             // hold | rerun
	Timeouts       Timeouts          `json:"timeouts"`
	Priority       int               `json:"priority,omitempty"`   // -MaxPriority to MaxPriority; more goes first
	Needs          *Needs            `json:"needs,omitempty"`      // of the machine
	Fallbacks      []Choice          `json:"fallbacks,omitempty"`  // what to go on with, in this order, where the provider refuses
	Retries        *int              `json:"retries,omitempty"`    // executions of a turn beyond the first; nil: MaxRetries
	MaxTokens      int64             `json:"max_tokens,omitempty"` // reserved of its origin's budget; 0: what its runs used so far, on average
	Session        *SessionRef       `json:"session,omitempty"`    // of the harness on the runner named by On: it is gone on with, in its own directory
}

// Reason says why a job stands where it stands, in words for people.
type Reason struct {
	Code   string    `json:"code"`
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
}

// Job is one piece of work with its whole recorded history. Values are never
// changed in place: every change makes a new one.
type Job struct {
	ID        JobID     `json:"id"`
	Seq       uint64    `json:"seq"` // index of the submit: the queue's order
	Spec      Spec      `json:"spec"`
	Title     string    `json:"title,omitempty"` // of its prompt the first line
	Actor     string    `json:"actor"`           // token id of the submitter
	State     State     `json:"state"`
	Reason    Reason    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`

	Turns     []*Turn    `json:"turns"`
	FollowUps []FollowUp `json:"follow_ups,omitempty"` // queued, oldest first
	Paused    string     `json:"paused,omitempty"`     // why follow-ups wait although the turn has ended

	CancelRequestedAt *time.Time  `json:"cancel_requested_at,omitempty"`
	CancelActor       string      `json:"cancel_actor,omitempty"`
	CancelWhy         string      `json:"cancel_why,omitempty"` // where that is not that a person asked for it
	Excluded          []Exclusion `json:"excluded,omitempty"`
	Learned           *Learned    `json:"learned,omitempty"`
	Pulled            bool        `json:"pulled,omitempty"` // its commits are known to be elsewhere
	Revision          uint64      `json:"revision"`         // index of the last change
}

// MaxTitle bounds a job's title, in bytes.
const MaxTitle = 200

// FollowUp is a prompt that waits for the turn before it to end.
type FollowUp struct {
	Prompt Digest    `json:"prompt"`
	Model  string    `json:"model,omitempty"`
	Fresh  bool      `json:"fresh,omitempty"` // without the old CLI session
	On     string    `json:"on,omitempty"`    // another runner; only with Fresh
	Actor  string    `json:"actor"`
	At     time.Time `json:"at"`
}

// Exclusion keeps a job away from a runner that declined it.
type Exclusion struct {
	Runner RunnerID   `json:"runner"`
	Code   Code       `json:"code"`
	Detail string     `json:"detail,omitempty"`
	Facts  uint64     `json:"facts"`           // the runner's facts revision at the time; passes when it changes
	Until  *time.Time `json:"until,omitempty"` // passes then at the latest
}

// Turn is one prompt (or one argv) and the attempts made at it.
type Turn struct {
	N         int          `json:"n"` // from 1
	Prompt    Digest       `json:"prompt,omitempty"`
	Model     string       `json:"model,omitempty"`
	Fresh     bool         `json:"fresh,omitempty"`
	On        RunnerID     `json:"on,omitempty"` // a resumed session is bound to its runner
	State     State        `json:"state"`
	CreatedAt time.Time    `json:"created_at"`
	QueuedAt  time.Time    `json:"queued_at"`
	EndedAt   *time.Time   `json:"ended_at,omitempty"`
	Verdict   *Verdict     `json:"verdict,omitempty"`
	Granted   int          `json:"granted,omitempty"`     // executions above the budget
	Choice    int          `json:"choice,omitempty"`      // place among Spec.Fallbacks, from 1; 0: as asked for
	Moves     []Transition `json:"transitions,omitempty"` // along the choices
	NotBefore *time.Time   `json:"not_before,omitempty"`  // a retry waits until then
	Attempts  []*Attempt   `json:"attempts,omitempty"`
	Current   int          `json:"current"` // 1-based attempt that holds the authority; 0 is none
}

// AttemptState is what became of one assignment.
type AttemptState string

// The states of an attempt.
const (
	AttemptAssigned  AttemptState = "assigned"
	AttemptRunning   AttemptState = "running"  // accepted
	AttemptFinished  AttemptState = "finished" // its end is recorded
	AttemptDeclined  AttemptState = "declined"
	AttemptReturned  AttemptState = "returned"  // never accepted; the job went back to the queue
	AttemptWithdrawn AttemptState = "withdrawn" // never accepted; cancelled, or the lost attempt came back
	AttemptLost      AttemptState = "lost"      // accepted, then silence; may still come back
	AttemptAbandoned AttemptState = "abandoned" // given up by an admin, processes unconfirmed
)

// Attempt is one assignment of a turn to a runner, named by its fence.
type Attempt struct {
	N          int          `json:"n"` // from 1 in its turn
	Fence      Fence        `json:"fence"`
	Runner     RunnerID     `json:"runner"`
	RunnerName string       `json:"runner_name"`
	State      AttemptState `json:"state"`
	Phase      string       `json:"phase,omitempty"`
	PhaseAt    time.Time    `json:"phase_at,omitzero"`
	Stop       string       `json:"stop,omitempty"` // why the runner is told to stop it
	Gone       bool         `json:"gone,omitempty"` // its processes are known to be gone
	Code       Code         `json:"code,omitempty"` // of a decline or a failure to start
	Detail     string       `json:"detail,omitempty"`
	AssignedAt time.Time    `json:"assigned_at"`
	AcceptedAt *time.Time   `json:"accepted_at,omitempty"`
	StartedAt  *time.Time   `json:"started_at,omitempty"`
	FinishedAt *time.Time   `json:"finished_at,omitempty"`

	Permissions Permissions  `json:"permissions,omitempty"` // in effect
	SessionID   string       `json:"session_id,omitempty"`  // of the CLI, for a resume
	Model       string       `json:"model,omitempty"`       // as reported by the CLI
	BaseCommit  string       `json:"base_commit,omitempty"`
	Exit        *Exit        `json:"exit,omitempty"`
	Failure     FailureClass `json:"failure_class,omitempty"`
	ResetAt     *time.Time   `json:"reset_at,omitempty"`
	Usage       *Usage       `json:"usage,omitempty"`
	Evidence    *Evidence    `json:"evidence,omitempty"`
	Log         LogState     `json:"log"`
	Notes       []string     `json:"notes,omitempty"`
	Pushes      []Push       `json:"pushes,omitempty"`
	Facts       int          `json:"facts,omitempty"`       // recorded so far; at most MaxFacts
	Told        Told         `json:"told,omitzero"`         // those of them that are numbered
	Harness     string       `json:"harness,omitempty"`     // that it was started with; empty: the job's own
	Provider    string       `json:"provider,omitempty"`    // that serves it
	Account     string       `json:"account,omitempty"`     // see HarnessInfo
	Requested   string       `json:"requested,omitempty"`   // the model that it was started with
	RetryAfter  *time.Time   `json:"retry_after,omitempty"` // of a refusal that stated one
	StatedEnd   string       `json:"stated_end,omitempty"`  // the words in which it stated an end
	Acted       bool         `json:"acted,omitempty"`       // a tool of the agent ran: it may have changed something
	Responded   bool         `json:"responded,omitempty"`   // its provider completed a response
	Free        bool         `json:"free,omitempty"`        // it costs the turn's budget nothing: it was stopped
	Reserve     int64        `json:"reserve,omitempty"`     // bytes of disk that it was expected to take
	Probes      []string     `json:"probes,omitempty"`      // circuits that it tries
	Epoch       uint64       `json:"epoch,omitempty"`       // in which it was last renewed; see Authority
}

// Authority is the cluster epoch in which the attempt was authorised last: that of
// its fence, or a later one in which it was renewed. Only while it is the cluster's
// may the attempt have an effect outside its runner.
func (a *Attempt) Authority() uint64 { return max(a.Fence.Epoch, a.Epoch) }

// HoldsSlot says whether the attempt occupies one of its runner's slots.
func (a *Attempt) HoldsSlot() bool {
	switch a.State {
	case AttemptAssigned, AttemptRunning:
		return true
	case AttemptLost:
		return !a.Gone
	}
	return false
}

// Exit is how the process of an attempt ended.
type Exit struct {
	Code   int    `json:"code"`             // -1 where a signal ended it
	Signal string `json:"signal,omitempty"` // e.g. KILL
	Reason string `json:"reason"`           // exited, timeout, idle_timeout, first_response_timeout, stopped, start_failed
	Detail string `json:"detail,omitempty"`
}

// LogState says how much of an attempt's output the hub holds. That a result is
// recorded and that its log is sealed are two different things.
type LogState struct {
	Bytes   int64 `json:"bytes"`                // as produced by the runner, framing included
	Text    int64 `json:"text_bytes,omitempty"` // what was printed, without framing; known at the end
	Durable int64 `json:"durable_bytes"`        // held by the hub
	Events  int64 `json:"events_bytes"`         // of the event stream
	Dropped int64 `json:"dropped,omitempty"`    // bytes beyond the cap
	Sealed  bool  `json:"sealed"`
}

// Push is a permit that the hub granted for one ref and commit.
type Push struct {
	Remote string    `json:"remote"`
	Ref    string    `json:"ref"`
	SHA    string    `json:"sha"`
	At     time.Time `json:"at"`
	Result string    `json:"result,omitempty"` // pushed, or why not
}

// Turn gives the newest turn; every job has at least one.
func (j *Job) Turn() *Turn { return j.Turns[len(j.Turns)-1] }

// Current gives the attempt of the newest turn that holds the authority, or nil.
func (j *Job) Current() *Attempt {
	t := j.Turn()
	if t.Current < 1 || t.Current > len(t.Attempts) {
		return nil
	}
	return t.Attempts[t.Current-1]
}

// Find gives the attempt with the given fence, and its turn.
func (j *Job) Find(f Fence) (*Turn, *Attempt) {
	for i := len(j.Turns) - 1; i >= 0; i-- {
		for k := len(j.Turns[i].Attempts) - 1; k >= 0; k-- {
			if a := j.Turns[i].Attempts[k]; a.Fence == f {
				return j.Turns[i], a
			}
		}
	}
	return nil, nil
}

// Clone copies the job so deep that every field of the copy may be changed, but
// for the spec, evidence and other values that are only ever replaced whole.
func (j *Job) Clone() *Job {
	c := *j
	c.Turns = make([]*Turn, len(j.Turns))
	for i, t := range j.Turns {
		u := *t
		u.Attempts = make([]*Attempt, len(t.Attempts))
		for k, a := range t.Attempts {
			b := *a
			u.Attempts[k] = &b
		}
		c.Turns[i] = &u
	}
	return &c
}
