package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

// SnapshotVersion is the version of the snapshot's form; a newer one is refused.
const SnapshotVersion = 1

type snapshotHead struct {
	Version int `json:"tugline_snapshot"`
}

type snapshotRow struct {
	Table string          `json:"t,omitempty"`
	Row   json.RawMessage `json:"r,omitempty"`
	Rows  int             `json:"rows,omitempty"` // alone, in the last line
}

// tables that a snapshot carries, in order; the others are derived from jobs.
var tables = []struct {
	name  string
	fresh func() any
}{
	{tableMeta, func() any { return new(Meta) }},
	{tableRunners, func() any { return new(fleet.Runner) }},
	{tableTokens, func() any { return new(fleet.Token) }},
	{tableTickets, func() any { return new(fleet.Ticket) }},
	{tableIdem, func() any { return new(Idem) }},
	{tableAudit, func() any { return new(Audit) }},
	{tableKeys, func() any { return new(fleet.ClusterKey) }},
	{tableJobs, func() any { return new(fleet.Job) }},
	{tableNodes, func() any { return new(fleet.HubNode) }},
	{tableOrphans, func() any { return new(fleet.Orphan) }},
	{tableCircuits, func() any { return new(fleet.Circuit) }},
	{tableAlerts, func() any { return new(fleet.Alert) }},
	{tableBudgets, func() any { return new(fleet.Budget) }},
	{tableFootprints, func() any { return new(Footprint) }},
	{tableReleases, func() any { return new(fleet.Release) }},
	{tableProvisions, func() any { return new(fleet.Provision) }},
	{tableSignIns, func() any { return new(fleet.SignIn) }},
	{tablePasskeys, func() any { return new(fleet.Passkey) }},
}

// Snapshot freezes the state and gives a function that writes it: one line of JSON
// a row, in the order of tables and ids, so equal states give equal bytes. The last
// line counts the rows, so that a part of a snapshot is never taken for the whole.
func (m *Machine) Snapshot() func(io.Writer) error {
	tx := m.current.Load().Txn(false)
	return func(w io.Writer) error {
		rows := 0
		b := bufio.NewWriterSize(w, 1<<16)
		enc := json.NewEncoder(b)
		if err := enc.Encode(snapshotHead{SnapshotVersion}); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		for _, t := range tables {
			it, err := tx.Get(t.name, "id")
			if err != nil {
				return fmt.Errorf("snapshot %s: %w", t.name, err)
			}
			for row := it.Next(); row != nil; row = it.Next() {
				raw, err := json.Marshal(row)
				if err != nil {
					return fmt.Errorf("snapshot %s: %w", t.name, err)
				}
				// As the encoder writes a snapshotRow, without its second look at raw.
				b.WriteString(`{"t":"` + t.name + `","r":`)
				b.Write(raw)
				if _, err := b.WriteString("}\n"); err != nil { // the first error stays
					return fmt.Errorf("write snapshot: %w", err)
				}
				rows++
			}
		}
		if err := enc.Encode(snapshotRow{Rows: rows}); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		return b.Flush()
	}
}

// Restore replaces the whole state by a snapshot. On an error the state is unchanged.
func (m *Machine) Restore(r io.Reader) error {
	db, err := newDB()
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	var head snapshotHead
	if err := dec.Decode(&head); err != nil {
		return fmt.Errorf("restore: read head: %w", err)
	}
	if head.Version != SnapshotVersion {
		return fmt.Errorf("restore: snapshot version %d: %w", head.Version, ErrUnknownEntry)
	}
	fresh := map[string]func() any{}
	for _, t := range tables {
		fresh[t.name] = t.fresh
	}
	tx := begin(db)
	defer tx.Abort()
	for rows := 0; ; rows++ {
		var row snapshotRow
		if err := dec.Decode(&row); errors.Is(err, io.EOF) {
			return errors.New("restore: the snapshot is cut short")
		} else if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if row.Table == "" {
			if row.Rows != rows {
				return fmt.Errorf("restore: the snapshot has %d rows and should have %d", rows, row.Rows)
			}
			break
		}
		if err := tx.load(row, fresh[row.Table]); err != nil {
			return fmt.Errorf("restore %s: %w", row.Table, err)
		}
	}
	meta := getMeta(tx.Txn)
	if meta == nil {
		return errors.New("restore: the snapshot has no meta row")
	}
	tx.meta = *meta
	tx.commit()
	m.set(db, meta.Time)
	return nil
}

// sameRow compares as a snapshot would keep the two, so that a node that restored one
// comes to the same answer.
func sameRow[T any](a, b *T) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// load takes in one row of a snapshot.
func (t *txn) load(row snapshotRow, fresh func() any) error {
	if fresh == nil {
		return ErrUnknownEntry
	}
	v := fresh()
	if err := json.Unmarshal(row.Row, v); err != nil {
		return err
	}
	switch v := v.(type) {
	case *fleet.Job:
		if err := sound(v); err != nil {
			return fmt.Errorf("job %s: %w", v.ID, err)
		}
	case *fleet.Orphan:
		if v.ID != v.Fence.String() || v.Job == "" || v.Turn < 1 || (v.Settled != "") != (v.SettledAt != nil) {
			return fmt.Errorf("orphan %s of turn %d of job %q is out of order", v.ID, v.Turn, v.Job)
		}
	}
	id, err := rowID(row.Table, v)
	if err != nil {
		return err
	}
	if was, err := t.First(row.Table, "id", id); err != nil || was != nil {
		return errors.Join(fmt.Errorf("row %q comes twice", id), err)
	}
	t.insert(row.Table, v)
	switch v := v.(type) {
	case *fleet.Job:
		t.add("jobs", 1)
		t.derive(nil, v)
	case *Idem:
		t.add("idem", 1)
		t.add("idem:"+v.Actor, 1)
	case *fleet.Circuit:
		t.add(countCircuits, 1)
	case *fleet.Alert:
		t.add("alerts", 1)
	case *fleet.Budget:
		t.add("budgets", 1)
	}
	return nil
}

// sound says whether a job's record has the shape that every command relies on.
func sound(j *fleet.Job) error {
	if !slices.Contains(fleet.States, j.State) || len(j.Turns) == 0 {
		return fmt.Errorf("state %q with %d turns", j.State, len(j.Turns))
	}
	for i, tu := range j.Turns {
		if tu == nil || tu.N != i+1 || tu.Current < 0 || tu.Current > len(tu.Attempts) {
			return fmt.Errorf("turn %d is out of order", i+1)
		}
		for k, a := range tu.Attempts {
			if a == nil || a.N != k+1 {
				return fmt.Errorf("attempt %d of turn %d is out of order", k+1, i+1)
			}
		}
	}
	if cur := j.Current(); cur == nil && (j.State == fleet.Running || j.State == fleet.Lost || j.State == fleet.Verifying) {
		return fmt.Errorf("%s without a current attempt", j.State)
	}
	return nil
}
