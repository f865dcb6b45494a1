package probe

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func statfs(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, err
	}
	return Space{Free: int64(st.Bavail) * int64(st.Bsize), Total: int64(st.Blocks) * int64(st.Bsize), Inodes: int64(st.Ffree)}, nil
}

// Mem reads the machine's memory; what is available is not known. The error wraps
// ErrUnknown.
func Mem() (Memory, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Memory{}, fmt.Errorf("memory: %w: %w", ErrUnknown, err)
	}
	return Memory{Total: int64(n)}, nil
}
