package consensus

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	storeFile = "raft.db"

	// lockWait is how long Open waits for a node in another process that is
	// about to end.
	lockWait = time.Second

	// deleteChunk bounds the entries that one transaction deletes, so that
	// appends get their turn while the log is cut.
	deleteChunk = 1024
)

// backend is what raft needs of the store on disk.
type backend interface {
	raft.LogStore
	raft.StableStore
	io.Closer
	// committed is called before entries are stored, with the newest one that is
	// known to be committed, and with what was heard of other nodes or nil; both are
	// kept with them.
	committed(index uint64, heard []byte)
}

// logStore watches the store on disk: its first error stops the node, save that of a full
// disk on which there is room after all. raft
// would step down and try again on an error of an append, and panic on one
// while it saves its term or reads its log.
type logStore struct {
	backend
	fail           func(*FatalError)
	oldestSnapshot func() uint64
	commitIndex    func() uint64
	heard          *atomic.Pointer[[]byte] // of other nodes, and not on disk yet
	makeRoom       func() bool             // on a disk that is full; nil: there is no way
	stored         func([]*raft.Log)       // hears what was stored, or could not be
	pace           pace
}

func newLogStore(b backend, stall Stall, fail func(*FatalError), oldestSnapshot, commitIndex func() uint64, heard *atomic.Pointer[[]byte], stored func([]*raft.Log)) *logStore {
	s := &logStore{backend: b, fail: fail, oldestSnapshot: oldestSnapshot, commitIndex: commitIndex, heard: heard, stored: stored}
	s.pace.p99, s.pace.slot, s.pace.wake = stall.P99, stall.For/paceSlots, make(chan struct{}, 1)
	return s
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	s.pace.begin(time.Now())
	heard := s.heard.Load()
	if heard == nil {
		s.backend.committed(s.commitIndex(), nil)
	} else {
		s.backend.committed(s.commitIndex(), *heard)
	}
	err := s.whileFull(func() error { return s.backend.StoreLogs(logs) })
	s.pace.end(time.Now())
	if err == nil && heard != nil {
		s.heard.CompareAndSwap(heard, nil)
	}
	if err != nil {
		s.fail(&FatalError{Op: "append", Index: logs[0].Index, Err: err})
	}
	s.stored(logs)
	return err
}

// GetLog implements raft.LogStore.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	err := s.backend.GetLog(index, l)
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		s.exit(&FatalError{Op: "read", Index: index, Err: err})
	}
	return err
}

// Set implements raft.StableStore.
func (s *logStore) Set(key, val []byte) error {
	err := s.whileFull(func() error { return s.backend.Set(key, val) })
	if err != nil {
		s.exit(&FatalError{Op: "save", Err: fmt.Errorf("%s: %w", key, err)})
	}
	return err
}

// SetUint64 implements raft.StableStore.
func (s *logStore) SetUint64(key []byte, val uint64) error {
	err := s.whileFull(func() error { return s.backend.SetUint64(key, val) })
	if err != nil {
		s.exit(&FatalError{Op: "save", Err: fmt.Errorf("%s: %w", key, err)})
	}
	return err
}

// exit stops the node and ends the calling goroutine, which is one of raft's
// and would panic on the error: a full disk must not take down what else may
// live in the process.
func (s *logStore) exit(fatal *FatalError) {
	s.fail(fatal)
	runtime.Goexit()
}

// DeleteRange implements raft.LogStore. Cutting the old end of the log stops
// at the oldest snapshot that is kept and leaves gaps between transactions for
// appends; a conflicting new end is removed in one piece.
func (s *logStore) DeleteRange(lo, hi uint64) error {
	last, err := s.backend.LastIndex()
	if err != nil {
		return err
	}
	if hi >= last {
		// raft cuts the newest end only where a leader's log contradicts this one's.
		if committed := s.commitIndex(); lo <= committed {
			fatal := &FatalError{Op: "cut", Index: lo, Err: ErrForked}
			s.fail(fatal)
			return fatal
		}
		return s.backend.DeleteRange(lo, hi)
	}
	hi = min(hi, s.oldestSnapshot())
	for lo <= hi {
		to := min(hi, lo+deleteChunk-1)
		if err := s.backend.DeleteRange(lo, to); err != nil {
			return err
		}
		lo = to + 1
	}
	return nil
}
