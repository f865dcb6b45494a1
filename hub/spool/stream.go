package spool

import (
	"os"
	"path/filepath"
	"sync"

	"tugline.dev/tugline/hub/durable"
)

// stream is the state of one stream. Its three locks are taken in this order:
// sync, write, mu.
type stream struct {
	key Key

	// sync is held while written bytes are made durable.
	sync sync.Mutex
	// write is held while the file is changed.
	write sync.Mutex

	// mu guards what follows, and is held only for moments. end, torn and gone
	// change only while write is held as well.
	mu      sync.Mutex
	exists  bool  // the file is there
	linked  bool  // the file's name is durable
	end     int64 // bytes written
	durable int64 // bytes that survive a power cut; never more than end
	torn    bool  // the file may be longer than end
	gone    bool  // deleted; look the key up again
	seal    *seal
	lost    error         // why bytes between durable and end were given up
	losses  int           // how often that happened
	grown   chan struct{} // made by whoever waits; closed at any change that readers see
}

// info describes the stream; false if nothing of it is on disk.
func (st *stream) info() (Info, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	i := Info{Key: st.key, Size: st.durable}
	if st.seal != nil {
		i.Sealed, i.Digest, i.SealedAt = true, st.seal.digest, st.seal.at
	}
	return i, st.exists && !st.gone
}

// wake tells waiting readers that something changed; mu is held.
func (st *stream) wake() {
	if st.grown != nil {
		close(st.grown)
		st.grown = nil
	}
}

// openFor opens the stream's file for changing, and makes it if it is missing;
// write is held.
func (s *Store) openFor(st *stream) (*handle, error) {
	path := st.key.path(s.dir)
	if st.exists {
		return s.files.acquire(path, false)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	h, err := s.files.acquire(path, true)
	if err != nil {
		return nil, err
	}
	st.mu.Lock()
	st.exists = true
	st.mu.Unlock()
	s.streams.Add(1)
	return h, nil
}

// mend cuts off what a failed write or sync may have left after the end; write
// is held.
func (st *stream) mend(f file) error {
	if !st.torn {
		return nil
	}
	if err := f.Truncate(st.end); err != nil {
		return err
	}
	st.mu.Lock()
	st.torn = false
	st.mu.Unlock()
	return nil
}

// flush makes all bytes written before the call durable, and the file's name with
// them; sync is held. On failure nothing is given up yet: see giveUp.
func (s *Store) flush(st *stream, f file) error {
	st.mu.Lock()
	end, before, linked := st.end, st.durable, st.linked
	st.mu.Unlock()
	if before == end && linked {
		return nil
	}
	s.syncs <- struct{}{}
	defer func() { <-s.syncs }()
	if err := f.Sync(); err != nil {
		return err
	}
	if !linked {
		// After the file's own sync, so that on a journaling file system the
		// names are on disk already and these two are nearly free.
		if err := durable.SyncDir(filepath.Dir(st.key.path(s.dir))); err != nil {
			return err
		}
		if err := durable.SyncDir(s.dir); err != nil {
			return err
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.linked = true
	st.durable = end
	s.bytes.Add(end - before)
	st.wake()
	return nil
}

// giveUp takes back every byte that is not durable, after a failed sync: the
// kernel may have dropped them and would say nothing at the next sync. sync and
// write are held.
func (st *stream) giveUp(f file, cause error) {
	st.mu.Lock()
	st.end = st.durable
	st.torn = true
	st.lost = cause
	st.losses++
	st.mu.Unlock()
	st.mend(f) // the next append tries again before it writes
}
