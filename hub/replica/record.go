package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/hub/spool"
)

const (
	recordName = "ballots"
	maxRecord  = 512     // bytes of one entry
	compactAt  = 4 << 20 // bytes of the file before it is written anew
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record keeps what a node promised and under which ballots its copies stand, in a
// file that only grows until it is written anew. Entries that wait for the disk at
// the same time share a sync. An entry that the disk lost was never answered for.
type record struct {
	path   string
	broken func(error) // told when a write finds that the disk fails

	mu       sync.Mutex
	file     durable.File
	size     int64
	promised Ballot
	to       string // the node that leads under it, so that two that claim the same ballot are told apart
	stamps   map[spool.Key]stamp
	torn     bool // the disk refused: what the file holds after size is not known
	closed   bool

	waiting []entry
	group   *group // of those in waiting
	writing bool
}

// entry is one fact: a stamp, or with an empty key the promise to a node.
type entry struct {
	key   spool.Key
	stamp stamp
	to    string
}

// group is a set of entries that become durable together.
type group struct {
	done chan struct{}
	err  error
}

// openRecord reads the file in dir; keep says for which streams a stamp still means
// something.
func openRecord(dir string, keep func(spool.Key) bool) (*record, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Dir(filepath.Clean(dir))); err != nil {
		return nil, err
	}
	r := &record{path: filepath.Join(dir, recordName), broken: func(error) {}, stamps: map[spool.Key]stamp{}}
	data, err := os.ReadFile(r.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for len(data) > 0 {
		e, rest, err := parseEntry(data)
		if err != nil {
			break // the end was not written before the power went
		}
		data = rest
		r.apply(e)
	}
	for k := range r.stamps {
		if !keep(k) {
			delete(r.stamps, k)
		}
	}
	return r, r.rewrite()
}

func (r *record) apply(e entry) {
	switch {
	case e.key == spool.Key{}:
		if e.stamp.Ballot.Compare(r.promised) > 0 {
			r.promised, r.to = e.stamp.Ballot, e.to
		}
	case e.stamp == stamp{}:
		delete(r.stamps, e.key)
	default:
		r.stamps[e.key] = e.stamp
	}
}

// rewrite puts what counts into a new file.
func (r *record) rewrite() error {
	b := appendEntry(nil, entry{stamp: stamp{Ballot: r.promised}, to: r.to})
	for k, st := range r.stamps {
		b = appendEntry(b, entry{key: k, stamp: st})
	}
	if err := durable.WriteFile(r.path, b); err != nil {
		return err
	}
	f, err := durable.Open(r.path, os.O_RDWR)
	if err != nil {
		return err
	}
	if r.file != nil {
		r.file.Close() // what was answered for is in the new one
	}
	r.file, r.size = f, int64(len(b))
	return nil
}

func (r *record) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.file.Close() // what was answered for is synced
		r.file = nil
	}
	r.closed = true
}

// promise gives the highest ballot that this node promised to obey.
func (r *record) promise() Ballot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.promised
}

func (r *record) stampOf(k spool.Key) stamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stamps[k]
}

// raise promises a ballot to a node unless a higher one was promised, or the same to
// another node, and says whether the node may act. What it says is durable.
func (r *record) raise(b Ballot, node string) (bool, error) {
	b = b.term()
	r.mu.Lock()
	switch c := b.Compare(r.promised); {
	case c < 0:
		r.mu.Unlock()
		return false, nil
	case c == 0:
		ok := r.to == node
		r.mu.Unlock()
		return ok, nil
	}
	r.mu.Unlock()
	if err := r.put(entry{stamp: stamp{Ballot: b}, to: node}); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.promised == b && r.to == node, nil
}

// set records a stamp; it is durable when set returns nil.
func (r *record) set(k spool.Key, st stamp) error {
	if r.stampOf(k) == st {
		return nil
	}
	return r.put(entry{key: k, stamp: st})
}

// put makes an entry durable and then has it count.
func (r *record) put(e entry) error {
	r.mu.Lock()
	if r.group == nil {
		r.group = &group{done: make(chan struct{})}
	}
	g := r.group
	r.waiting = append(r.waiting, e)
	if r.writing {
		r.mu.Unlock()
		<-g.done
		return g.err
	}
	r.writing = true
	for r.group != nil {
		now, entries := r.group, r.waiting
		r.group, r.waiting = nil, nil
		now.err = r.write(entries)
		close(now.done)
	}
	r.writing = false
	r.mu.Unlock()
	return g.err
}

// write makes entries durable; mu is held, and let go while the disk works.
func (r *record) write(entries []entry) error {
	if r.closed {
		return fmt.Errorf("record ballots: %w", fs.ErrClosed)
	}
	if r.torn {
		if err := r.rewrite(); err != nil {
			return fmt.Errorf("record ballots: %w", r.coded(err))
		}
		r.torn = false
	}
	var b []byte
	for _, e := range entries {
		b = appendEntry(b, e)
	}
	f, at := r.file, r.size
	r.mu.Unlock()
	_, err := f.WriteAt(b, at)
	if err == nil {
		err = f.Sync()
	}
	r.mu.Lock()
	if err != nil {
		r.torn = true
		return fmt.Errorf("record ballots: %w", r.coded(err))
	}
	r.size += int64(len(b))
	for _, e := range entries {
		r.apply(e)
	}
	if r.size > compactAt && r.size > 4*maxRecord*int64(len(r.stamps)+1) {
		if err := r.rewrite(); err != nil {
			r.torn = true // it is tried again before anything else is written
		}
	}
	return nil
}

// forget drops the stamps of streams that are no more, without waiting for a disk:
// a stamp without a stream says nothing.
func (r *record) forget(gone func(spool.Key) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.stamps {
		if gone(k) {
			delete(r.stamps, k)
		}
	}
}

// appendEntry writes length, checksum and content.
func appendEntry(b []byte, e entry) []byte {
	var w writer
	w.key(e.key)
	w.ballot(e.stamp.Ballot)
	w.bool(e.stamp.Mixed)
	w.string(e.to)
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.b)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(w.b, castagnoli))
	return append(b, w.b...)
}

func parseEntry(data []byte) (e entry, rest []byte, err error) {
	if len(data) < 8 {
		return entry{}, nil, io.ErrUnexpectedEOF
	}
	n := binary.BigEndian.Uint32(data)
	if n > maxRecord || int(n) > len(data)-8 {
		return entry{}, nil, io.ErrUnexpectedEOF
	}
	body := data[8 : 8+n]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(data[4:]) {
		return entry{}, nil, errMalformed
	}
	r := reader{b: body}
	e = entry{key: r.key(), stamp: stamp{Ballot: r.ballot(), Mixed: r.bool()}, to: r.string(maxText / 2)}
	return e, data[8+n:], r.end()
}

// coded gives an error of a write its code, and tells of a disk that fails.
func (r *record) coded(err error) error { return durable.Report(err, r.broken) }
