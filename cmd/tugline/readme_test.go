package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// The table of defaults in the README says what holds.
func TestDefaultsAreAsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## Defaults and limits\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			rows[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	told := func(d time.Duration) string {
		if d >= time.Hour {
			return fmt.Sprintf("%d h", d/time.Hour)
		}
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	for row, want := range map[string]string{
		"time limit of a turn":                      told(fleet.DefaultTimeout) + " (`--timeout`)",
		"without output":                            told(fleet.DefaultIdle) + " for an agent",
		"until the first output":                    told(fleet.DefaultFirst) + " for an agent",
		"lost after":                                told(fleet.LostAfter) + " of silence",
		"own logs, in `logs` of the data directory": fmt.Sprintf("%d MiB, %d files", logBytes>>20, logFiles),
	} {
		if got, ok := rows[row]; !ok || !strings.HasPrefix(got, want) {
			t.Errorf("%q is documented as %q; it is %q", row, got, want)
		}
	}
	limits := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		fmt.Sprintf("A prompt is at most %d KiB, an argv %d KiB, an environment %d entries", fleet.MaxPrompt>>10, fleet.MaxArgv>>10, fleet.MaxEnv),
		fmt.Sprintf("the recorded output of an attempt %d MiB", fleet.MaxOutput>>20),
		fmt.Sprintf("queued follow-ups %d a job", fleet.MaxFollowUps),
	} {
		if !strings.Contains(limits, want) {
			t.Errorf("the limits do not say %q", want)
		}
	}
}
