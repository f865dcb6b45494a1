package state

import (
	"time"

	"github.com/hashicorp/go-memdb"

	"tugline.dev/tugline/shared/fleet"
)

// txn is a batch of Applies in progress; what they change becomes visible at once,
// at its commit. Reading a table that was written to in the same transaction costs
// the database its advantage of writing in place, so the rows and counts that nearly
// every command reads are kept beside it.
type txn struct {
	*memdb.Txn
	db   *memdb.MemDB
	base *memdb.Txn // the state before
	meta Meta       // stored at commit

	jobs   map[fleet.JobID]*fleet.Job   // as they are now, where they were looked at; nil: there is none
	idems  map[string]*Idem             // the same
	counts map[string]int               // as they are now, where they were looked at
	slots  map[fleet.RunnerID]heldKinds // held now more than before
	writes int
	nodes  bool // some were written
	done   []step

	// Of the present entry:
	index   uint64
	head    Head
	changes []Change
	bad     Result // an illegal move that the command tried: it is refused whole
}

// step is a command that was applied and not refused.
type step struct {
	index uint64
	time  time.Time // of the state
	head  Head
	cmd   Command
}

// begin starts a transaction on a database.
func begin(db *memdb.MemDB) *txn {
	t := &txn{db: db, base: db.Txn(false)}
	if m := getMeta(t.base); m != nil {
		t.meta = *m
	}
	t.open()
	return t
}

func (t *txn) open() {
	t.Txn = t.db.Txn(true)
	t.jobs, t.idems, t.counts, t.slots, t.writes = map[fleet.JobID]*fleet.Job{}, map[string]*Idem{}, map[string]int{}, map[fleet.RunnerID]heldKinds{}, 0
}

// commit makes everything visible.
func (t *txn) commit() {
	for name, n := range t.counts {
		if n <= 0 {
			mustDelete(t.Txn, tableCounts, &count{Name: name})
		} else {
			mustInsert(t.Txn, tableCounts, &count{name, n})
		}
	}
	meta := t.meta
	mustInsert(t.Txn, tableMeta, &meta)
	t.Commit()
}

// now is the state time of the entry.
func (t *txn) now() time.Time { return t.meta.Time }

// take applies one command. Of one that is refused nothing stays, but that the index
// and the time go on.
func (t *txn) take(index uint64, head Head, cmd Command) (Result, []Change) {
	if index <= t.meta.Index {
		return Result{Index: index, Repeated: true}, nil
	}
	was, writes := t.meta, t.writes
	t.index, t.head, t.changes, t.bad = index, head, nil, Result{}
	t.meta.Index = index
	if head.At.After(t.meta.Time) {
		t.meta.Time = head.At
	}
	at := t.meta.Time
	res := t.keyed(cmd)
	if t.bad.Code != "" {
		res = t.bad
	}
	res.Index = index
	if res.Code != "" || res.Repeated {
		if t.writes != writes {
			t.again()
		}
		was.Index, was.Time = index, at
		t.meta = was
		return res, nil
	}
	if audited(head, cmd) {
		t.audit(cmd, res)
	}
	t.done = append(t.done, step{index, at, head, cmd})
	return res, t.changes
}

// again throws everything away and repeats what was not refused: the same commands on
// the same state come to the same.
func (t *txn) again() {
	t.Abort()
	t.meta = *getMeta(t.base)
	t.open()
	for _, s := range t.done {
		t.index, t.head, t.changes, t.bad = s.index, s.head, nil, Result{}
		t.meta.Index, t.meta.Time = s.index, s.time
		res := t.keyed(s.cmd)
		if audited(s.head, s.cmd) {
			t.audit(s.cmd, res)
		}
	}
}

func (t *txn) insert(table string, row any) {
	t.writes++
	switch r := row.(type) {
	case *fleet.Job:
		t.jobs[r.ID] = r
	case *Idem:
		t.idems[r.ID] = r
	case *fleet.HubNode:
		t.nodes = true
	}
	mustInsert(t.Txn, table, row)
}

func (t *txn) delete(table string, row any) {
	t.writes++
	switch r := row.(type) {
	case *fleet.Job:
		t.jobs[r.ID] = nil
	case *Idem:
		t.idems[r.ID] = nil
	}
	mustDelete(t.Txn, table, row)
}

func (t *txn) job(id fleet.JobID) *fleet.Job {
	if j, ok := t.jobs[id]; ok {
		return j
	}
	j := first[fleet.Job](t.base, tableJobs, "id", string(id))
	t.jobs[id] = j
	return j
}

func (t *txn) idem(id string) *Idem {
	if i, ok := t.idems[id]; ok {
		return i
	}
	return first[Idem](t.base, tableIdem, "id", id)
}

func (t *txn) count(name string) int {
	n, ok := t.counts[name]
	if !ok {
		if c := first[count](t.base, tableCounts, "id", name); c != nil {
			n = c.N
		}
	}
	return n
}

func (t *txn) add(name string, n int) {
	t.writes++
	t.counts[name] = max(t.count(name)+n, 0)
}

func (t *txn) changed(c Change) { t.changes = append(t.changes, c) }
