package consensus

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// MaxEntry is the largest entry that Propose takes, in bytes.
	MaxEntry = 256 << 10

	// maxBatch is raft's own upper bound for entries in one append.
	maxBatch = 1024

	// logCacheEntries keeps the newest entries in memory for replication.
	logCacheEntries = 256
)

// FSM is the replicated state machine. Apply, Snapshot and Restore are never
// called at the same time; the write function that Snapshot returns runs
// beside later Applies.
type FSM interface {
	// Apply takes one committed entry. index grows from call to call and is
	// the same on every node. result goes to the Propose that made the entry,
	// if that was on this node; a refusal is a result. An error means that the
	// entry can't be decoded or applied: it stops the node, and Apply is not
	// called again. entry must not be changed, and not be kept.
	Apply(index uint64, entry []byte) (result any, err error)
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
// Dial connects to the address of another voter.
type Transport interface {
	net.Listener
	Dial(addr string, timeout time.Duration) (net.Conn, error)
}

// Voter names a node with a vote, and the address its Transport listens on.
type Voter struct {
	ID   string
	Addr string
}

// Config says how to open a node.
type Config struct {
	Dir       string // directory of the node, made with mode 0700 where missing
	NodeID    string // identity of the node, the same for as long as Dir lives
	Bootstrap bool   // create the node if Dir holds none
	FSM       FSM

	// Voters is the membership that Bootstrap writes, the same on every node
	// of a new group. Default: this node alone.
	Voters []Voter
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
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Dir == "", "dir is empty")
	wrong(c.NodeID == "", "node id is empty")
	wrong(c.FSM == nil, "state machine is missing")
	wrong(c.SnapshotEvery < 16, "snapshot every %d entries: at least 16", c.SnapshotEvery)
	wrong(c.SnapshotKeep < 1 || c.SnapshotKeep > 16, "keep %d snapshots: 1 to 16", c.SnapshotKeep)
	wrong(c.MaxBatch < 1 || c.MaxBatch > maxBatch, "batch of %d entries: 1 to %d", c.MaxBatch, maxBatch)
	wrong(c.Transport == nil && len(c.Voters) > 1, "%d voters without a transport", len(c.Voters))
	self := len(c.Voters) == 0
	for _, v := range c.Voters {
		wrong(v.ID == "" || v.Addr == "", "voter %q at %q: id or address is empty", v.ID, v.Addr)
		self = self || v.ID == c.NodeID
	}
	wrong(!self, "node %q is not among the voters", c.NodeID)
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
	rc.SnapshotThreshold = n.cfg.SnapshotEvery
	rc.SnapshotInterval = 5 * time.Second
	rc.TrailingLogs = 10240
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

func newTransport(cfg Config, log hclog.Logger) raft.Transport {
	if cfg.Transport == nil {
		_, trans := raft.NewInmemTransport(raft.ServerAddress(cfg.NodeID))
		return trans
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream{cfg.Transport}, MaxPool: 3, Timeout: 5 * time.Second, Logger: log,
	})
}

// stream gives a Transport raft's own address type.
type stream struct{ Transport }

func (s stream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.Transport.Dial(string(addr), timeout)
}

func closeTransport(trans raft.Transport) {
	if c, ok := trans.(raft.WithClose); ok {
		c.Close()
	}
}
