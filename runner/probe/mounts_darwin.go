package probe

import "golang.org/x/sys/unix"

// mountPoints lists the mounts as the kernel has them, which does not ask them. gopsutil
// has each of them asked, and would hang with one.
func mountPoints() []string {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil || n <= 0 {
		return nil
	}
	all := make([]unix.Statfs_t, n+8)
	if n, err = unix.Getfsstat(all, unix.MNT_NOWAIT); err != nil {
		return nil
	}
	var points []string
	for _, st := range all[:min(n, len(all))] {
		points = append(points, unix.ByteSliceToString(st.Mntonname[:]))
	}
	return points
}
