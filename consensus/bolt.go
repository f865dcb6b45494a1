package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// boltStore keeps raft's log and its few variables in a bbolt file, laid out as
// raft-boltdb does it, with a checksum behind each entry, and at less cost: that makes an
// encoder anew for every entry, which takes longer than all the rest of an append.
type boltStore struct {
	db     *bbolt.DB
	commit atomic.Uint64 // newest entry known to be committed
	heard  atomic.Pointer[[]byte]
}

var (
	bucketLogs = []byte("logs")
	bucketConf = []byte("conf")

	// errNotFound is known to raft by its text.
	errNotFound = errors.New("not found")

	// keyCommit is the newest entry that was known to be committed when the last
	// ones were stored.
	keyCommit = []byte("tugline.commit")
)

func openBolt(path string) (backend, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		// The list of free pages is rebuilt at open instead of being
		// written with every commit.
		NoFreelistSync:  true,
		InitialMmapSize: 64 << 20,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketLogs) != nil && tx.Bucket(bucketConf) != nil {
			return nil
		}
		_, err := tx.CreateBucketIfNotExists(bucketLogs)
		if err == nil {
			_, err = tx.CreateBucketIfNotExists(bucketConf)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &boltStore{db: db}, nil
}

// Close implements io.Closer.
func (s *boltStore) Close() error { return s.db.Close() }

func (s *boltStore) committed(index uint64, heard []byte) {
	s.commit.Store(index)
	if s.heard.Store(nil); heard != nil {
		s.heard.Store(&heard)
	}
}

// FirstIndex implements raft.LogStore.
func (s *boltStore) FirstIndex() (uint64, error) { return s.end((*bbolt.Cursor).First) }

// LastIndex implements raft.LogStore.
func (s *boltStore) LastIndex() (uint64, error) { return s.end((*bbolt.Cursor).Last) }

func (s *boltStore) end(of func(*bbolt.Cursor) (key, value []byte)) (index uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if k, _ := of(tx.Bucket(bucketLogs).Cursor()); k != nil {
			index = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return index, err
}

// GetLog implements raft.LogStore.
func (s *boltStore) GetLog(index uint64, l *raft.Log) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketLogs).Get(key(index))
		if v == nil {
			return raft.ErrLogNotFound
		}
		if err := readStored(key(index), v, l); err != nil {
			return fmt.Errorf("%s: %w", s.db.Path(), err)
		}
		return nil
	})
}

// StoreLog implements raft.LogStore.
func (s *boltStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore: all of them or none, and on disk when it returns.
func (s *boltStore) StoreLogs(logs []*raft.Log) error {
	// One piece of memory holds all keys and values until the commit.
	size := 0
	for _, l := range logs {
		size += 8 + maxHead + sumLen + len(l.Data) + len(l.Extensions)
	}
	room := make([]byte, 0, size)
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketLogs)
		b.FillPercent = 0.9 // entries come in order
		for _, l := range logs {
			from, mid := len(room), 0
			var err error
			if room, mid, err = appendStored(room, l); err != nil {
				return fmt.Errorf("encode entry %d: %w", l.Index, err)
			}
			if err := b.Put(room[from:mid:mid], room[mid:len(room):len(room)]); err != nil {
				return err
			}
		}
		if h := s.heard.Load(); h != nil {
			if err := tx.Bucket(bucketConf).Put(keyHeard, *h); err != nil {
				return err
			}
		}
		if c := s.commit.Load(); c > 0 {
			return tx.Bucket(bucketConf).Put(keyCommit, key(c))
		}
		return nil
	})
}

// DeleteRange implements raft.LogStore.
func (s *boltStore) DeleteRange(lo, hi uint64) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketLogs).Cursor()
		for k, _ := c.Seek(key(lo)); k != nil && binary.BigEndian.Uint64(k) <= hi; k, _ = c.Next() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set implements raft.StableStore.
func (s *boltStore) Set(k, v []byte) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketConf).Put(k, v) })
}

// Get implements raft.StableStore.
func (s *boltStore) Get(k []byte) (out []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketConf).Get(k)
		if v == nil {
			return errNotFound
		}
		out = append([]byte{}, v...)
		return nil
	})
	return out, err
}

// SetUint64 implements raft.StableStore.
func (s *boltStore) SetUint64(k []byte, v uint64) error { return s.Set(k, key(v)) }

// GetUint64 implements raft.StableStore.
func (s *boltStore) GetUint64(k []byte) (uint64, error) {
	v, err := s.Get(k)
	if err != nil {
		return 0, err
	}
	return number(k, v)
}

// number reads the value of the variable k.
func number(k, v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%s is %d bytes long, not 8", k, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

func key(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// maxHead bounds what appendLog needs beside the bytes of an entry.
const maxHead = 128

// An entry is stored in MessagePack, as a map from the names of raft.Log's fields, in
// order, to their values: numbers in their shortest form, bytes as raw, the time in the binary
// form of package time.

func appendLog(b []byte, l *raft.Log) ([]byte, error) {
	b = append(appendName(append(b, 0x80|fields), "AppendedAt"), 0) // the length is known afterwards
	at := len(b)
	b, err := l.AppendedAt.AppendBinary(b)
	if err != nil || len(b)-at > 31 {
		return nil, fmt.Errorf("time %v: %w", l.AppendedAt, errors.Join(err, errFormat))
	}
	b[at-1] = 0xa0 | byte(len(b)-at)
	b = appendRaw(appendName(b, "Data"), l.Data)
	b = appendRaw(appendName(b, "Extensions"), l.Extensions)
	b = appendNumber(appendName(b, "Index"), l.Index)
	b = appendNumber(appendName(b, "Term"), l.Term)
	return appendNumber(appendName(b, "Type"), uint64(l.Type)), nil
}

func appendName(b []byte, s string) []byte { return append(append(b, 0xa0|byte(len(s))), s...) }

func appendNumber(b []byte, n uint64) []byte {
	switch {
	case n < 1<<7:
		return append(b, byte(n))
	case n < 1<<8:
		return append(b, 0xcc, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), n)
}

func appendRaw(b, v []byte) []byte {
	switch n := len(v); {
	case v == nil:
		return append(b, 0xc0)
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, v...)
}

var errFormat = fmt.Errorf("it is in no form that this version knows; where no newer one wrote it: %w", ErrDamaged)

// fields is how many an entry has.
const fields = 6

// decodeLog reads what appendLog or raft-boltdb wrote, whatever number of fields its first
// byte tells; l gets memory of its own.
func decodeLog(b []byte, l *raft.Log) error {
	if len(b) == 0 || b[0] != 0x80|fields && b[0] != fieldsSummed {
		return errFormat
	}
	d := decoder{b: b[1:]}
	*l = raft.Log{}
	for range fields {
		switch name := string(d.raw()); name {
		case "Index":
			l.Index = d.number()
		case "Term":
			l.Term = d.number()
		case "Type":
			l.Type = raft.LogType(d.number())
		case "Data":
			l.Data = clone(d.raw())
		case "Extensions":
			l.Extensions = clone(d.raw())
		case "AppendedAt":
			var t time.Time
			if err := t.UnmarshalBinary(d.raw()); err != nil {
				return fmt.Errorf("time: %w: %w", err, ErrDamaged)
			}
			l.AppendedAt = t
		default:
			return errFormat
		}
		if d.bad {
			return errFormat
		}
	}
	if len(d.b) > 0 {
		return errFormat
	}
	return nil
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// decoder takes values off b; what does not fit is bad, and zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// sized takes a big-endian number of so many bytes.
func (d *decoder) sized(n uint64) (v uint64) {
	for _, x := range d.take(n) {
		v = v<<8 | uint64(x)
	}
	return v
}

func (d *decoder) number() uint64 {
	switch c := d.sized(1); {
	case c < 0x80:
		return c
	case c >= 0xcc && c <= 0xcf:
		return d.sized(1 << (c - 0xcc))
	}
	d.bad = true
	return 0
}

func (d *decoder) raw() []byte {
	switch c := d.sized(1); {
	case c == 0xc0:
		return nil
	case c&0xe0 == 0xa0:
		return d.take(c & 0x1f)
	case c >= 0xd9 && c <= 0xdb: // strings
		return d.take(d.sized(1 << (c - 0xd9)))
	case c >= 0xc4 && c <= 0xc6: // bytes
		return d.take(d.sized(1 << (c - 0xc4)))
	}
	d.bad = true
	return nil
}
