package inventory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Of an SQLite database, as its file format is documented. It is read while a CLI may be
// writing it: without a lock, which could stop that CLI, and without the library, which
// writes beside the file even to read it.
const (
	maxWAL   = 32 << 20 // bytes of what a CLI has committed and not put into the file itself yet
	maxDepth = 20       // levels of a tree
	walHead  = 32
	frameLen = 24 // of a frame's head; the page follows
)

// database is one moment of a file: its pages, with what lies in the log beside it laid over
// them.
type database struct {
	l       *look
	file    *os.File
	wal     *os.File         // nil: there is none
	frames  map[uint32]int64 // where the log has the newest committed form of a page
	salts   [8]byte          // of the log: one that was begun anew has others
	size    int              // of a page
	usable  int              // of that what trees may use
	was     time.Time        // of the file's last change at the open
	wasSize int64
	tables  map[string]table
}

// errDatabase says that a file is no database of the documented form, or was changed while
// it was read.
var errDatabase = errors.New("it is no database that can be read now")

func broken(what string, n uint32) error { return fmt.Errorf("%s %d: %w", what, n, errDatabase) }

// database opens one, as it is now.
func (f folder) database(name string) (*database, error) {
	file, _, err := f.file(name)
	if err != nil {
		return nil, err
	}
	d := &database{l: f.l, file: file, frames: map[uint32]int64{}}
	if d.wal, _, err = f.file(name + "-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.close()
		return nil, err
	}
	if err := d.load(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *database) close() {
	_ = d.file.Close()
	if d.wal != nil {
		_ = d.wal.Close()
	}
}

func (d *database) load() error {
	st, err := d.file.Stat()
	if err != nil {
		return err
	}
	d.was, d.wasSize = st.ModTime(), st.Size()
	if err := d.readLog(); err != nil {
		return err
	}
	if d.size == 0 { // nothing in the log: the file says it
		head := d.l.exact(d.file, 0, 100)
		if head == nil {
			return errDatabase
		}
		if d.size = int(binary.BigEndian.Uint16(head[16:])); d.size == 1 {
			d.size = 1 << 16
		}
	}
	if d.size < 512 || d.size > 1<<16 || d.size&(d.size-1) != 0 {
		return errDatabase
	}
	first, err := d.page(1)
	if err != nil {
		return err
	}
	encoding := binary.BigEndian.Uint32(first[56:])
	if string(first[:16]) != "SQLite format 3\x00" || first[19] > 2 || encoding > 1 {
		return errDatabase
	}
	if d.usable = d.size - int(first[20]); d.usable < 480 {
		return errDatabase
	}
	return d.schema()
}

// same says whether the pages read since the open belong together: the log was not begun
// anew, and nothing of it was put into the file.
func (d *database) same() bool {
	st, err := d.file.Stat()
	if err != nil || !st.ModTime().Equal(d.was) || st.Size() != d.wasSize {
		return false
	}
	var salts [8]byte
	if d.wal != nil {
		copy(salts[:], d.l.exact(d.wal, 16, 8))
	}
	return salts == d.salts
}

// readLog finds what the log beside the file has committed. Its checksums run from frame to
// frame: what is behind the first one that is not right, is left over or not written yet.
func (d *database) readLog() error {
	if d.wal == nil {
		return nil
	}
	st, err := d.wal.Stat()
	if err != nil {
		return err
	}
	if st.Size() > maxWAL {
		return fmt.Errorf("%d bytes are not yet in the file itself: %w", st.Size(), errDatabase)
	}
	head := d.l.exact(d.wal, 0, walHead)
	if head == nil {
		return nil
	}
	copy(d.salts[:], head[16:24])
	magic := binary.BigEndian.Uint32(head)
	if magic&^1 != 0x377f0682 {
		return nil
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if magic&1 == 1 {
		order = binary.BigEndian
	}
	sum := checksum{order: order}
	if sum.add(head[:24]); !sum.is(head[24:]) {
		return nil
	}
	size := int(binary.BigEndian.Uint32(head[8:]))
	if size < 512 || size > 1<<16 {
		return nil
	}
	pending := map[uint32]int64{}
	for at := int64(walHead); ; at += int64(frameLen + size) {
		b := d.l.exact(d.wal, at, frameLen+size)
		if b == nil || [8]byte(b[8:16]) != d.salts {
			return nil
		}
		sum.add(b[:8])
		if sum.add(b[frameLen:]); !sum.is(b[16:]) {
			return nil
		}
		pending[binary.BigEndian.Uint32(b)] = at
		if binary.BigEndian.Uint32(b[4:]) != 0 { // the end of a transaction
			for n, at := range pending {
				d.frames[n] = at
			}
			clear(pending)
			d.size = size
		}
	}
}

// checksum is that of a log.
type checksum struct {
	order binary.ByteOrder
	a, b  uint32
}

func (c *checksum) add(p []byte) {
	for ; len(p) >= 8; p = p[8:] {
		c.a += c.order.Uint32(p) + c.b
		c.b += c.order.Uint32(p[4:]) + c.a
	}
}

func (c *checksum) is(p []byte) bool {
	return binary.BigEndian.Uint32(p) == c.a && binary.BigEndian.Uint32(p[4:]) == c.b
}

// page reads one; 1 is the first.
func (d *database) page(n uint32) ([]byte, error) {
	if n == 0 || d.l.spent() {
		return nil, broken("page", n)
	}
	if at, ok := d.frames[n]; ok {
		b := d.l.exact(d.wal, at, frameLen+d.size)
		if b == nil || [8]byte(b[8:16]) != d.salts || binary.BigEndian.Uint32(b) != n {
			return nil, broken("page", n)
		}
		return b[frameLen:], nil
	}
	b := d.l.exact(d.file, int64(n-1)*int64(d.size), d.size)
	if b == nil {
		return nil, broken("page", n)
	}
	return b, nil
}

// exact reads so many bytes of a file from an offset, or gives nil.
func (l *look) exact(file *os.File, from int64, n int) []byte {
	if l.bytes < int64(n) {
		l.bytes = 0
		return nil
	}
	b := make([]byte, n)
	m, _ := file.ReadAt(b, from) // an error is less than was asked for
	if l.bytes -= int64(m); m < n {
		return nil
	}
	return b
}
