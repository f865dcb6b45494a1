package session

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Proposer is how the server reads and changes the replicated state.
type Proposer interface {
	// Propose commits a command and gives what became of it. An error means that
	// the outcome is unknown or that there is no leader; it is never a refusal,
	// which is a Result with a code.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// View gives the state as of now.
	View() state.View
}

// Standing is where this node is in the log.
type Standing struct {
	Epoch, Term, Index uint64
}

// Config is what a server is made of.
type Config struct {
	Proposer Proposer     // required
	Spool    Spool        // required
	Blobs    Blobs        // required
	Keys     func() *Keys // required: those in use now; see KeysChanged

	Standing func() Standing // required
	Leading  func() bool     // required; true only once this term's barrier has passed
	Seen     func() uint64   // the greatest epoch that this node has seen; default: none
	Leader   func() string   // base URL of the leading hub, empty if unknown; default: unknown
	Hubs     func() []string // base URLs of all hubs; default: none

	// Tunnels are where runners with a mesh key reach the hubs. Default: nowhere.
	Tunnels func() []wire.HubAddress

	URL string // base URL of this hub, to see whether Leader names the same one
	// Forward has the leader answer a request. An error says that nothing was answered
	// yet: it wraps fleet.OutcomeUnknown where the request may have been done. nil: a
	// follower hands nothing on.
	Forward func(w http.ResponseWriter, r *http.Request) error
	// Forwarded says that another node handed the request on. Default: never.
	Forwarded func(r *http.Request) bool

	// Judge gives the verdict on a job whose end alone decides it, or nil. It
	// rides in the command that records the end. Default: nil always.
	Judge func(j *fleet.Job, t *fleet.Turn, f *wire.Finished) *fleet.Verdict

	// Update gives the release that a runner is to have, or nil. Default: nil always.
	Update func(v state.View, r *fleet.Runner) *wire.Update

	OnBeat func(fleet.RunnerID)             // a heartbeat changed what its runner offers
	OnFree func()                           // a slot may have become free
	OnLive func(fleet.JobID, []fleet.Event) // partial events for those who watch now

	// OnHealth and OnPressure are told what heartbeats say of their machines, one call
	// after another, while Run runs. A sample comes with the time of its receipt, by
	// this machine's monotonic clock. Where they are slow some are left out.
	OnHealth   func(r fleet.RunnerID, sample *fleet.Health, received time.Time)
	OnPressure func(fleet.RunnerID, *fleet.Pressure)

	// Errands gives what a runner is to be asked for with the next reply, and OnErrand
	// takes its answers. Both are called for heartbeats, and must not wait.
	Errands  func(fleet.RunnerID) []wire.Errand
	OnErrand func(fleet.RunnerID, wire.ErrandDone)

	// Provision gives the installation that a runner is to make, or nil, and OnProvision
	// what is to be recorded of how one goes there, or nil. Neither may wait.
	Provision   func(state.View, *fleet.Runner) *wire.Provision
	OnProvision func(state.View, fleet.RunnerID, wire.ProvisionView) state.Command

	ActiveInterval time.Duration // between heartbeats while an attempt is open; default 5 s
	IdleInterval   time.Duration // otherwise; default 10 s, at most 30 s
	OrderLife      time.Duration // how long an order may be obeyed; default 10 min

	// Now gives what time it is for runners, whatever this machine's clock says.
	// Default: time.Now.
	Now func() time.Time

	Rand   io.Reader    // default crypto/rand
	Logger *slog.Logger // default: discard
}

const (
	maxHandshakes = 1024            // at once; more are told to come back
	keepEnded     = 2 * time.Minute // an ended HTTP session answers with its goodbye
	writeTime     = 10 * time.Second
	byeTime       = 2 * time.Second // for what still waits to be written when a session ends
	proposeTime   = 15 * time.Second
	promptTime    = 2 * time.Second // for a prompt that is not on this node
	maxSkew       = 5 * time.Minute // between the clocks before it is told
	maxInterval   = 30 * time.Second
	maxViews      = 512       // attempts that a heartbeat may list
	maxFollow     = 64 << 10  // bytes of a runner's name, labels and facts as JSON
	maxPromptText = 16 << 10  // bytes of a prompt that rides in its order
	maxReply      = 768 << 10 // bytes of orders in one reply; the next beat brings the rest
)

func (c *Config) validate() error {
	switch {
	case c.Proposer == nil:
		return fmt.Errorf("no proposer: %w", fleet.BadRequest)
	case c.Spool == nil || c.Blobs == nil:
		return fmt.Errorf("no spool or blob store: %w", fleet.BadRequest)
	case c.Standing == nil || c.Leading == nil:
		return fmt.Errorf("no standing or leading function: %w", fleet.BadRequest)
	case c.Keys == nil:
		return fmt.Errorf("no keys: %w", fleet.BadRequest)
	case c.IdleInterval > maxInterval || c.ActiveInterval > maxInterval:
		return fmt.Errorf("a heartbeat interval is over %s: %w", maxInterval, fleet.BadRequest)
	}
	if err := c.Keys().check(); err != nil {
		return err
	}
	if c.Seen == nil {
		c.Seen = func() uint64 { return 0 }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Leader == nil {
		c.Leader = func() string { return "" }
	}
	if c.Forwarded == nil {
		c.Forwarded = func(*http.Request) bool { return false }
	}
	if c.Hubs == nil {
		c.Hubs = func() []string { return nil }
	}
	if c.Judge == nil {
		c.Judge = func(*fleet.Job, *fleet.Turn, *wire.Finished) *fleet.Verdict { return nil }
	}
	if c.Update == nil {
		c.Update = func(state.View, *fleet.Runner) *wire.Update { return nil }
	}
	if c.OnBeat == nil {
		c.OnBeat = func(fleet.RunnerID) {}
	}
	if c.OnFree == nil {
		c.OnFree = func() {}
	}
	if c.OnLive == nil {
		c.OnLive = func(fleet.JobID, []fleet.Event) {}
	}
	if c.OnHealth == nil {
		c.OnHealth = func(fleet.RunnerID, *fleet.Health, time.Time) {}
	}
	if c.OnPressure == nil {
		c.OnPressure = func(fleet.RunnerID, *fleet.Pressure) {}
	}
	if c.Errands == nil {
		c.Errands = func(fleet.RunnerID) []wire.Errand { return nil }
	}
	if c.Provision == nil {
		c.Provision = func(state.View, *fleet.Runner) *wire.Provision { return nil }
	}
	if c.OnProvision == nil {
		c.OnProvision = func(state.View, fleet.RunnerID, wire.ProvisionView) state.Command { return nil }
	}
	if c.OnErrand == nil {
		c.OnErrand = func(fleet.RunnerID, wire.ErrandDone) {}
	}
	if c.ActiveInterval <= 0 {
		c.ActiveInterval = 5 * time.Second
	}
	if c.IdleInterval <= 0 {
		c.IdleInterval = 10 * time.Second
	}
	if c.OrderLife <= 0 {
		c.OrderLife = 10 * time.Minute
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
