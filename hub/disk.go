package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

// freeBytes is what an unprivileged writer may still put on the file system of a
// directory; 0 where it cannot be told.
func freeBytes(dir string) int64 {
	free, _ := statFree(dir)
	return free
}

func statFree(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// lookAgain is how long a look at the disk is believed.
const lookAgain = 500 * time.Millisecond

// reserve keeps the last bytes of the disk for the log: a log that cannot be
// written ends the hub, while new work, output and artifacts can wait.
type reserve struct {
	dir  string
	keep int64
	hold int64 // of which so much is held by a file; 0: none
	stat func(dir string) (int64, error)
	log  *slog.Logger

	broken chan error // what a write of output or a file found first

	mu   sync.Mutex
	at   time.Time
	free int64
	held int64 // hold, or 0 while there is no such file
}

// ErrDisk says that the node's disk fails: output and files can be written there no
// more, and another node has to lead.
var ErrDisk = errors.New("the hub's disk fails")

// broke takes note of a disk that fails.
func (r *reserve) broke(err error) {
	select {
	case r.broken <- err:
	default:
	}
}

// room refuses with fleet.DiskFull while less than the reserve is free. A disk that
// cannot be asked is taken to have room: the write itself will tell.
func (r *reserve) room() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.at) > lookAgain {
		free, err := r.stat(r.dir)
		if err != nil {
			return nil
		}
		r.at, r.free = now, free
	}
	if r.free+r.held < r.keep {
		return fmt.Errorf("the hub's disk has %d MiB free and keeps %d MiB for its log; free some space, or move the data directory: %w", r.free>>20, (r.keep-r.held)>>20, fleet.DiskFull)
	}
	return nil
}
