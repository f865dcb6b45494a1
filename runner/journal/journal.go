// Package journal is a runner's durable memory: which fences it has taken on, how
// far each attempt came, and every report that the hub has not acknowledged yet.
// It guarantees that what a durable call returned from survives kill -9 and a
// power cut, that a torn tail is cut off and nothing before it, that an outbox
// number is never given twice, and that one process at a time holds a directory.
// It decides nothing about jobs beyond Decide, and knows nothing of the wire.
package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gofrs/flock"

	"tugline.dev/tugline/shared/fleet"
)

// Durability says what a call waits for.
type Durability bool

// Lazy survives the death of the process, Durable also that of the machine.
const (
	Lazy    Durability = false
	Durable Durability = true
)

// ErrLocked says that another process holds the data directory.
var ErrLocked = errors.New("another runner process uses this data directory")

// maxOrders bounds the remembered order ids; the oldest go first.
const maxOrders = 4096

const (
	fileName = "journal.log"
	lockName = "runner.lock"
)

// Desired is the position of a desired set: of two the greater is the newer.
type Desired struct {
	Epoch uint64 `json:"epoch"`
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

// Less says whether d is older than e.
func (d Desired) Less(e Desired) bool {
	if d.Epoch != e.Epoch {
		return d.Epoch < e.Epoch
	}
	if d.Term != e.Term {
		return d.Term < e.Term
	}
	return d.Index < e.Index
}

// Attempt is what the journal holds of one assignment.
type Attempt struct {
	Job        fleet.JobID `json:"job"`
	Fence      fleet.Fence `json:"fence"`
	Order      string      `json:"order"`           // id of the order that assigned it
	Assignment []byte      `json:"assignment"`      // the order's body, byte by byte as it was signed
	Proof      []byte      `json:"proof,omitempty"` // the order itself as it was received
	Dir        string      `json:"dir"`             // its runtime directory
	Progress   Progress    `json:"progress,omitzero"`
}

// Progress is the part of an attempt's record that changes.
type Progress struct {
	Acked       bool              `json:"acked,omitempty"`    // the accept is committed: the permit to start
	Intent      bool              `json:"intent,omitempty"`   // a launch may have happened
	Finished    bool              `json:"finished,omitempty"` // its end is in the outbox or was acknowledged
	Sealed      bool              `json:"sealed,omitempty"`   // the final lengths are in the outbox or were acknowledged
	Ended       bool              `json:"ended,omitempty"`    // declined, lost or gone: there is nothing more to do
	Stop        string            `json:"stop,omitempty"`     // why it was told to stop
	Phase       string            `json:"phase,omitempty"`
	Marker      string            `json:"marker,omitempty"`   // of the processes launched
	Dir         string            `json:"dir,omitempty"`      // in which they work
	RealDir     string            `json:"real_dir,omitempty"` // without symbolic links, where that is another
	Permissions fleet.Permissions `json:"permissions,omitempty"`
	Base        string            `json:"base,omitempty"` // the starting commit
	SessionID   string            `json:"session_id,omitempty"`
	Model       string            `json:"model,omitempty"`
	Usage       *fleet.Usage      `json:"usage,omitempty"`
	Facts       uint64            `json:"facts,omitempty"`     // number of the last fact told
	Epoch       uint64            `json:"epoch,omitempty"`     // the cluster's, in which it was last renewed; 0: that of its fence
	Push        *Push             `json:"push,omitempty"`      // wanted after the verdict
	Reserve     int64             `json:"reserve,omitempty"`   // bytes of disk that it is promised beyond what it has
	Account     string            `json:"account,omitempty"`   // mark of the account that its CLI was signed in with
	Responded   bool              `json:"responded,omitempty"` // it was told that the provider has completed a response
}

// Authority is the epoch of the cluster in which the attempt may have an effect.
func (a Attempt) Authority() uint64 { return max(a.Fence.Epoch, a.Progress.Epoch) }

// Push is a push that is still owed.
type Push struct {
	Remote string `json:"remote"`
	Ref    string `json:"ref"`
	SHA    string `json:"sha"`
}

// Item is one report in the outbox.
type Item struct {
	Seq   uint64      `json:"seq"` // set by the journal; increasing, never given twice
	Job   fleet.JobID `json:"job"`
	Fence fleet.Fence `json:"fence"`
	Kind  string      `json:"kind"`
	Body  []byte      `json:"body"`
}

// Journal is safe for concurrent use. Calls that return an error have changed
// nothing that a later call could see, unless an fsync failed: then the change may
// show and is not durable yet.
//
// A full disk ends nothing. What is lazy is kept in memory, up to a bound, and
// written with the next record for which there is room; items of the outbox show
// once they are written. What is durable is refused, and the caller may ask again.
type Journal struct {
	dir  string
	lock *flock.Flock
	note string

	syncMu sync.Mutex // held over fsync and compaction, taken before mu

	mu      sync.Mutex
	state   state
	file    *os.File
	size    int64  // bytes written
	base    int64  // bytes after the last compaction
	durable int64  // bytes known to be on the disk
	wrote   uint64 // number of the last record in the file
	synced  uint64 // and of the last one known to be on the disk
	syncs   uint64
	failed  error
	held    map[uint64]int64 // outbox numbers that may not show yet: the file must be durable up to there
	parked  []byte           // frames of lazy records for which there was no room
	unsaid  bool             // the file does not say yet that it was opened again
	cramped int64            // bytes written when the file could not be rewritten; 0: it could
	write   func(*os.File, []byte, int64) error
	changed chan struct{}
}

// Open takes the lock of a data directory and reads or creates its journal. The
// error wraps ErrLocked where another process has it.
func Open(dir string) (*Journal, error) {
	lock, err := take(dir)
	if err != nil {
		return nil, err
	}
	return openWith(dir, lock, writeAt)
}

// Locked does something with a data directory that nobody has open meanwhile. The error
// wraps ErrLocked where another process has it.
func Locked(dir string, do func() error) error {
	lock, err := take(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(), lock.Unlock())
}

// take makes the directory and takes its lock.
func take(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make runner directory: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if !held {
		return nil, fmt.Errorf("open journal in %s: %w", dir, ErrLocked)
	}
	return lock, nil
}

// Peek reads the attempts of a journal that a runner may have open: what it has written
// so far. It takes no lock and writes nothing; a directory without a journal has none.
func Peek(dir string) ([]Attempt, error) {
	st, _, _, err := read(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	return st.attempts(), nil
}

// openWith reads or creates a journal whose lock is held, and writes with the given
// function.
func openWith(dir string, lock *flock.Flock, write func(*os.File, []byte, int64) error) (*Journal, error) {
	j := &Journal{dir: dir, lock: lock, held: map[uint64]int64{}, write: write, changed: make(chan struct{}, 1)}
	if err := j.load(); err != nil {
		_ = lock.Unlock()
		return nil, err
	}
	return j, nil
}

func (j *Journal) load() error {
	path := filepath.Join(j.dir, fileName)
	_ = os.Remove(path + ".new")
	st, good, damaged, err := read(path)
	if err != nil {
		return err
	}
	kept := path + ".damaged"
	if damaged {
		if err := os.Rename(path, kept); err != nil {
			return fmt.Errorf("set damaged journal aside: %w", err)
		}
		j.note = fmt.Sprintf("the journal was damaged after byte %d; it is kept as %s and a new one was begun", good, kept)
		st.ID = ""
	}
	j.state = st
	if j.state.ID == "" {
		id := make([]byte, 16)
		if _, err := rand.Read(id); err != nil {
			return fmt.Errorf("make journal id: %w", err)
		}
		j.state.ID = hex.EncodeToString(id)
	}
	j.state.Opens++
	j.state.Next = j.state.Opens << 32
	j.state.N++
	err = j.rewrite()
	switch {
	case err == nil:
		return nil
	case damaged:
		_ = os.Rename(kept, path) // the next open finds the damage again
		return err
	case good == 0:
		return err
	}
	// A disk that is full has no room for a second file. The old one goes on.
	if kept := j.keep(path, good); kept != nil {
		return errors.Join(err, kept)
	}
	return nil
}

// keep goes on with the file as it is, up to where it is sound. That it was opened
// again is said with the first record for which there is room.
func (j *Journal) keep(path string, good int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if err = file.Truncate(good); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("open journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.file, j.failed, j.unsaid = file, nil, true
	j.size, j.base, j.durable, j.cramped = good, good, good, good
	j.state.N--
	j.wrote, j.synced = j.state.N, j.state.N
	return nil
}

// Close flushes what is lazy and gives the lock back. It may be called twice.
func (j *Journal) Close() error {
	_ = j.Flush()
	err := j.Sync()
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err = errors.Join(err, j.file.Close(), j.lock.Unlock())
	j.file = nil
	j.failed = os.ErrClosed
	return err
}

// ID is random and made with the journal; a new one means that memory was lost.
func (j *Journal) ID() string { return j.state.ID }

// Note tells what had to be repaired at the open; empty is nothing.
func (j *Journal) Note() string { return j.note }

// Count grows with every open and every record and never shrinks over a power
// cut, so that a restored older copy shows by a count that went back.
func (j *Journal) Count() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.synced
}

// Syncs counts the fsyncs since the open.
func (j *Journal) Syncs() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.syncs
}

// Desired gives the greatest position recorded.
func (j *Journal) Desired() Desired {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.Desired
}

// See records the position of a desired set and says whether the set counts: one
// that is older than the greatest seen does not.
func (j *Journal) See(d Desired) (bool, error) {
	j.mu.Lock()
	cur := j.state.Desired
	j.mu.Unlock()
	if d.Less(cur) {
		return false, nil
	}
	if d == cur {
		return true, nil
	}
	return true, j.commit(record{Desired: &d}, Lazy)
}

// SeenOrder says whether an order id was recorded before.
func (j *Journal) SeenOrder(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.state.Orders, id)
}

// RecordOrder remembers the id of an order that makes no attempt of its own.
func (j *Journal) RecordOrder(id string) error {
	if j.SeenOrder(id) {
		return nil
	}
	return j.commit(record{Order: id}, Lazy)
}

// Begin records that a fence was taken on, durably: nothing may be done in its
// name before. A fence that is recorded already is left as it is.
func (j *Journal) Begin(a Attempt) error {
	if _, ok := j.Attempt(a.Fence); ok {
		return nil
	}
	return j.commit(record{Begin: &a, Order: a.Order}, Durable)
}

// Attempt gives the record of a fence.
func (j *Journal) Attempt(f fleet.Fence) (Attempt, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a, ok := j.state.Attempts[f]
	return a, ok
}

// Attempts gives every record, oldest fence first.
func (j *Journal) Attempts() []Attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.attempts()
}

// Update changes an attempt's progress and puts items into the outbox, all or
// nothing. Items get their numbers in order. It refuses an unknown fence.
func (j *Journal) Update(f fleet.Fence, d Durability, change func(*Progress), items ...Item) error {
	j.mend()
	j.mu.Lock()
	a, ok := j.state.Attempts[f]
	if !ok {
		j.mu.Unlock()
		return fmt.Errorf("update attempt %s in journal: %w", f, fleet.NotFound)
	}
	p := a.Progress
	if change != nil {
		change(&p)
	}
	r := record{Note: &noteRecord{Fence: f, Progress: p}, Put: j.number(items)}
	return j.putLocked(r, d)
}

// Put adds items to the outbox that belong to no recorded attempt.
func (j *Journal) Put(d Durability, items ...Item) error {
	j.mend()
	j.mu.Lock()
	return j.putLocked(record{Put: j.number(items)}, d)
}

// putLocked writes a record with items and gives the lock back. Items show in the
// outbox only once they are written, durable ones once they are durable.
func (j *Journal) putLocked(r record, d Durability) error {
	upto, err := j.append(r, d)
	if err == nil {
		for _, it := range r.Put {
			switch {
			case d == Durable:
				j.held[it.Seq] = upto
			case len(j.parked) > 0:
				j.held[it.Seq] = parkedAway
			}
		}
	}
	j.mu.Unlock()
	if err == nil && d == Durable {
		err = j.durableTo(upto)
	}
	j.signal(len(r.Put))
	return err
}

// parkedAway holds an item until the parked records are written.
const parkedAway = int64(1) << 62

// Pending gives at most limit unacknowledged items above the given number, in order.
func (j *Journal) Pending(after uint64, limit int) []Item {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, _ := slices.BinarySearchFunc(j.state.Outbox, after+1, func(it Item, seq uint64) int {
		switch {
		case it.Seq < seq:
			return -1
		case it.Seq > seq:
			return 1
		}
		return 0
	})
	var out []Item
	for _, it := range j.state.Outbox[i:] {
		if len(out) == limit {
			break
		}
		if _, held := j.held[it.Seq]; !held {
			out = append(out, it)
		}
	}
	return out
}

// PendingOf says whether the outbox still holds an item of the fence: one of the
// given kinds, or any where none is given.
func (j *Journal) PendingOf(f fleet.Fence, kinds ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.state.Outbox, func(it Item) bool {
		return it.Fence == f && (len(kinds) == 0 || slices.Contains(kinds, it.Kind))
	})
}

// Ack removes settled items. Numbers that are not there are passed over.
func (j *Journal) Ack(seqs ...uint64) error {
	if len(seqs) == 0 {
		return nil
	}
	if err := j.commit(record{Ack: seqs}, Lazy); err != nil {
		return err
	}
	j.compactIfLarge()
	return nil
}

// Forget drops the record of an attempt. Its order id stays remembered.
func (j *Journal) Forget(f fleet.Fence) error {
	if _, ok := j.Attempt(f); !ok {
		return nil
	}
	if err := j.commit(record{Forget: &f}, Lazy); err != nil {
		return err
	}
	j.compactIfLarge()
	return nil
}

// Changed gets a value after items were put; several may share one.
func (j *Journal) Changed() <-chan struct{} { return j.changed }

func (j *Journal) signal(items int) {
	if items == 0 {
		return
	}
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

func (j *Journal) number(items []Item) []Item {
	out := slices.Clone(items)
	for i := range out {
		out[i].Seq = j.state.Next + uint64(i) + 1
	}
	return out
}

func (j *Journal) commit(r record, d Durability) error {
	j.mend()
	j.mu.Lock()
	upto, err := j.append(r, d)
	j.mu.Unlock()
	if err == nil && d == Durable {
		err = j.durableTo(upto)
	}
	return err
}
