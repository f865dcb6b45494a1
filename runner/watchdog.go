package runner

import (
	"context"
	"sync/atomic"
	"time"
)

// minQuiet is how long a link that is well may make no progress that shows: the longest
// pause between two attempts to connect, and the longest attempt.
const minQuiet = 90 * time.Second

// pulse is when the link made progress last: the hub acknowledged a heartbeat, or an
// attempt to connect ended, however it ended. A hub that is away is no reason to start a
// runner again; a loop that is stuck is one.
type pulse struct{ at atomic.Pointer[time.Time] }

func (p *pulse) beat() {
	now := time.Now()
	p.at.Store(&now)
}

// within says whether there was progress so lately. The machine's sleep does not count.
func (p *pulse) within(d time.Duration) bool {
	at := p.at.Load()
	return at != nil && time.Since(*at) <= d
}

// feeds tells the service manager again and again that the runner is well, while the link
// makes progress.
func (r *Runner) feeds(ctx context.Context) {
	if r.cfg.Watchdog <= 0 {
		return
	}
	every := r.cfg.Watchdog / 4
	tick := time.NewTicker(every)
	defer tick.Stop()
	r.link.pulse.beat() // the start is progress
	for {
		select {
		case <-tick.C:
			if r.link.pulse.within(max(2*every, minQuiet)) {
				r.notify("WATCHDOG=1")
			}
		case <-ctx.Done():
			return
		}
	}
}

// notify tells the service manager how the runner is.
func (r *Runner) notify(state string) {
	if r.cfg.Notify == nil {
		return
	}
	if err := r.cfg.Notify(state); err != nil {
		r.log.Warn("the service manager is not told", "state", state, "err", err)
	}
}
