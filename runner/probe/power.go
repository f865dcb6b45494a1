package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// readPower says whether the machine lives on its battery; nil is one without. gopsutil
// has nothing of batteries.
func (s *Sampler) readPower(ctx context.Context) (*fleet.Power, error) {
	if s.goos == "darwin" {
		out, err := s.run(ctx, "pmset", "-g", "batt")
		if err != nil {
			return nil, err
		}
		return parseBatteries(out), nil
	}
	return s.readSupplies()
}

// run gives what a command of the system's prints.
func (s *Sampler) run(ctx context.Context, argv ...string) (string, error) {
	res, err := process.Run(ctx, process.Cmd{Argv: argv, Env: s.cfg.Env, Grace: commandGrace})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return string(res.Stdout), nil
}

// readSupplies reads what the kernel says of each supply of power (Linux).
func (s *Sampler) readSupplies() (*fleet.Power, error) {
	dir := s.file("sys/class/power_supply")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("power: %w: %w", ErrUnknown, err)
	}
	word := func(name, of string) string {
		b, _ := os.ReadFile(filepath.Join(dir, name, of))
		return strings.TrimSpace(string(b))
	}
	var p *fleet.Power
	var plugs, plugged, discharging bool
	sum, counted := 0, 0
	for _, e := range entries {
		name := e.Name()
		if word(name, "scope") == "Device" {
			continue // of a mouse or a headset
		}
		switch word(name, "type") {
		case "Mains", "USB", "Wireless":
			plugs = plugs || word(name, "type") == "Mains"
			plugged = plugged || word(name, "online") != "0" && word(name, "online") != ""
		case "Battery":
			if word(name, "present") == "0" {
				continue
			}
			if p == nil {
				p = &fleet.Power{Percent: -1}
			}
			discharging = discharging || word(name, "status") == "Discharging"
			if n, err := strconv.Atoi(word(name, "capacity")); err == nil && n >= 0 && n <= 100 {
				sum, counted = sum+n, counted+1
			}
		}
	}
	if p != nil {
		p.OnBattery = discharging && !plugged || plugs && !plugged
		if counted > 0 {
			p.Percent = sum / counted
		}
	}
	return p, nil
}

var charges = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bInternalBattery\S*.*?(\d{1,3})%`) })

// parseBatteries reads what pmset says (macOS).
func parseBatteries(text string) *fleet.Power {
	all := charges().FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return nil
	}
	sum := 0
	for _, m := range all {
		n, _ := strconv.Atoi(m[1])
		sum += min(n, 100)
	}
	return &fleet.Power{OnBattery: strings.Contains(text, "drawing from 'Battery Power'"), Percent: sum / len(all)}
}
