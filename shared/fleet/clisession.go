package fleet

import "time"

// What an owner lets be told of the sessions of agent CLIs on a machine.
const (
	SessionsOff  = "off"  // nothing
	SessionsList = "list" // which there are
	SessionsFull = "full" // and what was said in one, when somebody asks for it
)

// Bounds of what is told of them.
const (
	MaxSessions      = 200 // the newest
	MaxSessionID     = 80  // bytes
	MaxSessionShown  = 50  // messages of one that are told at most
	SessionShown     = 20  // that are told when no number is asked for
	MaxSessionAnswer = 192 << 10
)

// CLISession is a session of an agent CLI as it lies on a runner's machine. Its texts
// are cut and masked.
type CLISession struct {
	ID      string    `json:"id"`
	Harness string    `json:"harness"`
	Dir     string    `json:"dir"` // in which the CLI works
	Title   string    `json:"title,omitempty"`
	Model   string    `json:"model,omitempty"` // that was last in use
	Started time.Time `json:"started,omitzero"`
	Used    time.Time `json:"used,omitzero"` // last
}

// CLISessions are those of a machine, the last used first.
type CLISessions struct {
	Sessions []CLISession `json:"sessions"`
	More     bool         `json:"more,omitempty"` // there are older ones
	Notes    []string     `json:"notes,omitempty"`
}

// CLIMessage is one message of a session.
type CLIMessage struct {
	Role string    `json:"role"` // user, assistant, tool
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`
}

// CLITranscript is a session with its last messages, oldest first.
type CLITranscript struct {
	CLISession
	Messages []CLIMessage `json:"messages"`
	Earlier  bool         `json:"earlier,omitempty"` // there are messages before these
}

// SessionRef names a session of an agent CLI on the machine that a job is pinned to.
type SessionRef struct {
	ID string `json:"id"`
}
