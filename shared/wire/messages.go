package wire

import (
	"encoding/json"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Type is the kind of a frame. Numbers are append-only.
type Type uint8

// The frames of the handshake, then those of a session. Direction is fixed.
const (
	TypeChallenge Type = 1 // hub → runner, not sealed
	TypeHello     Type = 2 // runner → hub, authenticated by the runner's key
	TypeWelcome   Type = 3 // hub → runner, authenticated by the session key
	TypeGoodbye   Type = 4 // hub → runner: the session ends, and why

	TypeHeartbeat      Type = 16 // runner → hub
	TypeHeartbeatReply Type = 17
	TypeNudge          Type = 18 // hub → runner, empty: beat at once
	TypeReport         Type = 19 // runner → hub: what must not be lost
	TypeReportAck      Type = 20
	TypeOutput         Type = 21 // runner → hub: bytes of a stream by offset
	TypeOutputAck      Type = 22
	TypePermit         Type = 23 // runner → hub: may I push this?
	TypePermitReply    Type = 24
	TypeRestarting     Type = 25 // hub → runner
	TypeLive           Type = 26 // runner → hub: partial events, never stored
	TypePoll           Type = 27 // HTTP only, empty. Runner → hub: hold this until there is something; hub → runner: there is nothing
)

// Challenge opens a connection.
type Challenge struct {
	Versions []int        `json:"versions"` // protocol versions the hub speaks
	Nonce    []byte       `json:"nonce"`    // 32 random bytes
	Time     time.Time    `json:"time"`     // the hub's clock, which the runner uses for order expiry
	Cluster  string       `json:"cluster"`
	Epoch    uint64       `json:"epoch"`
	Signing  []SigningKey `json:"signing"` // the order-signing key with the chain that leads to it
}

// SigningKey is an order-signing key; each but the first is signed by the one before.
type SigningKey struct {
	ID  string `json:"id"`
	Key []byte `json:"key"`
	Sig []byte `json:"sig,omitempty"`
}

// Hello is the runner's answer. Its frame ends in a MAC by the runner's key over
// the challenge and these bytes: see SealHello.
type Hello struct {
	Version      int               `json:"version"`
	Runner       fleet.RunnerID    `json:"runner"`
	Generation   uint64            `json:"generation"`
	Nonce        []byte            `json:"nonce"`
	Cluster      string            `json:"cluster"`
	Epoch        uint64            `json:"epoch"` // the greatest it has journaled
	MachineID    string            `json:"machine_id"`
	JournalID    string            `json:"journal_id"`
	JournalCount uint64            `json:"journal_count"`
	Name         string            `json:"name"`
	Labels       map[string]string `json:"labels,omitempty"`
	Facts        fleet.RunnerFacts `json:"facts"`
	Time         time.Time         `json:"time"` // the runner's clock, for telling skew
}

// Welcome ends the handshake; both sides now hold the session key.
type Welcome struct {
	Session  string        `json:"session"`
	Interval time.Duration `json:"interval_ns"`
	Leader   string        `json:"leader,omitempty"`
	Hubs     []string      `json:"hubs,omitempty"`
	Mesh     []HubAddress  `json:"mesh,omitempty"` // the hubs' tunnels, for a runner with a mesh key
}

// Goodbye says why the hub ends the session. Final means: do not come back by yourself.
type Goodbye struct {
	Code   fleet.Code `json:"code"`
	Detail string     `json:"detail"`
	Final  bool       `json:"final"`
}

// Heartbeat is the runner's whole view. A new session's first one is Full.
type Heartbeat struct {
	Full      bool               `json:"full,omitempty"`
	Epoch     uint64             `json:"epoch"`
	Term      uint64             `json:"term"`
	Index     uint64             `json:"index"` // greatest desired set journaled
	Slots     int                `json:"slots"` // base slots, offered now
	Declining string             `json:"declining,omitempty"`
	Facts     *fleet.RunnerFacts `json:"facts,omitempty"` // when changed
	Count     uint64             `json:"count"`           // journal counter
	Attempts  []AttemptView      `json:"attempts,omitempty"`
	Keys      *KeysHeld          `json:"keys,omitempty"` // in the first of a session, and when changed

	Automation *int            `json:"automation,omitempty"` // the most automation slots that the owner's rules offer now; absent: no bound of theirs
	LimitedBy  []string        `json:"limited_by,omitempty"` // why fewer slots are offered than configured
	Health     *fleet.Health   `json:"health,omitempty"`     // a new sample; absent: the last one stands
	Caches     *[]string       `json:"caches,omitempty"`     // repositories with a cache here, in the first of a session and when changed
	Pressure   *fleet.Pressure `json:"pressure,omitempty"`   // what fills the disk, once every few minutes while its floor is reached

	Sessions string       `json:"sessions,omitempty"` // off, list or full: what the owner lets be told of sessions of agent CLIs; absent: this version tells none
	Errands  []ErrandDone `json:"errands,omitempty"`  // answers

	Provision *ProvisionView `json:"provision,omitempty"` // how the installation goes that the hub offers
}

// AttemptView is one attempt as the runner holds it.
type AttemptView struct {
	Job      fleet.JobID   `json:"job"`
	Fence    fleet.Fence   `json:"fence"`
	Phase    string        `json:"phase"`              // preparing, ready, running, stopping, finishing, finished, gone
	Detail   string        `json:"detail,omitempty"`   // e.g. "fetching 45 %"; "waiting on provider: rate limit"
	Since    time.Duration `json:"since_ns,omitempty"` // age of the phase
	Unlisted bool          `json:"unlisted,omitempty"` // the last desired set did not name it
	Output   int64         `json:"output"`             // bytes recorded locally
	Sent     int64         `json:"sent"`               // of these acknowledged
}

// HeartbeatReply carries the whole desired set of the runner. Absence from it is
// never an instruction.
type HeartbeatReply struct {
	Interval time.Duration `json:"interval_ns"` // until the next one, before jitter
	Epoch    uint64        `json:"epoch"`
	Term     uint64        `json:"term"`
	Index    uint64        `json:"index"`
	Time     time.Time     `json:"time"`
	Desired  []Desired     `json:"desired,omitempty"`
	Leader   string        `json:"leader,omitempty"`
	Hubs     []string      `json:"hubs,omitempty"`   // base URLs of all hubs, where they have changed in this session
	Keys     *KeyNews      `json:"keys,omitempty"`   // what the runner does not hold yet
	Mesh     []HubAddress  `json:"mesh,omitempty"`   // the hubs' tunnels, where they have changed in this session
	Limits   *fleet.Limits `json:"limits,omitempty"` // in the first of a session, and where they have changed in it
	Update   *Offer        `json:"update,omitempty"` // a release that the runner is to have, for as long as it does not
	Errands  []Errand      `json:"errands,omitempty"`

	Provision *Offer `json:"provision,omitempty"` // an installation that is to be made, until its outcome is recorded
}

// Intent is what the hub wants of an attempt.
type Intent string

// The intents.
const (
	IntentRun    Intent = "run"
	IntentStop   Intent = "stop"
	IntentForget Intent = "forget" // its end is recorded and its log sealed: local records may go
)

// Desired is one line of the desired set. Order is present for run until the
// runner shows the attempt, for run while the attempt is to be renewed, and always
// for stop.
type Desired struct {
	Job      fleet.JobID `json:"job"`
	Fence    fleet.Fence `json:"fence"`
	Intent   Intent      `json:"intent"`
	Reason   string      `json:"reason,omitempty"`   // of a stop
	Accepted bool        `json:"accepted,omitempty"` // the hub has committed the accept
	Order    *Signed     `json:"order,omitempty"`
	Body     []byte      `json:"body,omitempty"` // exact bytes that the order's digest covers: JSON of an Assignment, a Stop or a Renew
}

// Signed is an order as the exact bytes that were signed.
type Signed struct {
	Order []byte `json:"order"` // JSON of an Order
	Key   string `json:"key"`   // id of the signing key
	Sig   []byte `json:"sig"`
}

// Order is the part of an instruction that is signed.
type Order struct {
	Cluster  string         `json:"cluster"`
	Epoch    uint64         `json:"epoch"`
	Runner   fleet.RunnerID `json:"runner"`
	Job      fleet.JobID    `json:"job,omitempty"`
	Fence    fleet.Fence    `json:"fence"`
	ID       string         `json:"id"`
	Kind     string         `json:"kind"` // assign, stop, renew, update, provision
	Body     fleet.Digest   `json:"body"` // digest of the body's bytes
	NotAfter time.Time      `json:"not_after"`
	Critical []string       `json:"critical,omitempty"` // body fields a runner must know or refuse
}

// Offer is an update or a provision order with its body.
type Offer struct {
	Order Signed `json:"order"`
	Body  []byte `json:"body"` // exact bytes that the order's digest covers: JSON of an Update or a Provision
}

// Update is the body of an update order. The program is a blob; it is signed by the key
// of releases, which no hub has.
type Update struct {
	Version   string       `json:"version"`
	OS        string       `json:"os"`
	Arch      string       `json:"arch"`
	SHA256    fleet.Digest `json:"sha256"`
	Size      int64        `json:"size"`
	Signature string       `json:"signature"`           // minisign's, as its file has it
	Asked     string       `json:"asked,omitempty"`     // by which asking of a person; one release is tried once an asking
	Downgrade bool         `json:"downgrade,omitempty"` // it may be older than what runs
}

// The kinds of order that this version knows.
const (
	OrderUpdate    = "update"
	OrderProvision = "provision"
	OrderAssign    = "assign"
	OrderStop      = "stop"
	OrderRenew     = "renew"
)

// Stop is the body of a stop order.
type Stop struct {
	Reason string `json:"reason"`
}

// Renew is the body of a renew order: an attempt that was authorised in an earlier
// epoch of the cluster goes on in this one. Its fence stays its name.
type Renew struct {
	Epoch uint64 `json:"epoch"`
}

// Assignment is the body of an assign order: all that a runner needs to know.
type Assignment struct {
	Job        fleet.JobID  `json:"job"`
	Turn       int          `json:"turn"`
	Attempt    int          `json:"attempt"`
	Fence      fleet.Fence  `json:"fence"`
	Spec       fleet.Spec   `json:"spec"`
	Prompt     fleet.Digest `json:"prompt,omitempty"`
	PromptText string       `json:"prompt_text,omitempty"` // carried along when small, saving a fetch
	Model      string       `json:"model,omitempty"`       // of this turn
	Fresh      bool         `json:"fresh,omitempty"`
	Resume     *Resume      `json:"resume,omitempty"` // absent for a first turn
	Branch     string       `json:"branch,omitempty"`
	CreatedAt  time.Time    `json:"created_at"`
	Again      bool         `json:"again,omitempty"`   // the turn was begun by an earlier attempt on this runner: its worktree and session are gone on with
	Docker     bool         `json:"docker,omitempty"`  // Docker and Compose must answer before it begins, whatever the spec says
	Reserve    int64        `json:"reserve,omitempty"` // bytes of disk to keep for it
}

// Resume says what a follow-up or retried turn goes on from.
type Resume struct {
	SessionID  string       `json:"session_id,omitempty"`  // of the CLI
	BaseCommit string       `json:"base_commit,omitempty"` // the job's original base
	Bundle     fleet.Digest `json:"bundle,omitempty"`      // the last turn's commits, to rebuild a worktree that is gone
	Tip        string       `json:"tip,omitempty"`
	Usage      *fleet.Usage `json:"usage,omitempty"` // cumulative for the CLI session so far
}

// Report is a batch of what must reach the log. Each item keeps its number until
// it is acknowledged; repeating one is harmless.
type Report struct {
	Items []ReportItem `json:"items"`
}

// ReportItem is one durable statement of a runner about an attempt. It says exactly
// one thing; Origin is no thing of its own.
type ReportItem struct {
	Seq      uint64      `json:"seq"` // the outbox number, increasing for a journal
	Job      fleet.JobID `json:"job"`
	Fence    fleet.Fence `json:"fence"`
	Accepted *Accepted   `json:"accepted,omitempty"`
	Declined *Declined   `json:"declined,omitempty"`
	Facts    []Fact      `json:"facts,omitempty"`
	Finished *Finished   `json:"finished,omitempty"`
	Lost     *Lost       `json:"lost,omitempty"`
	Gone     bool        `json:"gone,omitempty"`   // no process of it is left, and there is no result
	Sealed   *Sealed     `json:"sealed,omitempty"` // all bytes were sent
	Evidence *Evidence   `json:"evidence,omitempty"`
	Pushed   *Pushed     `json:"pushed,omitempty"`
	Renewed  *Renewed    `json:"renewed,omitempty"`
	Origin   *Origin     `json:"origin,omitempty"` // beside Finished, where no set of the present epoch named the attempt
}

// Renewed says that a renew order is journaled: whatever the attempt does from now on
// it does in that epoch.
type Renewed struct {
	Epoch     uint64 `json:"epoch"`
	Permitted bool   `json:"permitted"` // the runner knows that its accept had been committed
}

// Origin is the order by which an attempt began, as the runner was given it: the hub
// may have lost all record of both.
type Origin struct {
	Order Signed `json:"order"`
	Body  []byte `json:"body"`
}

// Accepted asks for the permit to start.
type Accepted struct {
	Permissions fleet.Permissions `json:"permissions"` // in effect
	BaseCommit  string            `json:"base_commit,omitempty"`
	Notes       []string          `json:"notes,omitempty"`
}

// Declined gives an assignment back before it was accepted.
type Declined struct {
	Code       fleet.Code    `json:"code"`
	Detail     string        `json:"detail"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Block      bool          `json:"block,omitempty"` // no other runner can do better: the job is blocked (e.g. session gone)
}

// Fact is one small thing that happened: phase, session, usage, model.
type Fact struct {
	Seq   uint64          `json:"seq"`  // in the attempt, from 1
	Kind  string          `json:"kind"` // phase, session, usage, model, note, responded
	At    time.Time       `json:"at"`
	Value json.RawMessage `json:"value"`
}

// Finished is the end of an attempt. On the wire it is the exact bytes of its JSON
// beside the runner's Ed25519 signature over them, so that a hub of another
// version verifies what was signed: see SignFinished.
type Finished struct {
	Exit       fleet.Exit         `json:"exit"`
	Class      fleet.FailureClass `json:"class"`
	Detail     string             `json:"detail,omitempty"`
	ResetAt    *time.Time         `json:"reset_at,omitempty"`
	SessionID  string             `json:"session_id,omitempty"`
	Model      string             `json:"model,omitempty"`
	Usage      *fleet.Usage       `json:"usage,omitempty"`
	StartedAt  time.Time          `json:"started_at,omitzero"`
	FinishedAt time.Time          `json:"finished_at"`
	Output     int64              `json:"output"`         // bytes of the output stream, framing included
	Text       int64              `json:"text,omitempty"` // bytes that were printed and recorded, without framing
	Events     int64              `json:"events"`
	Dropped    int64              `json:"dropped,omitempty"`
	Evidence   *fleet.Evidence    `json:"evidence,omitempty"`       // bundle and patch named by digest; blobs follow or precede
	RetryAfter time.Duration      `json:"retry_after_ns,omitempty"` // that the provider stated as a wait
	StatedEnd  string             `json:"stated_end,omitempty"`     // the words in which an end of the limit was stated
	Acted      bool               `json:"acted,omitempty"`          // a tool of the agent ran
	Account    string             `json:"account,omitempty"`        // mark of the account that it was signed in with
	Footprint  int64              `json:"footprint,omitempty"`      // bytes that the job's worktree came to take, its growth included

	signed []byte // the exact bytes of the JSON above, as signed or as received
	sig    []byte
}

// Lost says that an accepted attempt has no process and no record of its end.
type Lost struct {
	Detail string `json:"detail"`
}

// Sealed gives the final length of a stream.
type Sealed struct {
	Output int64 `json:"output"`
	Events int64 `json:"events"`
}

// Evidence replaces an attempt's evidence after artifacts came late.
type Evidence struct {
	Evidence fleet.Evidence `json:"evidence"`
}

// Pushed tells the result of a permitted push.
type Pushed struct {
	Ref    string `json:"ref"`
	SHA    string `json:"sha"`
	Result string `json:"result"` // pushed, or why not
}

// ReportAck answers every item of one report. A code other than empty is final
// unless Retry: the item is settled and must not be sent again.
type ReportAck struct {
	Items []ItemAck `json:"items"`
}

// ItemAck is the hub's answer to one item.
type ItemAck struct {
	Seq    uint64     `json:"seq"`
	Code   fleet.Code `json:"code,omitempty"`
	Detail string     `json:"detail,omitempty"`
	Retry  bool       `json:"retry,omitempty"`
}

// Stream names one of an attempt's byte streams.
type Stream string

// The streams.
const (
	StreamOutput Stream = "output" // frames of stdout and stderr
	StreamEvents Stream = "events" // normalised events, JSON lines
)

// Output carries bytes of a stream; on the wire its body is the JSON header, a
// zero byte and the bytes.
type Output struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Stream Stream      `json:"stream"`
	Offset int64       `json:"offset"`
	Data   []byte      `json:"-"`
}

// OutputAck says how many bytes of the stream are durable, which is also the
// offset the hub wants next. With a final code no more must be sent.
type OutputAck struct {
	Job     fleet.JobID `json:"job"`
	Fence   fleet.Fence `json:"fence"`
	Stream  Stream      `json:"stream"`
	Durable int64       `json:"durable"`
	Code    fleet.Code  `json:"code,omitempty"`
	Detail  string      `json:"detail,omitempty"`
	Retry   bool        `json:"retry,omitempty"`
}

// Permit asks whether an attempt may push.
type Permit struct {
	ID     uint64      `json:"id"` // echoed in the reply
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Remote string      `json:"remote"`
	Ref    string      `json:"ref"`
	SHA    string      `json:"sha,omitempty"` // empty for a credential request of an agent that pushes itself
}

// PermitReply grants or refuses.
type PermitReply struct {
	ID      uint64     `json:"id"`
	Granted bool       `json:"granted"`
	Code    fleet.Code `json:"code,omitempty"`
	Detail  string     `json:"detail,omitempty"`
}

// Restarting announces a planned stop of the hub.
type Restarting struct {
	After      time.Duration `json:"after_ns"`
	For        time.Duration `json:"for_ns"`
	Successors []string      `json:"successors,omitempty"` // base URLs of the hubs to turn to meanwhile, the likeliest first
}

// Live carries partial events for people who watch; never stored, may be dropped.
type Live struct {
	Job    fleet.JobID   `json:"job"`
	Fence  fleet.Fence   `json:"fence"`
	Events []fleet.Event `json:"events"`
}

// Enrol is POST /v1/enrol: a ticket becomes a runner identity.
type Enrol struct {
	Secret    string            `json:"secret"`
	Name      string            `json:"name"`
	SignKey   []byte            `json:"sign_key"`
	BoxKey    []byte            `json:"box_key"`
	MachineID string            `json:"machine_id"`
	Labels    map[string]string `json:"labels,omitempty"`
	MeshKey   []byte            `json:"mesh_key,omitempty"` // X25519 public, of a runner that reaches hubs through their tunnel
}

// Enrolled is its answer. HMACKey is sealed to BoxKey.
type Enrolled struct {
	Runner     fleet.RunnerID    `json:"runner"`
	Name       string            `json:"name"`
	Cluster    string            `json:"cluster"`
	Epoch      uint64            `json:"epoch"`
	Generation uint64            `json:"generation"`
	HMACKey    []byte            `json:"hmac_key"`         // sealed box
	Master     uint64            `json:"master,omitempty"` // generation of the cluster's HMAC key that it comes from; absent: 1
	Signing    []SigningKey      `json:"signing"`
	Labels     map[string]string `json:"labels,omitempty"`
	ReleaseKey string            `json:"release_key,omitempty"` // minisign public key that programs of releases are signed by; absent: none is known yet
}
