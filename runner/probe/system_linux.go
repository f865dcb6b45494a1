package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/shirou/gopsutil/v4/host"
	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

// logins gives the terminals at which somebody is logged in. A desktop's begins with
// a colon.
func (s *Sampler) logins(ctx context.Context) ([]string, error) {
	// Without the file the library would start a command of its own, without a bound of ours.
	if _, err := os.Stat(s.file("var/run/utmp")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	users, err := host.UsersWithContext(s.from(ctx))
	var all []string
	for _, u := range users {
		all = append(all, u.Terminal)
	}
	return all, err
}

// usage asks a file system, for as long as that may hang. It does so itself because
// gopsutil multiplies by the size of a transfer, not of a block: the same on a disk,
// and 256 times as much where a virtual machine shares a directory of its host's.
func usage(path string) (fleet.Volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fleet.Volume{}, err
	}
	block := int64(st.Frsize)
	if block == 0 {
		block = int64(st.Bsize)
	}
	return fleet.Volume{Free: int64(st.Bavail) * block, Total: int64(st.Blocks) * block, Inodes: int64(st.Ffree), Nodes: int64(st.Files)}, nil
}

// fileOf tells files apart and says how many bytes one takes on its disk.
func fileOf(st *unix.Stat_t) (device, inode, links uint64, bytes int64) {
	return st.Dev, st.Ino, uint64(st.Nlink), st.Blocks * 512
}

// accessed is when a file was last read from.
func accessed(st *unix.Stat_t) time.Time { return time.Unix(st.Atim.Unix()) }
