package runner

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// unmapProgram drops the pages of the program's file that nobody can have written to.
func unmapProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range bytes.Lines(maps) {
		var from, to uintptr
		var perm, offset, device, path string
		var inode uint64
		// What cannot be read so is no mapping of a file.
		if n, _ := fmt.Sscanf(string(line), "%x-%x %s %s %s %d %s", &from, &to, &perm, &offset, &device, &inode, &path); n != 7 || path != exe {
			continue
		}
		if perm != "r-xp" && perm != "r--p" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %x-%x: %w", from, to, errno)
		}
	}
	return nil
}
