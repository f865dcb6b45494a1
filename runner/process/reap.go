package process

import (
	"errors"
	"syscall"
)

// A reaper waits for all children of this process: the job's first process, and the orphans that become ours.
type reaper struct {
	ended  chan struct{}      // closed when the child is reaped
	status syscall.WaitStatus // of the child, once ended is closed
	none   chan struct{}      // closed when no child is left
}

// reap starts waiting. It ends when no child is left.
func reap(child int) *reaper {
	r := &reaper{ended: make(chan struct{}), none: make(chan struct{})}
	go r.run(child)
	return r
}

func (r *reaper) run(child int) {
	ended := false
	for {
		options := 0
		if ended {
			// What is dead already must not make it look as if the child had left something behind.
			select {
			case <-r.ended:
			default:
				options = syscall.WNOHANG
			}
		}
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, options, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(r.none)
			if ended && options != 0 {
				close(r.ended)
			}
			return
		case pid == child:
			r.status, ended = ws, true
		case pid == 0:
			close(r.ended)
		}
	}
}

// childless says that no child is left, and hence, where orphans return to us, no descendant.
func (r *reaper) childless() bool {
	select {
	case <-r.none:
		return true
	default:
		return false
	}
}
