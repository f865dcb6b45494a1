package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/update"
)

// versioned gives a store whose version 2.0.0 is being tried, as that version sees it.
func versioned(t *testing.T, starts int) *update.Store {
	t.Helper()
	prefix := t.TempDir()
	for _, v := range []string{"1.0.0", "2.0.0"} {
		dir := filepath.Join(prefix, "versions", v)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tugline"), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	record := fmt.Sprintf(`{"version":1,"state":"trying","from":"1.0.0","to":"2.0.0","starts":%d}`, starts)
	if err := os.WriteFile(filepath.Join(prefix, "update.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("versions/2.0.0", filepath.Join(prefix, "current")); err != nil {
		t.Fatal(err)
	}
	s, err := update.Open(filepath.Join(prefix, "current", "tugline"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhichStartsHaveFailed: an end that somebody wished, or that another version would
// come to as well, is none.
func TestWhichStartsHaveFailed(t *testing.T) {
	for name, c := range map[string]struct {
		ended  error
		failed bool
	}{
		"stopped":                      {nil, false},
		"sent away by the hub":         {&runner.StandDown{}, false},
		"another runner is there":      {fmt.Errorf("open: %w", journal.ErrLocked), false},
		"it is not enrolled":           {fmt.Errorf("run: %w", runner.ErrNotEnrolled), false},
		"the journal can't be read":    {errors.New("damaged"), true},
		"a data directory that is new": {errors.New("version 9"), true},
	} {
		s := versioned(t, 0)
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		endVersion(s, c.ended)
		r, err := s.Standing()
		if err != nil || (r.Starts == 1) != c.failed {
			t.Errorf("%s: %d failed starts, %v; want failed: %v", name, r.Starts, err, c.failed)
		}
	}
	endVersion(nil, nil) // it does not lie among versions
}

func TestAServiceStartsTheOtherVersion(t *testing.T) {
	s := versioned(t, update.MaxStarts)
	if err := s.Begin(); !errors.Is(err, update.ErrRestored) {
		t.Fatal(err)
	}
	sh := newShell(t, "", "NOTIFY_SOCKET=/nowhere")
	var f *failure
	if err := sh.become(s, t.TempDir()); !errors.As(err, &f) || f.code != exitRestart {
		t.Errorf("it ends with %v, want exit code %d", err, exitRestart)
	}
	if v, err := s.Current(); err != nil || v != "1.0.0" {
		t.Errorf("the present version is %s, %v", v, err)
	}
}
