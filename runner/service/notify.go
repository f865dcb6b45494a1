package service

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier tells systemd how the program is. The zero value tells nobody.
type Notifier struct {
	socket string
	// Watchdog is within which time systemd wants to hear something; 0: it does not.
	Watchdog time.Duration
}

// FromSystemd gives the notifier that the environment names, and takes it out of there:
// it is of this process, and not of those that it starts.
func FromSystemd() Notifier {
	n := Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && usec > 0 && n.socket != "" && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.Watchdog = time.Duration(usec) * time.Microsecond
	}
	for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(v)
	}
	return n
}

// Tell sends a state such as READY=1.
func (n Notifier) Tell(state string) error {
	if n.socket == "" {
		return nil
	}
	name := n.socket
	if rest, abstract := strings.CutPrefix(name, "@"); abstract {
		name = "\x00" + rest
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	defer c.Close()
	c.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	return nil
}
