package process

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// awaitEnd waits until that very process has ended, ctx ends, or the limit has passed. false says at once that the
// kernel does not tell of ends, or not of this one.
func awaitEnd(ctx context.Context, id Identity, limit time.Duration) bool {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "process")
	defer f.Close()
	// The descriptor holds the process; if it is the right one now, it stays so.
	if p, err := look(id.PID); err != nil || p.Identity != id {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil || f.SetReadDeadline(time.Now().Add(limit)) != nil {
		return false
	}
	release := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer release()
	_ = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	return true
}
