package main

import (
	"errors"
	"log/slog"
	"os"
	"syscall"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/update"
)

// launchdLabel is the name of the runner's service under launchd.
const launchdLabel = "dev.tugline.runner"

// beginVersion counts this start, before anything else can go wrong, where the program
// lies beside other versions of itself; nil is that it does not. ErrRestored says that
// it failed to start too often.
func beginVersion(log *slog.Logger) (*update.Store, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil // it can't be updated, then
	}
	s, err := update.Open(exe, log)
	if err != nil {
		return nil, nil // likewise
	}
	if err := s.Begin(); errors.Is(err, update.ErrRestored) {
		return s, err
	} else if err != nil {
		log.Error("this start is not counted", "err", err)
	}
	return s, nil
}

// endVersion says whether a start that has ended had failed: it had not where somebody
// wished the end, or something else has the directory.
func endVersion(s *update.Store, ended error) {
	var away *runner.StandDown
	if s == nil || ended != nil && !errors.As(ended, &away) && !errors.Is(ended, journal.ErrLocked) && !errors.Is(ended, runner.ErrNotEnrolled) {
		return
	}
	_ = s.Survived() // at worst it counts as failed
}

// become starts the present version in the place of this one. A service does that by
// itself when this process ends; else this process becomes it. The flags are kept in the
// data directory.
func (a *app) become(s *update.Store, dir string) error {
	if a.env("NOTIFY_SOCKET") != "" || a.env("XPC_SERVICE_NAME") == launchdLabel {
		a.say("another version is to be started")
		return silent(exitRestart)
	}
	err := syscall.Exec(s.Program(), []string{s.Program(), "runner", "run", "--data-dir", dir}, os.Environ())
	return fail(exitRestart, "the new version can't be started from here: %v; start the runner again", err)
}
