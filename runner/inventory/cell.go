package inventory

import (
	"encoding/binary"
	"slices"
)

// node is a page of a tree.
type node struct {
	kind   byte
	right  uint32 // of an inner one: where the greatest are
	cells  int
	offset int // of the first pointer to a cell
	page   []byte
	usable int
}

func (d *database) node(n uint32) (node, error) {
	b, err := d.page(n)
	if err != nil {
		return node{}, err
	}
	at := 0
	if n == 1 {
		at = 100 // the file's own head
	}
	p := node{kind: b[at], cells: int(binary.BigEndian.Uint16(b[at+3:])), offset: at + 8, page: b[:d.usable], usable: d.usable}
	if p.kind == innerTable || p.kind == innerIndex {
		p.right, p.offset = binary.BigEndian.Uint32(b[at+8:]), at+12
	}
	if p.offset+2*p.cells > d.usable {
		return node{}, broken("page", n)
	}
	return p, nil
}

// cell is the payload of an entry: what of it lies in its page, and where the rest begins.
type cell struct {
	size  int64
	local []byte
	over  uint32 // 0: it is whole
}

// at gives what begins at the place of an entry.
func (p node) at(i int) []byte {
	return p.page[min(int(binary.BigEndian.Uint16(p.page[p.offset+2*i:])), len(p.page)):]
}

// innerCell gives where the rows up to a key are.
func (p node) innerCell(i int) (left uint32, key int64, ok bool) {
	b := p.at(i)
	if len(b) < 5 {
		return 0, 0, false
	}
	key, n := varint(b[4:])
	return binary.BigEndian.Uint32(b), key, n > 0
}

// tableCell gives a row.
func (p node) tableCell(i int) (c cell, id int64, ok bool) {
	b := p.at(i)
	size, n := varint(b)
	id, m := varint(b[n:])
	if n == 0 || m == 0 {
		return c, 0, false
	}
	c, ok = p.cell(size, b[n+m:], p.usable-35)
	return c, id, ok
}

// indexCell gives an entry of an index, and in an inner page where those before it are.
func (p node) indexCell(i int) (c cell, left uint32, ok bool) {
	b := p.at(i)
	if p.kind == innerIndex {
		if len(b) < 4 {
			return c, 0, false
		}
		left, b = binary.BigEndian.Uint32(b), b[4:]
	}
	size, n := varint(b)
	if n == 0 {
		return c, 0, false
	}
	c, ok = p.cell(size, b[n:], (p.usable-12)*64/255-23)
	return c, left, ok
}

// cell says how much of a payload lies in the page, where at most so much may.
func (p node) cell(size int64, b []byte, most int) (c cell, ok bool) {
	local := int(min(size, int64(p.usable)))
	if size > int64(most) {
		least := (p.usable-12)*32/255 - 23
		if local = least + int((size-int64(least))%int64(p.usable-4)); local > most {
			local = least
		}
		if len(b) < local+4 {
			return c, false
		}
		c.over = binary.BigEndian.Uint32(b[local:])
	}
	if size < 0 || len(b) < local {
		return c, false
	}
	c.size, c.local = size, b[:local]
	return c, true
}

// payload gives all of it; one that is longer than a document is passed over.
func (d *database) payload(c cell) ([]byte, error) {
	if c.over == 0 {
		return c.local, nil
	}
	if c.size > maxDocument {
		return nil, nil
	}
	out := slices.Clone(c.local)
	for n := c.over; int64(len(out)) < c.size; {
		b, err := d.page(n)
		if err != nil {
			return nil, err
		}
		n = binary.BigEndian.Uint32(b)
		out = append(out, b[4:4+min(int64(d.usable-4), c.size-int64(len(out)))]...)
	}
	return out, nil
}

// maxColumns bounds the values of a record that are looked at; a column that is nothing takes a byte of it.
const maxColumns = 256

// decode gives the values of a record, as far as it is one.
func decode(b []byte) (out []datum) {
	size, n := varint(b)
	if n == 0 || size < int64(n) || size > int64(len(b)) {
		return nil
	}
	head, body := b[n:size], b[size:]
	for len(head) > 0 && len(out) < maxColumns {
		kind, n := varint(head)
		if n == 0 || kind < 0 {
			return out
		}
		head = head[n:]
		var v datum
		long := int64(0)
		switch {
		case kind <= 4:
			long = kind
		case kind == 5:
			long = 6
		case kind <= 7:
			long = 8
		case kind == 9:
			v.num = 1
		case kind >= 12:
			long = (kind - 12) / 2
		}
		if long > int64(len(body)) {
			return out
		}
		switch {
		case kind >= 1 && kind <= 6:
			v.num = int64(int8(body[0]))
			for _, x := range body[1:long] {
				v.num = v.num<<8 | int64(x)
			}
		case kind >= 13 && kind&1 == 1:
			v.text = string(body[:long])
		}
		out, body = append(out, v), body[long:]
	}
	return out
}

// varint reads a number of one to nine bytes; n is 0 where there is none.
func varint(b []byte) (v int64, n int) {
	for n < len(b) && n < 8 {
		v = v<<7 | int64(b[n]&0x7f)
		if n++; b[n-1] < 0x80 {
			return v, n
		}
	}
	if n < len(b) {
		return v<<8 | int64(b[n]), n + 1
	}
	return 0, 0
}
