package hub

import "golang.org/x/sys/unix"

// freeBytes is what an unprivileged writer may still put on the file system of a
// directory; 0 where it cannot be told.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
