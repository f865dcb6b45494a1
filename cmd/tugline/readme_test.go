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
		"time limit of a turn":                        told(fleet.DefaultTimeout) + " (`--timeout`)",
		"without output":                              told(fleet.DefaultIdle) + " for an agent",
		"until the first output":                      told(fleet.DefaultFirst) + " for an agent",
		"lost after":                                  told(fleet.LostAfter) + " of silence",
		"automation slots of a runner":                fmt.Sprintf("%d (`runner slots`), at most %d", fleet.DefaultAutomation, fleet.MaxAutomation),
		"samples of a machine":                        fmt.Sprintf("every %d s while it offers slots, else %d s; fresh for %d s; Docker for %s", fleet.HealthEvery/time.Second, fleet.HealthRest/time.Second, fleet.HealthFresh/time.Second, told(fleet.DockerFresh)),
		"free disk for automation":                    fmt.Sprintf("%d GiB to be placed, %d GiB at the checkout and start", fleet.DefaultSelectFloor>>30, fleet.DefaultStartFloor>>30),
		"reserved for a repository":                   fmt.Sprintf("what it took before and %d GiB", fleet.FootprintRoom>>30),
		"alerts of one fault of one machine":          fmt.Sprintf("%s apart; no capable runner online: after %s", told(fleet.AlertEvery), told(fleet.IdleAlertAfter)),
		"priority":                                    fmt.Sprintf("0, from -%d to %d (`--priority`); %s of waiting count as one", fleet.MaxPriority, fleet.MaxPriority, told(fleet.PriorityAge)),
		"automatic runs beyond the first":             fmt.Sprintf("%d (`--retries`), after %d, %d and %d s", fleet.MaxRetries, fleet.RetryPause/time.Second, 2*fleet.RetryPause/time.Second, 4*fleet.RetryPause/time.Second),
		"circuits: rate limit":                        fmt.Sprintf("what was stated, at least %d s", fleet.BurstLeast/time.Second),
		"circuits: quota":                             fmt.Sprintf("until the stated reset, at most %d days ahead, else %s", fleet.QuotaFarthest/(24*time.Hour), told(fleet.QuotaUnstated)),
		"circuits: disk, memory, Docker of a machine": told(fleet.HostFaultPause),
		"own logs, in `logs` of the data directory":   fmt.Sprintf("%d MiB, %d files", logBytes>>20, logFiles),
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
