//go:build installers && soak && linux

package installers

import (
	"testing"
	"time"
)

// TestSoakARunnerWithoutItsHub has a hub be away for longer than the watchdog of the real
// unit waits, and for three minutes at least.
func TestSoakARunnerWithoutItsHub(t *testing.T) {
	m, runners := served(t)
	for _, r := range runners {
		r.puts(t)
		if got := r.property("WatchdogUSec"); got != "3min" {
			t.Errorf("the watchdog of %s is %s", r.name, got)
		}
	}
	withoutHub(t, m, runners, 200*time.Second)
}
