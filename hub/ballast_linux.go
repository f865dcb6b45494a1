package hub

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes size bytes of the disk for a file, and writes none.
func allocate(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
