package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// snapshotMagic opens every snapshot: four bytes that name the format, then
// the index of the last entry in it as eight bytes, then what the state machine
// wrote.
const snapshotMagic = "TGS1"

// machine stands between raft and the owner's state machine. After the first
// fatal error the state machine is not touched again: not by the entries that
// raft had already queued, and not by a snapshot, which would put the entry
// that failed behind the node for ever.
type machine struct {
	mu      sync.Mutex // held while the state machine is in use
	fsm     FSM
	fail    func(*FatalError)
	applied atomic.Uint64
	fatal   atomic.Pointer[FatalError]
	// setBack is set while raft takes a backup, which it would panic on if it were
	// refused.
	setBack func() bool
}

// outcome is what a committed entry came to, in the response of raft's future.
type outcome struct {
	result any
	err    error
}

// ApplyBatch implements raft.BatchingFSM. raft counts membership entries as
// seen by the state machine only in this form, which lets a snapshot be taken
// right after a bootstrap.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.fsm.(Batcher); ok {
		b.Begin()
		defer b.End()
	}
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			out[i] = m.apply(l)
		}
	}
	return out
}

// Apply implements raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

func (m *machine) apply(l *raft.Log) outcome {
	if fatal := m.fatal.Load(); fatal != nil {
		return outcome{err: unknown(fatal)}
	}
	result, err := m.fsm.Apply(l.Index, l.Data)
	if err != nil {
		return outcome{err: m.stop(&FatalError{Op: "apply", Index: l.Index, Err: err})}
	}
	m.applied.Store(l.Index)
	return outcome{result: result}
}

func (m *machine) stop(fatal *FatalError) error {
	m.fatal.Store(fatal)
	m.fail(fatal)
	return fatal
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return m.view() }

// view is the state as of now.
func (m *machine) view() (*view, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fatal := m.fatal.Load(); fatal != nil {
		return nil, fatal
	}
	write, err := m.fsm.Snapshot()
	if err != nil {
		return nil, err
	}
	return &view{write: write, applied: m.applied.Load()}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.restore(r)
	if err != nil && m.setBack() {
		return nil // the node stops, and applies nothing more
	}
	return err
}

func (m *machine) restore(r io.Reader) error {
	var head [len(snapshotMagic) + 8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m.stop(&FatalError{Op: "restore", Err: fmt.Errorf("read snapshot header: %w", err)})
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return m.stop(&FatalError{Op: "restore", Err: errors.New("snapshot is in a format that this version does not know")})
	}
	index := binary.BigEndian.Uint64(head[len(snapshotMagic):])
	if err := m.fsm.Restore(r); err != nil {
		return m.stop(&FatalError{Op: "restore", Index: index, Err: err})
	}
	m.applied.Store(index)
	return nil
}

// view is one state of the machine on its way to disk.
type view struct {
	write   func(io.Writer) error
	applied uint64
}

// Persist implements raft.FSMSnapshot. raft cancels the sink on an error.
func (v *view) Persist(sink raft.SnapshotSink) error {
	head := binary.BigEndian.AppendUint64([]byte(snapshotMagic), v.applied)
	if _, err := sink.Write(head); err != nil {
		return err
	}
	return v.write(sink)
}

// Release implements raft.FSMSnapshot.
func (v *view) Release() {}
