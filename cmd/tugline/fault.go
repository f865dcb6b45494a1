//go:build fault

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub"
)

// faults are what the fault suite does to one hub process. They are read at its
// start from the file that TUGLINE_FAULTS names.
type faults struct {
	// Clock names a file with what the process's clock is off by, such as "-1h". It may
	// be changed, or made, while the process runs.
	Clock string `json:"clock"`
	// StallP99 and StallFor make the bound for a slow disk one that a test can wait for.
	StallP99 string `json:"stall_p99"`
	StallFor string `json:"stall_for"`
	// Stable is how long a learner is watched before it gets a vote.
	Stable string `json:"stable"`
	// Scrub is the pause between looks at all that is stored.
	Scrub string `json:"scrub"`
	// SnapshotEvery makes the log short enough to be cut in a test.
	SnapshotEvery uint64 `json:"snapshot_every"`
	// Generation is the newest generation of commands that the node says it can read.
	Generation uint16 `json:"generation"`
	// MinFree is the reserve of the disk, in bytes.
	MinFree int64 `json:"min_free"`
}

// beset has a hub suffer what the fault suite asks for.
func beset(cfg *hub.Config) error {
	path := os.Getenv("TUGLINE_FAULTS")
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the faults: %w", err)
	}
	var f faults
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return fmt.Errorf("read the faults in %s: %w", path, err)
	}
	var stall consensus.Stall
	var stable time.Duration
	for _, s := range []struct {
		text string
		to   *time.Duration
	}{{f.StallP99, &stall.P99}, {f.StallFor, &stall.For}, {f.Stable, &stable}, {f.Scrub, &cfg.Scrub}} {
		if s.text == "" {
			continue
		}
		if *s.to, err = time.ParseDuration(s.text); err != nil {
			return fmt.Errorf("read the faults in %s: %w", path, err)
		}
	}
	cfg.Log = func(c *consensus.Config) { c.Stall, c.SnapshotEvery = stall, f.SnapshotEvery }
	cfg.Pilot = func(p *consensus.Pilot) { p.Stable, p.Interval = stable, stable/2 }
	cfg.Generation, cfg.MinFree = f.Generation, f.MinFree
	if f.Clock != "" {
		cfg.Wall = func() time.Time { return time.Now().Add(off(f.Clock)) }
	}
	return nil
}

// off reads what the clock is off by; nothing where the file is missing. A file that
// says anything else ends the process: a test that moves no clock would prove nothing.
func off(path string) time.Duration {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	var d time.Duration
	if err == nil {
		d, err = time.ParseDuration(strings.TrimSpace(string(b)))
	}
	if err != nil {
		panic(fmt.Sprintf("the clock's fault in %s: %v", path, err))
	}
	return d
}
