package state

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/go-memdb"

	"tugline.dev/tugline/shared/fleet"
)

const (
	tableMeta    = "meta"
	tableJobs    = "jobs"
	tableQueue   = "queue"
	tableOpen    = "open"
	tableHolds   = "holds"
	tableRunners = "runners"
	tableTokens  = "tokens"
	tableTickets = "tickets"
	tableIdem    = "idem"
	tableCounts  = "counts"
	tableAudit   = "audit"
	tableNodes   = "nodes"
	tableOrphans = "orphans"
	tableAlerts  = "alerts"
)

// Idem remembers the outcome of a keyed creation.
type Idem struct {
	ID      string       `json:"id"`
	Actor   string       `json:"actor"`
	Hash    fleet.Digest `json:"hash"`
	Created string       `json:"created"`
	At      time.Time    `json:"at"`
}

// Audit is one mutation by a person or a script.
type Audit struct {
	Index   uint64    `json:"index"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	From    string    `json:"from,omitempty"` // the address that it was asked from
	Command string    `json:"command"`
	Subject string    `json:"subject,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}

// queued is a derived row: a job that waits, in the queue's order.
type queued struct {
	ID  string // see waiting
	Job *fleet.Job
}

// waiting gives the row of a job in the queue. The database asks for the key of a row
// several times, so that it is made once.
func waiting(j *fleet.Job) *queued { return &queued{order(j.Seq, string(j.ID)), j} }

// open is a derived row: an attempt that still concerns its runner.
type open struct {
	Job    fleet.JobID
	Fence  fleet.Fence
	Runner fleet.RunnerID
	Holds  bool // a slot
	Slot   slot // see occupied.go
}

// opened is open as a row, with its key.
type opened struct {
	ID string
	open
}

func (o open) row() *opened {
	return &opened{opensOf(o.Runner) + string(o.Job) + "/" + o.Fence.String(), o}
}

// opensOf gives what the ids of a runner's open attempts start with, and of no other's.
func opensOf(r fleet.RunnerID) string { return string(r) + "\x00" }

// hold is a derived row: the job that holds a concurrency key.
type hold struct {
	Key string
	Job fleet.JobID
}

type count struct {
	Name string
	N    int
}

var schema = &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
	tableMeta:     table(tableMeta, idx("id", func(*Meta) string { return "meta" })),
	tableJobs:     table(tableJobs, idx("id", func(j *fleet.Job) string { return string(j.ID) })),
	tableQueue:    table(tableQueue, idx("id", func(q *queued) string { return q.ID })),
	tableOpen:     table(tableOpen, idx("id", func(o *opened) string { return o.ID })),
	tableHolds:    table(tableHolds, idx("id", func(h *hold) string { return holdsOf(h.Key) + string(h.Job) })),
	tableRunners:  table(tableRunners, idx("id", func(r *fleet.Runner) string { return string(r.ID) }), multi("name", func(r *fleet.Runner) string { return r.Name })),
	tableTokens:   table(tableTokens, idx("id", func(k *fleet.Token) string { return string(k.ID) }), multi("hash", func(k *fleet.Token) string { return string(k.Hash) })),
	tableTickets:  table(tableTickets, idx("id", func(k *fleet.Ticket) string { return string(k.Hash) })),
	tableIdem:     table(tableIdem, idx("id", func(i *Idem) string { return i.ID }), multi("at", func(i *Idem) string { return order(uint64(i.At.UnixNano()), "") })),
	tableCounts:   table(tableCounts, idx("id", func(c *count) string { return c.Name })),
	tableAudit:    table(tableAudit, idx("id", func(a *Audit) string { return order(a.Index, "") })),
	tableNodes:    table(tableNodes, idx("id", func(n *fleet.HubNode) string { return n.ID })),
	tableOrphans:  table(tableOrphans, idx("id", func(o *fleet.Orphan) string { return o.ID })),
	tableCircuits: table(tableCircuits, idx("id", func(c *fleet.Circuit) string { return c.ID })),
	tableAlerts:   table(tableAlerts, alertsTable...),
	tableBudgets:  table(tableBudgets, idx("id", func(b *fleet.Budget) string { return b.Origin })),
	tableKeys:     table(tableKeys, idx("id", func(k *fleet.ClusterKey) string { return keyID(k.Kind, k.Generation) })),

	tableSignIns:  table(tableSignIns, idx("id", func(s *fleet.SignIn) string { return s.ID }), multi("hash", func(s *fleet.SignIn) string { return string(s.Hash) }), multi("token", func(s *fleet.SignIn) string { return string(s.Token) })),
	tablePasskeys: table(tablePasskeys, idx("id", func(p *fleet.Passkey) string { return p.ID }), multi("token", func(p *fleet.Passkey) string { return string(p.Token) })),

	tableReleases:   table(tableReleases, idx("id", func(r *fleet.Release) string { return r.Version })),
	tableProvisions: table(tableProvisions, idx("id", func(p *fleet.Provision) string { return p.ID }), multi("runner", func(p *fleet.Provision) string { return string(p.Runner) })),
	tableFootprints: table(tableFootprints, idx("id", func(f *Footprint) string { return f.Cache })),
}}

// holdsOf gives what the ids of all holds of a key start with, and of no other key.
func holdsOf(key string) string { return order(uint64(len(key)), key) }

// order gives a string that sorts as the number does.
func order(n uint64, rest string) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return string(b[:]) + rest
}

func table(name string, ix ...*memdb.IndexSchema) *memdb.TableSchema {
	t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{}}
	for _, i := range ix {
		t.Indexes[i.Name] = i
	}
	return t
}

func idx[T any](name string, f func(*T) string) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Unique: true, Indexer: indexer[T]{key: f}}
}

func multi[T any](name string, f func(*T) string) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Indexer: indexer[T]{f, roomForID}}
}

// roomForID is what the database appends to the key of a row in an index that is not
// unique: its key in the index "id".
const roomForID = 40

// indexer takes the key of a row from a function instead of by reflection.
type indexer[T any] struct {
	key  func(*T) string
	room int
}

func terminated(s string, room int) []byte {
	b := make([]byte, len(s)+1, len(s)+1+room)
	copy(b, s)
	return b
}

func (x indexer[T]) FromObject(obj any) (bool, []byte, error) {
	row, ok := obj.(*T)
	if !ok {
		return false, nil, fmt.Errorf("row is a %T", obj)
	}
	return true, terminated(x.key(row), x.room), nil
}

func (x indexer[T]) FromArgs(args ...any) ([]byte, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("one argument, not %d", len(args))
	}
	s, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("a string, not a %T", args[0])
	}
	return terminated(s, 0), nil
}

func (x indexer[T]) PrefixFromArgs(args ...any) ([]byte, error) {
	b, err := x.FromArgs(args...)
	if err != nil {
		return nil, err
	}
	return b[:len(b)-1], nil
}

// The database fails only on a schema error, which is a bug of this package.

func mustInsert(tx *memdb.Txn, table string, row any) {
	if err := tx.Insert(table, row); err != nil {
		panic(fmt.Sprintf("insert into %s: %v", table, err))
	}
}

func mustDelete(tx *memdb.Txn, table string, row any) {
	if err := tx.Delete(table, row); err != nil && err != memdb.ErrNotFound {
		panic(fmt.Sprintf("delete from %s: %v", table, err))
	}
}

func first[T any](tx *memdb.Txn, table, index, key string) *T {
	row, err := tx.First(table, index, key)
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", table, err))
	}
	if row == nil {
		return nil
	}
	return row.(*T)
}

// rowID gives the key of a row in its table's index "id".
func rowID(table string, row any) (string, error) {
	_, key, err := schema.Tables[table].Indexes["id"].Indexer.(memdb.SingleIndexer).FromObject(row)
	if err != nil {
		return "", err
	}
	return string(key[:len(key)-1]), nil
}

// each walks rows in the order of an index until f says stop.
func each[T any](tx *memdb.Txn, table, index string, f func(*T) bool, args ...any) {
	it, err := tx.Get(table, index, args...)
	if err != nil {
		panic(fmt.Sprintf("walk %s: %v", table, err))
	}
	for row := it.Next(); row != nil; row = it.Next() {
		if !f(row.(*T)) {
			return
		}
	}
}

func getMeta(tx *memdb.Txn) *Meta { return first[Meta](tx, tableMeta, "id", "meta") }

func idemID(actor, route, key string) string { return actor + "\x00" + route + "\x00" + key }
