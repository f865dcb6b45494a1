package runner

import (
	"math/rand/v2"
	"time"
)

const (
	minBackoff = 250 * time.Millisecond
	maxBackoff = 30 * time.Second
	// steadyAfter is how long a session must have held for the next failure to begin
	// the ladder anew.
	steadyAfter = 10 * time.Second
	// easeTo bounds the wait after a session in which the hub answered a heartbeat.
	easeTo = time.Second
	// greetTo bounds the wait after a session that got no further than the handshake:
	// the hub is there, and the line loses things. It is no less, so that a hub which
	// takes every runner and drops it at once is not stormed.
	greetTo = 5 * time.Second
	// sleptAfter is by how much the wall clock may run ahead of the monotonic one
	// before the machine is taken to have slept.
	sleptAfter = 10 * time.Second
	// sleepCheck is how often the clocks are compared.
	sleepCheck = 2 * time.Second
)

// jitter spreads a period by ±20 %, so that runners which lost their hub at one
// instant do not come back at one.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// backoff is the ladder of waits between attempts to connect.
type backoff struct{ next time.Duration }

// wait gives the time until the next attempt. limit caps it.
func (b *backoff) wait(limit time.Duration) time.Duration {
	if b.next == 0 {
		b.next = minBackoff
	}
	d := min(b.next, limit)
	b.next = min(2*b.next, maxBackoff)
	return jitter(d)
}

func (b *backoff) reset() { b.next = 0 }

// after takes in how a session went that has ended: for how long it held, and whether
// the hub answered a heartbeat in it. One that was short but real steps the ladder
// down, so that a line which breaks again and again does not keep work waiting for
// half a minute.
func (b *backoff) after(held time.Duration, answered bool) {
	switch {
	case held >= steadyAfter:
		b.reset()
	case answered:
		b.next = min(b.next, easeTo)
	default:
		b.next = min(b.next, greetTo)
	}
}

// slept says whether the machine slept between two readings of the clock.
func slept(before, now time.Time) bool {
	return leapt(now.Round(0).Sub(before.Round(0)), now.Sub(before))
}

// leapt compares what passed on the wall clock with what passed on the monotonic
// one, which stands still while the machine sleeps.
func leapt(wall, monotonic time.Duration) bool { return wall-monotonic > sleptAfter }
