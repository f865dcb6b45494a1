package replica

import (
	"encoding/binary"
	"encoding/hex"
	"errors"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

var errMalformed = errors.New("malformed message")

// writer appends the parts of a message.
type writer struct{ b []byte }

func (w *writer) byte(v byte)     { w.b = append(w.b, v) }
func (w *writer) uint(v uint64)   { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)     { w.b = binary.AppendUvarint(w.b, uint64(v)) }
func (w *writer) fixed(v uint64)  { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *writer) bytes(v []byte)  { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) string(v string) { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) ballot(v Ballot) { w.uint(v.Epoch); w.uint(v.Term); w.uint(v.Round) }
func (w *writer) stamp(v stamp)   { w.ballot(v.Ballot); w.bool(v.Mixed) }
func (w *writer) holding(v holding) {
	w.key(v.Key)
	w.stamp(v.Stamp)
	w.int(v.Size)
	w.bool(v.Sealed)
	w.digest(v.Digest)
}

func (w *writer) bool(v bool) {
	if v {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

// names of streams, by their number on the wire.
var names = []spool.Name{"", spool.Output, spool.Events}

func (w *writer) key(k spool.Key) {
	w.string(string(k.Job))
	w.uint(k.Fence.Epoch)
	w.uint(k.Fence.Index)
	for i, n := range names {
		if n == k.Name {
			w.byte(byte(i))
		}
	}
}

func (w *writer) digest(d fleet.Digest) {
	raw, err := hex.DecodeString(string(d))
	if err != nil || len(raw) != 32 {
		w.byte(0)
		return
	}
	w.byte(1)
	w.b = append(w.b, raw...)
}

// reader takes the parts off a message. After the first that is not there or out of
// bounds all are zero, and end says so. It keeps no part of the message but data.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || n > 1 && r.b[n-1] == 0 { // each number has one form
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v := int64(r.uint())
	if v < 0 {
		r.bad = true
		return 0
	}
	return v
}

func (r *reader) fixed() uint64 {
	if v := r.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.byte()
	r.bad = r.bad || v > 1
	return v == 1
}

// data is part of the message itself, not a copy.
func (r *reader) data() []byte { return r.take(r.uint()) }

func (r *reader) string(most uint64) string {
	n := r.uint()
	if n > most {
		r.bad = true
	}
	return string(r.take(n))
}

func (r *reader) ballot() Ballot { return Ballot{r.uint(), r.uint(), r.uint()} }
func (r *reader) stamp() stamp   { return stamp{r.ballot(), r.bool()} }

func (r *reader) key() spool.Key {
	k := spool.Key{Job: fleet.JobID(r.string(64)), Fence: fleet.Fence{Epoch: r.uint(), Index: r.uint()}}
	n := int(r.byte())
	if n >= len(names) {
		r.bad = true
		return spool.Key{}
	}
	k.Name = names[n]
	return k
}

func (r *reader) digest() fleet.Digest {
	if !r.bool() {
		return ""
	}
	return fleet.Digest(hex.EncodeToString(r.take(32)))
}

func (r *reader) holding() holding {
	return holding{Key: r.key(), Stamp: r.stamp(), Size: r.int(), Sealed: r.bool(), Digest: r.digest()}
}

// count reads how many elements of at least size bytes follow.
func (r *reader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.b)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}

// end says whether all was there, and nothing more.
func (r *reader) end() error {
	if r.bad || len(r.b) > 0 {
		return errMalformed
	}
	return nil
}
