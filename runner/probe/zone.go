package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readZone gives the IANA name of the machine's time zone: what programs that are
// started here take for local time. Neither gopsutil nor Go tells it: theirs is "Local",
// or an abbreviation that several zones share.
func (s *Sampler) readZone(context.Context) (string, error) {
	if tz := strings.TrimPrefix(s.env("TZ"), ":"); tz != "" {
		if _, name, ok := strings.Cut(tz, "zoneinfo/"); ok {
			tz = name
		}
		if zoneName(tz) {
			return tz, nil
		}
	}
	link := s.file("etc/localtime")
	if to, err := os.Readlink(link); err == nil {
		if _, name, ok := strings.Cut(to, "zoneinfo/"); ok && zoneName(name) {
			return name, nil
		}
		if real, err := filepath.EvalSymlinks(link); err == nil {
			if _, name, ok := strings.Cut(real, "zoneinfo/"); ok && zoneName(name) {
				return name, nil
			}
		}
	}
	if b, err := os.ReadFile(s.file("etc/timezone")); err == nil {
		if name := strings.TrimSpace(string(b)); zoneName(name) {
			return name, nil
		}
	}
	if _, err := os.Lstat(link); os.IsNotExist(err) {
		return "UTC", nil // without a setting that is what everything takes
	}
	return "", fmt.Errorf("time zone: %s names none: %w", link, ErrUnknown)
}

// zoneName says whether a text may be the name of a zone.
func zoneName(name string) bool {
	for _, part := range strings.Split(name, "/") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-") != "" {
			return false
		}
	}
	return len(name) <= 64
}
