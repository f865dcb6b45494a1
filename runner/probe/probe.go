// Package probe takes small samples of the machine: free space of a path and
// memory. A sample that can't be had in time, because a mount hangs, is unknown and
// an error, never fine.
package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrUnknown says that no sample could be taken.
var ErrUnknown = errors.New("unknown")

// Space is what a file system has left for an ordinary user.
type Space struct {
	Free   int64 // bytes
	Total  int64 // bytes
	Inodes int64 // free; -1 where the file system does not count them
}

// Memory of the machine in bytes.
type Memory struct {
	Total     int64
	Available int64 // that could be had without swapping; 0 where it is not known
}

// looks holds the looks under way. Those who ask for the same path share one, so
// that a mount which hangs costs one goroutine, not one a sample.
var looks = struct {
	sync.Mutex
	under map[string]*look
}{under: map[string]*look{}}

type look struct {
	done  chan struct{} // closed when space and err are set
	space Space
	err   error
}

// Disk looks at the file system of a path. When ctx ends first, the error wraps
// ErrUnknown; the look itself can't be ended and goes on by itself.
func Disk(ctx context.Context, path string) (Space, error) { return bounded(ctx, path, statfs) }

func bounded(ctx context.Context, path string, stat func(string) (Space, error)) (Space, error) {
	looks.Lock()
	l := looks.under[path]
	if l == nil {
		l = &look{done: make(chan struct{})}
		looks.under[path] = l
		go func() {
			l.space, l.err = stat(path)
			looks.Lock()
			delete(looks.under, path)
			looks.Unlock()
			close(l.done)
		}()
	}
	looks.Unlock()
	select {
	case <-l.done:
		if l.err != nil {
			return Space{}, fmt.Errorf("free space of %s: %w: %w", path, ErrUnknown, l.err)
		}
		return l.space, nil
	case <-ctx.Done():
		return Space{}, fmt.Errorf("free space of %s: no answer in time: %w", path, ErrUnknown)
	}
}
