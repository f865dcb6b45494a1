// Package consensus is a Raft node that knows nothing of jobs. It keeps a log
// of opaque entries on disk, feeds committed entries in order to a state
// machine that its owner supplies, and says who leads.
//
// It guarantees that an entry acknowledged by Propose was fsynced by a
// majority of the voters and survives kill -9; that the state machine sees
// every committed entry exactly once and in log order within a run of the
// process, and again from the last snapshot in the next; and that a node which
// cannot decode or store something stops instead of going on with a state of
// its own. It does not say whether a proposal with an unknown outcome was
// committed: its owner carries keys in the entries for that.
//
// Encoding, commands and views belong to the owner (hub/state), and so do the
// connections between nodes: a Transport is handed in.
package consensus

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// drainGrace bounds how long a stopping node waits for the proposals that raft
// already holds. They resolve by themselves unless the disk or the state
// machine hangs.
const drainGrace = 2 * time.Second

// restoreGrace bounds the same while the state machine takes a backup: raft would
// panic if it were shut down meanwhile.
const restoreGrace = time.Minute

var errAborted = errors.New("ended early")

// Node is one running member of a Raft group. Its methods may be called from
// any goroutine.
type Node struct {
	cfg   Config
	log   *slog.Logger
	raft  *raft.Raft
	trans raft.Transport
	fsm   *machine
	store *logStore
	snaps *snapshotStore

	slots      chan struct{} // one token per proposal or barrier that raft may hold
	gather     gatherer
	pending    chan pending  // what raft holds, about in the order of the log
	drained    chan struct{} // closed once raft has ended: nothing pending is left
	collected  chan struct{} // closed when collect has returned
	notify     chan bool     // raft blocks on it, so no change of leadership is missed
	leadership leadership
	verifier   verifier
	begun      chan struct{} // closed when raft is set, or has failed to open
	opened     time.Time
	joining    atomic.Bool // the group has not yet shown that it knows this disk
	abstains   atomic.Bool // told not to stand for election
	stalled    atomic.Bool // the disk is too slow for a leader's
	restoring  atomic.Int32
	known      acquaintance
	logs       raft.LogStore // as raft reads it
	watching   sync.WaitGroup
	asks       sync.WaitGroup // of acquaint

	stopOnce sync.Once
	stopping chan struct{} // closed first: nothing new is taken
	stopErr  error         // why, written before stopping closes; nil after Close
	stopped  chan struct{} // closed last: raft has ended and the files are closed
	closeErr error         // written before stopped closes
}

// Open opens the node that lives in cfg.Dir and starts it. Where there is none it is
// created, with cfg.Bootstrap as a voter of a new group and with cfg.Join as a node
// that waits until a group adds it; both mean nothing for a directory that holds a
// node, save that one which waits to be added is not bootstrapped. It returns
// ErrEmpty for an empty directory without either, ErrLocked while another process
// has the directory open, and a *FatalError if the state machine refuses the newest
// snapshot.
//
// Entries newer than the snapshot are applied after Open has returned, once
// the node knows that they are committed: wait with Barrier where that matters.
func Open(cfg Config) (*Node, error) {
	return open(cfg, func(b backend) backend { return b })
}

// open is Open with a layer between the node and its store, for tests of a
// failing disk.
func open(cfg Config, layer func(backend) backend) (_ *Node, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg:       cfg,
		log:       cfg.Logger.With("node", cfg.NodeID),
		slots:     make(chan struct{}, cfg.MaxBatch),
		pending:   make(chan pending, cfg.MaxBatch),
		drained:   make(chan struct{}),
		collected: make(chan struct{}),
		notify:    make(chan bool, 8),
		begun:     make(chan struct{}),
		opened:    time.Now(),
		stopping:  make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	n.leadership.changed = make(chan struct{})
	n.known.init()
	rand.Read(n.known.run[:])
	n.gather.hand = n.hand
	n.fsm = &machine{fsm: cfg.FSM, fail: n.fail, setBack: func() bool { return n.restoring.Load() > 0 }}
	if err := n.openStore(layer); err != nil {
		return nil, err
	}
	n.trans = n.newTransport()
	defer func() {
		if err != nil {
			closeTransport(n.trans)
			n.store.Close()
		}
	}()
	rc := n.raftConfig()
	// On a goroutine of its own, which the store may end.
	err = errAborted
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed := n.found(rc)
		if failed == nil {
			failed = n.start(rc)
		}
		err = failed
	}()
	<-ended
	close(n.begun)
	if err == errAborted {
		err = n.opening(n.Err())
	}
	if err != nil {
		return nil, err
	}
	n.clear()
	go n.collect()
	n.watching.Go(n.acquaint)
	n.watching.Go(n.watchLeader)
	n.watching.Go(n.watchDisk)
	go n.run()
	return n, nil
}

// opening says what could not be opened.
func (n *Node) opening(err error) error {
	if n.cfg.Memory != nil {
		return fmt.Errorf("open memory: %w", err)
	}
	return fmt.Errorf("open %s: %w", n.cfg.Dir, err)
}

// newTransport is raft's transport: without a Transport one that reaches nobody.
func (n *Node) newTransport() raft.Transport {
	if n.cfg.Transport == nil {
		_, trans := raft.NewInmemTransport(raft.ServerAddress(n.cfg.NodeID))
		return trans
	}
	return newWire(n.cfg, n.log, n)
}

func closeTransport(trans raft.Transport) {
	if c, ok := trans.(raft.WithClose); ok {
		c.Close()
	}
}

// progress of another node; nothing is known of it without a Transport or on a node
// that does not lead.
func (n *Node) progress(id string) progress {
	w, ok := n.trans.(*wire)
	if !ok || n.raft.State() != raft.Leader {
		return progress{}
	}
	return w.progress(id, n.raft.CurrentTerm())
}

// commitIndex is 0 until raft has begun.
func (n *Node) commitIndex() uint64 {
	select {
	case <-n.begun:
		return n.raft.CommitIndex()
	default:
		return 0
	}
}

// openStore opens what is on disk, and makes the files where a node may be made.
func (n *Node) openStore(layer func(backend) backend) error {
	base, snaps, err := n.openFiles()
	if err != nil {
		return n.opening(err)
	}
	n.snaps = snaps
	n.store = newLogStore(layer(base), n.cfg.Stall, n.fail, snaps.oldest, n.commitIndex, &n.known.keep, n.gather.stored)
	n.store.makeRoom = n.cfg.MakeRoom
	return nil
}

func (n *Node) openFiles() (backend, *snapshotStore, error) {
	cfg := n.cfg
	if cfg.Memory != nil {
		return cfg.Memory.open(cfg.SnapshotKeep)
	}
	if !cfg.Bootstrap && !cfg.Join {
		if _, err := os.Stat(filepath.Join(cfg.Dir, storeFile)); errors.Is(err, os.ErrNotExist) {
			return nil, nil, ErrEmpty
		}
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, nil, err
	}
	snaps, err := openSnapshots(cfg.Dir, cfg.SnapshotKeep, raftLogger(n.log))
	if err != nil {
		return nil, nil, fmt.Errorf("snapshots: %w", err)
	}
	bolt, err := openBolt(filepath.Join(cfg.Dir, storeFile))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", storeFile, err)
	}
	if err := syncDir(cfg.Dir); err != nil {
		return nil, nil, errors.Join(err, bolt.Close())
	}
	return bolt, snaps, nil
}

// start builds the raft instance and, where this node is the only voter, has
// it elect itself at once.
func (n *Node) start(rc *raft.Config) (err error) {
	// raft panics where the log does not reach back to the snapshot it read.
	// Here that is just a directory which can't be opened.
	defer func() {
		if p := recover(); p != nil {
			err = n.opening(fmt.Errorf("the log and the readable snapshots don't fit together, restore from a backup: %v", p))
		}
	}()
	n.logs = n.store
	if n.cfg.Transport != nil {
		// Followers and replication read back what was just written.
		n.logs = &cache{LogStore: n.store}
	}
	if err := n.remember(); err != nil {
		return n.opening(err)
	}
	r, err := raft.NewRaft(rc, n.fsm, n.logs, n.store, n.snaps, n.trans)
	if fatal := n.fsm.fatal.Load(); fatal != nil {
		// raft falls back to an older snapshot when the state machine refuses
		// one; that would silently undo committed entries.
		if r != nil {
			r.Shutdown().Error()
		}
		return n.opening(fatal)
	}
	if err != nil {
		return n.opening(err)
	}
	n.raft = r
	all := r.GetConfiguration().Configuration().Servers
	if err := n.belongs(all); err != nil {
		r.Shutdown().Error()
		return n.opening(err)
	}
	if v, alone := votes(all, rc.LocalID); v && alone {
		n.poke() // nobody else can be leader
	}
	return nil
}

// run owns the node: it follows leadership until somebody stops the node, then
// takes everything down in order.
func (n *Node) run() {
	for {
		select {
		case lead := <-n.notify:
			n.leadership.set(lead)
			continue
		case <-n.stopping:
		}
		break
	}
	drained := n.drain()
	n.watching.Wait()
	err := n.raft.Shutdown().Error()
	closeTransport(n.trans)
	n.asks.Wait()
	n.leadership.set(false)
	close(n.drained)
	if drained {
		<-n.collected
	}
	if heard := n.known.keep.Load(); heard != nil && n.Err() == nil {
		err = errors.Join(err, n.store.backend.Set(keyHeard, *heard))
	}
	n.closeErr = errors.Join(err, n.store.Close())
	close(n.stopped)
}

// drain takes every slot, which waits for the proposals that raft holds: raft
// leaves those in its queues without an answer when it shuts down. It reports
// whether all were answered.
func (n *Node) drain() bool {
	begun := time.Now()
	late := time.NewTimer(drainGrace)
	defer late.Stop()
	for range cap(n.slots) {
		for taken := false; !taken; {
			select {
			case n.slots <- struct{}{}:
				taken = true
			case lead := <-n.notify:
				n.leadership.set(lead)
			case <-late.C:
				if n.restoring.Load() > 0 && time.Since(begun) < restoreGrace {
					late.Reset(drainGrace)
					continue
				}
				n.log.Warn("stopping with proposals unresolved", "after", drainGrace)
				return false
			}
		}
	}
	return true
}

// fail stops the node because of err. It is called from raft's own goroutines
// and does not wait.
func (n *Node) fail(err *FatalError) {
	n.stopOnce.Do(func() {
		n.stopErr = err
		n.log.Error("node stops", "err", err)
		close(n.stopping)
	})
}

// Done is closed as soon as the node has begun to stop, because of a fatal
// error or of Close. Close still has to be called, and waits for the end.
func (n *Node) Done() <-chan struct{} { return n.stopping }

// Err returns the *FatalError that stopped the node, or nil while it runs and
// after a plain Close.
func (n *Node) Err() error {
	select {
	case <-n.stopping:
		return n.stopErr
	default:
		return nil
	}
}

// Close stops the node, waits until the proposals that raft holds have their
// outcome, and closes the files. It may be called again and returns the same.
// The error is about closing; why the node stopped is Err.
func (n *Node) Close() error {
	n.stopOnce.Do(func() { close(n.stopping) })
	<-n.stopped
	n.verifier.close()
	return n.closeErr
}

// refused is the answer of a stopping node.
func (n *Node) refused() error {
	if err := n.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return ErrClosed
}
