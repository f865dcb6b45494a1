package process

import (
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ignored has this process, and what it starts, ignore a signal until the returned
// function is called.
func ignored(t *testing.T, sig syscall.Signal) func() {
	t.Helper()
	var was action
	set := func(now, old *action) {
		if _, _, err := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(now)), uintptr(unsafe.Pointer(old)), 8, 0, 0); err != 0 {
			t.Fatalf("signal %d: %v", sig, err)
		}
	}
	set(&action{handler: 1}, &was)
	return func() { set(&was, nil) }
}
