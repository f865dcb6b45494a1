package runner

import (
	"context"
	"runtime/debug"
	"time"
)

// startTime is how long a runner is taken to be starting.
const startTime = 10 * time.Second

// giveBack returns, once the start is over, the memory that only the start needed:
// garbage to the system, and out of this process's view the parts of the program's own
// file that were read. The kernel may still hold those in its cache, as it does for
// every process of the same program; what is used again is mapped again, unchanged.
func (r *Runner) giveBack(ctx context.Context) {
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	debug.FreeOSMemory()
	if err := unmapProgram(); err != nil {
		r.log.Debug("pages of the program stay mapped", "err", err)
	}
}
