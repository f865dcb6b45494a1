package probe

import (
	"testing"
	"time"
)

// Whatever a file of the kernel's or a command says, what is made of it stays within
// what a sample may hold.
func FuzzWhatTheMachineSays(f *testing.F) {
	for _, text := range []string{
		"cpu  100 10 50 800 40 5 5 0 0 0\ncpu0 50 5 25 400 20 0 0 0 0 0\n",
		"259 0 nvme0n1 10 0 10 10 10 0 10 10 0 1000 40\n",
		"some avg10=27.08 avg60=18.23 avg300=29.48 total=17403942704\n",
		"IdleHint=yes\nIdleSinceHint=1700000000000000\n\nIdleHint=no\n",
		`"HIDIdleTime" = 61000000000`,
		"Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t185%; discharging\n",
		"(page size of 16384 bytes)\nPages free: 10000.\nPages inactive: 99999999999999999999.\n",
		"CPU usage: 5.0% user, 92.0% idle\nCPU usage: 5.0% user, NaN% idle\n",
		"cpu  NaN Inf -1 1 1\ncpu0 1 1 1 1 1\n",
	} {
		f.Add(text)
	}
	share := func(t *testing.T, of string, v float64, most float64) {
		if !(v >= 0 && v <= most) {
			t.Errorf("%s = %v", of, v)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseStat(text); err == nil {
			share(t, "used", s.used(spent{}), 1)
			share(t, "used", spent{busy: 1, all: 2}.used(s), 1)
		}
		now := busy{at: time.Now(), work: parseDisks(text)}
		share(t, "busy", now.since(busy{at: now.at.Add(-time.Second), work: map[string]time.Duration{"sda": 1, "nvme0n1": 1}}), 1)
		share(t, "pressure", parsePressure(text), 100)
		if d, err := parseHints(text, time.Now()); err == nil && d < 0 {
			t.Errorf("idle since %v", d)
		}
		if d, err := parseHID(text); err == nil && d < 0 {
			t.Errorf("idle since %v", d)
		}
		if p := parseBatteries(text); p != nil {
			share(t, "charge", float64(p.Percent), 100)
		}
		if n := parsePages(text); n < 0 {
			t.Errorf("available = %d", n)
		}
		if u, err := parseUsed(text); err == nil {
			share(t, "used", u, 1)
		}
	})
}
