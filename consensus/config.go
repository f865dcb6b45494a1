package consensus

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// MaxEntry is the largest command that Propose takes, and the largest pack of
	// several, in bytes.
	MaxEntry = 256 << 10

	// maxBatch is raft's own upper bound for entries in one append.
	maxBatch = 1024

	// quickest and slowest bound Config.Heartbeat.
	quickest = 50 * time.Millisecond
	slowest  = 10 * time.Second
)

// FSM is the replicated state machine. Apply, Snapshot and Restore are never
// called at the same time; the write function that Snapshot returns runs
// beside later Applies.
type FSM interface {
	// Apply takes one committed command. number grows from call to call and is
	// the same on every node: the index of the command's entry, or more where
	// entries had several. result goes to the Propose that made the command,
	// if that was on this node; a refusal is a result. An error means that the
	// command can't be decoded or applied: it stops the node, and Apply is not
	// called again. command must not be changed, and not be kept.
	Apply(number uint64, command []byte) (result any, err error)
	// Snapshot returns a function that writes the state as of now. Snapshot
	// itself must be cheap, applying waits for it; the function may take its
	// time and is called at most once.
	Snapshot() (write func(io.Writer) error, err error)
	// Restore replaces the whole state by what a snapshot's function wrote. An
	// error stops the node.
	Restore(io.Reader) error
}

// Batcher is what a state machine may be beside, if applying many entries together
// costs it less. Begin is called before the first Apply of a batch and End after the
// last, by the same goroutine; the results of a batch are given out after End.
type Batcher interface {
	Begin()
	End()
}

// Transport carries connections between nodes. The listener side accepts them;
// Dial connects to the node of that id. Close ends Accept.
type Transport interface {
	net.Listener
	Dial(id string, timeout time.Duration) (net.Conn, error)
}

// Config says how to open a node.
type Config struct {
	Dir       string // directory of the node, made with mode 0700 where missing
	NodeID    string // identity of the node, the same for as long as Dir lives
	Bootstrap bool   // create the node if Dir holds none, as the first of a group
	FSM       FSM

	// Join creates the node if Dir holds none, as one that waits until a group
	// adds it. It casts no vote before the group has given it one.
	Join bool
	// Voters are the ids of the nodes that Bootstrap gives a vote, the same on
	// every node of a new group. Default: this node alone.
	Voters []string
	// Transport connects the node to others. Default: none, a group of one.
	Transport Transport
	// Logger gets raft's messages at a level lower than raft's own, and errors
	// as errors. Default: none.
	Logger *slog.Logger

	// SnapshotEvery is the number of entries after which a snapshot is taken
	// and the log is cut. Default 16,384; at least 16.
	SnapshotEvery uint64
	// SnapshotKeep is the number of snapshots on disk, 1 to 16. Default 2. The
	// log is kept back to the oldest of them, so that a damaged one can be
	// done without.
	SnapshotKeep int
	// MaxBatch bounds the proposals that raft holds at a time, and with them
	// the entries of one append to disk, 1 to 1,024. Further ones wait until
	// their context ends. Default 512.
	MaxBatch int
	// Heartbeat is how long the others may hear nothing of a leader before they
	// elect another, 50 ms to 10 s. Default 600 ms.
	Heartbeat time.Duration
	// Stall says when this node's disk is too slow for a leader's.
	Stall Stall
	// MakeRoom is called where the log or a vote cannot be written for the disk is full,
	// and says whether there is more room now: then it is tried once more before the node
	// stops. Default: there is no way.
	MakeRoom func() bool
	// Packs says whether several commands may go into one entry now: every node of
	// the group can read such a one. Default: always.
	Packs func() bool
	// Memory takes the place of Dir and of the disk in simulations.
	Memory *Memory
}

// Stall says when a leader gives its leadership away because its log's disk is too
// slow: the 99th percentile of its appends has been over P99 for all of For.
type Stall struct {
	P99 time.Duration // default 2 s
	For time.Duration // default 10 s; at least 100 ms
}

// Validate says what is wrong with the config, after defaults.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&c.SnapshotEvery, 16384)
	setDefault(&c.SnapshotKeep, 2)
	setDefault(&c.MaxBatch, 512)
	setDefault(&c.Heartbeat, 600*time.Millisecond)
	setDefault(&c.Stall.P99, 2*time.Second)
	setDefault(&c.Stall.For, 10*time.Second)
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Dir == "" && c.Memory == nil, "dir is empty")
	wrong(c.Dir != "" && c.Memory != nil, "dir %s and memory: a node lives in one of them", c.Dir)
	wrong(c.NodeID == "", "node id is empty")
	wrong(c.FSM == nil, "state machine is missing")
	wrong(c.SnapshotEvery < 16, "snapshot every %d entries: at least 16", c.SnapshotEvery)
	wrong(c.SnapshotKeep < 1 || c.SnapshotKeep > 16, "keep %d snapshots: 1 to 16", c.SnapshotKeep)
	wrong(c.MaxBatch < 1 || c.MaxBatch > maxBatch, "batch of %d entries: 1 to %d", c.MaxBatch, maxBatch)
	wrong(c.Heartbeat < quickest || c.Heartbeat > slowest, "heartbeat of %v: %v to %v", c.Heartbeat, quickest, slowest)
	wrong(c.Stall.P99 < 0 || c.Stall.For < 100*time.Millisecond, "stall of %v for %v: at least 0 for 100ms", c.Stall.P99, c.Stall.For)
	wrong(c.Join && c.Bootstrap, "bootstrap and join: a node begins a group or joins one")
	wrong(c.Join && c.Transport == nil, "join without a transport")
	wrong(c.Transport == nil && len(c.Voters) > 1, "%d voters without a transport", len(c.Voters))
	wrong(slices.Contains(c.Voters, ""), "a voter's id is empty")
	wrong(len(c.Voters) > 0 && !slices.Contains(c.Voters, c.NodeID), "node %q is not among the voters", c.NodeID)
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("consensus config: %w", err)
	}
	return c, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// raftConfig is raft's own tuning; DESIGN.md gives the reasons and figures.
func (n *Node) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(n.cfg.NodeID)
	rc.Logger = raftLogger(n.log)
	rc.NotifyCh = n.notify
	rc.NoLegacyTelemetry = true
	rc.MaxAppendEntries = n.cfg.MaxBatch
	rc.BatchApplyCh = true
	rc.ShutdownOnRemove = false // a node that was removed goes on as one that only listens
	rc.SnapshotThreshold = n.cfg.SnapshotEvery
	rc.SnapshotInterval = 5 * time.Second
	rc.TrailingLogs = min(10240, n.cfg.SnapshotEvery)
	rc.HeartbeatTimeout = n.cfg.Heartbeat
	rc.ElectionTimeout = n.cfg.Heartbeat
	// A shortened heartbeat timeout must not fall below the lease.
	rc.LeaderLeaseTimeout = n.cfg.Heartbeat - pokeStep
	if n.cfg.Transport == nil {
		// Nobody to hear from, nobody to catch up: an idle node wakes once a
		// second and keeps no log for followers.
		rc.LeaderLeaseTimeout = time.Second
		rc.HeartbeatTimeout = 2 * time.Second
		rc.ElectionTimeout = 2 * time.Second
		rc.TrailingLogs = min(1024, n.cfg.SnapshotEvery)
	}
	return rc
}
