package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// dropInherited closes what the supervisor got from the runner by accident: the shell or service that started the runner
// may have left descriptors open, and a supervisor that kept a pipe of theirs would keep its reader waiting. Whatever
// this program opened itself is marked close-on-exec; what came through the exec is not.
func dropInherited(keep int) {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 || fd == keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
