package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var errNobody = fmt.Errorf("nobody is logged in: %w", ErrUnknown)

// readIdle gives for how long nobody has touched the machine. Where nobody is logged
// in, or nobody says, it is not known. gopsutil tells who is logged in, not when that
// person last did something.
func (s *Sampler) readIdle(ctx context.Context) (time.Duration, error) {
	idle, err := s.idle(ctx)
	if err != nil {
		return -1, err
	}
	return max(idle, 0), nil
}

func (s *Sampler) idle(ctx context.Context) (time.Duration, error) {
	if s.goos == "darwin" {
		out, err := s.run(ctx, "ioreg", "-r", "-c", "IOHIDSystem", "-d", "1")
		if err != nil {
			return 0, err
		}
		return parseHID(out)
	}
	if all, err := s.sessions(); err == nil {
		return s.idleOf(ctx, all)
	}
	return s.idleTerminals(ctx)
}

var hidIdle = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"HIDIdleTime" = (\d+)`) })

// parseHID reads what ioreg says of keyboard and mouse (macOS), in nanoseconds.
func parseHID(text string) (time.Duration, error) {
	m := hidIdle().FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("idle time: ioreg names none: %w", ErrUnknown)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("idle time: %w: %w", ErrUnknown, err)
	}
	return time.Duration(n), nil
}

// login is one session of a person, as logind has it.
type login struct {
	id, kind, terminal string
}

// sessions lists them from logind's own files (Linux).
func (s *Sampler) sessions() ([]login, error) {
	dir := s.file("run/systemd/sessions")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []login
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || strings.HasSuffix(e.Name(), ".ref") {
			continue
		}
		l, class, state := login{id: e.Name()}, "", ""
		for line := range strings.Lines(string(b)) {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
			case "TYPE":
				l.kind = value
			case "TTY":
				l.terminal = value
			case "CLASS":
				class = value
			case "STATE":
				state = value
			}
		}
		if strings.HasPrefix(class, "user") && state != "closing" {
			all = append(all, l)
		}
	}
	return all, nil
}

// idleOf gives the least idle time of sessions: of a terminal by when it was last
// read from, of a desktop as it has told logind.
func (s *Sampler) idleOf(ctx context.Context, all []login) (time.Duration, error) {
	var least []time.Duration
	var desktops []string
	for _, l := range all {
		switch l.kind {
		case "x11", "wayland", "mir":
			desktops = append(desktops, l.id)
		default:
			if d, err := s.terminal(l.terminal); err == nil {
				least = append(least, d)
			}
		}
	}
	if len(desktops) > 0 {
		out, err := s.run(ctx, append([]string{"loginctl", "show-session", "-p", "IdleHint", "-p", "IdleSinceHint"}, desktops...)...)
		if err != nil {
			return 0, err // somebody may sit there
		}
		d, err := parseHints(out, time.Now())
		if err != nil {
			return 0, err
		}
		least = append(least, d)
	}
	if len(least) == 0 {
		return 0, errNobody
	}
	return slices.Min(least), nil
}

// parseHints reads what loginctl says of sessions, one block each, and gives the
// least idle time.
func parseHints(text string, now time.Time) (time.Duration, error) {
	least := time.Duration(-1)
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		hint, since := "", int64(0)
		for line := range strings.Lines(block) {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
			case "IdleHint":
				hint = value
			case "IdleSinceHint":
				since, _ = strconv.ParseInt(value, 10, 64)
			}
		}
		switch {
		case hint == "no":
			return 0, nil
		case hint == "yes" && since > 0:
			if d := now.Sub(time.UnixMicro(since)); least < 0 || d < least {
				least = max(d, 0)
			}
		}
	}
	if least < 0 {
		return 0, fmt.Errorf("idle time: loginctl names none: %w", ErrUnknown)
	}
	return least, nil
}

// terminal gives for how long nothing was read from a terminal.
func (s *Sampler) terminal(name string) (time.Duration, error) {
	if name == "" || strings.Contains(name, "..") {
		return 0, errNobody
	}
	var st unix.Stat_t
	if err := unix.Stat(s.file(filepath.Join("dev", name)), &st); err != nil {
		return 0, err
	}
	return time.Since(accessed(&st)), nil
}

// idleTerminals goes by the older list of logins, where there is no logind.
func (s *Sampler) idleTerminals(ctx context.Context) (time.Duration, error) {
	all, err := s.logins(ctx)
	if err != nil {
		return 0, fmt.Errorf("logins: %w: %w", ErrUnknown, err)
	}
	var least []time.Duration
	for _, name := range all {
		if strings.HasPrefix(name, ":") {
			return 0, fmt.Errorf("idle time: a desktop does not tell: %w", ErrUnknown)
		}
		if d, err := s.terminal(name); err == nil {
			least = append(least, d)
		}
	}
	if len(least) == 0 {
		return 0, errNobody
	}
	return slices.Min(least), nil
}
