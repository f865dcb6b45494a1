package fleet

import "time"

// Runner is what the cluster remembers of an enrolled runner. Whether it is
// connected is presence, which is not remembered.
type Runner struct {
	ID           RunnerID          `json:"id"`
	Name         string            `json:"name"`
	Labels       map[string]string `json:"labels,omitempty"`
	SignKey      []byte            `json:"sign_key"`           // Ed25519 public: results are signed by it
	BoxKey       []byte            `json:"box_key"`            // X25519 public: secrets are sealed to it
	MeshKey      []byte            `json:"mesh_key,omitempty"` // X25519 public: the hubs' tunnel lets it in by it
	Generation   uint64            `json:"generation"`         // of its HMAC key
	Floor        uint64            `json:"floor"`              // generations below are refused
	Master       uint64            `json:"master,omitempty"`   // generation of the cluster's HMAC key that its key was last seen to come from; 0: the first
	EnrolledAt   time.Time         `json:"enrolled_at"`
	Removed      bool              `json:"removed,omitempty"`
	Cordoned     bool              `json:"cordoned,omitempty"`
	Conflict     string            `json:"conflict,omitempty"` // why both holders of this identity are refused
	MachineID    string            `json:"machine_id,omitempty"`
	JournalID    string            `json:"journal_id,omitempty"`
	JournalCount uint64            `json:"journal_count,omitempty"`
	Facts        RunnerFacts       `json:"facts"`
	FactsRev     uint64            `json:"facts_rev"`              // index of the last change of facts
	SilentSince  *time.Time        `json:"silent_since,omitempty"` // a leader found it silent with work on it, and none has heard it since
	Automation   *int              `json:"automation,omitempty"`   // slots for automation, as set on the hub; nil: DefaultAutomation
	Hold         *Hold             `json:"hold,omitempty"`
	Health       *HealthRecord     `json:"health,omitempty"`
	Ring         Ring              `json:"ring,omitempty"` // of updates; empty: all
	Wanted       *Wanted           `json:"wanted,omitempty"`
}

// InRing gives the ring of updates that the runner is in.
func (r *Runner) InRing() Ring {
	if r.Ring == "" {
		return RingAll
	}
	return r.Ring
}

// RunnerFacts is what a runner says of itself in hello and whenever it changes.
type RunnerFacts struct {
	Version     string        `json:"version"`
	OS          string        `json:"os"`
	Arch        string        `json:"arch"`
	Slots       int           `json:"slots"`
	Permissions Permissions   `json:"permissions"` // the owner's ceiling
	Harnesses   []HarnessInfo `json:"harnesses"`
	Barred      []string      `json:"barred,omitempty"`  // harnesses that are there, and that the owner does not allow
	Secrets     []string      `json:"secrets,omitempty"` // names the owner's store has
	Repos       []string      `json:"repos,omitempty"`   // the owner's allowlist of URL patterns; empty allows all
	Origins     []string      `json:"origins,omitempty"` // manual, automation; empty allows both
	AllowFile   bool          `json:"allow_file,omitempty"`
	Paused      string        `json:"paused,omitempty"` // the owner's reason to take nothing now
	Alerts      []string      `json:"alerts,omitempty"` // e.g. runner.yaml invalid: last good in force
	Update      *RunnerUpdate `json:"update,omitempty"` // of a runner whose program can be updated, or says why not
}

// HarnessInfo is one agent CLI as found on a runner.
type HarnessInfo struct {
	Name         string   `json:"name"`
	Path         string   `json:"path,omitempty"`
	Version      string   `json:"version,omitempty"`
	SignedIn     string   `json:"signed_in"` // yes, no, unknown
	Capabilities []string `json:"capabilities,omitempty"`
	Detail       string   `json:"detail,omitempty"`
	Account      string   `json:"account,omitempty"` // a mark of the account that it is signed in with; not the account itself
	Models       []string `json:"models,omitempty"`  // that its owner allows; empty allows all
}

// Harness gives the entry of the given name.
func (f RunnerFacts) Harness(name string) (HarnessInfo, bool) {
	for _, h := range f.Harnesses {
		if h.Name == name {
			return h, true
		}
	}
	return HarnessInfo{}, false
}

// Presence is what the leader sees of a runner's connection. It lives in memory.
type Presence struct {
	Runner     RunnerID      `json:"runner"`
	Connected  bool          `json:"connected"`
	Session    string        `json:"session,omitempty"`
	Transport  string        `json:"transport,omitempty"` // ws | http
	LastBeat   time.Time     `json:"last_beat,omitzero"`  // hub time of the last heartbeat
	Interval   time.Duration `json:"interval_ns,omitempty"`
	Slots      int           `json:"slots"`               // offered now; the owner may offer fewer than configured
	Full       bool          `json:"full"`                // the session's first, full heartbeat was seen
	Declining  string        `json:"declining,omitempty"` // why it takes nothing now
	Address    string        `json:"address,omitempty"`
	Awaited    bool          `json:"awaited,omitempty"`    // the leader before had it connected, and this one expects it
	Automation *int          `json:"automation,omitempty"` // the most automation slots that the owner's rules offer now; nil: no bound of theirs
	LimitedBy  string        `json:"limited_by,omitempty"` // why fewer slots are offered than configured; several with "; " between
	Health     *Health       `json:"health,omitempty"`     // the last sample
	HealthAt   time.Time     `json:"health_at,omitzero"`   // hub time of its receipt
	Sessions   string        `json:"sessions,omitempty"`   // what its owner lets be told of sessions of agent CLIs; empty: its version tells none
	Caches     string        `json:"caches,omitempty"`     // repositories with a cache there, with spaces between: see CacheOf
	Strays     string        `json:"strays,omitempty"`     // ids of jobs, with spaces between: on record, and run here by an attempt that is not
}

// Role is what a token may do; each includes the ones before it.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// Rank orders roles, least first; an unknown role ranks below all.
func (r Role) Rank() int {
	switch r {
	case RoleViewer:
		return 1
	case RoleOperator:
		return 2
	case RoleAdmin:
		return 3
	}
	return 0
}

// Token is an operator's credential. The secret is not here, only its hash.
type Token struct {
	ID        TokenID    `json:"id"`
	Name      string     `json:"name,omitempty"`
	Role      Role       `json:"role"`
	Hash      Digest     `json:"hash"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Revoked   bool       `json:"revoked,omitempty"`
}

// Ticket lets runners enrol, or a hub node join. The secret is not here, only its
// hash.
type Ticket struct {
	Hash      Digest              `json:"hash"`
	CreatedAt time.Time           `json:"created_at"`
	CreatedBy string              `json:"created_by"`
	ExpiresAt time.Time           `json:"expires_at"`
	Uses      int                 `json:"uses"` // that remain
	Labels    map[string]string   `json:"labels,omitempty"`
	For       RunnerID            `json:"for,omitempty"`      // re-enrols this runner
	Consumed  map[string]RunnerID `json:"consumed,omitempty"` // by hex of the sign key: the same key may repeat
	Role      string              `json:"role,omitempty"`     // TicketHub for a hub node; empty: a runner
	Guest     []byte              `json:"guest,omitempty"`    // X25519 public: with this key a joining hub node may knock, or a runner that comes by the mesh
	Replace   string              `json:"replace,omitempty"`  // the hub node that goes when another one comes by this ticket
	Admitted  map[string]string   `json:"admitted,omitempty"` // hub node ids by hex of the mesh key: the same key may repeat
}
