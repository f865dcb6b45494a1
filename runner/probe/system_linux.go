package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

// from tells the library where the machine's own files are.
func (s *Sampler) from(ctx context.Context) context.Context {
	if s.root == "/" {
		return ctx
	}
	return context.WithValue(ctx, common.EnvKey, common.EnvMap{common.HostProcEnvKey: s.file("proc"), common.HostVarEnvKey: s.file("var")})
}

func (s *Sampler) memory(ctx context.Context) (fleet.Memory, error) {
	v, err := mem.VirtualMemoryWithContext(s.from(ctx))
	if err != nil {
		return fleet.Memory{}, err
	}
	return fleet.Memory{Total: int64(v.Total), Available: int64(v.Available)}, nil
}

func (s *Sampler) processors(ctx context.Context) (*fleet.CPU, error) {
	avg, err := load.AvgWithContext(s.from(ctx))
	if err != nil {
		return nil, err
	}
	look := func() (spent, error) {
		b, err := os.ReadFile(s.file("proc/stat"))
		if err != nil {
			return spent{}, err
		}
		return parseStat(string(b))
	}
	now, err := look()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	last := s.cpu
	s.mu.Unlock()
	if last.all == 0 || now.all <= last.all {
		last = now
		if err := pause(ctx, firstPause); err != nil {
			return nil, err
		}
		if now, err = look(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.cpu = now
	s.mu.Unlock()
	return &fleet.CPU{Count: now.count, Load: avg.Load1, Used: now.used(last)}, nil
}

func (s *Sampler) uptime(ctx context.Context) (time.Duration, error) {
	n, err := host.UptimeWithContext(s.from(ctx))
	return time.Duration(n) * time.Second, err
}

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
	return st.Dev, st.Ino, uint64(st.Nlink), st.Blocks * 512
}

// accessed is when a file was last read from.
func accessed(st *unix.Stat_t) time.Time { return time.Unix(st.Atim.Unix()) }
