package consensus

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Memory is a disk for nodes in simulations: what a node wrote is there for the next
// Open with the same Memory, and gone with the process. One node uses it at a time.
type Memory struct {
	mu    sync.Mutex
	logs  map[uint64]raft.Log
	first uint64
	last  uint64
	vars  map[string][]byte
	snaps []*memorySnapshot // oldest first
	keep  int
	inUse bool

	broken uint64 // entry that cannot be read any more; 0: none

	// Sync, where it is set before the first Open, is called for each write before
	// it counts as done, and so may make the disk slow.
	Sync func()
}

// NewMemory makes an empty disk. It takes a test, so that no real node ever gets one.
func NewMemory(test interface{ Helper() }) *Memory {
	test.Helper()
	return &Memory{logs: map[uint64]raft.Log{}, vars: map[string][]byte{}}
}

func (m *Memory) open(keep int) (backend, *snapshotStore, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse {
		return nil, nil, ErrLocked
	}
	m.inUse, m.keep = true, keep
	s := &snapshotStore{SnapshotStore: memorySnapshots{m}}
	if len(m.snaps) > 0 {
		s.newest.Store(m.snaps[len(m.snaps)-1].meta.Index)
	}
	return memoryStore{m}, s, nil
}

func (m *Memory) sync() {
	if m.Sync != nil {
		m.Sync()
	}
}

// memoryStore is the log and the variables of a Memory.
type memoryStore struct{ m *Memory }

func (s memoryStore) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.inUse = false
	return nil
}

func (s memoryStore) committed(_ uint64, heard []byte) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if heard != nil {
		s.m.vars[string(keyHeard)] = heard
	}
}

func (s memoryStore) FirstIndex() (uint64, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.first, nil
}

func (s memoryStore) LastIndex() (uint64, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.last, nil
}

func (s memoryStore) GetLog(index uint64, l *raft.Log) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	have, ok := s.m.logs[index]
	switch {
	case !ok:
		return raft.ErrLogNotFound
	case index == s.m.broken:
		return errSum
	}
	*l = have
	return nil
}

func (s memoryStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s memoryStore) StoreLogs(logs []*raft.Log) error {
	s.m.sync()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, l := range logs {
		s.m.logs[l.Index] = raft.Log{
			Index: l.Index, Term: l.Term, Type: l.Type, Data: clone(l.Data), Extensions: clone(l.Extensions),
			AppendedAt: l.AppendedAt.Round(0),
		}
		s.m.last = max(s.m.last, l.Index)
		if s.m.first == 0 {
			s.m.first = l.Index
		}
	}
	return nil
}

func (s memoryStore) DeleteRange(lo, hi uint64) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for i := max(lo, s.m.first); i <= min(hi, s.m.last); i++ {
		delete(s.m.logs, i)
	}
	if len(s.m.logs) == 0 {
		s.m.first, s.m.last = 0, 0
		return nil
	}
	for ; ; s.m.first++ { // a restored snapshot leaves a gap
		if _, ok := s.m.logs[s.m.first]; ok {
			break
		}
	}
	for ; ; s.m.last-- {
		if _, ok := s.m.logs[s.m.last]; ok {
			break
		}
	}
	return nil
}

func (s memoryStore) Set(key, val []byte) error {
	s.m.sync()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.vars[string(key)] = clone(val)
	return nil
}

func (s memoryStore) Get(k []byte) ([]byte, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	v, ok := s.m.vars[string(k)]
	if !ok {
		return nil, errNotFound
	}
	return clone(v), nil
}

func (s memoryStore) SetUint64(k []byte, v uint64) error { return s.Set(k, key(v)) }

func (s memoryStore) GetUint64(k []byte) (uint64, error) {
	v, err := s.Get(k)
	if err != nil {
		return 0, err
	}
	return number(k, v)
}

// memorySnapshots are the snapshots of a Memory.
type memorySnapshots struct{ m *Memory }

type memorySnapshot struct {
	meta raft.SnapshotMeta
	data []byte
}

func (s memorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &memorySink{m: s.m, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixMilli()), Index: index, Term: term,
		Configuration: members.Clone(), ConfigurationIndex: membersIndex,
	}}, nil
}

func (s memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	var out []*raft.SnapshotMeta
	for i := len(s.m.snaps) - 1; i >= 0; i-- {
		meta := s.m.snaps[i].meta
		out = append(out, &meta)
	}
	return out, nil
}

func (s memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, one := range s.m.snaps {
		if one.meta.ID == id {
			meta := one.meta
			return &meta, io.NopCloser(bytes.NewReader(one.data)), nil
		}
	}
	return nil, nil, fmt.Errorf("open snapshot %s: not there", id)
}

// memorySink is a snapshot that is being written.
type memorySink struct {
	m    *Memory
	meta raft.SnapshotMeta
	data bytes.Buffer
	done bool
}

func (s *memorySink) Write(b []byte) (int, error) { return s.data.Write(b) }
func (s *memorySink) ID() string                  { return s.meta.ID }

func (s *memorySink) Cancel() error {
	s.done = true
	return nil
}

func (s *memorySink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	s.m.sync()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.meta.Size = int64(s.data.Len())
	s.m.snaps = append(s.m.snaps, &memorySnapshot{s.meta, s.data.Bytes()})
	if over := len(s.m.snaps) - s.m.keep; over > 0 {
		s.m.snaps = append([]*memorySnapshot{}, s.m.snaps[over:]...)
	}
	return nil
}
