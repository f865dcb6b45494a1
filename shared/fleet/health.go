package fleet

import "time"

// Health is one sample of a runner's machine. What could not be had in time is left
// out or marked as not known; it is never filled in.
type Health struct {
	Age       time.Duration `json:"age_ns"`              // of the sample when it was sent, by the runner's monotonic clock
	Workspace Volume        `json:"workspace"`           // where jobs work
	Cache     Volume        `json:"cache"`               // where repositories are cached
	Reserved  int64         `json:"reserved,omitempty"`  // bytes of Workspace promised to jobs that have not used them yet
	Memory    *Memory       `json:"memory,omitempty"`    // nil: not known
	CPU       *CPU          `json:"cpu,omitempty"`       // nil: not known
	IO        *IO           `json:"io,omitempty"`        // nil: not known, as on macOS
	Power     *Power        `json:"power,omitempty"`     // nil: no battery, or not known
	Uptime    time.Duration `json:"uptime_ns,omitempty"` // of the machine; 0: not known
	Zone      string        `json:"zone,omitempty"`      // IANA name of its time zone, e.g. Europe/Berlin
	UserIdle  time.Duration `json:"user_idle_ns"`        // since its owner last touched it; below 0: not known
	Docker    Docker        `json:"docker"`
	Usage     []ClassUsage  `json:"usage,omitempty"` // what the runner and its agent CLIs take of the disk, the largest first, counted from time to time
}

// Volume is what a file system has left for an ordinary user.
type Volume struct {
	Path   string `json:"path,omitempty"`
	Known  bool   `json:"known"`
	Free   int64  `json:"free,omitempty"`   // bytes
	Total  int64  `json:"total,omitempty"`  // bytes
	Inodes int64  `json:"inodes,omitempty"` // free; below 0: the file system does not count them
	Nodes  int64  `json:"nodes,omitempty"`  // inodes in all
	Detail string `json:"detail,omitempty"` // why it is not known
}

// Memory of a machine in bytes.
type Memory struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available,omitempty"` // that could be had without swapping; 0: not known
}

// CPU of a machine.
type CPU struct {
	Count    int     `json:"count"`              // logical processors
	Load     float64 `json:"load"`               // of the last minute
	Used     float64 `json:"used"`               // share of all processors since the last sample, 0 to 1
	Pressure float64 `json:"pressure,omitempty"` // percent of the last 10 s in which something waited for a processor (Linux)
}

// IO is how busy the disks are (Linux).
type IO struct {
	Busy     float64 `json:"busy"`               // share of the time since the last sample in which the busiest disk worked, 0 to 1
	Pressure float64 `json:"pressure,omitempty"` // percent of the last 10 s in which something waited for a disk
	Memory   float64 `json:"memory,omitempty"`   // the same of memory
}

// Power of a machine with a battery.
type Power struct {
	OnBattery bool `json:"on_battery"`
	Percent   int  `json:"percent"` // charge; below 0: not known
}

// DockerState is what is known of a machine's Docker daemon.
type DockerState string

// The states. Only DockerReady takes a job that needs Docker.
const (
	DockerUnknown DockerState = "unknown" // no answer in time, or nobody asked
	DockerAbsent  DockerState = "absent"  // there is no socket
	DockerDown    DockerState = "down"    // there is a socket, and nothing answers
	DockerReady   DockerState = "ready"   // the daemon answered
)

// Docker is what a machine's Docker daemon and Compose answered.
type Docker struct {
	State       DockerState   `json:"state"`
	Version     string        `json:"version,omitempty"`     // of the server, as it last answered
	Compose     string        `json:"compose,omitempty"`     // version; empty: it does not answer
	ComposeBy   string        `json:"compose_by,omitempty"`  // the command that answered: "docker compose" or "docker-compose"
	VerifiedAge time.Duration `json:"verified_ns,omitempty"` // since both answered last; 0 with Compose: at the sample
	Verified    bool          `json:"verified,omitempty"`    // both have answered at all
	Detail      string        `json:"detail,omitempty"`      // why not
}

// Bounds of health.
const (
	HealthEvery    = 20 * time.Second // between samples while capacity is offered
	HealthRest     = time.Minute      // between samples otherwise
	HealthFresh    = time.Minute      // age of a sample up to which automation is admitted by it
	DockerFresh    = 10 * time.Minute // age of an answer of Docker and Compose up to which it counts
	UsageEvery     = time.Hour        // between two counts of what a runner takes of the disk
	PressureEvery  = 5 * time.Minute  // at least, between two reports of storage pressure
	AlertEvery     = 30 * time.Minute // at least, between two alerts about one fault of one machine
	IdleAlertAfter = 10 * time.Minute // with work and no capable runner online, before an alert
)

// Floors are bytes that must be free where a job works. Hub and owner may each set
// them; the higher counts.
type Floors struct {
	Select int64 `json:"select"` // for automation to be placed on a runner
	Start  int64 `json:"start"`  // at its checkout and when its harness starts
}

// The floors where nobody set others.
const (
	DefaultSelectFloor = 10 << 30
	DefaultStartFloor  = 20 << 30
)

// Pressure is what fills a disk, told when its floor is reached.
type Pressure struct {
	Volumes []Volume     `json:"volumes"`
	Floor   int64        `json:"floor"`             // bytes that should be free
	Usage   []ClassUsage `json:"usage,omitempty"`   // by class, the largest first
	Partial bool         `json:"partial,omitempty"` // not everything was counted: the count is bounded
}

// Fault is one thing that is wrong with a machine, as last recorded.
type Fault struct {
	Kind    FaultKind  `json:"kind"`
	Since   time.Time  `json:"since"`
	Detail  string     `json:"detail,omitempty"`
	Alerted *time.Time `json:"alerted,omitempty"` // when people were last told of it
	Over    *time.Time `json:"over,omitempty"`    // when it ended; the record stays, so that an alert is not repeated too soon
}

// FaultKind names a kind of fault.
type FaultKind string

// The kinds of fault. The first three are of the machine's health; FaultOffline is that
// nothing is heard of it.
const (
	FaultDisk    FaultKind = "disk"
	FaultMemory  FaultKind = "memory"
	FaultDocker  FaultKind = "docker"
	FaultOffline FaultKind = "offline"
)

// FaultKinds lists them.
var FaultKinds = []FaultKind{FaultDisk, FaultMemory, FaultDocker, FaultOffline}

// HealthRecord is what the cluster remembers of a machine's health: not its samples,
// only what class they were in and the last figures worth keeping.
type HealthRecord struct {
	At      time.Time     `json:"at"`
	Free    int64         `json:"free"`   // bytes of the workspace, at that time; below 0: not known
	Memory  int64         `json:"memory"` // available bytes; below 0: not known
	Docker  DockerState   `json:"docker"`
	HadOnce bool          `json:"had_docker,omitempty"` // Docker and Compose were verified at some time: that they are gone is a fault
	Faults  []Fault       `json:"faults,omitempty"`
	Changes []ClassChange `json:"changes,omitempty"` // the newest, oldest first, at most MaxClassChanges
}

// ClassChange says that a fault began or ended.
type ClassChange struct {
	Kind FaultKind `json:"kind"`
	On   bool      `json:"on"`
	At   time.Time `json:"at"`
	Text string    `json:"text,omitempty"`
}

// MaxClassChanges bounds what is remembered of a machine's class changes.
const MaxClassChanges = 50

// Fault gives the fault of a kind that has not ended.
func (h *HealthRecord) Fault(kind FaultKind) (Fault, bool) {
	if h != nil {
		for _, f := range h.Faults {
			if f.Kind == kind && f.Over == nil {
				return f, true
			}
		}
	}
	return Fault{}, false
}

// Alert tells people of a fault, or that it is over. It is recorded before anybody is
// told, so that no node tells it twice.
type Alert struct {
	ID        string     `json:"id"`
	At        time.Time  `json:"at"`
	Kind      string     `json:"kind"` // low_disk, low_memory, docker_lost, offline, recovered, unserved, storage_pressure
	Runner    RunnerID   `json:"runner,omitempty"`
	Name      string     `json:"name,omitempty"` // of the runner
	Text      string     `json:"text"`
	Delivered *time.Time `json:"delivered,omitempty"` // to the webhook, where there is one
	Failed    string     `json:"failed,omitempty"`    // why the webhook was given up
	Pressure  *Pressure  `json:"pressure,omitempty"`
}

// MaxAlerts bounds the alerts that are kept.
const MaxAlerts = 1000

// ClassUsage is how much of a disk one class of files takes.
type ClassUsage struct {
	Class string `json:"class"` // worktrees, build, caches, logs, harness, docker, other
	Bytes int64  `json:"bytes"`
	Files int64  `json:"files,omitempty"`
}
