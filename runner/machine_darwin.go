package runner

import "golang.org/x/sys/unix"

func systemID() string {
	id, err := unix.Sysctl("kern.uuid")
	if err != nil {
		return ""
	}
	return id
}
