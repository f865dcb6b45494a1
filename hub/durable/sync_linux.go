package durable

import (
	"errors"
	"os"
	"syscall"
)

// datasync makes the file's bytes and its length durable. It leaves out the
// times of the inode, which would cost another journal write.
func datasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
