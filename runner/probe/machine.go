package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// firstPause lies between the two looks of a first sample, which has no earlier one
// to be compared with.
const firstPause = 200 * time.Millisecond

// maxUptime is more seconds than any machine runs.
const maxUptime = 100 * 365 * 24 * 3600

// from tells gopsutil where the machine's own files are (Linux).
func (s *Sampler) from(ctx context.Context) context.Context {
	if s.root == "/" {
		return ctx
	}
	at := common.EnvMap{}
	for key, dir := range map[common.EnvKeyType]string{
		common.HostProcEnvKey: "proc", common.HostSysEnvKey: "sys", common.HostVarEnvKey: "var", common.HostRunEnvKey: "run", common.HostDevEnvKey: "dev",
	} {
		at[key] = s.file(dir)
	}
	return context.WithValue(ctx, common.EnvKey, at)
}

// readMemory reads the machine's memory, or what the runner's own cgroup leaves of it.
func (s *Sampler) readMemory(ctx context.Context) (*fleet.Memory, error) {
	v, err := mem.VirtualMemoryWithContext(s.from(ctx))
	if err != nil {
		return nil, fmt.Errorf("memory: %w: %w", ErrUnknown, err)
	}
	m := fleet.Memory{Total: int64(v.Total), Available: int64(min(v.Available, v.Total))}
	if s.root == "/" {
		limit(&m, process.OwnCgroup())
	}
	return &m, nil
}

// limit bounds the memory by a cgroup and those that it is in. gopsutil knows the
// groups of containers by their ids, not that of a process and what is above it.
func limit(m *fleet.Memory, dir string) {
	for ; dir != "" && dir != "/"; dir = filepath.Dir(dir) {
		used, ok := number(filepath.Join(dir, "memory.current"))
		if !ok {
			return // the root, or above it
		}
		most, ok := number(filepath.Join(dir, "memory.max"))
		if !ok {
			continue
		}
		// What was only read of files is given back before anything is ended.
		b, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
		for line := range strings.Lines(string(b)) {
			if n, ok := strings.CutPrefix(line, "inactive_file "); ok {
				spare, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
				used -= min(spare, used)
			}
		}
		m.Total = min(m.Total, most)
		m.Available = min(m.Available, max(most-used, 1)) // 0 would be "not known"
	}
}

// number reads a file of one number.
func number(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// spent is the time of all processors up to a moment, in seconds.
type spent struct{ busy, all float64 }

// spentOf adds up what gopsutil tells apart. The time of guests is in that of their users.
func spentOf(t cpu.TimesStat) spent {
	busy := t.User + t.Nice + t.System + t.Irq + t.Softirq + t.Steal
	return spent{busy: busy, all: busy + t.Idle + t.Iowait}
}

// readSpent reads it.
func (s *Sampler) readSpent(ctx context.Context) (spent, error) {
	all, err := cpu.TimesWithContext(s.from(ctx), false)
	if err != nil {
		return spent{}, err
	}
	if len(all) == 0 { // a table that can't be read is none to the library
		return spent{}, errors.New("the system does not say what they did")
	}
	now := spentOf(all[0])
	if now.all == 0 {
		return spent{}, errors.New("the system counts no time of theirs")
	}
	return now, nil
}

// used gives what was used since an earlier moment, 0 to 1.
func (t spent) used(last spent) float64 {
	if d := t.all - last.all; d > 0 {
		return min(max((t.busy-last.busy)/d, 0), 1)
	}
	return 0
}

// readCPU reads the load, and what was used of the processors since the last sample.
// That is compared here: gopsutil compares with whoever asked it last in this process.
func (s *Sampler) readCPU(ctx context.Context) (*fleet.CPU, error) {
	c, err := s.processors(ctx)
	if err != nil {
		return nil, fmt.Errorf("processors: %w: %w", ErrUnknown, err)
	}
	c.Pressure = s.pressure("cpu")
	return c, nil
}

func (s *Sampler) processors(ctx context.Context) (*fleet.CPU, error) {
	avg, err := load.AvgWithContext(s.from(ctx))
	if err != nil {
		return nil, err
	}
	count, err := cpu.CountsWithContext(s.from(ctx), true)
	if err != nil {
		return nil, err
	}
	now, err := s.readSpent(ctx)
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
		if now, err = s.readSpent(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.cpu = now
	s.mu.Unlock()
	return &fleet.CPU{Count: count, Load: avg.Load1, Used: now.used(last)}, nil
}

// readUptime reads for how long the machine runs.
func (s *Sampler) readUptime(ctx context.Context) (time.Duration, error) {
	n, err := host.UptimeWithContext(s.from(ctx))
	if err != nil {
		return 0, fmt.Errorf("uptime: %w: %w", ErrUnknown, err)
	}
	if n > maxUptime { // by a clock that was set to before the machine began, on macOS
		return 0, fmt.Errorf("uptime: the clock is wrong: %w", ErrUnknown)
	}
	return time.Duration(n) * time.Second, nil
}

// pause waits, unless nobody waits for the answer.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ErrUnknown
	}
}
