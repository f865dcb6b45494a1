package consensus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Entry is one entry of a log on disk, or one command of an entry that has several.
type Entry struct {
	Index   uint64
	Part    int    // which of several commands, from 1 on; else 0
	Number  uint64 // of a command; 0 where it does not follow from what is on disk, as in front of a snapshot
	Term    uint64
	At      time.Time // when its leader took it, zero if that is not known
	Kind    string    // command, members, barrier, or noop
	Data    []byte    // of a command: what was proposed
	Members []Member  // of an entry about members
}

// Dump calls fn with every entry of the log in dir and every command of each, the oldest
// first, until fn returns an error. Entries that are in a snapshot may be missing, and the newest ones may not
// be committed. It changes nothing, and returns ErrLocked while a node has dir open.
func Dump(dir string, fn func(Entry) error) error {
	o, err := openOffline(dir, true)
	if err != nil {
		return fmt.Errorf("dump %s: %w", dir, err)
	}
	defer o.Close()
	if err := o.dump(fn); err != nil {
		return fmt.Errorf("dump %s: %w", dir, err)
	}
	return nil
}

func (o *offline) dump(fn func(Entry) error) error {
	from, number, err := o.numbered()
	if err != nil {
		return err
	}
	return o.each(0, func(l *raft.Log) error {
		e := entry(l)
		if e.Kind != "command" {
			return fn(e)
		}
		commands, err := Commands(l.Data)
		if err != nil {
			return fn(e) // whoever reads the data will see
		}
		for i, c := range commands {
			if e.Data = c; len(commands) > 1 {
				e.Part = i + 1
			}
			if l.Index > from {
				number = max(number+1, l.Index)
				e.Number = number
			}
			if err := fn(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// numbered gives the newest entry in the snapshot, and the number of the last command
// there.
func (o *offline) numbered() (index, number uint64, err error) {
	all, err := o.snapshots()
	if err != nil {
		return 0, 0, err
	}
	for _, s := range all {
		if !s.whole() {
			continue
		}
		f, err := os.Open(s.path)
		if err != nil {
			return 0, 0, err
		}
		defer f.Close()
		_, number, err = readHead(f)
		return s.Index, number, err
	}
	return 0, 0, nil
}

func entry(l *raft.Log) Entry {
	e := Entry{Index: l.Index, Term: l.Term, At: l.AppendedAt}
	switch l.Type {
	case raft.LogCommand:
		e.Kind, e.Data = "command", l.Data
	case raft.LogConfiguration:
		e.Kind, e.Members = "members", members(raft.DecodeConfiguration(l.Data))
	case raft.LogBarrier:
		e.Kind = "barrier"
	case raft.LogNoop:
		e.Kind = "noop"
	default:
		e.Kind = fmt.Sprint("type ", l.Type)
	}
	return e
}

// Contents is what a directory holds.
type Contents struct {
	NodeID    string   // "" where that was not noted
	Term      uint64   // newest that the node took part in
	Snapshot  uint64   // newest entry in the snapshot, 0 without one
	Last      uint64   // newest entry
	Committed uint64   // newest entry that was known to be committed when the last one was stored; later ones may be too
	Members   []Member // after the newest entry
	Applied   uint64   // newest command that the state machine took
	// Refused is the error of the state machine for the entry behind Applied, where it
	// did not take all.
	Refused error
}

// Replay has fsm, a new one, take the newest snapshot in dir and then every command up
// to the end of the log or to the first that it refuses. It changes nothing, and
// returns ErrLocked while a node has dir open.
func Replay(dir string, fsm FSM) (Contents, error) {
	o, err := openOffline(dir, true)
	if err != nil {
		return Contents{}, fmt.Errorf("replay %s: %w", dir, err)
	}
	defer o.Close()
	c, err := o.replay(fsm)
	if err != nil {
		return c, fmt.Errorf("replay %s: %w", dir, err)
	}
	return c, nil
}

// offline is the directory of a node that does not run.
type offline struct {
	dir   string
	store *boltStore
}

func openOffline(dir string, readOnly bool) (*offline, error) {
	path := filepath.Join(dir, storeFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, ErrEmpty
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockWait, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketLogs) == nil || tx.Bucket(bucketConf) == nil {
			return ErrEmpty
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &offline{dir, &boltStore{db: db}}, nil
}

// Close implements io.Closer.
func (o *offline) Close() error { return o.store.Close() }

// each calls fn with every entry in the log from the index from on.
func (o *offline) each(from uint64, fn func(*raft.Log) error) error {
	return o.store.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketLogs).Cursor()
		for k, v := c.Seek(key(from)); k != nil; k, v = c.Next() {
			var l raft.Log
			if err := readStored(k, v, &l); err != nil {
				at := decoder{b: k}
				return fmt.Errorf("read entry %d: %s: %w", at.sized(uint64(len(k))), o.store.db.Path(), err)
			}
			if err := fn(&l); err != nil {
				return err
			}
		}
		return nil
	})
}

// variable reads a number, 0 where it was never set.
func (o *offline) variable(k []byte) (uint64, error) {
	v, err := o.store.GetUint64(k)
	if errors.Is(err, errNotFound) {
		return 0, nil
	}
	return v, err
}

// replay reads all there is and gives it to fsm.
func (o *offline) replay(fsm FSM) (c Contents, err error) {
	if c.Term, err = o.variable([]byte("CurrentTerm")); err != nil {
		return c, err
	}
	if c.Committed, err = o.variable(keyCommit); err != nil {
		return c, err
	}
	if id, err := o.store.Get(keyNode); err == nil {
		c.NodeID = string(id)
	}
	m := &machine{fsm: fsm, fail: func(*FatalError) {}, setBack: func() bool { return false }}
	snap, err := o.restore(m)
	if err != nil {
		return c, err
	}
	if snap != nil {
		c.Snapshot, c.Last = snap.Index, snap.Index
		c.Committed = max(c.Committed, snap.Index)
		c.Members = members(snap.Configuration)
	}
	if b, ok := fsm.(Batcher); ok {
		b.Begin()
		defer b.End()
	}
	err = o.each(c.Snapshot+1, func(l *raft.Log) error {
		if l.Index != c.Last+1 && (c.Last > 0 || l.Index != 1) {
			return fmt.Errorf("the log goes on at entry %d behind %d: a part is missing", l.Index, c.Last)
		}
		c.Last = l.Index
		switch {
		case l.Type == raft.LogConfiguration:
			c.Members = members(raft.DecodeConfiguration(l.Data))
		case l.Type == raft.LogCommand:
			m.apply(l) // but for the first that it refuses and those behind
		}
		return nil
	})
	if c.Applied = m.applied.Load(); m.fatal.Load() != nil {
		c.Refused = m.fatal.Load()
	}
	if err == nil && c.Last == 0 {
		err = ErrEmpty
	}
	if len(c.Members) == 1 && (c.NodeID == "" || c.Members[0].ID == c.NodeID) {
		c.Committed = c.Last // nobody else has a say
	}
	return c, err
}

// diskSnapshot is what raft notes beside a snapshot.
type diskSnapshot struct {
	raft.SnapshotMeta
	CRC  []byte
	path string
}

// restore gives the newest undamaged snapshot to m; there may be none.
func (o *offline) restore(m *machine) (*diskSnapshot, error) {
	all, err := o.snapshots()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if !s.whole() {
			continue
		}
		f, err := os.Open(s.path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := m.Restore(f); err != nil {
			return nil, err
		}
		return s, nil
	}
	if len(all) > 0 {
		return nil, errors.New("all snapshots are damaged: restore from a backup")
	}
	return nil, nil
}

// snapshots lists what is complete on disk, the newest first.
func (o *offline) snapshots() (all []*diskSnapshot, err error) {
	dirs, err := filepath.Glob(filepath.Join(o.dir, snapshotDir, "*", metaFile))
	if err != nil {
		return nil, err
	}
	for _, path := range dirs {
		dir := filepath.Dir(path)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s := &diskSnapshot{path: filepath.Join(dir, "state.bin")}
		if filepath.Ext(dir) == unfinishedExt || json.Unmarshal(b, s) != nil {
			continue
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *diskSnapshot) int {
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index))
	})
	return all, nil
}

// whole says whether the snapshot is as it was written.
func (s *diskSnapshot) whole() bool {
	f, err := os.Open(s.path)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, err = io.Copy(sum, f)
	return err == nil && bytes.Equal(sum.Sum(nil), s.CRC)
}
