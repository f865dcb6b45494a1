package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/shared/fleet"
)

// A machine that wakes drops its line at once, has a session of its own again, and goes on
// with the job that slept with it.
func TestAMachineThatWakesConnectsAnew(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var wakes atomic.Bool
	r := h.newRunner(func(c *Config) {
		c.slept = func(time.Time, time.Time) bool { return wakes.CompareAndSwap(true, false) }
	})
	gate := filepath.Join(t.TempDir(), "gate")
	j, f := h.run(r.id, "/bin/sh", "-c", "until [ -e "+gate+" ]; do sleep 0.05; done")
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	before, _ := h.srv.PresenceOf(r.id)
	wakes.Store(true)
	eventually(t, "another session", func() bool {
		p, _ := h.srv.PresenceOf(r.id)
		return p.Connected && p.Session != before.Session
	})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	if a := h.job(j).Current(); a.Fence != f {
		t.Errorf("it succeeded at attempt %s; want %s", a.Fence, f)
	}
}

// A runner whose clock is behind by years, as after a start without a battery, or ahead,
// works by the hub's time, says so, and does not end.
func TestAClockThatIsWrongEndsNothing(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind by years": 3 * 365 * 24 * time.Hour, "ahead by a day": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, func(c *hubsession.Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			r := h.newRunner()
			j, f := h.run(r.id, "/bin/sh", "-c", "echo done")
			h.ends(j, fleet.Succeeded)
			h.sealed(j, f)
			eventually(t, "its owner to be told", func() bool {
				is, _ := h.View().Runner(r.id)
				return slices.ContainsFunc(is.Facts.Alerts, func(a string) bool { return strings.Contains(a, "clock differs from the hub's by") })
			})
			select {
			case err := <-r.done:
				r.done <- err
				t.Errorf("it ended: %v", err)
			default:
			}
		})
	}
}
