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

// A snapshot begins with four bytes that name the format, the index of the last entry
// in it as eight bytes and, where that is another, the number of the last command as
// eight more; then comes what the state machine wrote. Nodes of before packs know the
// first format alone, and before packs the two are the same.
const (
	snapshotMagic  = "TGS1"
	snapshotNumber = "TGS2"
)

// machine stands between raft and the owner's state machine. After the first
// fatal error the state machine is not touched again: not by the entries that
// raft had already queued, and not by a snapshot, which would put the entry
// that failed behind the node for ever.
type machine struct {
	mu      sync.Mutex // held while the state machine is in use
	fsm     FSM
	fail    func(*FatalError)
	applied atomic.Uint64 // index of the last entry
	number  uint64        // of the last command
	fatal   atomic.Pointer[FatalError]
	// setBack is set while raft takes a backup, which it would panic on if it were
	// refused.
	setBack func() bool
}

// outcome is what a committed command came to. The response of raft's future is one, or
// as many as the entry has commands.
type outcome struct {
	result any
	number uint64
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

// apply gives the state machine the commands of one entry.
func (m *machine) apply(l *raft.Log) any {
	if !isPack(l.Data) {
		o := m.take(l.Index, 0, l.Data)
		m.took(l.Index)
		return o
	}
	commands, err := Commands(l.Data)
	if err != nil && m.fatal.Load() == nil {
		m.stop(&FatalError{Op: "apply", Index: l.Index, Err: err})
	}
	out := make([]outcome, len(commands))
	for i, c := range commands {
		out[i] = m.take(l.Index, i+1, c)
	}
	m.took(l.Index)
	return out
}

// take gives the state machine one command, which is the part'th of its entry or, where
// that is 0, all of it. Its number is the entry's index, or one more than the last where
// that is greater: so it grows from command to command, and is the index for as long as
// there are no packs.
func (m *machine) take(index uint64, part int, command []byte) outcome {
	if fatal := m.fatal.Load(); fatal != nil {
		return outcome{err: unknown(fatal)}
	}
	number := max(m.number+1, index)
	result, err := m.fsm.Apply(number, command)
	if err != nil {
		return outcome{err: m.stop(&FatalError{Op: "apply", Index: index, Part: part, Err: err})}
	}
	m.number = number
	return outcome{result: result, number: number}
}

// took notes that the state machine has all of an entry.
func (m *machine) took(index uint64) {
	if m.fatal.Load() == nil {
		m.applied.Store(index)
	}
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
	return &view{write: write, applied: m.applied.Load(), number: m.number}, nil
}

// reached is the number of the last command.
func (m *machine) reached() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.number
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
	index, number, err := readHead(r)
	if err != nil {
		return m.stop(&FatalError{Op: "restore", Err: err})
	}
	if err := m.fsm.Restore(r); err != nil {
		return m.stop(&FatalError{Op: "restore", Index: index, Err: err})
	}
	m.number = number
	m.applied.Store(index)
	return nil
}

// appendHead appends what a snapshot begins with.
func appendHead(b []byte, index, number uint64) []byte {
	if number == index {
		return binary.BigEndian.AppendUint64(append(b, snapshotMagic...), index)
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(append(b, snapshotNumber...), index), number)
}

// readHead reads it.
func readHead(r io.Reader) (index, number uint64, err error) {
	var head [len(snapshotMagic) + 8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, fmt.Errorf("read snapshot header: %w", err)
	}
	index = binary.BigEndian.Uint64(head[len(snapshotMagic):])
	switch string(head[:len(snapshotMagic)]) {
	case snapshotMagic:
		return index, index, nil
	case snapshotNumber:
		if _, err := io.ReadFull(r, head[:8]); err != nil {
			return 0, 0, fmt.Errorf("read snapshot header: %w", err)
		}
		return index, binary.BigEndian.Uint64(head[:8]), nil
	}
	return 0, 0, errors.New("snapshot is in a format that this version does not know")
}

// view is one state of the machine on its way to disk.
type view struct {
	write   func(io.Writer) error
	applied uint64
	number  uint64
}

// Persist implements raft.FSMSnapshot. raft cancels the sink on an error.
func (v *view) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(appendHead(nil, v.applied, v.number)); err != nil {
		return err
	}
	return v.write(sink)
}

// Release implements raft.FSMSnapshot.
func (v *view) Release() {}
