package attempt

import (
	"errors"
	"fmt"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

const (
	stopGrace   = 10 * time.Second // between the gentle signal and the end of every process
	stopMargin  = 5 * time.Second  // beyond it, for the supervisor to show that it is done
	limitMargin = 30 * time.Second // beyond the time limit that the supervisor holds
)

// left gives the time until the runner itself holds the process to its time limit;
// false is no limit. Sleep of the machine does not count; where it is not known how
// long a process slept, it is given too much time rather than too little.
func (a *Attempt) left(started time.Time) (time.Duration, bool) {
	total := bound(a.asg.Spec.Timeouts.Total, fleet.DefaultTimeout)
	if total == 0 {
		return 0, false
	}
	ran := time.Duration(0)
	if !started.IsZero() {
		ran = max(0, time.Since(started)-process.Slept())
	}
	return max(0, total+limitMargin-ran), true
}

// force ends a process whose supervisor does not do it, and records that end.
func (a *Attempt) force(reason, detail string) (process.Status, error) {
	a.log.Warn("supervisor does not react; it is ended with its job", "reason", reason)
	err := process.End(a.processDir(), reason, detail)
	if err != nil && !errors.Is(err, process.ErrGone) {
		return process.Status{}, err
	}
	return process.Attach(a.processDir())
}

func limitText(total time.Duration) string {
	return fmt.Sprintf("it ran for longer than %s; its supervisor did not end it, the runner did", total)
}
