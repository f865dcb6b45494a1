package state

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/go-memdb"

	"tugline.dev/tugline/shared/fleet"
)

// SnapshotVersion is the version of the snapshot's form; a newer one is refused.
const SnapshotVersion = 1

type snapshotHead struct {
	Version int `json:"tugline_snapshot"`
}

type snapshotRow struct {
	Table string          `json:"t"`
	Row   json.RawMessage `json:"r"`
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
	{tableJobs, func() any { return new(fleet.Job) }},
}

// Snapshot freezes the state and gives a function that writes it: one line of JSON
// a row, in the order of tables and ids, so equal states give equal bytes.
func (m *Machine) Snapshot() func(io.Writer) error {
	tx := m.current.Load().Txn(false)
	return func(w io.Writer) error {
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
				if err := enc.Encode(snapshotRow{t.name, raw}); err != nil {
					return fmt.Errorf("write snapshot: %w", err)
				}
			}
		}
		return b.Flush()
	}
}

// Restore replaces the whole state by a snapshot. On an error the state is unchanged.
func (m *Machine) Restore(r io.Reader) error {
	db, err := memdb.NewMemDB(schema)
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
	tx := &txn{Txn: db.Txn(true)}
	defer tx.Abort()
	for {
		var row snapshotRow
		if err := dec.Decode(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		mk := fresh[row.Table]
		if mk == nil {
			return fmt.Errorf("restore: table %q: %w", row.Table, ErrUnknownEntry)
		}
		v := mk()
		if err := json.Unmarshal(row.Row, v); err != nil {
			return fmt.Errorf("restore %s: %w", row.Table, err)
		}
		mustInsert(tx.Txn, row.Table, v)
		switch v := v.(type) {
		case *fleet.Job:
			tx.add("jobs", 1)
			tx.derive(v)
		case *Idem:
			tx.add("idem", 1)
			tx.add("idem:"+v.Actor, 1)
		}
	}
	if getMeta(tx.Txn) == nil {
		return errors.New("restore: the snapshot is cut short: it has no meta row")
	}
	tx.Commit()
	m.current.Store(db)
	return nil
}
