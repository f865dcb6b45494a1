package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

func (s *Sampler) memory(ctx context.Context) (fleet.Memory, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return fleet.Memory{}, err
	}
	m := fleet.Memory{Total: int64(n)}
	if out, err := s.run(ctx, "vm_stat"); err == nil {
		m.Available = min(parsePages(out), m.Total)
	}
	return m, nil
}

// processors takes what was used from a command, because only a library of C counts
// it; it is that of one second.
func (s *Sampler) processors(ctx context.Context) (*fleet.CPU, error) {
	n, err := unix.SysctlUint32("hw.logicalcpu")
	if err != nil {
		return nil, err
	}
	raw, err := unix.SysctlRaw("vm.loadavg")
	if err != nil {
		return nil, err
	}
	if len(raw) < 24 { // three loads of 32 bits, padding, and what 1.0 is as 64 bits
		return nil, errors.New("the system tells no load")
	}
	c := &fleet.CPU{Count: int(n)}
	if scale := binary.LittleEndian.Uint64(raw[16:]); scale > 0 {
		c.Load = float64(binary.LittleEndian.Uint32(raw)) / float64(scale)
	}
	out, err := s.run(ctx, "top", "-l", "2", "-s", "1", "-n", "0")
	if err != nil {
		return nil, err
	}
	if c.Used, err = parseUsed(out); err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Sampler) uptime(context.Context) (time.Duration, error) {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return 0, err
	}
	return max(time.Since(time.Unix(tv.Unix())), 0).Truncate(time.Second), nil
}

// logins is not needed here: the system counts when keyboard and mouse were touched.
func (s *Sampler) logins(context.Context) ([]string, error) { return nil, errors.ErrUnsupported }

// usage asks a file system, for as long as that may hang.
func usage(path string) (fleet.Volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fleet.Volume{}, err
	}
	block := int64(st.Bsize)
	return fleet.Volume{Free: int64(st.Bavail) * block, Total: int64(st.Blocks) * block, Inodes: int64(st.Ffree), Nodes: int64(st.Files)}, nil
}

// fileOf tells files apart and says how many bytes one takes on its disk.
func fileOf(st *unix.Stat_t) (device, inode, links uint64, bytes int64) {
	return uint64(st.Dev), st.Ino, uint64(st.Nlink), st.Blocks * 512
}

// accessed is when a file was last read from.
func accessed(st *unix.Stat_t) time.Time { return time.Unix(st.Atim.Unix()) }
