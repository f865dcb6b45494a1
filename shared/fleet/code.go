package fleet

// Code is one of the closed set of refusals and failures that cross the wire,
// the REST interface and the command line. It implements error; code branches on
// it with errors.Is, never on text.
type Code string

// Error gives the code itself: the sentence around it is the caller's.
func (c Code) Error() string { return string(c) }

// Requests and identity.
const (
	BadRequest     Code = "bad_request"            // malformed or out of range; the detail says which field
	Unauthorised   Code = "unauthorised"           // no, unknown, revoked or expired token
	Forbidden      Code = "forbidden"              // known, but the role does not allow it
	NotFound       Code = "not_found"              // no such thing
	Conflict       Code = "conflict"               // the thing is in a state that does not allow it
	KeyReused      Code = "idempotency_key_reused" // same key, other payload
	TooLarge       Code = "too_large"              // over a documented limit
	QueueFull      Code = "queue_full"             // bound reached; try later
	KeysFull       Code = "idempotency_keys_full"
	TooOften       Code = "too_often"       // asked for more often than is allowed; try later
	Unavailable    Code = "unavailable"     // no leader, starting or stopping; try again
	OutcomeUnknown Code = "outcome_unknown" // may or may not have happened; repeat with the same key
	Internal       Code = "internal"
)

// Runners and sessions.
const (
	TicketInvalid     Code = "ticket_invalid" // unknown or malformed
	TicketExpired     Code = "ticket_expired"
	TicketUsed        Code = "ticket_used"      // consumed for another key
	RunnerUnknown     Code = "runner_unknown"   // removed or never enrolled
	RunnerRevoked     Code = "runner_revoked"   // its key generation is below the floor
	BadSignature      Code = "bad_signature"    // HMAC or order signature does not verify
	BadSequence       Code = "bad_sequence"     // not strictly increasing: replay or loss
	ClockSkew         Code = "clock_skew"       // clocks differ too much; names both
	ClusterMismatch   Code = "cluster_mismatch" // another cluster, or a lower epoch
	ClonedIdentity    Code = "cloned_identity"  // same identity from another machine or an older journal
	Superseded        Code = "superseded"       // a newer session or attempt took over
	ProtocolVersion   Code = "protocol_version" // no common version
	SigningKeyUnknown Code = "signing_key_unknown"
	SessionEnded      Code = "session_ended"
	Restarting        Code = "restarting"
)

// Attempts.
const (
	StaleFence       Code = "stale_fence" // another attempt holds the authority
	NotCurrent       Code = "not_current" // the attempt is not the job's current one
	CancelRequested  Code = "cancel_requested"
	AlreadyFinished  Code = "already_finished"
	OwnerPolicy      Code = "owner_policy" // the owner's rules forbid it
	Storage          Code = "storage"      // too little space
	HarnessMissing   Code = "harness_missing"
	HarnessSignedOut Code = "harness_signed_out"
	UnknownCritical  Code = "unknown_critical" // the order has a critical field this runner does not know
	Draining         Code = "draining"
	NoSlot           Code = "no_slot"
	SecretMissing    Code = "secret_missing"
	InputMissing     Code = "input_missing"
	RepoAuth         Code = "repo_auth"
	RepoUnreachable  Code = "repo_unreachable"
	RepoMissing      Code = "repo_missing"
	RefMissing       Code = "ref_missing"
	SessionGone      Code = "session_gone" // the CLI session to resume is no more
)

// Output and artifacts.
const (
	SpoolGap      Code = "spool_gap"      // bytes are missing before the given offset
	SpoolMismatch Code = "spool_mismatch" // a resend differs from what is stored
	LogSealed     Code = "log_sealed"
	DiskFull      Code = "disk_full"
	BlobDigest    Code = "blob_digest" // content does not have the promised digest
	BlobMissing   Code = "blob_missing"
)
