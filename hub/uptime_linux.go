package hub

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bootID names this run of the kernel.
var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// uptime gives which run of the kernel this is, "" where that can't be told, and how
// long it has lasted, sleep included. Nobody can set that clock.
func uptime() (boot string, up time.Duration) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0
	}
	return bootID(), time.Duration(ts.Nano())
}
