// Package probe samples the machine that a runner works on: its volumes, memory,
// processors, disks, battery, owner and Docker.
//
// It guarantees that every probe is bounded by itself. One that is not answered in
// time, because a mount, a daemon or a command hangs, is unknown and an error, never
// fine; the others are told all the same. What can't be ended, such as a call into a
// hung mount, goes on by itself: at most one for each thing that hangs, however often
// it is asked for. What to make of a sample it leaves to others.
package probe

import (
	"errors"
	"time"
)

// ErrUnknown says that no sample could be taken.
var ErrUnknown = errors.New("unknown")

// Bounds of the probes.
const (
	probeTime   = 2 * time.Second // for a file system, a file of the kernel's, the daemon
	commandTime = 3 * time.Second // for a command
	sampleTime  = 6 * time.Second // for everything together
)
