package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

const (
	ballastName  = "ballast"
	ballastShare = 4               // of what is kept free, one part is held by a file
	ballastLook  = 5 * time.Second // for room to hold it again
	leastRoom    = 1 << 20         // bytes with which another try of a write makes sense
)

// A disk can be filled at one stroke by somebody else, before this node sees that it
// gets full. A part of what is kept free for the log is held by a file, which is given up
// when the log or a vote cannot be written: with that the node goes on, says that it is
// full, takes nothing new and leaves leading to others.

// settle finds what is held from the last run, and gives it up at once where next to
// nothing is free: there are files to be written at a start.
func (r *reserve) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, err := os.Stat(r.ballast()); err == nil && st.Size() == r.hold {
		r.held = r.hold
	} else {
		os.Remove(r.ballast()) // of another size, or none
	}
	if free, err := r.stat(r.dir); err == nil && free < r.hold/2 {
		r.giveUp(free)
	}
}

func (r *reserve) ballast() string { return filepath.Join(r.dir, ballastName) }

// makeRoom gives up what is held, on a disk that is full, and says whether there is room.
func (r *reserve) makeRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveUp(0)
	free, err := r.stat(r.dir)
	return err == nil && free >= leastRoom
}

// giveUp frees what is held. It is called with mu.
func (r *reserve) giveUp(free int64) {
	if r.held == 0 {
		return
	}
	if err := os.Remove(r.ballast()); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Error("the disk is full, and the room kept for the log could not be used", "err", err)
		return
	}
	r.log.Error("the disk is full: what was kept for the log is used up now, and nothing new is taken; free some space, or move the data directory", "dir", r.dir, "free", free, "kept", r.held)
	r.held, r.at = 0, time.Time{}
}

// tend holds the room again whenever there is enough, until ctx ends.
func (r *reserve) tend(ctx context.Context) {
	tick := time.NewTicker(ballastLook)
	defer tick.Stop()
	for {
		r.take()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// take has a file hold the room, where that leaves as much free as is to be.
func (r *reserve) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held > 0 || r.hold == 0 {
		return
	}
	if free, err := r.stat(r.dir); err != nil || free < r.keep+r.hold {
		return
	}
	if err := fill(r.ballast(), r.hold); err != nil {
		r.log.Warn("no room is held for the log on a disk that gets full", "err", err)
		return
	}
	r.held, r.at = r.hold, time.Time{}
}

// fill makes a file that takes size bytes of the disk, or none.
func fill(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = allocate(f, size); errors.Is(err, errors.ErrUnsupported) {
		err = nil
		for block := make([]byte, 256<<10); size > 0 && err == nil; size -= int64(len(block)) {
			block = block[:min(size, int64(len(block)))]
			_, err = f.Write(block)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path) // the first error is the one to tell
	}
	return err
}
