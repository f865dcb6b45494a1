package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// MarkVariable is in the environment of a job's every process; its value is Launch.Marker.
const MarkVariable = "TUGLINE_MARK"

// LaunchVersion is the version of the files in a job's directory. A supervisor refuses a launch of another one.
const LaunchVersion = 1

// The files in a job's directory, beside the segments of the spool. Their names and fields are a contract between
// releases: a runner drives supervisors that an older release started.
const (
	launchFile     = "launch.json"     // what to start; holds secrets, so it goes once the child has started
	supervisorFile = "supervisor.json" // who supervises; locked for as long as the supervisor lives
	startedFile    = "started.json"    // the child runs
	treeFile       = "tree.json"       // the job's processes as last seen, where no cgroup holds them
	stopFile       = "stop.json"       // the runner asks for the end
	exitFile       = "exit.json"       // how it ended: durable, and written last
	exitReserve    = "exit.tmp"        // the room for exit.json, taken while the disk still has some
)

const (
	defaultOutputCap    = 256 << 20
	defaultSegmentBytes = 16 << 20
	minSegmentBytes     = 128 << 10
	defaultStopGrace    = 10 * time.Second
)

// A Launch says what a supervisor starts and within which bounds.
type Launch struct {
	// Version is LaunchVersion; Spawn sets it.
	Version int `json:"version"`
	// Argv is the command; Argv[0] is looked up in the PATH of Env, or taken from Dir if it is a relative path.
	Argv []string `json:"-"`
	// Dir is the absolute working directory.
	Dir string `json:"-"`
	// Env is the whole environment, to which the marker is added.
	Env []string `json:"-"`
	// StdinFile is read as standard input; "" is /dev/null.
	StdinFile string `json:"-"`
	// Marker is unique to this launch: 8 to 128 letters, digits, '.', '_' and '-'.
	Marker string `json:"marker"`
	// OutputCap bounds the recorded output in bytes, 256 MiB if 0. Beyond it output is read, dropped and counted.
	OutputCap int64 `json:"output_cap,omitempty"`
	// SegmentBytes bounds one file of the spool, 16 MiB if 0, at least 128 KiB.
	SegmentBytes int64 `json:"segment_bytes,omitempty"`
	// MinFreeBytes is the free space of the spool's file system below which output is dropped and counted; 0 is off.
	MinFreeBytes int64 `json:"min_free_bytes,omitempty"`
	// Timeout bounds the whole run, Idle the time without an output byte, FirstResponse the time to the first one;
	// 0 is off. Idle counts from the first output byte if FirstResponse is set, else from the start. Time in
	// which the machine sleeps is not counted.
	Timeout       time.Duration `json:"timeout,omitempty"`
	Idle          time.Duration `json:"idle,omitempty"`
	FirstResponse time.Duration `json:"first_response,omitempty"`
	// StopSignal is the gentle signal, sent to the child alone: INT, TERM or HUP; TERM if "".
	StopSignal string `json:"stop_signal,omitempty"`
	// Grace lies between the gentle signal and the end of every process, 10 s if 0.
	Grace time.Duration `json:"grace,omitempty"`
	// Umask is the child's file mode mask; 0 leaves that of the runner.
	Umask int `json:"umask,omitempty"`
}

// withDefaults fills what was left out and checks the rest.
func (l Launch) withDefaults() (Launch, error) {
	if l.OutputCap == 0 {
		l.OutputCap = defaultOutputCap
	}
	if l.SegmentBytes == 0 {
		l.SegmentBytes = defaultSegmentBytes
	}
	if l.Grace == 0 {
		l.Grace = defaultStopGrace
	}
	_, signalErr := parseSignal(l.StopSignal)
	switch {
	case l.Version != LaunchVersion:
		return l, fmt.Errorf("launch version %d: this release starts version %d", l.Version, LaunchVersion)
	case len(l.Argv) == 0 || l.Argv[0] == "":
		return l, errors.New("launch: empty command")
	case !filepath.IsAbs(l.Dir):
		return l, fmt.Errorf("launch: working directory %q is not absolute", l.Dir)
	case l.StdinFile != "" && !filepath.IsAbs(l.StdinFile):
		return l, fmt.Errorf("launch: stdin file %q is not absolute", l.StdinFile)
	case !validMarker(l.Marker):
		return l, fmt.Errorf("launch: marker %q: want 8 to 128 letters, digits, '.', '_' or '-'", l.Marker)
	case l.OutputCap < 0 || l.MinFreeBytes < 0 || l.Timeout < 0 || l.Idle < 0 || l.FirstResponse < 0 || l.Grace < 0:
		return l, errors.New("launch: a negative bound")
	case l.SegmentBytes < minSegmentBytes:
		return l, fmt.Errorf("launch: segments of %d bytes: want at least %d", l.SegmentBytes, minSegmentBytes)
	case l.Umask < 0 || l.Umask > 0o777:
		return l, fmt.Errorf("launch: umask %#o", l.Umask)
	case signalErr != nil:
		return l, fmt.Errorf("launch: %w", signalErr)
	}
	return l, nil
}

func validMarker(m string) bool {
	if len(m) < 8 || len(m) > 128 || m[0] == '.' {
		return false
	}
	for _, c := range []byte(m) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// withMark gives an environment with the marker in it, once.
func withMark(env []string, marker string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, MarkVariable+"=") {
			out = append(out, kv)
		}
	}
	return append(out, MarkVariable+"="+marker)
}

// launchDoc is launch.json. What may hold bytes that are not UTF-8 rides as bytes, since JSON text would change them.
type launchDoc struct {
	Launch
	ArgvBytes  [][]byte `json:"argv"`
	DirBytes   []byte   `json:"dir"`
	EnvBytes   [][]byte `json:"env"`
	StdinBytes []byte   `json:"stdin_file,omitempty"`
	// Revoked says that nothing may be started from this file any more; only the marker is left in it.
	Revoked bool `json:"revoked,omitempty"`
}

func writeLaunch(dir string, l Launch) error {
	doc := launchDoc{Launch: l, DirBytes: []byte(l.Dir), StdinBytes: []byte(l.StdinFile)}
	for _, a := range l.Argv {
		doc.ArgvBytes = append(doc.ArgvBytes, []byte(a))
	}
	for _, kv := range l.Env {
		doc.EnvBytes = append(doc.EnvBytes, []byte(kv))
	}
	return writeDoc(dir, launchFile, doc)
}

func readLaunch(dir string) (launchDoc, error) {
	var doc launchDoc
	if err := readDoc(dir, launchFile, &doc); err != nil {
		return doc, err
	}
	doc.Dir, doc.StdinFile = string(doc.DirBytes), string(doc.StdinBytes)
	for _, a := range doc.ArgvBytes {
		doc.Argv = append(doc.Argv, string(a))
	}
	for _, kv := range doc.EnvBytes {
		doc.Env = append(doc.Env, string(kv))
	}
	return doc, nil
}

// Started is what supervisor.json and started.json say.
type Started struct {
	Version int `json:"version"`
	// Boot names the run of the kernel, and of the container, in which the identities mean something.
	Boot       string   `json:"boot"`
	Supervisor Identity `json:"supervisor"`
	// Child is the job's first process; zero in supervisor.json.
	Child     Identity  `json:"child"`
	Marker    string    `json:"marker"`
	Cgroup    string    `json:"cgroup,omitempty"`
	StartedAt time.Time `json:"started_at"`
}

// How a job ended.
const (
	ReasonExited        = "exited"                 // by itself; see Code and Signal
	ReasonTimeout       = "timeout"                // it ran for longer than Launch.Timeout
	ReasonIdle          = "idle_timeout"           // it was silent for Launch.Idle
	ReasonFirstResponse = "first_response_timeout" // no output byte came within Launch.FirstResponse
	ReasonStopped       = "stopped"                // Stop asked for it; Detail is the reason given there
	ReasonStartFailed   = "start_failed"           // it never ran; Detail says why
)

// Exit is exit.json: how a job ended. It is durable and is written after the output is, when every process is gone.
type Exit struct {
	// Code is the exit status; -1 if a signal ended the child, 127 or 126 if the program was not found or not executable.
	Code int `json:"code"`
	// Signal names the signal that ended the child; "" if none did.
	Signal     string    `json:"signal,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	// Reason is one of the Reason constants.
	Reason string `json:"reason"`
	// Bytes counts the output bytes recorded, DroppedBytes those that were not.
	Bytes        int64 `json:"bytes"`
	DroppedBytes int64 `json:"dropped_bytes"`
	// SpoolBytes is the length of the recorded stream, frame headers and marks included.
	SpoolBytes int64 `json:"spool_bytes"`
	// Swept counts the processes that the child left behind and that were ended.
	Swept int `json:"swept"`
	// Detail explains Reason, or names what went wrong beside it.
	Detail string `json:"detail,omitempty"`
}

// The exit codes of a shell for a program that could not be started.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

type stopDoc struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// writeDoc replaces a file by the JSON of v in one step. It is not durable: after a crash of the machine no
// process is left that the file could speak of.
func writeDoc(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	// The process id keeps a runner and a supervisor that write the same file apart.
	tmp := filepath.Join(dir, fmt.Sprintf("%s.%d", name, os.Getpid()))
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readDoc(dir, name string, v any) error {
	b, err := slurp(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// readExit gives nil if there is no whole exit.json.
func readExit(dir string) *Exit {
	var e Exit
	if readDoc(dir, exitFile, &e) != nil || e.Reason == "" {
		return nil
	}
	return &e
}

// readStarted gives a zero value if there is no whole file of that name.
func readStarted(dir, name string) Started {
	var s Started
	if readDoc(dir, name, &s) != nil {
		return Started{}
	}
	return s
}
