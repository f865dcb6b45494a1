package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Config says how to run a runner. What runner.yaml says too, holds from here where
// it is set.
type Config struct {
	Dir       string            // data directory, made if it is missing
	Name      string            // 1 to 64 letters, digits, dots, dashes and underscores; the host's name if ""
	Slots     int               // jobs at a time that people ask for; 0 leaves it to runner.yaml, NoSlots is none
	Labels    map[string]string // told to the hub
	Ticket    string            // enrols a directory without identity; not needed later
	Transport string            // ws, http or auto; "" leaves it to runner.yaml
	Self      string            // path of the tugline binary, which is the jobs' supervisor too; this program if ""
	Version   string            // of this program, told to the hub
	Versions  *update.Store     // where this program lies beside others of it; nil: it can't be updated
	ManagedBy string            // package manager that looks after this program; "": none
	UpdatedBy string            // its command that updates it
	// Keychain may keep what seals the runner's keys; nil is that there is none. InKeychain
	// says whether it does from now on; nil leaves it as it is.
	Keychain   Keychain
	InKeychain *bool
	Logger     *slog.Logger
	// Dial reaches a hub's address otherwise than over this machine's network; nil is net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MeshKey is the public key by which the hubs' tunnel lets this runner in, where Dial
	// goes through it; it is told when the runner enrols.
	MeshKey []byte
	// Enter reaches hubs with a ticket's secret, for enrolling, where Dial can't yet; nil
	// is Dial. The caller calls end.
	Enter func(secret string) (dial func(ctx context.Context, network, address string) (net.Conn, error), end func(), err error)
	// OnTunnels is told where the hubs' tunnels are, whenever that may have changed.
	OnTunnels func([]wire.HubAddress)
	// Notify tells a service manager READY=1, WATCHDOG=1 and STOPPING=1; nil tells nobody.
	// Watchdog is within which time it wants to hear of progress; 0: it does not.
	Notify   func(state string) error
	Watchdog time.Duration
	// slept says whether the machine slept between two readings of the clock; nil is slept.
	slept func(before, now time.Time) bool
	// DevMode allows repositories at paths of this machine, and ends the jobs with the runner.
	DevMode bool
}

// NoSlots as Config.Slots takes nothing that people ask for, whatever runner.yaml says.
const NoSlots = -1

func (c Config) withDefaults() (Config, error) {
	if c.slept == nil {
		c.slept = slept
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dir == "" {
		return c, errors.New("run a runner: no data directory; give --data-dir")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("run a runner: %w", err)
	}
	c.Dir = dir
	if c.Self == "" {
		if c.Self, err = os.Executable(); err == nil {
			c.Self, err = filepath.EvalSymlinks(c.Self) // jobs keep to this version when another becomes the present one
		}
		if err != nil {
			return c, fmt.Errorf("find this program: %w", err)
		}
	}
	// A running job keeps the program that it was started with, whatever a link leads to later.
	if real, err := filepath.EvalSymlinks(c.Self); err == nil {
		c.Self = real
	}
	if c.Name == "" {
		if host, err := os.Hostname(); err == nil {
			c.Name = plainName(host)
		}
	}
	if c.Name == "" || len(c.Name) > 64 || plainName(c.Name) != c.Name {
		return c, fmt.Errorf("runner name %q: want 1 to 64 letters, digits, dots, dashes and underscores: %w", c.Name, fleet.BadRequest)
	}
	if c.Slots != NoSlots && (c.Slots < 0 || c.Slots > fleet.MaxSlots) {
		return c, fmt.Errorf("%d slots: want 0 to %d: %w", c.Slots, fleet.MaxSlots, fleet.BadRequest)
	}
	if c.OnTunnels == nil {
		c.OnTunnels = func([]wire.HubAddress) {}
	}
	switch c.Transport {
	case "", "ws", "http", "auto":
	default:
		return c, fmt.Errorf("transport %q: want ws, http or auto: %w", c.Transport, fleet.BadRequest)
	}
	if c.Ticket != "" {
		if _, err := wire.ParseTicket(c.Ticket); err != nil {
			return c, err
		}
	}
	return c, nil
}

// plainName keeps what a runner's name may have.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return -1
	}, s)
}

// OwnerFile is where the owner's rules are, in a data directory.
func OwnerFile(dir string) string { return filepath.Join(dir, "runner.yaml") }

// CredentialCommand is the hidden subcommand that git runs in jobs: see GitCredential.
const CredentialCommand = attempt.CredentialCommand

// GitCredential is git's credential helper: `tugline git-credential VERB`.
var GitCredential = attempt.GitCredential

// StandDown says that the hub sent this runner away for good: it must not come back
// by itself. The process ends with ExitStandDown, which no supervisor restarts.
type StandDown struct {
	Code   fleet.Code
	Detail string
	Name   string // of the runner, as it was enrolled
}

// ExitStandDown is the exit code of a process that was sent away.
const ExitStandDown = 78

func (s *StandDown) Error() string {
	return fmt.Sprintf("the hub sent this runner away (%s): %s", s.Code, s.Detail)
}

// Text says for people what happened and what to do next, without codes.
func (s *StandDown) Text() string {
	detail := strings.TrimSuffix(s.Detail, ": "+string(s.Code))
	if s.Code == fleet.Superseded {
		return "another process connected to the hub with this runner's identity, so this one ended (" + detail +
			"). If the other one is the runner that you want, there is nothing to do; else stop it and start this one again. " +
			"A copy of the data directory can't be a second runner: give that one an empty directory and a new ticket"
	}
	if mend := s.ticketWanted(); mend != "" {
		return "the hub sent this runner away: " + detail + ". To have it back, make a ticket with `" + mend +
			"` on the hub and give it in TUGLINE_TICKET to `tugline runner run` on the same data directory"
	}
	return "the hub sent this runner away: " + detail + "; it does not come back by itself"
}

// ticketWanted gives the command for a ticket that mends it, if one does. A runner
// that was removed can't be named any more.
func (s *StandDown) ticketWanted() string {
	switch {
	case s.Code == fleet.RunnerUnknown, s.Code == fleet.RunnerRevoked && s.Name == "":
		return "tugline hub ticket"
	case s.Code == fleet.RunnerRevoked:
		return "tugline hub ticket --for " + s.Name
	}
	return ""
}

// Unwrap gives the code.
func (s *StandDown) Unwrap() error { return s.Code }
