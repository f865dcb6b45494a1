package process

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction on every 64-bit machine.
type action struct{ handler, flags, restorer, mask uint64 }

// dropIgnored gives every signal that came to us ignored its default back: what is
// ignored stays so through every exec, and a job would have it from whatever started the
// runner. A make leaves the C library's own 32 and 33 behind, which os/signal can't name.
func dropIgnored() {
	const lastSignal, ignore = 64, 1
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now, byDefault action
		_, _, failed := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(now.mask), 0, 0)
		if failed == 0 && now.handler == ignore {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(now.mask), 0, 0)
		}
	}
}
