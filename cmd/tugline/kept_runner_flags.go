package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/journal"
)

// recallRunnerFlags sets the flags that were not given as they were at the last start.
// What the owner says in runner.yaml since then counts more than a flag that is only
// remembered.
func recallRunnerFlags(f *pflag.FlagSet, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "runner.yaml"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b = nil // the runner says what is wrong with it
	}
	var said map[string]any
	_ = yaml.Unmarshal(b, &said) // likewise
	var owners []string
	for key := range said {
		owners = append(owners, key)
	}
	return recallFlags(f, dir, owners...)
}

// keepRunnerFlags records how the runner is run now. What undo gets is how that ended:
// where another runner has the directory, its flags stay as they were.
func keepRunnerFlags(f *pflag.FlagSet, dir string) (undo func(error), err error) {
	path := filepath.Join(dir, keptFlagsFile)
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return func(error) {}, err
	}
	undo = func(ended error) {
		if !errors.Is(ended, journal.ErrLocked) {
			return
		}
		if was == nil {
			os.Remove(path) // at worst it is read at the next start
			return
		}
		_ = durable.Replace(path, was, 0o600) // likewise
	}
	return undo, keepFlags(f, dir)
}
