package fleet

import (
	"strings"
	"time"
)

// Circuit keeps work away from what has failed for a reason that is not the work's:
// an account's limit, a model that is not to be had, a machine in trouble. Circuits of
// different classes over the same thing are different circuits, each with its own end.
type Circuit struct {
	ID       string       `json:"id"` // see CircuitID
	Scope    Scope        `json:"scope"`
	Class    CircuitClass `json:"class"`
	Runner   RunnerID     `json:"runner,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Account  string       `json:"account,omitempty"` // as the runner's harness is signed in, where known
	Model    string       `json:"model,omitempty"`

	State      CircuitState  `json:"state"`
	OpenedAt   time.Time     `json:"opened_at,omitzero"`
	Until      *time.Time    `json:"until,omitempty"`      // when a probe may go; nil while blocked
	Step       int           `json:"step"`                 // of its ladder, from 1; 0: it never opened
	Failures   int           `json:"failures,omitempty"`   // in a row, while that is too few to open
	Runners    []RunnerID    `json:"runners,omitempty"`    // that were refused the model; two of them refuse it for all
	Probe      *CircuitProbe `json:"probe,omitempty"`      // the one job that tries whether it works again
	Successes  int           `json:"successes,omitempty"`  // of probes since it was half open
	SuccessAt  *time.Time    `json:"success_at,omitempty"` // of the last that counted
	Fence      Fence         `json:"fence,omitzero"`       // of the attempt whose end opened it last; a person's has none
	Since      Fence         `json:"since,omitzero"`       // attempts assigned before this say nothing new about it
	Text       string        `json:"text,omitempty"`       // what the provider, or the person, said
	StatedEnd  string        `json:"stated_end,omitempty"` // an end that was said and not believed
	Automation bool          `json:"automation,omitempty"` // only automation is kept away: its floors are higher
	FactsRev   uint64        `json:"facts_rev,omitempty"`  // of the runner when its credentials were refused
	Generation uint64        `json:"recovery_generation"`  // grows with every repair that a person names
	Repaired   string        `json:"repaired,omitempty"`   // what the last reset said was repaired
	Actor      string        `json:"actor,omitempty"`      // who opened or reset it last, if a person did
	ChangedAt  time.Time     `json:"changed_at"`
}

// Scope is what a circuit is over.
type Scope string

// The scopes.
const (
	ScopeProvider Scope = "provider" // one provider (and account) on one runner
	ScopeModel    Scope = "model"    // one model of a provider, on the runners that were refused it or on all
	ScopeHost     Scope = "host"     // one runner's machine
)

// CircuitClass is why a circuit opens. It fixes the ladder.
type CircuitClass string

// The classes.
const (
	CircuitBurst    CircuitClass = "burst"    // a rate limit: only the next start waits
	CircuitQuota    CircuitClass = "quota"    // a window is used up
	CircuitAuth     CircuitClass = "auth"     // credentials were refused
	CircuitModel    CircuitClass = "model"    // the model is not to be had
	CircuitStartup  CircuitClass = "startup"  // the agent's start was refused
	CircuitOutage   CircuitClass = "outage"   // no connection, or 5xx, several times in a row
	CircuitLost     CircuitClass = "lost"     // the runner was lost with work on it
	CircuitDisk     CircuitClass = "disk"     // of the host
	CircuitMemory   CircuitClass = "memory"   // of the host
	CircuitDocker   CircuitClass = "docker"   // of the host, for jobs that need Docker
	CircuitOperator CircuitClass = "operator" // a person opened it
)

// CircuitState is what a circuit does.
type CircuitState string

// The states. An open one whose time has passed is half open: that is a matter of the
// clock, so that nothing has to be recorded for it.
const (
	CircuitClosed  CircuitState = "closed"
	CircuitOpen    CircuitState = "open"
	CircuitHalf    CircuitState = "half_open" // a probe has succeeded, and more have to
	CircuitBlocked CircuitState = "blocked"   // until a person resets it, or what it waits for changes
)

// CircuitProbe is the lease of the one job that tries a half-open circuit.
type CircuitProbe struct {
	Job   JobID     `json:"job"`
	Fence Fence     `json:"fence"`
	At    time.Time `json:"at"`
}

// Rules of circuits.
const (
	BurstLeast        = time.Minute        // a rate limit delays by what was said, and at least so long
	QuotaUnstated     = 4 * time.Hour      // where no end of a window can be read
	QuotaFarthest     = 7 * 24 * time.Hour // an end farther ahead is not believed
	OutageFailures    = 3                  // in a row
	ProbeLease        = 2 * time.Minute    // without a sign of life of the probe's attempt
	ProbesToClose     = 3                  // successes
	ProbeSpacing      = 30 * time.Second   // between two successes that count
	HostFaultPause    = 10 * time.Minute
	ModelRefusedByAll = 2 // runners that were refused a model, from which on nobody asks for it
)

// CircuitID names a circuit: scope, runner or "*", provider, account, model and class,
// with slashes between, empty parts left as "-". A part's own slashes become "%2f".
func CircuitID(scope Scope, class CircuitClass, r RunnerID, provider, account, model string) string {
	parts := []string{string(scope), string(r), provider, account, model, string(class)}
	for i, p := range parts {
		if p == "" {
			p = "-"
		}
		parts[i] = strings.NewReplacer("%", "%25", "/", "%2f").Replace(p)
	}
	return strings.Join(parts, "/")
}
