// Package state is the replicated state machine of the hub: the commands, what
// each does, and the views of the result. Apply is a function of the state and
// the entry alone, so every node that applies the same log holds the same state:
// time, ids, placement and verdicts are decided before an entry is proposed and
// ride in it. A refusal is a coded result that changes nothing; an entry that
// cannot be decoded is an error, and the node that meets it must stop.
//
// The package leaves to others where entries come from, who may propose what, and
// everything that is not remembered (presence, samples, output, artifacts).
package state

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-memdb"

	"tugline.dev/tugline/shared/fleet"
)

// Machine holds the state. One goroutine applies; any number read views.
type Machine struct {
	current atomic.Pointer[memdb.MemDB] // replaced whole by Restore, under the feet of readers
	time    atomic.Pointer[time.Time]   // state time of current
	nodes   atomic.Pointer[[]*fleet.HubNode]
	batch   *txn   // of the goroutine that applies
	done    []step // room for the steps of a batch
}

// New makes an empty machine.
func New() *Machine {
	db, err := newDB()
	if err != nil {
		panic(fmt.Sprintf("state schema: %v", err)) // the schema is a constant of this package
	}
	m := new(Machine)
	tx := db.Txn(true)
	mustInsert(tx, tableMeta, &Meta{})
	tx.Commit()
	m.set(db, time.Time{})
	return m
}

// newDB makes an empty database. Nobody watches rows of it, and a database that was
// made as a snapshot of one keeps no watch channels for every row that changes.
func newDB() (*memdb.MemDB, error) {
	db, err := memdb.NewMemDB(schema)
	if err != nil {
		return nil, err
	}
	return db.Snapshot(), nil
}

func (m *Machine) set(db *memdb.MemDB, at time.Time) {
	m.current.Store(db)
	m.time.Store(&at)
	m.noteNodes()
}

// noteNodes keeps Nodes at hand.
func (m *Machine) noteNodes() {
	n := m.View().Nodes()
	m.nodes.Store(&n)
}

// Nodes gives the hub nodes that were not removed, as a view does and at less cost.
func (m *Machine) Nodes() []*fleet.HubNode { return *m.nodes.Load() }

// Time gives state time as of the last applied entry, as the Meta of a view does and
// at less cost.
func (m *Machine) Time() time.Time { return *m.time.Load() }

// Meta is what the cluster knows of itself.
type Meta struct {
	Cluster  string            `json:"cluster"`
	Epoch    uint64            `json:"epoch"`
	Time     time.Time         `json:"time"`  // state time: never runs backwards
	Index    uint64            `json:"index"` // of the last entry applied
	Settings map[string]string `json:"settings,omitempty"`
	Epochs   []fleet.Epoch     `json:"epochs,omitempty"` // the newest raises of the epoch, oldest first
}

// Result is the answer to a command. With a Code nothing was changed.
type Result struct {
	Code     fleet.Code  `json:"code,omitempty"`
	Detail   string      `json:"detail,omitempty"`
	ID       string      `json:"id,omitempty"` // of what was created
	Fence    fleet.Fence `json:"fence,omitzero"`
	Index    uint64      `json:"index,omitempty"`
	Repeated bool        `json:"repeated,omitempty"` // nothing new: the same was already recorded
	Job      *fleet.Job  `json:"-"`                  // as it stands after the command, where it names one
}

// Err gives the refusal as an error that wraps its code, or nil.
func (r Result) Err() error {
	if r.Code == "" {
		return nil
	}
	return fmt.Errorf("%s: %w", r.Detail, r.Code)
}

// Change is one thing that an entry changed, for the feed.
type Change struct {
	What    string         `json:"what"` // job, runner, token, ticket, setting, node, orphan, epoch, keys, alert, circuit, release, provision, sign_in
	Job     *fleet.Job     `json:"job,omitempty"`
	Runner  *fleet.Runner  `json:"runner,omitempty"`
	Node    *fleet.HubNode `json:"node,omitempty"`
	Orphan  *fleet.Orphan  `json:"orphan,omitempty"`
	Alert   *fleet.Alert   `json:"alert,omitempty"`
	Circuit *fleet.Circuit `json:"circuit,omitempty"`
	Removed bool           `json:"removed,omitempty"`
}

// Apply decodes and applies the entry at the given index. Entries at or below the
// last applied index are skipped, so a replay over a restored snapshot is harmless.
// Within a batch nothing of it is seen before Commit.
func (m *Machine) Apply(index uint64, entry []byte) (Result, []Change, error) {
	head, cmd, err := Decode(entry)
	if err != nil {
		return Result{}, nil, fmt.Errorf("apply entry %d: %w", index, err)
	}
	if m.batch != nil {
		res, changes := m.batch.take(index, head, cmd)
		return res, changes, nil
	}
	m.Begin()
	res, changes := m.batch.take(index, head, cmd)
	m.Commit()
	return res, changes, nil
}

// Begin starts a batch: what Apply does until Commit becomes visible together, which
// costs far less than one by one.
func (m *Machine) Begin() {
	m.batch = begin(m.current.Load())
	m.batch.done = m.done
}

// Commit ends a batch.
func (m *Machine) Commit() {
	m.batch.commit()
	m.time.Store(&m.batch.meta.Time)
	if m.batch.nodes {
		m.noteNodes()
	}
	if cap(m.batch.done) <= maxSteps {
		clear(m.batch.done)
		m.done = m.batch.done[:0]
	}
	m.batch = nil
}

// maxSteps bounds the room that is kept for the steps of later batches.
const maxSteps = 1024

// keyed applies a command once per idempotency key.
func (t *txn) keyed(cmd Command) Result {
	if t.head.Key == "" {
		return cmd.apply(t)
	}
	id := idemID(t.head.Actor, t.head.Route, t.head.Key)
	if was := t.idem(id); was != nil {
		if was.Hash != t.head.Hash {
			return refuse(fleet.KeyReused, "idempotency key %q was used before with another payload; use a new key", t.head.Key)
		}
		r := Result{ID: was.Created, Repeated: true}
		if j := t.job(fleet.JobID(was.Created)); j != nil {
			r.Job = j
		}
		return r
	}
	if t.count("idem") >= MaxKeys || t.count("idem:"+t.head.Actor) >= MaxKeysPerToken {
		return refuse(fleet.KeysFull, "too many idempotency keys are held (%d a token, %d in all, kept 24 h); try again later", MaxKeysPerToken, MaxKeys)
	}
	r := cmd.apply(t)
	if r.Code == "" && r.ID != "" {
		t.insert(tableIdem, &Idem{ID: id, Actor: t.head.Actor, Hash: t.head.Hash, Created: r.ID, At: t.now()})
		t.add("idem", 1)
		t.add("idem:"+t.head.Actor, 1)
	}
	return r
}

func refuse(code fleet.Code, format string, args ...any) Result {
	return Result{Code: code, Detail: fmt.Sprintf(format, args...)}
}
