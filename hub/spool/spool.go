// Package spool keeps the output of jobs on disk by byte offset.
//
// Every attempt of a job has two streams, each one file of opaque bytes that only
// grows, beside it a small marker once it is sealed. The store guarantees:
//
//   - a byte is acknowledged only after it and its file's name are on disk, and no
//     acknowledged byte is lost or changed by a crash, a full disk or a failed sync;
//   - a stream has no holes: what does not join its end is refused with the wanted
//     offset, and what is sent again must be equal to what is stored;
//   - readers see only acknowledged bytes and never hold a writer up;
//   - the number of open files is bounded, and there is no goroutine of its own.
//
// Appends to different streams sync side by side, so that the file system puts
// them into one journal commit; appends to one stream that wait for the same sync
// share it.
//
// Not guaranteed: after a power cut, bytes that were never acknowledged may stand
// after the acknowledged ones, and a file system that makes a file longer before
// its data are on disk (ext4 with data=writeback) may show them as anything; the
// digest given at sealing finds that out. What the bytes mean, who may write them
// and when a stream is deleted is for others to decide.
package spool

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"tugline.dev/tugline/hub/durable"
	"tugline.dev/tugline/shared/fleet"
)

const (
	// DefaultMaxStream is how long a stream may get, in bytes: the recorded
	// output of an attempt and a sixteenth for its framing.
	DefaultMaxStream = fleet.MaxOutput + fleet.MaxOutput/16

	defaultOpenFiles = 256

	// maxSyncs bounds the syncs in flight at once, each of which holds a thread
	// of the operating system. A file system merges what arrives together, so
	// that more would not be faster.
	maxSyncs = 64
)

// Config says where the store is and how large it may get.
type Config struct {
	Dir       string       // required; made with mode 0700 if missing
	Logger    *slog.Logger // default: discard
	MaxStream int64        // bytes a stream; default DefaultMaxStream
	OpenFiles int          // stream files kept open; default 256
	// Room says whether there is room for more bytes than are there; an error (a
	// fleet.DiskFull) is what a writer is told. Default: always.
	Room func() error
	// Broken is told when a write finds that the disk fails (durable.Broken), each time.
	// Default: nobody.
	Broken func(error)
	// Open opens a stream's file; default durable.Open. Another one can fail as disks do.
	Open func(path string, flag int) (durable.File, error)
}

func (c *Config) validate() error {
	if c.Room == nil {
		c.Room = func() error { return nil }
	}
	if c.Broken == nil {
		c.Broken = func(error) {}
	}
	if c.Open == nil {
		c.Open = durable.Open
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxStream == 0 {
		c.MaxStream = DefaultMaxStream
	}
	if c.OpenFiles == 0 {
		c.OpenFiles = defaultOpenFiles
	}
	switch {
	case c.Dir == "":
		return errors.New("spool: Dir is missing")
	case c.MaxStream < 0:
		return fmt.Errorf("spool: MaxStream %d is negative", c.MaxStream)
	case c.OpenFiles < 0:
		return fmt.Errorf("spool: OpenFiles %d is negative", c.OpenFiles)
	}
	return nil
}

// Store is an open spool. All methods may be called from many goroutines.
type Store struct {
	dir    string
	max    int64
	log    *slog.Logger
	room   func() error
	broken func(error)
	files  *files
	syncs  chan struct{} // one token for each sync in flight

	bytes   atomic.Int64 // durable
	streams atomic.Int64

	life   sync.RWMutex // held for reading by each call that touches the disk
	closed bool
	done   chan struct{} // closed with the store

	mu   sync.RWMutex
	jobs map[fleet.JobID][]*stream
	born chan struct{} // closed and replaced when a stream is added
	// deleted counts deletions, for names that none before had: what an earlier
	// process left was removed at Open.
	deleted int
}

// Open opens the store in c.Dir, makes durable what an earlier process left
// there, and removes what it left half deleted. One process may have it open.
func Open(c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		dir:    filepath.Clean(c.Dir),
		max:    c.MaxStream,
		log:    c.Logger,
		room:   c.Room,
		broken: c.Broken,
		files:  newFiles(c.OpenFiles, c.Open),
		syncs:  make(chan struct{}, maxSyncs),
		done:   make(chan struct{}),
		jobs:   map[fleet.JobID][]*stream{},
		born:   make(chan struct{}),
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("open spool: %w", durable.Coded(err))
	}
	if err := durable.SyncDir(filepath.Dir(s.dir)); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	if err := s.load(); err != nil {
		s.files.close()
		return nil, fmt.Errorf("open spool %s: %w", s.dir, durable.Coded(err))
	}
	return s, nil
}

// Close waits for calls in flight, wakes waiting readers with fleet.Unavailable
// and closes all files. It may be called more than once.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
		s.files.close()
	}
	return nil
}

// enter begins a call that touches the disk; leave ends it.
func (s *Store) enter() error {
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return fmt.Errorf("spool is closed: %w", fleet.Unavailable)
	}
	return nil
}

func (s *Store) leave() { s.life.RUnlock() }

// find returns the stream, or nil and a channel that is closed when any stream
// is added.
func (s *Store) find(k Key) (*stream, <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lookup(k), s.born
}

// obtain returns the stream, adding it, not yet on disk, if there is none.
func (s *Store) obtain(k Key) *stream {
	if st, _ := s.find(k); st != nil {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.lookup(k)
	if st == nil {
		st = &stream{key: k}
		s.jobs[k.Job] = append(s.jobs[k.Job], st)
		close(s.born)
		s.born = make(chan struct{})
	}
	return st
}

func (s *Store) lookup(k Key) *stream {
	for _, st := range s.jobs[k.Job] {
		if st.key == k {
			return st
		}
	}
	return nil
}

// Size returns how many bytes of the stream are durable, and whether it is
// sealed; 0 and false if there is no such stream.
func (s *Store) Size(k Key) (end int64, sealed bool) {
	st, _ := s.find(k)
	if st == nil {
		return 0, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.durable, st.seal != nil
}

// Usage returns the durable bytes and the number of all streams.
func (s *Store) Usage() (bytes, streams int64) {
	return s.bytes.Load(), s.streams.Load()
}

// Streams describes the streams of a job: older fences first, events before
// output.
func (s *Store) Streams(job fleet.JobID) []Info {
	s.mu.RLock()
	list := slices.Clone(s.jobs[job])
	s.mu.RUnlock()
	var infos []Info
	for _, st := range list {
		if info, ok := st.info(); ok {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return compareKeys(a.Key, b.Key) })
	return infos
}

// Oldest describes the n sealed streams that were sealed first, oldest first.
func (s *Store) Oldest(n int) []Info {
	s.mu.RLock()
	var all []*stream
	for _, list := range s.jobs {
		all = append(all, list...)
	}
	s.mu.RUnlock()
	var infos []Info
	for _, st := range all {
		if info, ok := st.info(); ok && info.Sealed {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b Info) int {
		if c := a.SealedAt.Compare(b.SealedAt); c != 0 {
			return c
		}
		return compareKeys(a.Key, b.Key)
	})
	return infos[:min(max(n, 0), len(infos))]
}

func compareKeys(a, b Key) int {
	return cmp.Or(
		cmp.Compare(a.Job, b.Job),
		cmp.Compare(a.Fence.Epoch, b.Fence.Epoch),
		cmp.Compare(a.Fence.Index, b.Fence.Index),
		cmp.Compare(a.Name, b.Name),
	)
}

// coded gives an error of a write its code, and tells of a disk that fails.
func (s *Store) coded(err error) error { return durable.Report(err, s.broken) }
