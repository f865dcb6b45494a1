package process

import (
	"os/signal"
	"syscall"
	"testing"
)

// ignored has this process, and what it starts, ignore a signal until the returned
// function is called.
func ignored(_ *testing.T, sig syscall.Signal) func() {
	if sig > 31 { // there are no others here
		return func() {}
	}
	signal.Ignore(sig)
	return func() { signal.Reset(sig) }
}
