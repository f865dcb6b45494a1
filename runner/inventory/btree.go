package inventory

import (
	"fmt"
	"strings"
)

// The kinds of a tree's pages.
const (
	innerIndex = 0x02
	innerTable = 0x05
	leafIndex  = 0x0a
	leafTable  = 0x0d
)

// table is what the schema says of a table.
type table struct {
	root    uint32
	columns []string
	indexes map[string]uint32 // by their first column
}

// row is one of a table. A column that is longer than a document, or that the table does not have, is "".
type row struct {
	id    int64
	names []string
	vals  []datum
}

// datum is a text or a number; what is neither is zero.
type datum struct {
	text string
	num  int64
}

func (r row) col(name string) datum {
	for i, n := range r.names {
		if n == name && i < len(r.vals) {
			return r.vals[i]
		}
	}
	return datum{}
}

// schema reads which tables there are. What it can't read of one costs that one.
func (d *database) schema() error {
	d.tables = map[string]table{}
	type index struct {
		table, column string
		root          uint32
	}
	var indexes []index
	err := d.walk(1, 0, func(_ int64, payload []byte) {
		v := decode(payload) // type, name, tbl_name, rootpage, sql
		if len(v) < 5 || v[3].num <= 0 || v[3].num > 1<<31 {
			return
		}
		root := uint32(v[3].num)
		switch v[0].text {
		case "table":
			d.tables[v[1].text] = table{root: root, columns: columns(v[4].text), indexes: map[string]uint32{}}
		case "index":
			if all := columns(v[4].text); len(all) > 0 {
				indexes = append(indexes, index{v[2].text, all[0], root})
			}
		}
	})
	for _, i := range indexes {
		if t, ok := d.tables[i.table]; ok {
			t.indexes[i.column] = i.root
		}
	}
	return err
}

// columns gives the names in the first parentheses of a statement that makes a table or an index.
func columns(sql string) (out []string) {
	_, in, ok := strings.Cut(sql, "(")
	if !ok {
		return nil
	}
	depth, begin := 0, 0
	for i := 0; i <= len(in); i++ {
		end := i == len(in)
		switch {
		case !end && in[i] == '(':
			depth++
		case end || in[i] == ')' && depth == 0 || in[i] == ',' && depth == 0:
			if f := strings.Fields(in[begin:i]); len(f) > 0 {
				out = append(out, strings.Trim(f[0], "`\"[]"))
			}
			if end || in[i] == ')' {
				return out
			}
			begin = i + 1
		case in[i] == ')':
			depth--
		}
	}
	return out
}

// all goes through a table.
func (d *database) all(name string, do func(row)) error {
	t, ok := d.tables[name]
	if !ok {
		return fmt.Errorf("it has no table %s: %w", name, errDatabase)
	}
	return d.walk(t.root, 0, func(id int64, payload []byte) { do(row{id, t.columns, decode(payload)}) })
}

// with gives the ids of a table's rows whose column has a value, in the order of the index on it.
func (d *database) with(name, column, want string) (ids []int64, err error) {
	root, ok := d.tables[name].indexes[column]
	if !ok {
		return nil, fmt.Errorf("it has no index of %s on %s: %w", name, column, errDatabase)
	}
	_, err = d.seek(root, 0, want, func(id int64) { ids = append(ids, id) })
	return ids, err
}

// one gives the row with an id.
func (d *database) one(name string, id int64) (out row, err error) {
	t := d.tables[name]
	n := t.root
	for range maxDepth {
		p, err := d.node(n)
		if err != nil {
			return out, err
		}
		if p.kind == leafTable {
			for i := range p.cells {
				if c, rowid, ok := p.tableCell(i); ok && rowid == id {
					payload, err := d.payload(c)
					return row{id, t.columns, decode(payload)}, err
				}
			}
			return out, broken("row", uint32(id))
		}
		n = p.right
		for i := range p.cells {
			if left, key, ok := p.innerCell(i); ok && id <= key {
				n = left
				break
			}
		}
	}
	return out, broken("row", uint32(id))
}

// walk goes through a tree of rows.
func (d *database) walk(n uint32, depth int, do func(id int64, payload []byte)) error {
	p, err := d.node(n)
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return broken("page", n)
	}
	for i := range p.cells {
		switch p.kind {
		case innerTable:
			if left, _, ok := p.innerCell(i); ok {
				if err := d.walk(left, depth+1, do); err != nil {
					return err
				}
			}
		case leafTable:
			c, id, ok := p.tableCell(i)
			if !ok {
				continue
			}
			payload, err := d.payload(c)
			if err != nil {
				return err
			}
			do(id, payload)
		default:
			return broken("page", n)
		}
	}
	if p.kind == innerTable {
		return d.walk(p.right, depth+1, do)
	}
	return nil
}

// seek takes the ids of the entries of an index that begin with a text, and says whether greater ones have come.
func (d *database) seek(n uint32, depth int, want string, take func(id int64)) (ended bool, err error) {
	p, err := d.node(n)
	if err != nil {
		return false, err
	}
	if depth > maxDepth || p.kind != innerIndex && p.kind != leafIndex {
		return false, broken("page", n)
	}
	for i := range p.cells {
		c, left, ok := p.indexCell(i)
		if !ok {
			return false, broken("page", n)
		}
		payload, err := d.payload(c)
		if err != nil {
			return false, err
		}
		v := decode(payload)
		if len(v) < 2 {
			return false, broken("page", n)
		}
		order := strings.Compare(v[0].text, want)
		if order < 0 {
			continue // and so is all that is left of it
		}
		if p.kind == innerIndex {
			if ended, err := d.seek(left, depth+1, want, take); err != nil || ended {
				return ended, err
			}
		}
		if order > 0 {
			return true, nil
		}
		take(v[len(v)-1].num)
	}
	if p.kind == innerIndex {
		return d.seek(p.right, depth+1, want, take)
	}
	return false, nil
}
