package worktree

import (
	"io/fs"
	"syscall"
	"time"
)

// changed is when a file or what is known of it was changed last, which no program can set back.
func changed(st fs.FileInfo) time.Time {
	return time.Unix(st.Sys().(*syscall.Stat_t).Ctimespec.Unix())
}
