package probe

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"tugline.dev/tugline/shared/fleet"
)

// busy is for how long each disk has worked, up to a moment.
type busy struct {
	at   time.Time
	work map[string]time.Duration
}

// readBusy reads the kernel's table of disks (Linux). Of macOS it is not known: what
// gopsutil has there adds up operations that were under way beside each other.
func (s *Sampler) readBusy(ctx context.Context) (busy, error) {
	if s.goos != "linux" {
		return busy{}, fmt.Errorf("disks: %w", ErrUnknown)
	}
	now := time.Now()
	all, err := disk.IOCountersWithContext(s.from(ctx))
	if err != nil {
		return busy{}, fmt.Errorf("disks: %w: %w", ErrUnknown, err)
	}
	return busy{at: now, work: workOf(all)}, nil
}

// workOf gives the time that each disk worked. A partition works when its disk does,
// and files or memory that pose as a disk are none.
func workOf(all map[string]disk.IOCountersStat) map[string]time.Duration {
	work := map[string]time.Duration{}
	for name, c := range all {
		if !strings.HasPrefix(name, "loop") && !strings.HasPrefix(name, "ram") && !strings.HasPrefix(name, "zram") {
			work[name] = time.Duration(c.IoTime) * time.Millisecond
		}
	}
	return work
}

// since gives the share of the time in which the busiest disk worked.
func (b busy) since(last busy) float64 {
	elapsed, most := b.at.Sub(last.at), time.Duration(0)
	for name, now := range b.work {
		if was, ok := last.work[name]; ok {
			most = max(most, now-was) // the kernel's counter may have begun anew
		}
	}
	if elapsed <= 0 {
		return 0
	}
	return min(float64(most)/float64(elapsed), 1)
}

// readIO reads how busy the disks were since the last sample.
func (s *Sampler) readIO(ctx context.Context) (*fleet.IO, error) {
	now, err := s.readBusy(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	last := s.disks
	s.mu.Unlock()
	if last.at.IsZero() {
		last = now
		if err := pause(ctx, firstPause); err != nil {
			return nil, err
		}
		if now, err = s.readBusy(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.disks = now
	s.mu.Unlock()
	return &fleet.IO{Busy: now.since(last), Pressure: s.pressure("io"), Memory: s.pressure("memory")}, nil
}

// pressure reads in how much of the last 10 s something waited, in percent; 0 also
// where the kernel does not count that. gopsutil does not read these files.
func (s *Sampler) pressure(of string) float64 {
	b, err := os.ReadFile(s.file("proc/pressure/" + of))
	if err != nil {
		return 0
	}
	return parsePressure(string(b))
}

func parsePressure(text string) float64 {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "some" {
			continue
		}
		if avg, ok := strings.CutPrefix(f[1], "avg10="); ok {
			if v, err := strconv.ParseFloat(avg, 64); err == nil && v >= 0 && v <= 100 {
				return v
			}
		}
	}
	return 0
}
