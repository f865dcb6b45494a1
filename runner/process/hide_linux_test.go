package process

import (
	"syscall"
)

// hideCgroups gives the calling thread a view of the file system without cgroups. A user who may not do that may not
// make cgroups either.
func hideCgroups() {
	if syscall.Unshare(syscall.CLONE_NEWNS) != nil {
		return
	}
	check(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	check(syscall.Unmount("/sys/fs/cgroup", syscall.MNT_DETACH))
}
