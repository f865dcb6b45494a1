package probe

import (
	"bufio"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func statfs(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, err
	}
	s := Space{Free: int64(st.Bavail) * st.Bsize, Total: int64(st.Blocks) * st.Bsize, Inodes: int64(st.Ffree)}
	if st.Files == 0 {
		s.Inodes = -1
	}
	return s, nil
}

// Mem reads the machine's memory. The error wraps ErrUnknown.
func Mem() (Memory, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return Memory{}, fmt.Errorf("memory: %w: %w", ErrUnknown, err)
	}
	defer f.Close()
	var m Memory
	for s := bufio.NewScanner(f); s.Scan(); {
		var name string
		var kib int64
		if n, _ := fmt.Sscanf(s.Text(), "%s %d", &name, &kib); n != 2 {
			continue
		}
		switch name {
		case "MemTotal:":
			m.Total = kib << 10
		case "MemAvailable:":
			m.Available = kib << 10
		}
	}
	if m.Total == 0 {
		return Memory{}, fmt.Errorf("memory: no total in /proc/meminfo: %w", ErrUnknown)
	}
	return m, nil
}
