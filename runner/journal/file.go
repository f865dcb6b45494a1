package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
)

// A file is a row of frames: length and checksum of the payload, four bytes each,
// little endian, then the payload, which is the JSON of a record. The first record
// carries the head.
const (
	frameHead   = 8
	maxPayload  = 4 << 20
	compactSize = 1 << 20 // bytes of growth after which a file is rewritten
)

// castagnoli is made when it is first asked for: most processes of this program have no journal.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

func frame(r record) ([]byte, error) {
	payload, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode journal record: %w", err)
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("encode journal record of %d bytes: over the limit of %d: %w", len(payload), maxPayload, fleet.TooLarge)
	}
	b := make([]byte, frameHead, frameHead+len(payload))
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(payload, castagnoli()))
	return append(b, payload...), nil
}

// next splits the first whole and sound frame off b.
func next(b []byte) (r record, size int, ok bool) {
	if len(b) < frameHead {
		return r, 0, false
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n == 0 || n > maxPayload || len(b) < frameHead+n {
		return r, 0, false
	}
	payload := b[frameHead : frameHead+n]
	if crc32.Checksum(payload, castagnoli()) != binary.LittleEndian.Uint32(b[4:]) || json.Unmarshal(payload, &r) != nil {
		return r, 0, false
	}
	return r, frameHead + n, true
}

// read adds up a journal file. good is where the sound part ends. damaged says
// that sound records lie behind the break: that is no torn tail but a loss of
// something that was once promised.
func read(path string) (st state, good int64, damaged bool, err error) {
	st.apply(record{})
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return st, 0, false, nil
	}
	if err != nil {
		return st, 0, false, fmt.Errorf("read journal: %w", err)
	}
	at := 0
	for at < len(b) {
		r, size, ok := next(b[at:])
		if !ok {
			break
		}
		if r.Head != nil && r.Head.Version > formatVersion {
			return st, 0, false, &durable.Newer{What: "the runner's journal", Path: path, Format: r.Head.Version, Known: formatVersion}
		}
		st.apply(r)
		at += size
	}
	return st, int64(at), at < len(b) && soundBehind(b[at:]), nil
}

// soundBehind looks for a record that begins anywhere after the first byte of b.
func soundBehind(b []byte) bool {
	mark := []byte(`{"n":`)
	for from := 1; ; {
		i := bytes.Index(b[min(from, len(b)):], mark)
		if i < 0 {
			return false
		}
		i += from
		if i >= frameHead+1 {
			if _, _, ok := next(b[i-frameHead:]); ok {
				return true
			}
		}
		from = i + 1
	}
}

// maxParked bounds the lazy records that wait in memory for room on the disk.
const maxParked = 4 << 20

// append writes one record; mu is held. The result is the position to sync to. A
// lazy record for which there is no room is parked.
func (j *Journal) append(r record, d Durability) (int64, error) {
	if j.file == nil {
		return 0, fmt.Errorf("write journal: %w", os.ErrClosed)
	}
	r.N = j.state.N + 1
	b, err := frame(r)
	if err != nil {
		return 0, err
	}
	err = j.failed
	if err == nil {
		err = j.unpark()
	}
	if err == nil {
		// What is written in part is overwritten by the next record.
		err = j.write(j.file, b, j.size)
	}
	switch {
	case err == nil:
		j.size += int64(len(b))
		j.wrote = r.N
	case d == Lazy && len(j.parked)+len(b) <= maxParked:
		j.parked = append(j.parked, b...)
	default:
		return 0, fmt.Errorf("write journal: %w", err)
	}
	j.state.apply(r)
	return j.size, nil
}

// unpark writes what the file lacks: that it was opened, and parked records; mu is
// held.
func (j *Journal) unpark() error {
	if !j.unsaid && len(j.parked) == 0 {
		return nil
	}
	b := j.parked
	if j.unsaid {
		// Its number is that of the record before: the first parked one may have the next.
		head, err := frame(record{N: j.wrote, Head: &headRecord{Version: formatVersion, ID: j.state.ID, Opens: j.state.Opens, Next: j.state.Opens << 32}})
		if err != nil {
			return err
		}
		b = append(head, b...)
	}
	if err := j.write(j.file, b, j.size); err != nil {
		return err
	}
	j.size += int64(len(b))
	j.unsaid, j.parked, j.wrote = false, nil, j.state.N
	for seq, upto := range j.held {
		if upto == parkedAway {
			delete(j.held, seq)
		}
	}
	j.signal(1)
	return nil
}

func writeAt(f *os.File, b []byte, at int64) error {
	_, err := f.WriteAt(b, at)
	return err
}

// Flush writes what was parked while there was no room. Nil says that the journal
// lacks nothing and can be written to.
func (j *Journal) Flush() error {
	j.mend()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return fmt.Errorf("write journal: %w", os.ErrClosed)
	}
	err := j.failed
	if err == nil {
		err = j.unpark()
	}
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// mend begins a new file where the old one can't be trusted any more; what the disk
// holds of a file after a failed fsync is unknown.
func (j *Journal) mend() {
	j.mu.Lock()
	broken := j.failed != nil && j.file != nil
	j.mu.Unlock()
	if broken {
		_ = j.rewrite() // else the next call tries again
	}
}

// Sync makes everything written so far durable.
func (j *Journal) Sync() error {
	j.mend()
	j.mu.Lock()
	upto, closed := j.size, j.file == nil
	j.mu.Unlock()
	if closed {
		return nil
	}
	return j.syncTo(upto)
}

// durableTo is syncTo that begins a new file where the old one can't be synced.
func (j *Journal) durableTo(upto int64) error {
	err := j.syncTo(upto)
	if err != nil && j.rewrite() == nil {
		return nil
	}
	return err
}

// syncTo waits until the file is durable up to a position. Callers that come
// together share one fsync. After a failed one the file is not used any more.
func (j *Journal) syncTo(upto int64) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	done, failed, file, size, n := j.durable >= upto, j.failed, j.file, j.size, j.wrote
	j.mu.Unlock()
	if done {
		return nil
	}
	if failed != nil {
		return fmt.Errorf("sync journal: %w", failed)
	}
	err := file.Sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.syncs++
	if err != nil {
		j.failed = err
		return fmt.Errorf("sync journal: %w", err)
	}
	j.durable, j.synced = size, n
	shown := 0
	for seq, upto := range j.held {
		if upto <= size {
			delete(j.held, seq)
			shown++
		}
	}
	j.signal(shown)
	return nil
}

// compactIfLarge rewrites a file that has grown much. Where there is no room for
// that the old one goes on, and it is tried again after as much growth.
func (j *Journal) compactIfLarge() {
	j.mu.Lock()
	large := j.size-max(j.base, j.cramped) > compactSize && j.size > 2*j.base
	j.mu.Unlock()
	if large {
		_ = j.rewrite()
	}
}

// rewrite replaces the file by the shortest one with the same sum. The old file
// stays whole, and in use, until the new one is durable under its name.
func (j *Journal) rewrite() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.failed, os.ErrClosed) {
		return fmt.Errorf("rewrite journal: %w", j.failed)
	}
	var all []byte
	for _, r := range j.state.records() {
		b, err := frame(r)
		if err != nil {
			return err
		}
		all = append(all, b...)
	}
	path := filepath.Join(j.dir, fileName)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		j.cramped = j.size
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if err = j.write(file, all, 0); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(path + ".new")
		j.cramped = j.size
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if err = os.Rename(path+".new", path); err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		_ = file.Close()
		j.failed = err // which file the name stands for is unknown
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file, j.failed = file, nil
	j.size, j.base, j.durable = int64(len(all)), int64(len(all)), int64(len(all))
	j.wrote, j.synced, j.cramped = j.state.N, j.state.N, 0
	j.unsaid, j.parked = false, nil
	clear(j.held)
	j.signal(len(j.state.Outbox))
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
