// Package harness knows the agent CLIs: how to find one, how to start and resume
// it, how to stop it, what its stream means and how its failures are classified.
// A catalogue of four (exec, codex, claude, opencode) holds all of that in one
// table; nothing else in the runner knows one CLI from another.
//
// It guarantees that the events of a run are a pure function of the recorded
// frames, so that they can be derived again byte for byte after a crash; that no
// parser fails or grows beyond a fixed bound on any input; that a line which no
// parser understands is kept; and that a prompt is never part of an argv.
//
// It leaves to others to start, bound and sweep the processes of a run, to decide
// which permissions are in effect, and to store what it says.
package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Capabilities of a harness, as told to the hub.
const (
	CapResume      = "resume"      // can take up an earlier session
	CapModel       = "model"       // can be asked for a model
	CapPermissions = "permissions" // can be held to read, workspace or full
	CapPartial     = "partial"     // shows a message while it is being written
	CapServer      = "server"      // driven through its own server, which shows waits that its stream does not
	CapKeyGuard    = "key_guard"   // keeps API keys from the shell commands of the agent
)

// Harness is one entry of the catalogue.
type Harness struct {
	// Name is the word used on the command line and in job records.
	Name string
	// Title is the name people know.
	Title string
	// Capabilities lists what it can do, whatever the installed version.
	Capabilities []string

	program      string                                       // looked for in PATH; "" needs no program
	native       func(path string) string                     // the real executable behind a wrapper script
	version      func() *regexp.Regexp                        // its first group, in the answer to --version
	signedIn     func(p *probe, path string) (string, string) // "yes", "no" or "unknown", and how
	launch       func(Request) (Launch, error)                // Path, Prompt and Model are checked already
	decoder      func(ParseRequest) decoder                   // what its stream means; nil: nothing
	resumeID     func(string) bool                            // form of a session id; nil: sessions can't be resumed
	hasSession   func(env []string, dir, id string) string    // nil: never known
	account      func(env []string) string                    // mark, or marks by provider; nil: it has none
	sessionModel func(env []string, session string) string    // of the CLI's own record; nil where the stream tells it
}

// Request says what to start. The caller has decided everything in it.
type Request struct {
	Path          string            // the program, absolute, as Detect found it; not for exec
	Dir           string            // working directory, absolute: the worktree
	Prompt        string            // of an agent; at most fleet.MaxPrompt bytes
	Model         string            // "" leaves the choice to the CLI's own settings
	Permissions   fleet.Permissions // in effect
	ResumeID      string            // the session to take up, "" for a new one
	ScratchDir    string            // private directory of the attempt
	Argv          []string          // exec only
	Env           []string          // the whole environment that the process is going to get, without Launch.Env
	KeepEnv       []string          // names that the agent's own commands need although they look like keys
	Self          string            // path of the tugline binary
	AsRoot        bool              // the process runs as root
	ExtraWritable []string          // absolute directories beside Dir that the agent may write to
}

// Launch is how to start it.
type Launch struct {
	Argv       []string
	Env        []string // NAME=value, added to the environment or in the place of what it has
	Stdin      []byte   // written, then closed; nil is /dev/null
	StopSignal string   // INT or TERM: the gentle stop that this CLI cleans up on
	Notes      []string // for the job's record: what is done otherwise than one might expect
}

// ParseRequest says what is known of a run before its first line.
type ParseRequest struct {
	Model      string         // as asked for
	ResumeID   string         // the session that was to be taken up, "" for a new one
	PriorUsage fleet.Usage    // of all earlier runs of the session together
	Zone       *time.Location // of times that a CLI words without one; nil is this machine's
}

// ExitInfo is how the process ended, as the supervisor recorded it.
type ExitInfo struct {
	Code       int    // -N is a signal too, as some recorders write it
	Signal     string // e.g. KILL or SIGKILL; "" if none
	Reason     string // as in fleet.Exit: exited, stopped, timeout, idle_timeout, first_response_timeout, start_failed; or lost; "" is exited
	StderrTail string // where no frames of standard error were given
}

// exitLost is the reason of an end that nobody recorded.
const exitLost = "lost"

// Parser turns the recorded frames of one run into events. It is used from one
// goroutine. Its events depend on nothing but the frames, the ParseRequest and
// the ExitInfo, and not on how the bytes are spread over frames of the same time.
type Parser interface {
	// Frame takes the next frame. Events are for the record; live ones are partial
	// texts, worth showing at once and worth nothing afterwards.
	Frame(f fleet.Frame) (events, live []fleet.Event)
	// Status gives the reason for which the run is waiting on its provider, and since
	// when; "" while it is not.
	Status() (waiting string, since time.Time)
	// Session gives the CLI's session and the model it reports, each "" until the stream
	// has shown it.
	Session() (id, model string)
	// Responded says whether the provider has completed a response: a message, the call of
	// a tool, or its count of tokens. That it was reached is none.
	Responded() bool
	// End takes how the process ended and gives the last events and the outcome. The
	// parser is of no use afterwards.
	End(x ExitInfo) ([]fleet.Event, fleet.Outcome)
}

var catalogue = []*Harness{execHarness, codexHarness, claudeHarness, opencodeHarness}

// Names lists the harnesses of the catalogue in its order.
func Names() []string {
	names := make([]string, len(catalogue))
	for i, h := range catalogue {
		names[i] = h.Name
	}
	return names
}

// Lookup gives the harness of a name.
func Lookup(name string) (*Harness, bool) {
	i := slices.IndexFunc(catalogue, func(h *Harness) bool { return h.Name == name })
	if i < 0 {
		return nil, false
	}
	return catalogue[i], true
}

// Can says whether the harness has a capability.
func (h *Harness) Can(capability string) bool { return slices.Contains(h.Capabilities, capability) }

// Parser gives a parser for one run.
func (h *Harness) Parser(r ParseRequest) Parser {
	if h.decoder == nil {
		return &execParser{}
	}
	if r.Zone == nil {
		r.Zone = time.Local
	}
	return newStream(r, h.decoder(r))
}

var modelName = lazily(`^[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}$`)

// Launch says how to start the request. The error wraps fleet.BadRequest for what
// can't be asked of this harness, and fleet.HarnessMissing without a program.
func (h *Harness) Launch(r Request) (Launch, error) {
	l, err := h.checked(r)
	if err != nil {
		return Launch{}, fmt.Errorf("start %s: %w", h.Name, err)
	}
	return l, nil
}

func (h *Harness) checked(r Request) (Launch, error) {
	if !filepath.IsAbs(r.Dir) {
		return Launch{}, fmt.Errorf("working directory %q is not absolute: %w", r.Dir, fleet.BadRequest)
	}
	if h.program == "" {
		return h.launch(r)
	}
	for _, dir := range r.ExtraWritable {
		if !filepath.IsAbs(dir) {
			return Launch{}, fmt.Errorf("writable directory %q is not absolute: %w", dir, fleet.BadRequest)
		}
	}
	switch {
	case r.Path == "":
		return Launch{}, fmt.Errorf("no program: install %s or name its path in runner.yaml: %w", h.Title, fleet.HarnessMissing)
	case !filepath.IsAbs(r.Path):
		return Launch{}, fmt.Errorf("program %q is not an absolute path: %w", r.Path, fleet.BadRequest)
	case strings.TrimSpace(r.Prompt) == "":
		return Launch{}, fmt.Errorf("the prompt is empty: %w", fleet.BadRequest)
	case len(r.Prompt) > fleet.MaxPrompt:
		return Launch{}, fmt.Errorf("the prompt has %d bytes, %d are allowed: %w", len(r.Prompt), fleet.MaxPrompt, fleet.TooLarge)
	case r.Model != "" && !modelName().MatchString(r.Model):
		return Launch{}, fmt.Errorf("model %q is not a model name: %w", fleet.CutText(r.Model, 80), fleet.BadRequest)
	case r.Permissions.Rank() == 0:
		return Launch{}, fmt.Errorf("permissions %q: want read, workspace or full: %w", r.Permissions, fleet.BadRequest)
	case r.ResumeID != "" && !h.resumeID(r.ResumeID):
		return Launch{}, fmt.Errorf("session id %q has not the form of one; another word could silently begin a new session: %w",
			fleet.CutText(r.ResumeID, 80), fleet.BadRequest)
	}
	l, err := h.launch(r)
	if err != nil {
		return Launch{}, err
	}
	l.Stdin = []byte(r.Prompt)
	// Temporary files in a folder that does not exist make edits fail in ways that look like the agent's fault.
	if tmp, ok := envValue(r.Env, "TMPDIR"); ok && r.ScratchDir != "" {
		if st, err := os.Stat(tmp); err != nil || !st.IsDir() {
			l.Env = append(l.Env, "TMPDIR="+r.ScratchDir)
			l.Notes = append(l.Notes, "TMPDIR named a folder that does not exist; the job's scratch folder is used")
		}
	}
	return l, nil
}

var uuid = lazily(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

// envValue gives the last value of a variable, as a process would see it.
func envValue(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// defaults gives those of the settings that env does not have.
func defaults(env []string, settings ...string) []string {
	var out []string
	for _, s := range settings {
		name, _, _ := strings.Cut(s, "=")
		if _, ok := envValue(env, name); !ok {
			out = append(out, s)
		}
	}
	return out
}
