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

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// firstPause lies between the two looks of a first sample, which has no earlier one
// to be compared with.
const firstPause = 200 * time.Millisecond

// readMemory reads the machine's memory, or what the runner's own cgroup leaves of it.
func (s *Sampler) readMemory(ctx context.Context) (*fleet.Memory, error) {
	m, err := s.memory(ctx)
	if err != nil {
		return nil, fmt.Errorf("memory: %w: %w", ErrUnknown, err)
	}
	if s.root == "/" {
		limit(&m, process.OwnCgroup())
	}
	return &m, nil
}

// limit bounds the memory by a cgroup and those that it is in.
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

// spent is the time of all processors up to a moment, in whatever unit the system has.
type spent struct {
	busy, all float64
	count     int // of processors
}

// parseStat reads the kernel's table of what the processors did (Linux).
func parseStat(table string) (spent, error) {
	var t spent
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		switch {
		case len(f) < 5 || !strings.HasPrefix(f[0], "cpu"):
		case f[0] != "cpu":
			t.count++
		default:
			// user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two.
			for i, word := range f[1:min(len(f), 9)] {
				n, err := strconv.ParseUint(word, 10, 63)
				if err != nil {
					return spent{}, err
				}
				t.all += float64(n)
				if i != 3 && i != 4 {
					t.busy += float64(n)
				}
			}
		}
	}
	if t.all == 0 || t.count == 0 {
		return spent{}, errors.New("there is no line of the processors")
	}
	return t, nil
}

// used gives what was used since an earlier moment, 0 to 1.
func (t spent) used(last spent) float64 {
	if d := t.all - last.all; d > 0 {
		return min(max((t.busy-last.busy)/d, 0), 1)
	}
	return 0
}

// readCPU reads the load, and what was used of the processors since the last sample.
func (s *Sampler) readCPU(ctx context.Context) (*fleet.CPU, error) {
	c, err := s.processors(ctx)
	if err != nil {
		return nil, fmt.Errorf("processors: %w: %w", ErrUnknown, err)
	}
	c.Pressure = s.pressure("cpu")
	return c, nil
}

// readUptime reads for how long the machine runs.
func (s *Sampler) readUptime(ctx context.Context) (time.Duration, error) {
	d, err := s.uptime(ctx)
	if err != nil {
		return 0, fmt.Errorf("uptime: %w: %w", ErrUnknown, err)
	}
	return d, nil
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

// parsePages gives the bytes that vm_stat counts as to be had (macOS).
func parsePages(text string) int64 {
	var size, pages int64
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, "page size of "); ok {
			word, _, _ := strings.Cut(rest, " ")
			size, _ = strconv.ParseInt(word, 10, 32)
		}
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "Pages free", "Pages inactive", "Pages speculative":
			n, _ := strconv.ParseInt(strings.Trim(value, " .\n"), 10, 32)
			pages += n
		}
	}
	return max(pages*size, 0)
}

// parseUsed reads the last of several looks of top: "CPU usage: 7.3% user, 13.7% sys,
// 79.0% idle" (macOS). The first is since the machine began.
func parseUsed(text string) (float64, error) {
	looks := strings.Split(text, "CPU usage: ")
	line, _, _ := strings.Cut(looks[len(looks)-1], "\n")
	for _, part := range strings.Split(line, ", ") {
		if word, ok := strings.CutSuffix(strings.TrimSpace(part), "% idle"); ok && len(looks) > 2 {
			if idle, err := strconv.ParseFloat(word, 64); err == nil && idle >= 0 && idle <= 100 {
				return 1 - idle/100, nil
			}
		}
	}
	return 0, errors.New("top names no idle time")
}
