package process

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName gives the name of a signal as the shell writes it, such as "SIGTERM".
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}

// parseSignal reads INT, TERM or HUP, with or without the SIG before it.
func parseSignal(name string) (syscall.Signal, error) {
	switch strings.TrimPrefix(name, "SIG") {
	case "INT":
		return syscall.SIGINT, nil
	case "TERM", "":
		return syscall.SIGTERM, nil
	case "HUP":
		return syscall.SIGHUP, nil
	}
	return 0, fmt.Errorf("stop signal %q: want INT, TERM or HUP", name)
}
