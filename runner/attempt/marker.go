package attempt

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// marker makes the mark of one launch: it names the runner's data directory, the
// fence, and is unique.
func (h *Host) marker(f fleet.Fence) (string, error) {
	var unique [8]byte
	if _, err := rand.Read(unique[:]); err != nil {
		return "", fmt.Errorf("make a marker: %w", err)
	}
	return h.markOf(f) + hex.EncodeToString(unique[:]), nil
}

func (h *Host) markOf(f fleet.Fence) string { return h.Mark + f.String() + "-" }

// Reap ends the processes of every job that this data directory has launched and of
// whose launch the journal knows nothing: the journal was set back, or damaged. It
// gives their number; an error says that some may be left.
func (h *Host) Reap() (int, error) {
	return process.Reap(h.Mark, func(marker string) bool {
		for _, rec := range h.Journal.Attempts() {
			if rec.Progress.Marker == marker {
				return true
			}
		}
		return false
	})
}

// Clear ends the processes launched here under a fence that the journal does not
// hold; after it none is left, or there is an error.
func (h *Host) Clear(f fleet.Fence) (int, error) {
	return process.Reap(h.markOf(f), func(marker string) bool {
		rec, ok := h.Journal.Attempt(f)
		return ok && rec.Progress.Marker == marker
	})
}

// end what carries the attempt's marker, for where its directory does not help.
func (a *Attempt) sweepMark() (int, error) {
	rec, _ := a.host.Journal.Attempt(a.asg.Fence)
	if rec.Progress.Marker == "" {
		return 0, nil
	}
	return process.SweepMark(rec.Progress.Marker)
}
