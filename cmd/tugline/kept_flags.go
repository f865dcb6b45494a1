package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"tugline.dev/tugline/runner/durable"
)

// keptFlagsFile is where the data directory of a hub or a runner keeps how it was last
// run, so that a restart needs only the directory.
const keptFlagsFile = "flags.json"

// momentary are flags that are about one start, not about the hub or the runner.
var momentary = map[string]bool{
	"data-dir": true, "bootstrap": true, "ticket": true, "accept-clock": true, "log-level": true, "mesh-peer": true, "help": true, "force": true,
	"mode": true, "print": true,
}

// recallFlags sets the flags that were not given as they were at the last start.
// One that this version has no longer is an error that names it.
// Those named in not are left as they are.
func recallFlags(f *pflag.FlagSet, dir string, not ...string) error {
	path := filepath.Join(dir, keptFlagsFile)
	was, err := readFlags(dir)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if fl := f.Lookup(name); fl == nil {
			return usage("%s has --%s, which this version does not know; remove it there", path, name)
		} else if fl.Changed || slices.Contains(not, name) {
			continue
		}
		for _, v := range was[name] {
			if err := f.Set(name, v); err != nil {
				return usage("%s has --%s %q: %v; correct it there, or give the flag", path, name, v, err)
			}
		}
	}
	return nil
}

// readFlags reads how it was last run; nothing where it never was.
func readFlags(dir string) (was map[string][]string, err error) {
	path := filepath.Join(dir, keptFlagsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, usage("%s is no directory: name the data directory with --data-dir, or one that is to be made", dir)
	}
	if err != nil {
		return nil, fail(exitFailed, "cannot read how it was last run: %v; run it as the user whom %s belongs to, or name another directory with --data-dir", err, dir)
	}
	if err := json.Unmarshal(b, &was); err != nil {
		return nil, fail(exitUsage, "%s is damaged (%v); remove it, and give all flags once more", path, err)
	}
	return was, nil
}

// keepFlags records how it is run now, where that is not on record: a restart must not
// need room on the disk. An error keeps nobody from going on, with the flags that were given.
func keepFlags(f *pflag.FlagSet, dir string) error {
	now := map[string][]string{}
	f.Visit(func(fl *pflag.Flag) {
		if momentary[fl.Name] {
			return
		}
		if s, ok := fl.Value.(pflag.SliceValue); ok {
			now[fl.Name] = s.GetSlice()
			return
		}
		now[fl.Name] = []string{fl.Value.String()}
	})
	b, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, keptFlagsFile)
	b = append(b, '\n')
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, b) {
		return nil
	}
	return durable.Replace(path, b, 0o600)
}

// unkept is said where keepFlags failed.
const unkept = "the flags of this start could not be kept; give them again at the next one"
