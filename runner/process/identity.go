package process

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// An Identity names one process for ever: the number may be given again, the pair is not.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is when the kernel started it: clock ticks since boot on Linux, microseconds since 1970 on macOS.
	StartTime uint64 `json:"start_time"`
}

// Identify gives the identity of a live process. The error wraps os.ErrProcessDone if there is none.
func Identify(pid int) (Identity, error) {
	p, err := inspect(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return p.Identity, nil
}

// proc is one row of the process table.
type proc struct {
	Identity
	parent, session int
	zombie          bool
}

// inspect reads the row of a live process.
func inspect(pid int) (proc, error) {
	p, err := look(pid)
	if err == nil && p.zombie {
		err = os.ErrProcessDone
	}
	return p, err
}

// alive says whether that very process still runs. A dead one that waits for us, its parent, is reaped first.
func alive(id Identity) bool {
	if id.PID <= 0 {
		return false
	}
	p, err := look(id.PID)
	if err != nil || p.Identity != id {
		return false
	}
	if p.zombie {
		var ws syscall.WaitStatus
		reaped, err := syscall.Wait4(id.PID, &ws, syscall.WNOHANG, nil)
		// 0 is our child of which a thread is still about to end.
		return err == nil && reaped == 0
	}
	return true
}

// proven says whether a process recorded in a job's directory is alive and ours: the same kernel, the same start
// time, and the job's marker in its environment where that may be read.
func proven(s Started, id Identity) bool {
	if s.Boot != bootID() || !alive(id) {
		return false
	}
	marked, readable := hasMark(id.PID, s.Marker)
	// The second look makes sure that the environment was that of the same process.
	return (marked || !readable) && alive(id)
}

// bootID names the kernel's run and the process namespace, in which process ids have a meaning.
var bootID = sync.OnceValue(readBootID)
