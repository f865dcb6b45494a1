package main

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/shared/fleet"
)

// Who starts a hub on a full disk, or whose hub ends on one, is told what to do.
func TestHubOnAFullDisk(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "D/replica/stamps", Err: syscall.ENOSPC}
	for what, err := range map[string]error{
		"at a start":   notStarted(fmt.Errorf("open the record of ballots in D: %w: %w", fleet.DiskFull, full)),
		"while it ran": hubFailed(&consensus.FatalError{Op: "append", Err: full}),
	} {
		f, ok := err.(*failure)
		if !ok || f.code != exitFailed || !strings.Contains(f.text, "its disk is full") || !strings.Contains(f.text, "free some space") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
