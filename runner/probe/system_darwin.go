package probe

import (
	"context"
	"errors"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

// logins is not needed here: the system counts when keyboard and mouse were touched.
func (s *Sampler) logins(context.Context) ([]string, error) { return nil, errors.ErrUnsupported }

// usage asks a file system, for as long as that may hang.
func usage(path string) (fleet.Volume, error) {
	u, err := disk.Usage(path)
	if err != nil {
		return fleet.Volume{}, err
	}
	return fleet.Volume{Free: int64(u.Free), Total: int64(u.Total), Inodes: int64(u.InodesFree), Nodes: int64(u.InodesTotal)}, nil
}

// fileOf tells files apart and says how many bytes one takes on its disk.
func fileOf(st *unix.Stat_t) (device, inode, links uint64, bytes int64) {
	return uint64(st.Dev), st.Ino, uint64(st.Nlink), st.Blocks * 512
}

// accessed is when a file was last read from.
func accessed(st *unix.Stat_t) time.Time { return time.Unix(st.Atim.Unix()) }
